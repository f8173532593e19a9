"""sepp.v1.QueueService: each RPC as check, decode, submit. Answers are made in `sepp/calls.py`.

Methods are plain functions: none may block. What the caller got wrong is answered here, before
anything is submitted; what only the state can tell is an outcome.
"""

from collections.abc import Callable
from enum import Enum
from typing import Any

from google.protobuf.message import DecodeError
from purerpc import StatusCode

from segstore import BodyDamaged
from sepp import calls, validate, wire
from sepp._generated import queue_pb2 as pb
from sepp._generated.queue_purerpc import QueueServiceServicer
from sepp.auth import ApiKeys
from sepp.clock import Clock
from sepp.committer import Committer
from sepp.config.policy import QueuePolicy
from sepp.core import commands
from sepp.core.commands import NewJob
from sepp.core.outcomes import Enqueued, Leased, LeasedJob
from sepp.counts import METHODS, MethodStatistics, RejectionStatistics
from sepp.logs import get_logger
from sepp.plain import PlainMessages
from sepp.request import SilentRequest
from sepp.rpc.call import Call
from sepp.server_info import server_info
from sepp.tracing import Span, Tracer
from sepp.wishes import Wishes

log = get_logger("sepp.service")


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
        rejected_queues_max: Undeclared queues whose rejections are counted by name.
        tracer: Told of every call; None: tracing is off.
    """

    def __init__(
        self,
        policy: QueuePolicy,
        keys: ApiKeys,
        clock: Clock,
        *,
        retention_ms: int,
        rejected_queues_max: int = 1000,
        tracer: Tracer | None = None,
    ) -> None:
        self.phase = Phase.STARTING
        self._policy = policy
        self._keys = keys
        self._clock = clock
        self._retention_ms = retention_ms
        self._committer: Committer
        self._dedup_key: Callable[[str, str], bytes]
        self._tracer = tracer
        self._span: Span | None = None  # of the call now being handled
        self._wishes = Wishes(policy)
        self._plain = PlainMessages(policy)
        self._is_open = False  # a call needs neither key nor span, and may be served
        self.statistics = {name: MethodStatistics() for name in METHODS.values()}
        self._by_path = {path: self.statistics[name] for path, name in METHODS.items()}
        self.unauthenticated_count = 0
        self.rejected = RejectionStatistics(rejected_queues_max)

    def start(self, committer: Committer, dedup_key: Callable[[str, str], bytes]) -> None:
        """Serve from now on."""
        self._committer = committer
        self._dedup_key = dedup_key
        self.phase = Phase.SERVING
        self._settle()

    def reload(self, policy: QueuePolicy, keys: ApiKeys) -> None:
        """Use other limits and keys from the next call on."""
        self._policy = policy
        self._keys = keys
        self._wishes = Wishes(policy)
        self._plain = PlainMessages(policy)
        self._settle()

    def _settle(self) -> None:
        self._is_open = (
            self.phase is Phase.SERVING and self._tracer is None and not self._keys.is_enforced
        )

    def stop(self) -> None:
        """Refuse every new call from now on."""
        self.phase = Phase.STOPPING
        self._settle()

    # Enqueue.

    def EnqueueBatch(self, call: Call) -> None:
        """Best effort: each job is stored or rejected by itself."""
        if not self._is_open and not self._enter(call):
            return
        if self._span is None:
            plain = self._plain.jobs(call.message, self._policy.global_limits.max_enqueue_batch)
            if plain is not None:
                self._enqueue_plain(call, *plain)
                return
        request = self._parse(call, pb.EnqueueBatchRequest)
        if request is None or not self._is_batch_size_right(call, request):
            return
        jobs, rejections = self._check_jobs(call.message, request, is_atomic=False)
        pending = calls.EnqueueBatchCall(
            call,
            commands.Enqueue(jobs),
            self._committer,
            self.statistics["enqueue_batch"],
            self._span,
        )
        pending.request, pending.rejections = request, rejections
        pending.rejected = self._count_rejection
        if jobs:
            self._committer.submit(pending)
        else:
            pending.answer(Enqueued([]), [])

    def _enqueue_plain(self, call: Call, jobs: list[NewJob], job_ids: list[str]) -> None:
        command, counts = commands.Enqueue(jobs), self.statistics["enqueue_batch"]
        pending = calls.EnqueuePlainCall(call, command, self._committer, counts, None)
        pending.job_ids, pending.rejected = job_ids, self._count_rejection
        self._committer.submit(pending)

    def EnqueueAtomic(self, call: Call) -> None:
        """All or nothing; the answer names every job that stood in the way."""
        request = self._decode(call, pb.EnqueueBatchRequest)
        if request is None or not self._is_batch_size_right(call, request):
            return
        jobs, rejections = self._check_jobs(call.message, request, is_atomic=True)
        pending = calls.EnqueueAtomicCall(
            call,
            commands.Enqueue(jobs, is_atomic=True),
            self._committer,
            self.statistics["enqueue_atomic"],
            self._span,
        )
        pending.request, pending.rejected = request, self._count_rejection
        errors = [(index, why) for index, why in enumerate(rejections) if why is not None]
        if errors:
            call.respond(calls.atomic_rejection(errors))
            pending.statistics.observe(pending.started, True)
            if self._span is not None:
                self._span.finish()
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
        self._refuse(call, StatusCode.INVALID_ARGUMENT, text)
        return False

    def _check_jobs(
        self, message: bytes, request: pb.EnqueueBatchRequest, *, is_atomic: bool
    ) -> tuple[list[NewJob], list[pb.JobRejection | None]]:
        policy, now_ms = self._policy, self._clock.now().wall_ms
        jobs: list[NewJob] = []
        rejections: list[pb.JobRejection | None] = []
        for index, job in enumerate(request.jobs):
            checked = validate.check_job(job, policy, now_ms)
            if isinstance(checked, validate.Checked):
                jobs.append(self._new_job(checked))
                rejections.append(None)
                if not index:
                    self._plain.learn_job(message, checked)
            else:
                self._count_rejection(job, checked, index if is_atomic else None)
                rejections.append(checked)
        return jobs, rejections

    def _new_job(self, checked: validate.Checked) -> NewJob:
        trace, span = checked.trace, self._span
        if trace is None and span is not None:
            trace = span.context()
        return checked.new_job(wire.new_job_id(), trace, self._dedup_key)

    def _count_rejection(
        self, job: pb.EnqueueRequest, rejection: pb.JobRejection, index: int | None
    ) -> None:
        reason = rejection.WhichOneof("reason")
        self.rejected.add(job.queue, reason, self._policy.queues)
        facts: dict[str, Any] = {"queue": job.queue, "job_type": job.job_type, "reason": reason}
        if index is not None:
            facts["index"] = index
        log.info("enqueue rejected", **facts)

    # Reserve.

    def Reserve(self, call: Call) -> None:
        """Lease jobs, waiting for them if asked to."""
        if not self._is_open and not self._enter(call):
            return
        wish = self._wishes.get(call.message)
        if wish is None or self._span is not None:
            request = self._parse(call, pb.ReserveRequest)
            if request is None:
                return
            learned = self._wishes.learn(call.message, request)
            if len(learned) == 2:
                self._refuse(call, *learned)
                return
            wish = learned
        pending = calls.ReserveCall(
            call, commands.Reserve(*wish), self._committer, self.statistics["reserve"], self._span
        )
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
        self._committer.submit(SilentRequest(commands.SetAside(job.job_id, job.attempt)))

    # What the holder of a lease may do.

    def Ack(self, call: Call) -> None:
        """The job is done."""
        if not self._is_open and not self._enter(call):
            return
        lease = self._plain.lease(call.message) if self._span is None else None
        if lease is None:
            request = self._parse(call, pb.AckRequest)
            if request is None or self._is_refused(call, validate.holder_fault(request)):
                return
            self._plain.learn_lease(call.message, request.worker_id)
            lease = request.job_id, validate.held_job(request), request.attempt
        text, job_id, attempt = lease
        pending = calls.AckCall(
            call,
            commands.Ack(job_id, attempt),
            self._committer,
            self.statistics["ack"],
            self._span,
        )
        self._hold(pending, text)

    def Nack(self, call: Call) -> None:
        """The job failed."""
        request = self._decode(call, pb.NackRequest)
        if request is None or self._is_refused(
            call, validate.holder_fault(request) or validate.retry_fault(request)
        ):
            return
        job_id = validate.held_job(request)
        directive, delay_ms = validate.retry_directive(request.retry)
        reason = request.reason.encode() if request.HasField("reason") else None
        command = commands.Nack(job_id, request.attempt, directive, delay_ms, reason)
        pending = calls.NackCall(
            call, command, self._committer, self.statistics["nack"], self._span
        )
        pending.buried = self._log_buried
        self._hold(pending, request.job_id)

    def Extend(self, call: Call) -> None:
        """The worker needs more time."""
        request = self._decode(call, pb.ExtendRequest)
        if request is None or self._is_refused(
            call, validate.holder_fault(request) or validate.lease_fault(request)
        ):
            return
        job_id = validate.held_job(request)
        lease = request.lease_duration
        lease_ms = max(1, wire.span_ms(lease.seconds, lease.nanos))
        command = commands.Extend(job_id, request.attempt, lease_ms)
        self._hold(
            calls.ExtendCall(call, command, self._committer, self.statistics["extend"], self._span),
            request.job_id,
        )

    def _hold(self, pending: calls.HolderCall, job_id: str) -> None:
        pending.job_id = job_id
        if self._span is not None:
            raw = wire.id_bytes(job_id)
            found = None if raw is None else self._committer.peek(raw)
            if found is not None:
                job, body = found
                self._span.hold(job, body if type(body) is bytes else None)
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
            call, command, self._committer, self.statistics["drain_dead_letters"], self._span
        )
        pending.drained = lambda count: log.warning(
            "drained dead-letter records", queue=queue or "<all>", count=count
        )
        self._committer.submit(pending)

    def GetServerInfo(self, call: Call) -> None:
        """Version, clock and the limits a producer can check for itself."""
        if self._decode(call, pb.GetServerInfoRequest) is None:
            return
        now_ms = self._clock.now().wall_ms
        info = server_info(self._policy, now_ms=now_ms, retention_ms=self._retention_ms)
        call.respond(info.SerializeToString())
        if self._span is not None:
            self._span.finish()

    # Shared.

    def _decode(self, call: Call, kind: type[Any]) -> Any:
        """The request as a message, or None when the call was answered already."""
        if not self._is_open and not self._enter(call):
            return None
        return self._parse(call, kind)

    def _enter(self, call: Call) -> bool:
        """Check the key, begin the span; False when the call was answered already."""
        keys = self._keys
        if keys.is_enforced:
            fault = keys.fault(call.header(b"authorization"))
            if fault is not None:
                self.unauthenticated_count += 1
                log.warning(fault)
                call.fail(StatusCode.UNAUTHENTICATED, fault)
                return False
        if self._tracer is not None:
            self._span = self._tracer.begin(call.path, call.header)
        if self.phase is not Phase.SERVING:
            self._refuse(call, StatusCode.UNAVAILABLE, self.phase.value)
            return False
        return True

    def _parse(self, call: Call, kind: type[Any]) -> Any:
        try:
            message = kind.FromString(call.message)
        except DecodeError:
            text = f"the message is not a {kind.DESCRIPTOR.full_name}"
            self._refuse(call, StatusCode.INTERNAL, text)
            return None
        if self._span is not None:
            self._span.request(message)
        return message

    def _is_refused(self, call: Call, fault: str | None) -> bool:
        if fault is None:
            return False
        self._refuse(call, StatusCode.INVALID_ARGUMENT, fault)
        return True

    def _refuse(self, call: Call, code: StatusCode, text: str) -> None:
        """Answer what never gets to the committer, and count it."""
        call.fail(code, text)
        statistics = self._by_path.get(call.path)
        if statistics is not None:
            statistics.observe_refusal()
        if self._span is not None:
            self._span.fail(code, text)

    def _log_buried(self, job_id: str, queue: str) -> None:
        dropped = self._retention_ms == 0
        log.info("job dead-lettered via nack", job_id=job_id, queue=queue, dropped=dropped)
