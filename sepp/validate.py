"""What a request must look like: steps 1-12 of an enqueue, and the structure of the other calls.

The order of checks is part of the protocol: the first failing one is what the caller is told. An
enqueue's fault is a `JobRejection` of one job; a fault of any other call is a text for
INVALID_ARGUMENT.
All lengths are UTF-8 bytes; limits are inclusive.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from attrs import define
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from sepp import wire
from sepp._generated import queue_pb2 as pb
from sepp.config.names import queue_name_fault
from sepp.config.policy import QueuePolicy
from sepp.core.commands import Directive, NewJob
from sepp.core.limits import QueueLimits

PRIORITY_MAX: Final = 9

_NO_CUSTOM: Final[dict[str, pb.PrimitiveValue]] = {}

# Field numbers of EnqueueRequest.
_QUEUE, _JOB_TYPE, _PAYLOAD, _KEY, _PRIORITY, _MAX_ATTEMPTS, _TRACE, _CUSTOM, _SCHEDULED = range(
    1, 10
)


@define
class Checked:
    """A job that passed; what was defaulted is filled in.

    `due_ms` is 0 for a job that is ready at once. `scheduled` is the Timestamp as it was sent.
    """

    queue: str
    job_type: str
    payload: pb.Payload | None
    idempotency_key: str | None
    priority: int
    max_attempts: int
    trace: pb.TraceContext | None
    custom: Mapping[str, pb.PrimitiveValue] | None
    due_ms: int
    scheduled: bytes | None

    def new_job(
        self,
        job_id: bytes,
        trace: pb.TraceContext | None,
        dedup_key: Callable[[str, str], bytes],
    ) -> NewJob:
        """The job as it goes to the committer, under its id and with the trace to store."""
        body = wire.encode_body(
            wire.id_text(job_id),
            self.queue,
            self.job_type,
            self.priority,
            self.max_attempts,
            self.payload,
            self.custom,
            trace,
            self.scheduled,
        )
        key = self.idempotency_key
        return NewJob(
            self.queue,
            job_id,
            body,
            self.priority,
            self.max_attempts,
            self.due_ms,
            None if key is None else dedup_key(self.queue, key),
        )


def byte_length(text: str) -> int:
    """UTF-8 length; no copy is made of the usual ASCII name."""
    return len(text) if text.isascii() else len(text.encode())


def check_job(
    request: pb.EnqueueRequest, policy: QueuePolicy, now_ms: int
) -> Checked | pb.JobRejection:
    """Run steps 1-12 on one job. `now_ms` is the wall clock."""
    fields = {field.number: value for field, value in request.ListFields()}
    queue: str = fields.get(_QUEUE, "")
    job_type: str = fields.get(_JOB_TYPE, "")
    known = policy.admitted.get((queue, job_type))
    payload = fields.get(_PAYLOAD)
    # The common job: names that passed before, a payload, and nothing else that could be wrong.
    if known is not None and payload is not None and len(fields) == 3 and _fits(payload, known):
        attempts = min(known.default_max_attempts, known.max_attempts_ceiling)
        priority = known.default_priority
        return Checked(queue, job_type, payload, None, priority, attempts, None, None, 0, None)
    fault = _structure_fault(fields)
    if fault is not None:
        return pb.JobRejection(invalid_request=pb.InvalidRequest(message=fault))
    if policy.is_strict and not policy.is_declared(queue):
        return pb.JobRejection(unknown_queue=pb.UnknownQueue(queue=queue))
    limits = policy.limits(queue)
    rejection = (
        _name_rejection(fields, policy, limits)
        or _payload_rejection(fields, limits)
        or _custom_rejection(fields, limits)
    )
    if rejection is not None:
        return rejection
    policy.admit(queue, job_type)
    due_ms, scheduled = 0, None
    if _SCHEDULED in fields:
        at = fields[_SCHEDULED]
        due_ms = wire.span_ms(at.seconds, at.nanos)
        if due_ms > now_ms + limits.max_schedule_horizon_ms:
            return _too_far(limits.max_schedule_horizon_ms, at)
        scheduled = at.SerializeToString()
        if due_ms <= now_ms:
            due_ms = 0
    attempts = fields.get(_MAX_ATTEMPTS, limits.default_max_attempts)
    return Checked(
        queue,
        job_type,
        payload,
        fields.get(_KEY),
        fields.get(_PRIORITY, limits.default_priority),
        min(attempts, limits.max_attempts_ceiling),
        fields.get(_TRACE),
        fields.get(_CUSTOM),
        due_ms,
        scheduled,
    )


def _fits(payload: pb.Payload, limits: QueueLimits) -> bool:
    """Whether a payload passes steps 1, 7 and 8."""
    encoding, allowed = payload.encoding, limits.allowed_encodings
    return (
        0 < len(payload.data) <= limits.max_payload_bytes
        and encoding != ""
        and (allowed is None or encoding in allowed)
    )


def _structure_fault(fields: dict[int, Any]) -> str | None:
    """Step 1. A field without presence is absent from `fields` when it is empty."""
    fault = queue_name_fault(fields.get(_QUEUE, ""))
    if fault is not None:
        return fault
    if _JOB_TYPE not in fields:
        return "job_type must not be empty"
    payload = fields.get(_PAYLOAD)
    if payload is not None:
        if not payload.data:
            return "payload.data must not be empty; leave payload unset for a job without one"
        if not payload.encoding:
            return "payload.encoding must not be empty"
    if fields.get(_KEY) == "":
        return "idempotency_key must not be empty; leave it unset for none"
    if fields.get(_PRIORITY, 0) > PRIORITY_MAX:
        return f"priority is {fields[_PRIORITY]}; it must be 0 to {PRIORITY_MAX}"
    if fields.get(_MAX_ATTEMPTS, 1) < 1:
        return "max_attempts is 0; it must be at least 1"
    if _TRACE in fields and not fields[_TRACE].traceparent:
        return "trace_context.traceparent must not be empty; leave trace_context unset for none"
    for key, value in fields.get(_CUSTOM, _NO_CUSTOM).items():
        if not key:
            return "custom keys must not be empty"
        if value.WhichOneof("value") is None:
            return f"custom value of {key!r} must be set"
    return None


def _name_rejection(
    fields: dict[int, Any], policy: QueuePolicy, limits: QueueLimits
) -> pb.JobRejection | None:
    """Steps 3-6."""
    longest = policy.global_limits
    actual = byte_length(fields[_QUEUE])
    if actual > longest.max_queue_name_bytes:
        return pb.JobRejection(
            queue_name_too_long=pb.QueueNameTooLong(
                limit=longest.max_queue_name_bytes, actual=actual
            )
        )
    job_type = fields[_JOB_TYPE]
    actual = byte_length(job_type)
    if actual > longest.max_job_type_bytes:
        return pb.JobRejection(
            job_type_name_too_long=pb.JobTypeNameTooLong(
                limit=longest.max_job_type_bytes, actual=actual
            )
        )
    if limits.allowed_job_types is not None and job_type not in limits.allowed_job_types:
        return pb.JobRejection(
            job_type_not_allowed=pb.JobTypeNotAllowed(
                job_type=job_type, allowed=limits.allowed_job_types
            )
        )
    actual = byte_length(fields.get(_KEY, ""))
    if actual > longest.max_idempotency_key_bytes:
        return pb.JobRejection(
            idempotency_key_too_long=pb.IdempotencyKeyTooLong(
                limit=longest.max_idempotency_key_bytes, actual=actual
            )
        )
    return None


def _payload_rejection(fields: dict[int, Any], limits: QueueLimits) -> pb.JobRejection | None:
    """Steps 7-8."""
    payload = fields.get(_PAYLOAD)
    if payload is None:
        return None
    actual = len(payload.data)
    if actual > limits.max_payload_bytes:
        return pb.JobRejection(
            payload_too_large=pb.PayloadTooLarge(limit=limits.max_payload_bytes, actual=actual)
        )
    allowed = limits.allowed_encodings
    if allowed is not None and payload.encoding not in allowed:
        return pb.JobRejection(
            encoding_not_allowed=pb.EncodingNotAllowed(encoding=payload.encoding, allowed=allowed)
        )
    return None


def _custom_rejection(fields: dict[int, Any], limits: QueueLimits) -> pb.JobRejection | None:
    """Steps 9-11."""
    custom = fields.get(_CUSTOM)
    if custom is None:
        return None
    if len(custom) > limits.max_custom_entries:
        return pb.JobRejection(
            custom_entries_too_many=pb.CustomEntriesTooMany(
                limit=limits.max_custom_entries, actual=len(custom)
            )
        )
    total = 0
    for key, value in custom.items():
        length = byte_length(key)
        if length > limits.max_custom_key_bytes:
            return pb.JobRejection(
                custom_key_too_long=pb.CustomKeyTooLong(
                    key=key, limit=limits.max_custom_key_bytes, actual=length
                )
            )
        total += length + _value_bytes(value)
    if total > limits.max_custom_total_bytes:
        return pb.JobRejection(
            custom_map_too_large=pb.CustomMapTooLarge(
                limit=limits.max_custom_total_bytes, actual=total
            )
        )
    return None


def _value_bytes(value: pb.PrimitiveValue) -> int:
    kind = value.WhichOneof("value")
    if kind == "string_value":
        return byte_length(value.string_value)
    return 1 if kind == "bool_value" else 8


def _too_far(horizon_ms: int, at: Timestamp) -> pb.JobRejection:
    horizon = Duration()
    horizon.FromMilliseconds(horizon_ms)
    return pb.JobRejection(scheduled_too_far=pb.ScheduledTooFar(horizon=horizon, actual=at))


# The other calls.


def reserve_fault(request: pb.ReserveRequest, policy: QueuePolicy) -> str | None:
    """Structure, queue count and name lengths of a Reserve, in this order."""
    queues = request.queues
    if not queues:
        return "queues must name at least one queue"
    for name in queues:
        fault = queue_name_fault(name)
        if fault is not None:
            return fault
    if request.HasField("wait_timeout") and _is_negative(request.wait_timeout):
        return "wait_timeout must not be negative"
    fault = lease_fault(request)
    if fault is not None:
        return fault
    if request.HasField("worker_id") and not request.worker_id:
        return "worker_id must not be empty; leave it unset for none"
    if request.HasField("max_jobs") and request.max_jobs < 1:
        return "max_jobs is 0; it must be at least 1"
    limits = policy.global_limits
    if len(queues) > limits.max_reserve_queues:
        return (
            f"{len(queues)} queues listed; limits.max_reserve_queues allows "
            f"{limits.max_reserve_queues}"
        )
    for name in queues:
        actual = byte_length(name)
        if actual > limits.max_queue_name_bytes:
            return (
                f"queue name of {actual} bytes; limits.max_queue_name_bytes allows "
                f"{limits.max_queue_name_bytes}"
            )
    return None


def lease_fault(request: pb.ReserveRequest | pb.ExtendRequest) -> str | None:
    """A lease must be asked for and last."""
    if not request.HasField("lease_duration"):
        return "lease_duration is required"
    lease = request.lease_duration
    if _is_negative(lease) or not (lease.seconds or lease.nanos):
        return "lease_duration must be more than 0"
    return None


def holder_fault(request: pb.AckRequest | pb.NackRequest | pb.ExtendRequest) -> str | None:
    """Structure shared by Ack, Nack and Extend."""
    if wire.id_bytes(request.job_id) is None:
        return f"job_id must be a 36-character UUID with hyphens, not {request.job_id[:64]!r}"
    if request.attempt < 1:
        return "attempt is 0; it must be at least 1"
    if request.HasField("worker_id") and not request.worker_id:
        return "worker_id must not be empty; leave it unset for none"
    return None


def held_job(request: pb.AckRequest | pb.NackRequest | pb.ExtendRequest) -> bytes:
    """The id of the job that a checked request names."""
    job_id = wire.id_bytes(request.job_id)
    assert job_id is not None
    return job_id


def retry_fault(request: pb.NackRequest) -> str | None:
    """A retry that is present must say how; a delay must not be negative."""
    if not request.HasField("retry"):
        return None
    strategy = request.retry.WhichOneof("strategy")
    if strategy is None:
        return "retry is set without a strategy; set one or leave retry unset"
    if strategy == "delay" and _is_negative(request.retry.delay):
        return "retry.delay must not be negative"
    return None


def drain_fault(request: pb.DrainDeadLettersRequest) -> str | None:
    """A drain names a queue or all, and at least one record."""
    if request.HasField("queue") and not request.queue:
        return "queue must not be empty; leave it unset to drain all queues"
    if request.HasField("max") and request.max < 1:
        return "max is 0; it must be at least 1"
    return None


def _is_negative(span: Duration) -> bool:
    return span.seconds * 1_000_000_000 + span.nanos < 0


def retry_directive(retry: pb.NackRetry) -> tuple[Directive, int]:
    """What a checked nack asks for: the directive and, for a delay, its length in ms."""
    strategy = retry.WhichOneof("strategy")
    if strategy == "dead_letter":
        return Directive.DEAD_LETTER, 0
    if strategy == "delay":
        return Directive.DELAY, wire.span_ms(retry.delay.seconds, retry.delay.nanos)
    return Directive.POLICY, 0
