"""Pieces of protobuf wire format written by hand where a message is joined from stored bytes.

A job's body is made once, at enqueue, and never decoded to be delivered: a delivery is a join of
stored parts and a few fields that belong to this lease. Each field is written exactly once, because
a message field that appears twice would merge instead of replace (protobuf encoding, "Last One
Wins").

Body on disk (never reuse the version byte):

    version u8 = 1 | fixed_length u32 | trace_length u32 | fixed | trace | scheduled

    fixed      the Job fields that never change: id, job_type, payload, priority, max_attempts,
               custom, queue
    trace      field trace_context with its tag, or nothing
    scheduled  field scheduled_at with its tag, or nothing
"""

from collections.abc import Mapping
from functools import lru_cache
from os import urandom
from struct import Struct
from typing import Final

from sepp._generated import queue_pb2 as pb

_PREFIX: Final = Struct("<BII")
_VERSION: Final = 1

# Tags of Job fields: number << 3 | wire type (2 = length-delimited, 0 = varint).
_ID: Final = b"\x0a\x24"  # 36 bytes follow, always
_JOB_TYPE: Final = b"\x12"
PAYLOAD_TAG: Final = b"\x1a"
_PRIORITY: Final = b"\x20"
_TRACE_CONTEXT: Final = b"\x2a"
_ENQUEUED_AT: Final = b"\x32"
_ATTEMPT: Final = b"\x38"
_MAX_ATTEMPTS: Final = b"\x40"
_LEASE_EXPIRES_AT: Final = b"\x4a"
_SCHEDULED_AT: Final = b"\x5a"
_QUEUE: Final = b"\x62"
_JOBS: Final = b"\x0a"  # ReserveResponse.jobs


def varint(value: int) -> bytes:
    """Encode a non-negative integer of at most 64 bits."""
    if value < 0x80:
        return _ONE_BYTE[value]
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_ONE_BYTE: Final = [bytes((value,)) for value in range(0x80)]


def timestamp_bytes(at_ms: int) -> bytes:
    """Encode a `google.protobuf.Timestamp` for wall ms since the epoch, without tag and length."""
    seconds, ms = divmod(at_ms, 1000)
    body = b"\x08" + varint(seconds) if seconds else b""
    return body + b"\x10" + varint(ms * 1_000_000) if ms else body


@lru_cache(maxsize=4096)
def _enqueued_field(at_ms: int) -> bytes:
    body = timestamp_bytes(at_ms)
    return _ENQUEUED_AT + varint(len(body)) + body


@lru_cache(maxsize=4096)
def lease_field(at_ms: int) -> bytes:
    """The field lease_expires_at, shared by all jobs of one answer."""
    body = timestamp_bytes(at_ms)
    return _LEASE_EXPIRES_AT + varint(len(body)) + body


@lru_cache(maxsize=4096)
def common_fields(queue: str, job_type: str, priority: int, max_attempts: int) -> bytes:
    """The fields of a Job that all jobs of a kind share."""
    kind, name = job_type.encode(), queue.encode()
    parts = [_JOB_TYPE, varint(len(kind)), kind]
    if priority:
        parts += (_PRIORITY, varint(priority))
    parts += (_MAX_ATTEMPTS, varint(max_attempts), _QUEUE, varint(len(name)), name)
    return b"".join(parts)


def string_field(number: int, text: str) -> bytes:
    """Encode a string field with a number below 16; nothing for an empty one."""
    raw = text.encode()
    return bytes((number << 3 | 2,)) + varint(len(raw)) + raw if raw else b""


def plain_body(job_id: str, common: bytes, payload: bytes) -> bytes:
    """Make the body of a job that has nothing but a payload.

    Args:
        common: From `common_fields`.
        payload: The field of the request with its tag, which is the same in a Job.
    """
    fixed_length = 38 + len(common) + len(payload)
    return b"".join(
        (_PREFIX.pack(_VERSION, fixed_length, 0), _ID, job_id.encode(), common, payload)
    )


def encode_body(
    job_id: str,
    queue: str,
    job_type: str,
    priority: int,
    max_attempts: int,
    payload: pb.Payload | None,
    custom: Mapping[str, pb.PrimitiveValue] | None,
    trace: pb.TraceContext | None,
    scheduled: bytes | None,
) -> bytes:
    """Make the body of a new job from the parts of a checked request.

    Args:
        payload: Its payload, or None when absent.
        custom: Its custom map, or None when empty.
        trace: The context to store, or None.
        scheduled: The encoded Timestamp as it was sent, echoed for ever; None when unset. The epoch
            itself encodes to no bytes at all, and is echoed too.
    """
    fixed = _ID + job_id.encode() + common_fields(queue, job_type, priority, max_attempts)
    if payload is not None:
        data = payload.SerializeToString()
        fixed = b"".join((fixed, PAYLOAD_TAG, varint(len(data)), data))
    if custom is not None:
        fixed += pb.Job(custom=custom).SerializeToString()
    if trace is None and scheduled is None:
        return _PREFIX.pack(_VERSION, len(fixed), 0) + fixed
    trace_part = b""
    if trace is not None:
        trace_part = trace_field(trace.SerializeToString())
    scheduled_part = b""
    if scheduled is not None:
        scheduled_part = _SCHEDULED_AT + varint(len(scheduled)) + scheduled
    prefix = _PREFIX.pack(_VERSION, len(fixed), len(trace_part))
    return b"".join((prefix, fixed, trace_part, scheduled_part))


def trace_field(context: bytes) -> bytes:
    """Frame an encoded TraceContext as the Job's field."""
    return _TRACE_CONTEXT + varint(len(context)) + context


def leased_job(
    body: bytes,
    *,
    attempt: int,
    enqueued_ms: int,
    lease: bytes,
    trace: bytes | None = None,
    is_requeued: bool = False,
) -> bytes:
    """Join one entry of ReserveResponse.jobs, tag and length included.

    Args:
        body: The stored body.
        lease: The field from `lease_field`.
        trace: Replaces the stored trace_context field when given.
        is_requeued: The schedule of the job is over and not told any more.
    """
    size = _PREFIX.size
    _, fixed_length, trace_length = _PREFIX.unpack_from(body)
    facts = b"".join((_ATTEMPT, varint(attempt), _enqueued_field(enqueued_ms), lease))
    if trace is None and not is_requeued:
        # What is stored behind the prefix is in final form: one slice takes it all.
        return b"".join((_JOBS, varint(len(body) - size + len(facts)), body[size:], facts))
    fixed_end = size + fixed_length
    trace_end = fixed_end + trace_length
    fixed = body[size:fixed_end]
    if trace is None:
        trace = body[fixed_end:trace_end]
    scheduled = b"" if is_requeued else body[trace_end:]
    length = len(fixed) + len(trace) + len(scheduled) + len(facts)
    return b"".join((_JOBS, varint(length), fixed, trace, scheduled, facts))


def stored_trace(body: bytes) -> pb.TraceContext | None:
    """The trace context stored with a job, or None."""
    _, fixed_length, trace_length = _PREFIX.unpack_from(body)
    if not trace_length:
        return None
    start = _PREFIX.size + fixed_length
    context: pb.TraceContext = pb.Job.FromString(body[start : start + trace_length]).trace_context
    return context


def decode_job(body: bytes, *, attempt: int, enqueued_ms: int) -> pb.Job:
    """The stored Job as a message, without a lease."""
    job: pb.Job = pb.Job.FromString(body[_PREFIX.size :])
    job.attempt = attempt
    job.enqueued_at.FromMilliseconds(enqueued_ms)
    return job


def span_ms(seconds: int, nanos: int) -> int:
    """Whole milliseconds of a Duration or Timestamp, the rest cut towards zero (protocol.md)."""
    total = seconds * 1_000_000_000 + nanos
    return total // 1_000_000 if total >= 0 else -(-total // 1_000_000)


def new_job_id() -> bytes:
    """A version-4 UUID whose last 16 bits are the shard the job was born on, 0 for now."""
    return new_named_id()[0]


def new_named_id() -> tuple[bytes, str]:
    """A new job id and its text."""
    if not _random_ids:
        # One system call for many ids.
        noise = urandom(_ID_NOISE_BYTES * _IDS_AT_ONCE)
        for start in range(0, len(noise), _ID_NOISE_BYTES):
            raw = bytearray(noise[start : start + _ID_NOISE_BYTES])
            raw[6] = raw[6] & 0x0F | 0x40
            raw[8] = raw[8] & 0x3F | 0x80
            job_id = bytes(raw) + b"\x00\x00"
            _random_ids.append((job_id, id_text(job_id)))
    return _random_ids.pop()


_ID_NOISE_BYTES: Final = 14
_IDS_AT_ONCE: Final = 256
_random_ids: Final[list[tuple[bytes, str]]] = []


def id_text(job_id: bytes) -> str:
    """The lower-case hyphenated text of a 16-byte id."""
    text = job_id.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def id_bytes(text: str) -> bytes | None:
    """The 16 bytes of a 36-character hyphenated UUID in either case, or None if it is not one."""
    if len(text) != 36 or text[8] != "-" or text[13] != "-" or text[18] != "-" or text[23] != "-":
        return None
    digits = text.replace("-", "")
    if len(digits) != 32 or not digits.isascii():
        return None
    try:
        value = bytes.fromhex(digits)
    except ValueError:
        return None
    return value if len(value) == 16 else None  # fromhex would pass over spaces
