"""One class for each RPC that goes through the committer: the call, its command, its answer.

An object of these classes is the committer's `Request`. It lives from submit to answer; its
`answer` is called when the outcome is durable and makes the response bytes, mostly by joining
constants.
"""

from collections.abc import Callable
from time import perf_counter
from typing import Final

from purerpc import StatusCode

from segstore import BodyDamaged
from sepp import wire
from sepp._generated import queue_pb2 as pb
from sepp.committer import Committer
from sepp.core.commands import Command
from sepp.core.outcomes import (
    Accepted,
    AtomicRefused,
    AttemptMismatch,
    DeadJob,
    Drained,
    Enqueued,
    Extended,
    JobResult,
    Leased,
    LeasedJob,
    Nacked,
    NotFound,
    Outcome,
    QueueClosing,
    QueueFull,
)
from sepp.core.slots import WAS_REQUEUED
from sepp.counts import MethodStatistics
from sepp.journal import Body
from sepp.request import Refusal
from sepp.rpc.call import Call
from sepp.tracing import Span

# Field 1, a string of 36 bytes: the whole AckResponse, and the start of other answers.
_JOB_ID: Final = b"\x0a\x24"
_DEAD_LETTERED: Final = b"\x10\x01"
_DEDUPLICATED: Final = b"\x10\x01"
# JobResult.success.job_id inside EnqueueBatchResponse.results.
_RESULT: Final = b"\x0a\x28\x0a\x26\x0a\x24"
_RESULT_DEDUPLICATED: Final = b"\x0a\x2a\x0a\x28\x0a\x24"

_REFUSALS: Final[dict[Refusal, tuple[StatusCode, str]]] = {
    Refusal.OVERLOADED: (
        StatusCode.RESOURCE_EXHAUSTED,
        "the command queue was full for 5 s; nothing was stored, try again later",
    ),
    Refusal.DISK_FULL: (
        StatusCode.RESOURCE_EXHAUSTED,
        "the server's disk is nearly full; nothing was stored, try again when space was freed",
    ),
    Refusal.MEMORY_SHORT: (
        StatusCode.RESOURCE_EXHAUSTED,
        "the server is above server.max_memory_bytes; nothing was stored, try again when jobs "
        "were worked",
    ),
    Refusal.STOPPING: (StatusCode.UNAVAILABLE, "the server is stopping; nothing was changed"),
    Refusal.UNKNOWN: (
        StatusCode.ABORTED,
        "the storage failed while this change was being written; it may or may not be stored",
    ),
}


class PendingCall:
    """A call whose command was or will be submitted.

    Args:
        call: Where the answer goes.
        command: What it asks for.
        committer: Told when the caller leaves.
        statistics: Counts the call when it ends.
        span: Told how the call ends; None while tracing is off.
    """

    __slots__ = ("call", "command", "committer", "is_gone", "span", "started", "statistics")

    def __init__(
        self,
        call: Call,
        command: Command,
        committer: Committer,
        statistics: MethodStatistics,
        span: Span | None,
    ) -> None:
        self.call = call
        self.command: Command = command
        self.committer = committer
        self.statistics = statistics
        self.span = span
        self.started = perf_counter()
        self.is_gone = False
        call.on_gone = self._leave

    def answer(self, outcome: Outcome, bodies: list[Body]) -> None:
        """Encode and queue the answer; it leaves with the committer's next flush."""
        if self.is_gone:
            self.undelivered(outcome)
            return
        self.statistics.observe(self.started, self.reply(outcome, bodies))
        if self.span is not None:
            self.span.end(outcome)

    def reply(self, outcome: Outcome, bodies: list[Body]) -> bool:
        """Respond or fail; whether it went well. Each RPC has its own."""
        raise NotImplementedError

    def undelivered(self, outcome: Outcome) -> None:
        """The outcome is durable but no byte of it reached the caller."""

    def refuse(self, refusal: Refusal) -> None:
        """Tell the caller that there is no outcome."""
        if not self.is_gone:
            code, text = _REFUSALS[refusal]
            self.call.fail(code, text)
            self.statistics.observe(self.started, False)
            if self.span is not None:
                self.span.fail(code, text)

    def _leave(self, call: Call) -> None:
        self.committer.forget(self)
        self.statistics.observe(self.started, False)
        if self.span is not None:
            self.span.fail(StatusCode.CANCELLED, "the caller left")


# Told of each job that was not stored: the job, why, and its place in an atomic batch.
Rejected = Callable[[pb.EnqueueRequest, pb.JobRejection, int | None], None]


class EnqueueBatchCall(PendingCall):
    """Best effort: `rejections` has an entry for every job that never went to the committer."""

    __slots__ = ("rejected", "rejections", "request")

    request: pb.EnqueueBatchRequest
    rejections: list[pb.JobRejection | None]
    rejected: Rejected

    def reply(self, outcome: Outcome, bodies: list[Body]) -> bool:
        assert type(outcome) is Enqueued
        results = iter(outcome.results)
        parts = []
        for index, rejection in enumerate(self.rejections):
            if rejection is None:
                result = next(results)
                if type(result) is Accepted:
                    parts.append(_batch_success(result))
                    continue
                rejection = commit_rejection(result)
                self.rejected(self.request.jobs[index], rejection, None)
            parts.append(_batch_rejection(rejection))
        self.call.respond(parts[0] if len(parts) == 1 else b"".join(parts))
        return True


class EnqueuePlainCall(EnqueueBatchCall):
    """A batch that was read without being decoded; it is only where a job was not stored."""

    __slots__ = ("job_ids",)

    job_ids: list[str]

    def reply(self, outcome: Outcome, bodies: list[Body]) -> bool:
        assert type(outcome) is Enqueued
        for result in outcome.results:
            if type(result) is not Accepted:
                self.request = pb.EnqueueBatchRequest.FromString(self.call.message)
                self.rejections = [None] * len(self.job_ids)
                return super().reply(outcome, bodies)
        job_ids = self.job_ids
        if len(job_ids) == 1:
            self.call.respond(_RESULT + job_ids[0].encode())
        else:
            self.call.respond(b"".join([_RESULT + text.encode() for text in job_ids]))
        return True


def _batch_success(result: Accepted) -> bytes:
    job_id = wire.id_text(result.job_id).encode()
    if result.is_duplicate:
        return _RESULT_DEDUPLICATED + job_id + _DEDUPLICATED
    return _RESULT + job_id


def _batch_rejection(rejection: pb.JobRejection) -> bytes:
    response = pb.EnqueueBatchResponse(results=[pb.JobResult(rejection=rejection)])
    return response.SerializeToString()


def commit_rejection(result: JobResult) -> pb.JobRejection:
    """The rejection for what only the commit could find out."""
    if isinstance(result, QueueFull):
        return pb.JobRejection(queue_full=pb.QueueFull(queue=result.queue, limit=result.limit))
    assert isinstance(result, QueueClosing)
    return pb.JobRejection(queue_closing=pb.QueueClosing(queue=result.queue))


class EnqueueAtomicCall(PendingCall):
    """All or nothing."""

    __slots__ = ("rejected", "request")

    request: pb.EnqueueBatchRequest
    rejected: Rejected

    def reply(self, outcome: Outcome, bodies: list[Body]) -> bool:
        if type(outcome) is AtomicRefused:
            errors = [(index, commit_rejection(result)) for index, result in outcome.errors]
            for index, rejection in errors:
                self.rejected(self.request.jobs[index], rejection, index)
            self.call.respond(atomic_rejection(errors))
            return True
        assert type(outcome) is Enqueued
        responses = []
        for result in outcome.results:
            assert type(result) is Accepted
            text = wire.id_text(result.job_id)
            responses.append(pb.EnqueueResponse(job_id=text, deduplicated=result.is_duplicate))
        success = pb.EnqueueAtomicSuccess(responses=responses)
        self.call.respond(pb.EnqueueAtomicResponse(success=success).SerializeToString())
        return True


def atomic_rejection(errors: list[tuple[int, pb.JobRejection]]) -> bytes:
    """The encoded answer to an atomic batch of which nothing was stored."""
    failure = pb.BatchValidationFailure(
        errors=[pb.JobValidationError(index=index, rejection=why) for index, why in errors]
    )
    return pb.EnqueueAtomicResponse(rejection=failure).SerializeToString()


class ReserveCall(PendingCall):
    """A long poll. Jobs of an answer that cannot be sent go back at once, attempt uncounted."""

    __slots__ = ("damaged", "lost")

    damaged: Callable[[LeasedJob, BodyDamaged], None]  # told of each job whose body cannot be read
    lost: Callable[[Leased], None]  # told of a lease nobody heard of

    def reply(self, outcome: Outcome, bodies: list[Body]) -> bool:
        assert type(outcome) is Leased
        jobs = outcome.jobs
        if not jobs:
            self.call.respond(b"")
            return True
        lease, span = wire.lease_field(outcome.expires_ms), self.span
        parts = []
        for job, body in zip(jobs, bodies, strict=True):
            if type(body) is bytes:
                parts.append(
                    wire.leased_job(
                        body,
                        attempt=job.attempt,
                        enqueued_ms=job.enqueued_ms,
                        lease=lease,
                        trace=None if span is None else span.deliver(job, body, outcome.expires_ms),
                        is_requeued=bool(job.flags & WAS_REQUEUED),
                    )
                )
            else:
                assert type(body) is BodyDamaged
                self.damaged(job, body)
        message = parts[0] if len(parts) == 1 else b"".join(parts)
        self.call.respond(message, lambda: self.lost(outcome))
        return True

    def undelivered(self, outcome: Outcome) -> None:
        if type(outcome) is Leased and outcome.jobs:
            self.lost(outcome)


class HolderCall(PendingCall):
    """Shared by Ack, Nack and Extend: the caller says which lease it holds."""

    __slots__ = ("job_id",)

    job_id: str  # as it was sent

    def reply(self, outcome: Outcome, bodies: list[Body]) -> bool:
        kind = type(outcome)
        if kind is NotFound:
            self.call.fail(StatusCode.NOT_FOUND, f"job not found: {self.job_id} is not in flight")
            return False
        if kind is AttemptMismatch:
            self.call.fail(
                StatusCode.FAILED_PRECONDITION,
                f"attempt mismatch: job {self.job_id} is in flight under another attempt",
            )
            return False
        self.call.respond(_JOB_ID + self.job_id.encode() + self.details(outcome))
        return True

    def details(self, outcome: Outcome) -> bytes:
        """The fields behind job_id."""
        return b""


class AckCall(HolderCall):
    """Remove the job."""

    __slots__ = ()


class NackCall(HolderCall):
    """Give the job up. `buried` is told of each job that became a dead letter."""

    __slots__ = ("buried",)

    buried: Callable[[str, str], None]

    def details(self, outcome: Outcome) -> bytes:
        assert type(outcome) is Nacked
        if not outcome.is_dead:
            return b""
        self.buried(self.job_id, outcome.queue)
        return _DEAD_LETTERED


class ExtendCall(HolderCall):
    """Move the end of the lease."""

    __slots__ = ()

    def details(self, outcome: Outcome) -> bytes:
        assert type(outcome) is Extended
        expires = wire.timestamp_bytes(outcome.expires_ms)
        return b"\x12" + wire.varint(len(expires)) + expires


class DrainCall(PendingCall):
    """Take dead letters out. `drained` is told how many."""

    __slots__ = ("drained",)

    drained: Callable[[int], None]

    def reply(self, outcome: Outcome, bodies: list[Body]) -> bool:
        assert type(outcome) is Drained
        texts = iter(bodies)
        records = []
        for record in outcome.records:
            body = next(texts)
            reason = next(texts) if record.reason_slot >= 0 else None
            records.append(dead_letter(record, body, reason))
        self.drained(len(records))
        self.call.respond(pb.DrainDeadLettersResponse(records=records).SerializeToString())
        return True


def dead_letter(record: DeadJob, body: Body, reason: Body) -> pb.DeadLetterRecord:
    """A dead letter as the wire has it; of an unreadable body only what the head tells."""
    if type(body) is bytes:
        job = wire.decode_job(body, attempt=record.attempt, enqueued_ms=record.enqueued_ms)
        if record.flags & WAS_REQUEUED:
            job.ClearField("scheduled_at")
    else:
        job = pb.Job(
            id=wire.id_text(record.job_id),
            job_type="unreadable",
            queue=record.queue,
            attempt=record.attempt,
        )
        job.enqueued_at.FromMilliseconds(record.enqueued_ms)
    job.lease_expires_at.SetInParent()
    result = pb.DeadLetterRecord(
        job=job, cause=pb.DeadLetterCause.Name(record.cause), final_attempt=record.attempt
    )
    result.failed_at.FromMilliseconds(record.failed_ms)
    if type(reason) is bytes:
        result.last_reason = reason.decode(errors="replace")
    return result
