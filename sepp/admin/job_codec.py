"""Between the wire form of a job and what operators read and write."""

from typing import Any

from sepp import wire
from sepp._generated import queue_pb2 as pb
from sepp.admin.backend import CustomValue, EnqueueForm, JobContent, JobHead


def content_of(head: JobHead, body: bytes | None) -> JobContent | None:
    """Return the parts of a stored job; None for a body that could not be read."""
    if body is None:
        return None
    job = wire.decode_job(body, attempt=head.attempt, enqueued_ms=head.enqueued_ms)
    content = JobContent(job.job_type)
    if job.HasField("payload"):
        content.payload = job.payload.data
        content.encoding = job.payload.encoding
    content.custom = {key: _custom(value) for key, value in sorted(job.custom.items())}
    if job.HasField("scheduled_at") and not head.was_requeued:
        at = job.scheduled_at
        content.scheduled_at_ms = max(0, wire.span_ms(at.seconds, at.nanos))
    if job.HasField("trace_context"):
        content.traceparent = job.trace_context.traceparent
    return content


def _custom(value: pb.PrimitiveValue) -> CustomValue:
    found: CustomValue = getattr(value, value.WhichOneof("value") or "string_value")
    return found


def request_of(form: EnqueueForm) -> pb.EnqueueRequest:
    """Return what a producer would have sent for this form."""
    request = pb.EnqueueRequest(queue=form.queue, job_type=form.job_type)
    if form.payload is not None:
        request.payload.data = form.payload
        request.payload.encoding = form.encoding
    if form.priority is not None:
        request.priority = form.priority
    if form.max_attempts is not None:
        request.max_attempts = form.max_attempts
    if form.idempotency_key is not None:
        request.idempotency_key = form.idempotency_key
    if form.scheduled_at_ms is not None:
        request.scheduled_at.FromMilliseconds(form.scheduled_at_ms)
    for key, value in form.custom.items():
        entry: Any = request.custom[key]
        if isinstance(value, bool):
            entry.bool_value = value
        elif isinstance(value, int):
            entry.int_value = value
        elif isinstance(value, float):
            entry.double_value = value
        else:
            entry.string_value = value
    return request
