"""The server's limits held on this side, to spare a call for a job that it would refuse.

What a server tells of its limits holds for queues without settings of their own. A queue may be
stricter, so the server may still refuse; or laxer, so check only where no queue is.
"""

from datetime import UTC, timedelta

from sepp.client import rejections
from sepp.client.rejections import JobRejection
from sepp.client.types import EnqueueRequest, Primitive, ServerInfo

_NUMBER_BYTES = 8


def size_of(value: Primitive) -> int:
    """Return the bytes a custom value counts for."""
    if isinstance(value, str):
        return len(value.encode())
    return 1 if isinstance(value, bool) else _NUMBER_BYTES


def check_job(job: EnqueueRequest, info: ServerInfo) -> JobRejection | None:
    """Return why a server with these limits would refuse a job, None when it would take it.

    The reason is the one the server would give: its checks come in the same order. What only the
    server can know (whether the queue is declared, full or closing) is left to it. Time is taken
    from `info`, so a schedule is checked against when that was fetched.
    """
    return _check_names(job, info) or _check_contents(job, info)


def _check_names(job: EnqueueRequest, info: ServerInfo) -> JobRejection | None:
    size = len(job.queue.encode())
    if size > info.max_queue_name_bytes:
        return rejections.QueueNameTooLong(info.max_queue_name_bytes, size)
    size = len(job.job_type.encode())
    if size > info.max_job_type_bytes:
        return rejections.JobTypeNameTooLong(info.max_job_type_bytes, size)
    size = len((job.idempotency_key or "").encode())
    if size > info.max_idempotency_key_bytes:
        return rejections.IdempotencyKeyTooLong(info.max_idempotency_key_bytes, size)
    return None


def _check_contents(job: EnqueueRequest, info: ServerInfo) -> JobRejection | None:
    payload = job.payload
    if payload is not None:
        if len(payload.data) > info.max_payload_bytes:
            return rejections.PayloadTooLarge(info.max_payload_bytes, len(payload.data))
        if info.restricts_encodings and payload.encoding not in info.allowed_encodings:
            return rejections.EncodingNotAllowed(payload.encoding, list(info.allowed_encodings))
    if len(job.custom) > info.max_custom_entries:
        return rejections.CustomEntriesTooMany(info.max_custom_entries, len(job.custom))
    total = 0
    for key, value in job.custom.items():
        key_bytes = len(key.encode())
        if key_bytes > info.max_custom_key_bytes:
            return rejections.CustomKeyTooLong(key, info.max_custom_key_bytes, key_bytes)
        total += key_bytes + size_of(value)
    if total > info.max_custom_total_bytes:
        return rejections.CustomMapTooLarge(info.max_custom_total_bytes, total)
    at = job.scheduled_at
    if at is not None:
        at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
        if at - info.server_time > max(info.max_schedule_horizon, timedelta(0)):
            return rejections.ScheduledTooFar(info.max_schedule_horizon, at)
    return None
