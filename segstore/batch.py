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

BATCH_MAGIC: Final = b"SCB1"
BATCH_VERSION: Final = 1
BATCH_HEADER_BYTES: Final = 64

_FRAME: Final = Struct("<4sBBHIIIIIIIIQQQIII")  # all but the frame CRC
_BATCH: Final = Struct("<4sHH16sQQIIQI")  # all but the canonical CRC
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
    crc: int = 0  # of the frame; set by `parse_frame`

    @property
    def locals_offset(self) -> int:
        """Where the local records lie, from the start of the frame."""
        return FRAME_HEADER_BYTES + 8 * self.record_count

    @property
    def canonical_offset(self) -> int:
        """Where the canonical batch lies, from the start of the frame."""
        return self.locals_offset + self.local_bytes

    @property
    def bodies_offset(self) -> int:
        """Where the bodies of the batch lie, from the start of the frame."""
        return self.canonical_offset + self.canonical_bytes

    @property
    def moved_offset(self) -> int:
        """Where the moved bodies lie, from the start of the frame."""
        return self.bodies_offset + self.body_bytes


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
        0,
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
    data: memoryview, position: int, *, offset: int, segment: int, salt: int
) -> FrameHeader | str:
    """Read the frame at `position` of `data`; nothing of its canonical batch is checked here.

    Args:
        data: Bytes of a segment.
        position: Where in them the frame starts.
        offset: Where in the segment that is; `segment` and `salt` are of the segment.

    Returns:
        The header, or what is wrong.
    """
    if position + FRAME_HEADER_BYTES > len(data):
        return "the file ends inside a frame header"
    (
        magic,
        version,
        _flags,
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
    ) = _FRAME.unpack_from(data, position)
    if magic != FRAME_MAGIC or version != FRAME_VERSION or header_bytes != FRAME_HEADER_BYTES:
        return "no frame starts here"
    header = FrameHeader(
        frame_bytes,
        record_count,
        local_count,
        local_bytes,
        canonical_bytes,
        body_bytes,
        moved_bytes,
        offset8 << 3,
        frame_segment,
        synced_off,
        local_first,
        previous_crc,
        canonical_crc,
    )
    if frame_bytes != header.moved_offset + moved_bytes or (frame_bytes | local_bytes) & 7:
        return "the lengths of the frame do not agree"
    if header.offset != offset or frame_segment != segment:
        return f"this frame belongs to segment {frame_segment} at {header.offset}"
    end = position + header.canonical_offset
    if end > len(data):
        return "the file ends inside a frame"
    (crc,) = _CRC.unpack_from(data, position + FRAME_HEADER_BYTES - 4)
    head = crc32(data[position : position + FRAME_HEADER_BYTES - 4], salt)
    found = crc32(data[position + FRAME_HEADER_BYTES : end], head)
    if found != crc:
        return f"frame CRC mismatch: expected {crc:08x}, found {found:08x}"
    header.crc = crc
    return header


def parse_batch(
    data: memoryview, position: int, frame: FrameHeader, record_bytes: int
) -> BatchHeader | str:
    """Read the canonical batch of the frame at `position` and check its CRC.

    Returns:
        The header, or what is wrong. Records lie BATCH_HEADER_BYTES behind `canonical_offset`.
    """
    start = position + frame.canonical_offset
    if start + frame.canonical_bytes > len(data):
        return "the file ends inside a batch"
    magic, version, size, uuid, epoch, first, count, body_bytes, clock, previous = (
        _BATCH.unpack_from(data, start)
    )
    (crc,) = _CRC.unpack_from(data, start + BATCH_HEADER_BYTES - 4)
    if magic != BATCH_MAGIC or version != BATCH_VERSION or size != record_bytes:
        return "no batch where the frame says"
    length = BATCH_HEADER_BYTES + aligned(count * size)
    if count != frame.record_count or body_bytes != frame.body_bytes:
        return "batch and frame do not agree"
    if length != frame.canonical_bytes:
        return "the lengths of the batch do not agree"
    begin = start + BATCH_HEADER_BYTES
    found = crc32(data[begin : begin + count * size], crc32(data[start : begin - 4]))
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
