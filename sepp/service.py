"""sepp.v1.QueueService: each RPC as check, decode, submit. Answers are made in `sepp/calls.py`.

Methods are plain functions: none may block. What the caller got wrong is answered here, before
anything is submitted; what only the state can tell is an outcome.
"""

from collections.abc import Callable
from enum import Enum
from os import urandom
from typing import Any, Final

from google.protobuf.message import DecodeError
from purerpc import StatusCode

from segstore import BodyDamaged
from sepp import __version__, calls, validate, wire
from sepp._generated import queue_pb2 as pb
from sepp._generated.queue_purerpc import QueueServiceServicer
from sepp.auth import ApiKeys
from sepp.clock import Clock
from sepp.committer import Committer
from sepp.config.policy import QueuePolicy
from sepp.core import commands
from sepp.core.commands import Directive, NewJob
from sepp.core.outcomes import Enqueued, Leased, LeasedJob
from sepp.logs import get_logger
from sepp.request import SilentRequest
from sepp.rpc.call import Call

log = get_logger("sepp.service")

PROTOCOL_VERSION: Final = "v1"


class Phase(Enum):
    """What a call meets, by the life of the process."""

    STARTING = "the server is starting"
    SERVING = "serving"
    STOPPING = "the server is shutting down"


class QueueService(QueueServiceServicer):
    """The RPCs. `start` opens the doors once the state was restored.

    Args:
        policy: Limits and strict mode; swapped by `reload`.
        keys: Who may call; swapped by `reload`.
        clock: For schedule horizons and the server's time.
        retention_ms: Dead letter retention at boot, as GetServerInfo tells it.
    """

    def __init__(
        self,
        policy: QueuePolicy,
        keys: ApiKeys,
        clock: Clock,
        *,
        retention_ms: int,
    ) -> None:
        self.phase = Phase.STARTING
        self._policy = policy
        self._keys = keys
        self._clock = clock
        self._retention_ms = retention_ms
        self._committer: Committer
        self._dedup_key: Callable[[str, str], bytes]
        self.statistics = {name: calls.MethodStatistics() for name in METHODS}
        self.unauthenticated_count = 0
        self.rejected: dict[tuple[str, str], int] = {}

    def start(self, committer: Committer, dedup_key: Callable[[str, str], bytes]) -> None:
        """Serve from now on."""
        self._committer = committer
        self._dedup_key = dedup_key
        self.phase = Phase.SERVING

    def reload(self, policy: QueuePolicy, keys: ApiKeys) -> None:
        """Use other limits and keys from the next call on."""
        self._policy = policy
        self._keys = keys

    # Enqueue.

    def EnqueueBatch(self, call: Call) -> None:
        """Best effort: each job is stored or rejected by itself."""
        request = self._decode(call, pb.EnqueueBatchRequest)
        if request is None or not self._is_batch_size_right(call, request):
            return
        jobs, rejections = self._check_jobs(request, is_atomic=False)
        pending = calls.EnqueueBatchCall(
            call, commands.Enqueue(jobs), self._committer, self.statistics["enqueue_batch"]
        )
        pending.rejections = rejections
        if jobs:
            self._committer.submit(pending)
        else:
            pending.answer(Enqueued([]), [])

    def EnqueueAtomic(self, call: Call) -> None:
        """All or nothing; the answer names every job that stood in the way."""
        request = self._decode(call, pb.EnqueueBatchRequest)
        if request is None or not self._is_batch_size_right(call, request):
            return
        jobs, rejections = self._check_jobs(request, is_atomic=True)
        pending = calls.EnqueueAtomicCall(
            call,
            commands.Enqueue(jobs, is_atomic=True),
            self._committer,
            self.statistics["enqueue_atomic"],
        )
        errors = [(index, why) for index, why in enumerate(rejections) if why is not None]
        if errors:
            call.respond(calls.atomic_rejection(errors))
            pending.statistics.observe(pending.started, True)
        else:
            self._committer.submit(pending)

    def _is_batch_size_right(self, call: Call, request: pb.EnqueueBatchRequest) -> bool:
        count, most = len(request.jobs), self._policy.global_limits.max_enqueue_batch
        if 0 < count <= most:
            return True
        if count == 0:
            text = "jobs must hold at least one job"
        else:
            text = f"{count} jobs in one batch; limits.max_enqueue_batch allows {most}"
        call.fail(StatusCode.INVALID_ARGUMENT, text)
        return False

    def _check_jobs(
        self, request: pb.EnqueueBatchRequest, *, is_atomic: bool
    ) -> tuple[list[NewJob], list[pb.JobRejection | None]]:
        policy, now_ms = self._policy, self._clock.now().wall_ms
        jobs: list[NewJob] = []
        rejections: list[pb.JobRejection | None] = []
        for index, job in enumerate(request.jobs):
            checked = validate.check_job(job, policy, now_ms)
            if isinstance(checked, validate.Checked):
                jobs.append(self._new_job(job, checked))
                rejections.append(None)
            else:
                self._count_rejection(job, checked, index if is_atomic else None)
                rejections.append(checked)
        return jobs, rejections

    def _new_job(self, request: pb.EnqueueRequest, checked: validate.Checked) -> NewJob:
        job_id = new_job_id()
        body = wire.encode_body(
            request,
            job_id=wire.id_text(job_id),
            priority=checked.priority,
            max_attempts=checked.max_attempts,
            payload=checked.payload,
            has_custom=checked.has_custom,
            trace=checked.trace,
            scheduled=checked.scheduled,
        )
        key = checked.idempotency_key
        return NewJob(
            request.queue,
            job_id,
            body,
            checked.priority,
            checked.max_attempts,
            checked.due_ms,
            None if key is None else self._dedup_key(request.queue, key),
        )

    def _count_rejection(
        self, job: pb.EnqueueRequest, rejection: pb.JobRejection, index: int | None
    ) -> None:
        reason = rejection.WhichOneof("reason")
        key = (job.queue, reason)
        self.rejected[key] = self.rejected.get(key, 0) + 1
        facts: dict[str, Any] = {"queue": job.queue, "job_type": job.job_type, "reason": reason}
        if index is not None:
            facts["index"] = index
        log.info("enqueue rejected", **facts)

    # Reserve.

    def Reserve(self, call: Call) -> None:
        """Lease jobs, waiting for them if asked to."""
        request = self._decode(call, pb.ReserveRequest)
        if request is None:
            return
        policy = self._policy
        fault = validate.reserve_fault(request, policy)
        if fault is not None:
            call.fail(StatusCode.INVALID_ARGUMENT, fault)
            return
        queues = tuple(request.queues)
        if policy.is_strict:
            unknown = [name for name in queues if not policy.is_declared(name)]
            if unknown:
                names = ", ".join(dict.fromkeys(unknown))
                call.fail(StatusCode.FAILED_PRECONDITION, f"unknown queues: {names}")
                return
        limits = policy.global_limits
        wait, lease = request.wait_timeout, request.lease_duration
        command = commands.Reserve(
            queues,
            lease_ms=max(1, wire.span_ms(lease.seconds, lease.nanos)),
            wait_ms=min(wire.span_ms(wait.seconds, wait.nanos), limits.max_wait_timeout_ms),
            max_jobs=min(request.max_jobs or 1, limits.max_reserve_batch),
            answer_bytes_max=limits.max_response_bytes,
        )
        pending = calls.ReserveCall(call, command, self._committer, self.statistics["reserve"])
        pending.damaged = self._set_aside
        pending.lost = self._give_back
        self._committer.submit(pending)

    def _give_back(self, leased: Leased) -> None:
        for job in leased.jobs:
            command = commands.GiveBack(job.job_id, job.attempt, leased.expires_ms)
            self._committer.submit(SilentRequest(command))

    def _set_aside(self, job: LeasedJob, damage: BodyDamaged) -> None:
        log.error(
            "job body damaged; kept out of delivery",
            job_id=wire.id_text(job.job_id),
            damage=str(damage),
        )

    # What the holder of a lease may do.

    def Ack(self, call: Call) -> None:
        """The job is done."""
        request = self._decode(call, pb.AckRequest)
        if request is None or self._is_refused(call, validate.holder_fault(request)):
            return
        job_id = wire.id_bytes(request.job_id)
        assert job_id is not None
        self._hold(
            calls.AckCall(
                call,
                commands.Ack(job_id, request.attempt),
                self._committer,
                self.statistics["ack"],
            ),
            request.job_id,
        )

    def Nack(self, call: Call) -> None:
        """The job failed."""
        request = self._decode(call, pb.NackRequest)
        if request is None or self._is_refused(
            call, validate.holder_fault(request) or validate.retry_fault(request)
        ):
            return
        job_id = wire.id_bytes(request.job_id)
        assert job_id is not None
        directive, delay_ms = _directive(request.retry)
        reason = request.reason.encode() if request.HasField("reason") else None
        command = commands.Nack(job_id, request.attempt, directive, delay_ms, reason)
        pending = calls.NackCall(call, command, self._committer, self.statistics["nack"])
        pending.buried = _log_buried
        self._hold(pending, request.job_id)

    def Extend(self, call: Call) -> None:
        """The worker needs more time."""
        request = self._decode(call, pb.ExtendRequest)
        if request is None or self._is_refused(
            call, validate.holder_fault(request) or validate.lease_fault(request)
        ):
            return
        job_id = wire.id_bytes(request.job_id)
        assert job_id is not None
        lease = request.lease_duration
        lease_ms = max(1, wire.span_ms(lease.seconds, lease.nanos))
        command = commands.Extend(job_id, request.attempt, lease_ms)
        self._hold(
            calls.ExtendCall(call, command, self._committer, self.statistics["extend"]),
            request.job_id,
        )

    def _hold(self, pending: calls.HolderCall, job_id: str) -> None:
        pending.job_id = job_id
        self._committer.submit(pending)

    # Dead letters and facts.

    def DrainDeadLetters(self, call: Call) -> None:
        """Take dead letters out for good."""
        request = self._decode(call, pb.DrainDeadLettersRequest)
        if request is None or self._is_refused(call, validate.drain_fault(request)):
            return
        queue = request.queue if request.HasField("queue") else None
        limits = self._policy.global_limits
        most = min(request.max or 1, limits.max_reserve_batch)
        command = commands.Drain(queue, most, limits.max_response_bytes)
        pending = calls.DrainCall(
            call, command, self._committer, self.statistics["drain_dead_letters"]
        )
        pending.drained = lambda count: log.warning(
            "drained dead-letter records", queue=queue or "<all>", count=count
        )
        self._committer.submit(pending)

    def GetServerInfo(self, call: Call) -> None:
        """Version, clock and the limits a producer can check for itself."""
        if self._decode(call, pb.GetServerInfoRequest) is None:
            return
        policy = self._policy
        limits, per_queue = policy.global_limits, policy.defaults
        info = pb.GetServerInfoResponse(
            server_version=__version__,
            supported_protocol_versions=[PROTOCOL_VERSION],
            restricts_encodings=per_queue.allowed_encodings is not None,
            allowed_encodings=per_queue.allowed_encodings or (),
            max_payload_bytes=per_queue.max_payload_bytes,
            max_custom_entries=per_queue.max_custom_entries,
            max_custom_total_bytes=per_queue.max_custom_total_bytes,
            max_custom_key_bytes=per_queue.max_custom_key_bytes,
            max_queue_name_bytes=limits.max_queue_name_bytes,
            max_job_type_bytes=limits.max_job_type_bytes,
            max_idempotency_key_bytes=limits.max_idempotency_key_bytes,
            max_enqueue_batch=limits.max_enqueue_batch,
            max_reserve_batch=limits.max_reserve_batch,
            max_reserve_queues=limits.max_reserve_queues,
            strict_queues=policy.is_strict,
            dead_letter_retention_enabled=self._retention_ms > 0,
        )
        info.server_time.FromMilliseconds(self._clock.now().wall_ms)
        info.max_schedule_horizon.FromMilliseconds(per_queue.max_schedule_horizon_ms)
        info.max_wait_timeout.FromMilliseconds(limits.max_wait_timeout_ms)
        info.max_lease_duration.FromMilliseconds(per_queue.max_lease_duration_ms)
        call.respond(info.SerializeToString())

    # Shared.

    def _decode(self, call: Call, kind: type[Any]) -> Any:
        """The request as a message, or None when the call was answered already."""
        keys = self._keys
        if keys.is_enforced:
            fault = keys.fault(call.header(b"authorization"))
            if fault is not None:
                self.unauthenticated_count += 1
                log.warning(fault)
                call.fail(StatusCode.UNAUTHENTICATED, fault)
                return None
        if self.phase is not Phase.SERVING:
            call.fail(StatusCode.UNAVAILABLE, self.phase.value)
            return None
        try:
            return kind.FromString(call.message)
        except DecodeError:
            call.fail(StatusCode.INTERNAL, f"the message is not a {kind.DESCRIPTOR.full_name}")
            return None

    def _is_refused(self, call: Call, fault: str | None) -> bool:
        if fault is None:
            return False
        call.fail(StatusCode.INVALID_ARGUMENT, fault)
        return True


METHODS: Final = (
    "enqueue_batch",
    "enqueue_atomic",
    "reserve",
    "ack",
    "nack",
    "extend",
    "drain_dead_letters",
)


def new_job_id() -> bytes:
    """A version-4 UUID whose last 16 bits are the shard the job was born on, 0 for now."""
    raw = bytearray(urandom(14))
    raw[6] = raw[6] & 0x0F | 0x40
    raw[8] = raw[8] & 0x3F | 0x80
    return bytes(raw) + b"\x00\x00"


def _directive(retry: pb.NackRetry) -> tuple[Directive, int]:
    strategy = retry.WhichOneof("strategy")
    if strategy == "dead_letter":
        return Directive.DEAD_LETTER, 0
    if strategy == "delay":
        return Directive.DELAY, wire.span_ms(retry.delay.seconds, retry.delay.nanos)
    return Directive.POLICY, 0


def _log_buried(job_id: str, queue: str) -> None:
    log.info("job dead-lettered via nack", job_id=job_id, queue=queue)
