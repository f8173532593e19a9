"""Frames and the canonical batches inside them: bytes out of records, and what bytes say.

FORMAT.md sections 3 and 4 are the grammar. These values are on disk, never reuse one:
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from sys import byteorder
from typing import Final
from zlib import crc32

from segstore.layout import aligned

PUT: Final = 1
STATE: Final = 2
DEL: Final = 3
EPOCH: Final = 4

FRAME_MAGIC: Final = b"\xf5SF1"
FRAME_VERSION: Final = 1
FRAME_HEADER_BYTES: Final = 80
FRAME_BYTES_MAX: Final = 0xFFFF_FFF8
# Frame flag: the moved body in it was damaged already where it was copied from.
DAMAGED: Final = 1

BATCH_MAGIC: Final = b"SCB1"
BATCH_VERSION: Final = 1
BATCH_HEADER_BYTES: Final = 64

_FRAME: Final = Struct("<4sBBHIIIIIIIIQQQIII")  # all but the frame CRC
_BATCH: Final = Struct("<4sHH16sQQIIQI")  # all but the canonical CRC
_WHOLE_FRAME: Final = Struct(f"{_FRAME.format}I")
_WHOLE_BATCH: Final = Struct(f"{_BATCH.format}I")
_CRC: Final = Struct("<I")
PADDING: Final = tuple(bytes(-length & 7) for length in range(8))  # by length & 7

assert _FRAME.size == FRAME_HEADER_BYTES - 4
assert _BATCH.size == BATCH_HEADER_BYTES - 4


@dataclass(slots=True)
class FrameHeader:
    """The header of a frame, without magic, versions and frame CRC."""

    frame_bytes: int
    record_count: int
    local_count: int
    local_bytes: int
    canonical_bytes: int
    body_bytes: int
    moved_bytes: int
    offset: int
    segment: int
    synced_off: int
    local_first: int
    previous_crc: int
    canonical_crc: int
    flags: int = 0
    # Where the parts begin, from the start of the segment, and the frame CRC: set by `parse_frame`.
    locals_at: int = 0
    canonical_at: int = 0
    bodies_at: int = 0
    moved_at: int = 0
    crc: int = 0


@dataclass(slots=True)
class BatchHeader:
    """The header of a canonical batch, without magic and version."""

    record_bytes: int
    store_uuid: bytes
    epoch: int
    first_lsn: int
    count: int
    body_bytes: int
    log_clock_ms: int
    previous_crc: int
    crc: int


def encode_batch(header: BatchHeader, records: bytes) -> tuple[bytes, int]:
    """Return header and records of a canonical batch, 8-aligned, and its CRC.

    The bodies come behind.
    """
    assert len(records) == header.count * header.record_bytes
    head = _BATCH.pack(
        BATCH_MAGIC,
        BATCH_VERSION,
        header.record_bytes,
        header.store_uuid,
        header.epoch,
        header.first_lsn,
        header.count,
        header.body_bytes,
        header.log_clock_ms,
        header.previous_crc,
    )
    crc = crc32(records, crc32(head))
    return b"".join((head, _CRC.pack(crc), records, PADDING[len(records) & 7])), crc


def encode_private(header: FrameHeader, private: bytes, salt: int) -> tuple[bytes, int]:
    """Return header, hints, homes and locals of a frame, and its CRC.

    Args:
        header: All of it set; `frame_bytes` counts what comes behind too.
        private: Hints, homes and locals.
    """
    assert len(private) == 8 * header.record_count + header.local_bytes
    assert header.offset & 7 == 0
    head = _FRAME.pack(
        FRAME_MAGIC,
        FRAME_VERSION,
        header.flags,
        FRAME_HEADER_BYTES,
        header.frame_bytes,
        header.record_count,
        header.local_count,
        header.local_bytes,
        header.canonical_bytes,
        header.body_bytes,
        header.moved_bytes,
        header.offset >> 3,
        header.segment,
        header.synced_off,
        header.local_first,
        header.previous_crc,
        header.canonical_crc,
        0,
    )
    crc = crc32(private, crc32(head, salt))
    return b"".join((head, _CRC.pack(crc), private)), crc


def parse_frame(
    data: memoryview, offset: int, segment: int, salt: int, *, base: int = 0
) -> FrameHeader | str:
    """Read the frame at `offset`; nothing of its canonical batch and bodies is checked here.

    Args:
        data: Bytes of a segment.
        offset: From the start of the segment.
        segment, salt: Of that segment.
        base: Where in the segment `data` starts.

    Returns:
        The header, or what is wrong.
    """
    if offset - base + FRAME_HEADER_BYTES > len(data):
        return "the file ends inside a frame header"
    (
        magic,
        version,
        flags,
        header_bytes,
        frame_bytes,
        record_count,
        local_count,
        local_bytes,
        canonical_bytes,
        body_bytes,
        moved_bytes,
        offset8,
        frame_segment,
        synced_off,
        local_first,
        previous_crc,
        canonical_crc,
        _zero,
        crc,
    ) = _WHOLE_FRAME.unpack_from(data, offset - base)
    if magic != FRAME_MAGIC or version != FRAME_VERSION or header_bytes != FRAME_HEADER_BYTES:
        return "no frame starts here"
    private_at = offset + FRAME_HEADER_BYTES
    locals_at = private_at + 8 * record_count
    canonical_at = locals_at + local_bytes
    bodies_at = canonical_at + canonical_bytes
    moved_at = bodies_at + body_bytes
    if frame_bytes != moved_at + moved_bytes - offset or (frame_bytes | local_bytes) & 7:
        return "the lengths of the frame do not agree"
    if offset8 << 3 != offset or frame_segment != segment:
        return f"this frame belongs to segment {frame_segment} at {offset8 << 3}"
    if canonical_at - base > len(data):
        return "the file ends inside a frame"
    found = crc32(data[offset - base : private_at - base - 4], salt)
    found = crc32(data[private_at - base : canonical_at - base], found)
    if found != crc:
        return f"frame CRC mismatch: expected {crc:08x}, found {found:08x}"
    return FrameHeader(
        frame_bytes, record_count, local_count, local_bytes, canonical_bytes, body_bytes,
        moved_bytes, offset, frame_segment, synced_off, local_first, previous_crc, canonical_crc,
        flags, locals_at, canonical_at, bodies_at, moved_at, crc,
    )  # fmt: skip


def parse_batch(
    data: memoryview, frame: FrameHeader, record_bytes: int, *, base: int = 0
) -> BatchHeader | str:
    """Read the canonical batch of a frame and check its CRC; nothing of its bodies.

    Args:
        data, base: As in `parse_frame`.

    Returns:
        The header, or what is wrong. The records lie BATCH_HEADER_BYTES behind `canonical_at`.
    """
    start, end = frame.canonical_at - base, frame.bodies_at - base
    if end > len(data):
        return "the file ends inside a batch"
    magic, version, size, uuid, epoch, first, count, body_bytes, clock, previous, crc = (
        _WHOLE_BATCH.unpack_from(data, start)
    )
    if magic != BATCH_MAGIC or version != BATCH_VERSION or size != record_bytes:
        return "no batch where the frame says"
    records_at = start + BATCH_HEADER_BYTES
    if count != frame.record_count or body_bytes != frame.body_bytes:
        return "batch and frame do not agree"
    if records_at + aligned(count * size) != end:
        return "the lengths of the batch do not agree"
    found = crc32(data[records_at : records_at + count * size], crc32(data[start : records_at - 4]))
    if found != crc or crc != frame.canonical_crc:
        return f"batch CRC mismatch: expected {frame.canonical_crc:08x}, found {found:08x}"
    return BatchHeader(size, uuid, epoch, first, count, body_bytes, clock, previous, crc)


def encode_u32(values: Sequence[int]) -> bytes:
    """Return the values as little-endian u32."""
    column = array("I", values)
    if byteorder == "big":  # the disk is little-endian
        column.byteswap()
    return column.tobytes()


def decode_u32(data: bytes | memoryview) -> "array[int]":
    """Return little-endian u32 values."""
    column = array("I", bytes(data))
    if byteorder == "big":  # the disk is little-endian
        column.byteswap()
    return column
