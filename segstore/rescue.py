"""What can still be proven where a header is damaged: of a segment, of a frame.

All a reader needs of the header of a segment is the salt. Every frame_crc began with it, and CRC-32
runs backwards as well as forwards: the first frame yields the salt it was made with, if it is
intact itself. Another frame that verifies with that salt is the proof.

A batch has a CRC of its own, names the store, and the batch before it by CRC. Where it is the one
that is due, it is one of ours, whatever became of the frame around it.
"""

from dataclasses import replace
from struct import Struct
from typing import Final
from zlib import crc32

from segstore.batch import (
    BATCH_HEADER_BYTES,
    BATCH_MAGIC,
    FRAME_HEADER_BYTES,
    FRAME_MAGIC,
    FrameHeader,
    parse_batch,
)
from segstore.layout import SEGMENT_HEADER_BYTES, HeadLayout, SegmentHeader, aligned
from segstore.scan import Frame, LogState, SegmentScan
from segstore.walk import next_intact

_SALT: Final = Struct("<I")
_SALT_AT: Final = 56  # in a segment header
_COUNTS: Final = Struct("<III")  # records, locals, bytes of locals
_COUNTS_AT: Final = 12  # in a frame header
_BATCH_COUNTS: Final = Struct("<II")  # records, bytes of bodies
_BATCH_COUNTS_AT: Final = 40  # in a batch header
_CRC_AT: Final = FRAME_HEADER_BYTES - 4
_MASK: Final = 0xFFFF_FFFF


def _table() -> tuple[list[int], list[int]]:
    """Return the table of CRC-32, and by the upper byte of an entry its index."""
    forward = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (0xEDB8_8320 if value & 1 else 0)
        forward.append(value)
    backward = [0] * 256
    for index, entry in enumerate(forward):
        backward[entry >> 24] = index
    return forward, backward


def crc_start(data: bytes, crc: int) -> int:
    """Return the start value with which crc32 of `data` is `crc`."""
    forward, backward = _table()
    state = crc ^ _MASK
    for byte in reversed(data):
        index = backward[state >> 24]
        state = ((state ^ forward[index]) << 8 & _MASK) | (index ^ byte)
    return state ^ _MASK


def rescue_header(
    data: bytes, segment: int, store_uuid: bytes, layout: HeadLayout
) -> tuple[SegmentHeader, bool]:
    """Return a header for a segment, and whether its frames can be read with it.

    If they cannot, none of them is intact for whoever tries; batches may be found all the same.

    Args:
        data: The whole file.
        segment: The id in its name.
        store_uuid: Of the store.
        layout: Of the heads, from another segment.
    """
    header = SegmentHeader(store_uuid, segment, 0, 0, 0, layout.record_bytes, layout.text)
    if len(data) < SEGMENT_HEADER_BYTES + FRAME_HEADER_BYTES:
        return header, False
    stored = _SALT.unpack_from(data, _SALT_AT)[0]
    computed = _salt_of_first_frame(data)
    for salt in (stored, computed):
        header = replace(header, salt=salt)
        scan = SegmentScan(data, header, layout, LogState())
        first = next_intact(scan, SEGMENT_HEADER_BYTES)
        if first is None:
            continue
        behind = first.header.offset + first.header.frame_bytes
        # With the salt that was computed from it, the first frame proves nothing.
        if salt == stored or next_intact(scan, behind) is not None:
            is_first = first.header.offset == SEGMENT_HEADER_BYTES
            return replace(header, crc=first.header.previous_crc if is_first else 0), True
    return replace(header, salt=computed ^ 1), False


def _salt_of_first_frame(data: bytes) -> int:
    start = SEGMENT_HEADER_BYTES
    if data[start : start + 4] != FRAME_MAGIC:
        return 0
    record_count, _local_count, local_bytes = _COUNTS.unpack_from(data, start + _COUNTS_AT)
    private_bytes = 8 * record_count + local_bytes
    if private_bytes > len(data):
        return 0
    private_at = start + FRAME_HEADER_BYTES
    private = data[private_at : private_at + private_bytes]
    (crc,) = _SALT.unpack_from(data, start + _CRC_AT)
    salt = crc_start(data[start : start + _CRC_AT] + private, crc)
    assert crc32(private, crc32(data[start : start + _CRC_AT], salt)) == crc
    return salt


def rescue_batch(scan: SegmentScan, start: int, stop: int) -> Frame | None:
    """Return the batch that is due, from between two offsets, as a frame without local records."""
    position = scan.data.find(BATCH_MAGIC, start, stop)
    while position >= 0:
        found = None if position & 7 else _batch_at(scan, position)
        if found is not None:
            return found
        position = scan.data.find(BATCH_MAGIC, position + 1, stop)
    return None


def _batch_at(scan: SegmentScan, position: int) -> Frame | None:
    data, layout, state = scan.data, scan.layout, scan.state
    if position + BATCH_HEADER_BYTES > len(data):
        return None
    count, body_bytes = _BATCH_COUNTS.unpack_from(data, position + _BATCH_COUNTS_AT)
    (crc,) = _SALT.unpack_from(data, position + BATCH_HEADER_BYTES - 4)
    canonical_bytes = BATCH_HEADER_BYTES + aligned(count * layout.record_bytes)
    bodies_at = position + canonical_bytes
    header = FrameHeader(
        canonical_bytes + body_bytes, count, 0, 0, canonical_bytes, body_bytes, 0, position,
        scan.header.segment, 0, state.local_next, scan.last_crc, crc, 0,
        position, position, bodies_at, bodies_at + body_bytes,
    )  # fmt: skip
    batch = parse_batch(scan.view, header, layout.record_bytes)
    if isinstance(batch, str) or not count or bodies_at + body_bytes > len(data):
        return None
    is_due = (batch.first_lsn, batch.previous_crc) == (state.last_lsn + 1, state.canonical_crc)
    if not is_due or batch.store_uuid != scan.header.store_uuid:
        return None
    return Frame(header, batch, [])
