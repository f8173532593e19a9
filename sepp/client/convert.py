"""Between the messages of the wire and the types of `sepp.client.types`."""

import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from sepp._generated import queue_pb2 as pb
from sepp.client import errors, rejections
from sepp.client.types import (
    PRIORITIES,
    DeadLetterCause,
    DeadLetterRecord,
    EnqueueRequest,
    Job,
    JobCtx,
    LeaseHandle,
    Payload,
    Primitive,
    Priority,
    ReserveOptions,
    ServerInfo,
    TraceContext,
    TraceContextError,
)

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)
_SECONDS_END: Final = 253_402_300_800  # the year 10000

_CAUSES: Final = {
    pb.DEAD_LETTER_CAUSE_ATTEMPTS_EXHAUSTED: DeadLetterCause.ATTEMPTS_EXHAUSTED,
    pb.DEAD_LETTER_CAUSE_REJECTED: DeadLetterCause.REJECTED,
    pb.DEAD_LETTER_CAUSE_LEASE_EXPIRED: DeadLetterCause.LEASE_EXPIRED,
    pb.DEAD_LETTER_CAUSE_ADMIN: DeadLetterCause.ADMIN,
}


def ms_of(instant: datetime) -> int:
    """Return whole milliseconds since 1970; a naive datetime is taken as UTC."""
    if instant.tzinfo is None:
        instant = instant.replace(tzinfo=UTC)
    return (instant - EPOCH) // _MS


def now_ms() -> int:
    """Return the wall clock; it is what leases are told in."""
    return time.time_ns() // 1_000_000


def instant_of(stamp: Timestamp) -> datetime | None:
    """Return an instant, None when it lies before 1970 or cannot be told as a datetime."""
    seconds, nanos = stamp.seconds, stamp.nanos
    if not 0 <= seconds < _SECONDS_END or not 0 <= nanos < 1_000_000_000:
        return None
    return EPOCH + timedelta(0, seconds, nanos // 1000)


def enqueue_message(job: EnqueueRequest) -> pb.EnqueueRequest:
    """Return a job as it is sent.

    Raises:
        TypeError: A custom value is of another type than text, number or truth.
    """
    message = pb.EnqueueRequest(
        queue=job.queue,
        job_type=job.job_type,
        idempotency_key=job.idempotency_key,
        priority=None if job.priority is None else int(job.priority),
        max_attempts=job.max_attempts,
    )
    if job.payload is not None:
        message.payload.data = job.payload.data
        message.payload.encoding = job.payload.encoding
        message.payload.SetInParent()
    if job.custom:
        _set_custom(message, job.custom)
    trace = job.trace_context
    if trace is not None:
        set_trace(message, trace.traceparent, trace.tracestate)
    # An instant before 1970 is long past: the same as none.
    if job.scheduled_at is not None and (at_ms := ms_of(job.scheduled_at)) >= 0:
        message.scheduled_at.FromMilliseconds(at_ms)
    return message


def _set_custom(message: pb.EnqueueRequest, custom: Mapping[str, Primitive]) -> None:
    for key, value in custom.items():
        # Truth comes first: Python counts it among the integers.
        if isinstance(value, bool):
            message.custom[key].bool_value = value
        elif isinstance(value, int):
            message.custom[key].int_value = value
        elif isinstance(value, float):
            message.custom[key].double_value = value
        elif isinstance(value, str):
            message.custom[key].string_value = value
        else:
            kind = type(value).__name__
            raise TypeError(f"custom[{key!r}] is a {kind}, not text, number or truth")


def set_trace(message: pb.EnqueueRequest, traceparent: str, tracestate: str | None) -> None:
    """Write a trace context into a job."""
    message.trace_context.traceparent = traceparent
    if tracestate is not None:
        message.trace_context.tracestate = tracestate


def reserve_message(options: ReserveOptions) -> pb.ReserveRequest:
    """Return a reserve request as it is sent."""
    message = pb.ReserveRequest(
        queues=options.queues, worker_id=options.worker_id, max_jobs=options.max_jobs
    )
    message.wait_timeout.FromTimedelta(options.wait_timeout)
    message.lease_duration.FromTimedelta(options.lease_duration)
    return message


def rejection_of(message: pb.JobRejection) -> rejections.JobRejection:
    """Return why a job was refused."""
    reason = message.WhichOneof("reason")
    if reason == "scheduled_too_far":
        far = message.scheduled_too_far
        actual = instant_of(far.actual) or EPOCH
        return rejections.ScheduledTooFar(far.horizon.ToTimedelta(), actual)
    if reason == "invalid_request":
        return rejections.InvalidRequest(message.invalid_request.message)
    kind = _REASONS.get(reason or "")
    if kind is None:
        return rejections.UnknownRejection()
    body = getattr(message, reason or "")
    values = [getattr(body, name) for name in kind.__annotations__]
    plain = [v if isinstance(v, str | int) else list(v) for v in values]
    found: rejections.JobRejection = kind(*plain)
    return found


_REASONS: Final[dict[str, Any]] = {
    "unknown_queue": rejections.UnknownQueue,
    "payload_too_large": rejections.PayloadTooLarge,
    "encoding_not_allowed": rejections.EncodingNotAllowed,
    "job_type_not_allowed": rejections.JobTypeNotAllowed,
    "custom_entries_too_many": rejections.CustomEntriesTooMany,
    "custom_map_too_large": rejections.CustomMapTooLarge,
    "custom_key_too_long": rejections.CustomKeyTooLong,
    "queue_name_too_long": rejections.QueueNameTooLong,
    "job_type_name_too_long": rejections.JobTypeNameTooLong,
    "idempotency_key_too_long": rejections.IdempotencyKeyTooLong,
    "queue_full": rejections.QueueFull,
    "queue_closing": rejections.QueueClosing,
}


def validation_error_of(message: pb.JobValidationError) -> rejections.JobValidationError:
    """Return one reason for which an atomic batch was refused."""
    return rejections.JobValidationError(message.index, rejection_of(message.rejection))


def _needed_instant(stamp: Timestamp, name: str) -> datetime:
    found = instant_of(stamp)
    if found is None:
        raise errors.JobConversionError(f"{name} is no time this client can tell")
    return found


def _custom_of(job: pb.Job) -> dict[str, Primitive]:
    found: dict[str, Primitive] = {}
    for key, value in job.custom.items():
        kind = value.WhichOneof("value")
        if kind is None:
            raise errors.JobConversionError(f"custom[{key!r}] has no value")
        found[key] = getattr(value, kind)
    return found


def _priority_of(job: pb.Job) -> Priority:
    if job.priority >= len(PRIORITIES):
        raise errors.JobConversionError(f"priority {job.priority} is above {Priority.MAX}")
    return PRIORITIES[job.priority]


def _check_names(job: pb.Job) -> None:
    if not job.id:
        raise errors.JobConversionError("a job has no id")
    if not job.job_type:
        raise errors.JobConversionError(f"job {job.id} has no job type")


def _trace_of(job: pb.Job) -> TraceContext | None:
    """Return the job's trace; one that is malformed is dropped, since it must not hold up a job."""
    if not job.HasField("trace_context"):
        return None
    trace = job.trace_context
    state = trace.tracestate if trace.HasField("tracestate") else None
    try:
        return TraceContext(trace.traceparent, state)
    except TraceContextError:
        return None


def _payload_of(job: pb.Job) -> Payload | None:
    return Payload(job.payload.data, job.payload.encoding) if job.HasField("payload") else None


def _scheduled_of(job: pb.Job) -> datetime | None:
    return instant_of(job.scheduled_at) if job.HasField("scheduled_at") else None


def job_of(job: pb.Job, lease: LeaseHandle | None) -> Job:
    """Return a leased job.

    Raises:
        JobConversionError: It lacks what the protocol demands.
    """
    _check_names(job)
    ctx = JobCtx(
        job.id,
        job.queue,
        job.job_type,
        _priority_of(job),
        job.attempt,
        job.max_attempts,
        _needed_instant(job.enqueued_at, "enqueued_at"),
        _custom_of(job) if job.custom else {},
        _trace_of(job),
        _needed_instant(job.lease_expires_at, "lease_expires_at"),
        _scheduled_of(job),
        lease,
    )
    return Job(_payload_of(job), ctx)


def dead_letter_of(record: pb.DeadLetterRecord) -> DeadLetterRecord:
    """Return a drained dead letter.

    Raises:
        JobConversionError: It lacks what the protocol demands.
    """
    if not record.HasField("job"):
        raise errors.JobConversionError("a dead letter has no job")
    job = record.job
    _check_names(job)
    return DeadLetterRecord(
        queue=job.queue,
        job_id=job.id,
        job_type=job.job_type,
        payload=_payload_of(job),
        priority=_priority_of(job),
        max_attempts=job.max_attempts,
        custom=_custom_of(job),
        trace_context=_trace_of(job),
        enqueued_at=_needed_instant(job.enqueued_at, "enqueued_at"),
        scheduled_at=_scheduled_of(job),
        cause=_CAUSES.get(record.cause, DeadLetterCause.UNSPECIFIED),
        failed_at=_needed_instant(record.failed_at, "failed_at"),
        final_attempt=record.final_attempt,
        last_reason=record.last_reason if record.HasField("last_reason") else None,
    )


def server_info_of(message: pb.GetServerInfoResponse) -> ServerInfo:
    """Return what a server says of itself.

    Raises:
        ServerInfoError: It lacks what the protocol demands.
    """
    if not message.server_version:
        raise errors.ServerInfoError("server_version is missing")
    now = instant_of(message.server_time)
    if now is None:
        raise errors.ServerInfoError("server_time is no time this client can tell")
    values = {
        field.name: getattr(message, field.name)
        for field in message.DESCRIPTOR.fields
        if field.name not in ("server_version", "server_time")
    }
    for name, value in values.items():
        if isinstance(value, Duration):
            values[name] = value.ToTimedelta()
        elif not isinstance(value, bool | int | str):
            values[name] = list(value)
    return ServerInfo(version=message.server_version, server_time=now, **values)
