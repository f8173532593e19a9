"""The bytes of a snapshot: `snap-<LSN>.snap`, FORMAT.md section 10.

A snapshot is a shortcut and never the truth: whatever is wrong with one, the log is replayed
without it. So there is one reader, of this version, and every byte is under a CRC.
"""

import re
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from struct import Struct
from sys import byteorder
from typing import Final
from zlib import crc32

from segstore.layout import SNAPSHOT_PREFIX, SNAPSHOT_SUFFIX, HeadLayout
from segstore.local import SegmentEnd
from segstore.scan import LogPoint, LogState
from segstore.usage import Needed
from segstore.vfs import VFS, Buffer

SNAPSHOT_MAGIC: Final = b"SEGSNAP1"
SNAPSHOT_VERSION: Final = 1
HEADER_BYTES: Final = 4096

# Kinds of blocks; on disk, never reuse one.
SLOTS: Final = 1
END: Final = 2

_HEADER: Final = Struct("<8sII16sQIIIH")
_POINT: Final = Struct("<QQIIQQQQ")
_ENTRY: Final = Struct("<QQII")
_NEEDED: Final = Struct("<QQQ")
_CRC: Final = Struct("<I")
_BLOCK: Final = Struct("<IIQ")  # crc, kind, bytes of the payload
_PART: Final = Struct("<II")  # first slot, number of slots
_END: Final = Struct("<QQ")  # slots ever used, blocks before this one
_NAME: Final = re.compile(r"snap-(\d{20})\.snap\Z")


@dataclass(frozen=True, slots=True)
class Begin:
    """Where a snapshot begins: what the log says from there on is replayed.

    Attributes:
        point: Behind the last frame that was built.
        victim: Segment under compaction; 0: none.
        segments: The live ones before that of `point`, as a segment list has them.
        needed: What is counted up to there.
    """

    point: LogPoint
    victim: int
    segments: tuple[SegmentEnd, ...]
    needed: Needed


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a file holds.

    Attributes:
        end: Everything in the snapshot is in the log before this point.
        used_count: Slots ever used.
        parts: First slot, number of slots, columns as `Slots.take_over` wants them.
    """

    byte_count: int
    begin: Begin
    end: LogPoint
    used_count: int
    parts: list[tuple[int, int, memoryview]]


def pack_point(point: LogPoint) -> bytes:
    """Return a point as it is on disk."""
    state = point.state
    return _POINT.pack(
        point.segment,
        point.offset,
        point.frame_crc,
        state.canonical_crc,
        state.last_lsn,
        state.epoch,
        state.log_clock_ms,
        state.local_next,
    )


def unpack_point(data: bytes | memoryview, offset: int) -> LogPoint:
    """Read one back."""
    segment, at, frame_crc, canonical_crc, lsn, epoch, clock, local_next = _POINT.unpack_from(
        data, offset
    )
    return LogPoint(segment, at, frame_crc, LogState(lsn, epoch, clock, canonical_crc, local_next))


def snapshot_name(lsn: int) -> str:
    """Return the file name of a snapshot that begins behind this LSN."""
    return f"{SNAPSHOT_PREFIX}{lsn:020d}{SNAPSHOT_SUFFIX}"


def snapshot_lsn(name: str) -> int | None:
    """Return the LSN in the name of a snapshot; None: it is no such name."""
    match = _NAME.match(name)
    return int(match[1]) if match else None


def encode_header(store_uuid: bytes, fields: str, begin: Begin) -> bytes:
    """Return what stands before the first block; its last four bytes go into the CRC of each."""
    text = fields.encode("ascii")
    needed = [
        _NEEDED.pack(segment, home, count)
        for segment, homes in begin.needed.items()
        for home, count in homes.items()
    ]
    tail = b"".join(
        (
            text,
            pack_point(begin.point),
            *(_ENTRY.pack(each.segment, each.end, each.frame_crc, 0) for each in begin.segments),
            *needed,
        )
    )
    header_bytes = -(-(_HEADER.size + len(tail) + _CRC.size) // HEADER_BYTES) * HEADER_BYTES
    head = _HEADER.pack(
        SNAPSHOT_MAGIC,
        SNAPSHOT_VERSION,
        header_bytes,
        store_uuid,
        begin.victim,
        len(begin.segments),
        len(needed),
        0,
        len(text),
    )
    body = (head + tail).ljust(header_bytes - _CRC.size, b"\0")
    return body + _CRC.pack(crc32(body))


def encode_block(kind: int, pieces: Sequence[Buffer], salt: int) -> list[Buffer]:
    """Return a block, as what to write one behind the other.

    Args:
        pieces: Of the payload; they are not copied, and others may run while their CRC is made.
        salt: CRC of the header.
    """
    length = sum(map(len, pieces))
    padding = bytes(-length & 7)
    length += len(padding)
    crc = crc32(_BLOCK.pack(0, kind, length), salt)
    for piece in (*pieces, padding):
        crc = crc32(piece, crc)
    return [_BLOCK.pack(crc, kind, length), *pieces, padding]


def encode_slots(
    start: int, count: int, columns: Iterable["bytearray | array[int]"]
) -> list[Buffer]:
    """Return the pieces of a block of slots; `columns` as `Slots.copy` returned them."""
    pieces: list[Buffer] = [_PART.pack(start, count)]
    for column in columns:
        if isinstance(column, array) and byteorder == "big":  # the disk is little-endian
            column.byteswap()
        data = memoryview(column).cast("B")
        pieces += (data, bytes(-len(data) & 7))
    return pieces


def encode_end(end: LogPoint, used_count: int, block_count: int) -> list[Buffer]:
    """Return the pieces of the last block."""
    return [pack_point(end), _END.pack(used_count, block_count)]


def read_snapshot(vfs: VFS, path: str, store_uuid: bytes, layout: HeadLayout) -> Snapshot | str:
    """Return what a file holds, or what is wrong with it."""
    try:
        file = vfs.open(path, is_readonly=True)
        try:
            data = file.pread(file.size(), 0)
        finally:
            file.close()
    except OSError as problem:
        return str(problem)
    return decode(data, store_uuid, layout.text)


def decode(data: bytes, store_uuid: bytes, fields: str) -> Snapshot | str:
    """Return the snapshot in the bytes of a file, or what is wrong with it."""
    header = _decode_header(data, store_uuid, fields)
    if isinstance(header, str):
        return header
    begin, at = header
    view = memoryview(data)
    (salt,) = _CRC.unpack_from(data, at - _CRC.size)
    parts: list[tuple[int, int, memoryview]] = []
    while at + _BLOCK.size <= len(data):
        crc, kind, length = _BLOCK.unpack_from(data, at)
        start, stop = at + _BLOCK.size, at + _BLOCK.size + length
        if stop > len(data):
            break
        payload = view[start:stop]
        if crc32(payload, crc32(_BLOCK.pack(0, kind, length), salt)) != crc:
            return f"CRC mismatch at {at}"
        at = stop
        if kind == SLOTS:
            first, count = _PART.unpack_from(payload)
            parts.append((first, count, payload[_PART.size :]))
        elif kind == END:
            used_count, block_count = _END.unpack_from(payload, _POINT.size)
            if at != len(data) or block_count != len(parts):
                return "not all of it is there"
            if any(first + count > used_count for first, count, _ in parts):
                return "more slots than there were"
            return Snapshot(len(data), begin, unpack_point(payload, 0), used_count, parts)
        else:
            return f"block of unknown kind {kind} at {at}"
    return "cut short"


def _decode_header(data: bytes, store_uuid: bytes, fields: str) -> tuple[Begin, int] | str:
    """Return the begin and where the blocks start, or what is wrong."""
    if len(data) < HEADER_BYTES:
        return "cut short"
    magic, version, header_bytes, uuid, victim, segment_count, needed_count, _, text_bytes = (
        _HEADER.unpack_from(data)
    )
    if magic != SNAPSHOT_MAGIC or version != SNAPSHOT_VERSION:
        return f"magic {magic!r}, version {version}"
    crc_at = header_bytes - _CRC.size
    if crc_at < HEADER_BYTES - _CRC.size or len(data) < header_bytes:
        return "cut short"
    if _CRC.unpack_from(data, crc_at)[0] != crc32(memoryview(data)[:crc_at]):
        return "CRC mismatch in the header"
    if uuid != store_uuid:
        return f"of store {uuid.hex()}"
    at = _HEADER.size + text_bytes
    if data[_HEADER.size : at] != fields.encode("ascii"):
        return "of entries with other fields"
    point = unpack_point(data, at)
    at += _POINT.size
    segments = []
    for _ in range(segment_count):
        segments.append(SegmentEnd(*_ENTRY.unpack_from(data, at)[:3]))
        at += _ENTRY.size
    needed: Needed = {}
    for _ in range(needed_count):
        segment, home, count = _NEEDED.unpack_from(data, at)
        needed.setdefault(segment, {})[home] = count
        at += _NEEDED.size
    return Begin(point, victim, tuple(segments), needed), header_bytes
