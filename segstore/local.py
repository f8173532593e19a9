"""Local records: what one directory notes down for itself (FORMAT.md section 5).

These values are on disk, never reuse one:
"""

from dataclasses import dataclass
from struct import Struct, error
from typing import Final

from segstore.batch import PADDING
from segstore.layout import aligned

SEGLIST: Final = 65
COMPACT: Final = 66
SEGDROP: Final = 67
SEAL: Final = 68
NOTE: Final = 69
MOVE: Final = 70

_HEAD: Final = Struct("<BBHI")
_SEGLIST: Final = Struct("<QQQQII")
_ENTRY: Final = Struct("<QQII")
_ONE: Final = Struct("<Q")
_SEAL: Final = Struct("<QQ")
MOVE_HEAD_FORMAT: Final = "QQII"
_MOVE: Final = Struct(f"<{MOVE_HEAD_FORMAT}")

SEAL_BYTES: Final = _HEAD.size + _SEAL.size


@dataclass(frozen=True, slots=True)
class SegmentEnd:
    """Where a segment ends and with which frame."""

    segment: int
    end: int
    frame_crc: int


@dataclass(frozen=True, slots=True)
class SegmentList:
    """The live segments before this one and where the log stood when this one began."""

    victim: int
    last_lsn: int
    epoch: int
    log_clock_ms: int
    canonical_crc: int
    segments: tuple[SegmentEnd, ...]


@dataclass(frozen=True, slots=True)
class Compact:
    """The segment is being copied forward; no other may be dropped before it."""

    segment: int


@dataclass(frozen=True, slots=True)
class SegmentDrop:
    """Nothing in the segment counts any more."""

    segment: int


@dataclass(frozen=True, slots=True)
class Seal:
    """The last frame of a segment."""

    end: int
    last_lsn: int


@dataclass(frozen=True, slots=True)
class Note:
    """Clean shutdown; nothing follows."""

    last_lsn: int


@dataclass(frozen=True, slots=True)
class Move:
    """A copy of a record from another segment; `record` is a canonical record with its old LSN."""

    lsn: int
    source: int
    hint: int
    home: int
    record: bytes


Local = SegmentList | Compact | SegmentDrop | Seal | Note | Move


def encode_local(local: Local) -> bytes:
    """Return one local record, 8-aligned."""
    if isinstance(local, SegmentList):
        kind = SEGLIST
        payload = _SEGLIST.pack(
            local.victim,
            local.last_lsn,
            local.epoch,
            local.log_clock_ms,
            local.canonical_crc,
            len(local.segments),
        ) + b"".join(
            _ENTRY.pack(each.segment, each.end, each.frame_crc, 0) for each in local.segments
        )
    elif isinstance(local, Compact):
        kind, payload = COMPACT, _ONE.pack(local.segment)
    elif isinstance(local, SegmentDrop):
        kind, payload = SEGDROP, _ONE.pack(local.segment)
    elif isinstance(local, Seal):
        kind, payload = SEAL, _SEAL.pack(local.end, local.last_lsn)
    elif isinstance(local, Note):
        kind, payload = NOTE, _ONE.pack(local.last_lsn)
    else:
        kind = MOVE
        payload = _MOVE.pack(local.lsn, local.source, local.hint, local.home) + local.record
    return b"".join((_HEAD.pack(kind, 0, 0, len(payload)), payload, PADDING[len(payload) & 7]))


def decode_locals(data: bytes, count: int) -> list[Local] | str:
    """Return the `count` local records in `data`, or what is wrong with them."""
    found: list[Local] = []
    position = 0
    try:
        for _ in range(count):
            kind, _, _, length = _HEAD.unpack_from(data, position)
            start = position + _HEAD.size
            if start + length > len(data):
                return "a local record passes the end of its frame"
            found.append(_decode(kind, data[start : start + length]))
            position = start + aligned(length)
    except (error, KeyError) as problem:
        return f"a local record does not parse: {problem!r}"
    if position != len(data):
        return "local records and frame do not agree"
    return found


def _decode(kind: int, payload: bytes) -> Local:
    """Return the record; KeyError for a kind this version does not know."""
    if kind == SEGLIST:
        victim, last_lsn, epoch, clock, crc, count = _SEGLIST.unpack_from(payload)
        entries = payload[_SEGLIST.size :]
        if len(entries) != count * _ENTRY.size:
            raise error("segment list and its count do not agree")
        segments = tuple(SegmentEnd(*entry[:3]) for entry in _ENTRY.iter_unpack(entries))
        return SegmentList(victim, last_lsn, epoch, clock, crc, segments)
    if kind == COMPACT:
        return Compact(*_ONE.unpack(payload))
    if kind == SEGDROP:
        return SegmentDrop(*_ONE.unpack(payload))
    if kind == SEAL:
        return Seal(*_SEAL.unpack(payload))
    if kind == NOTE:
        return Note(*_ONE.unpack(payload))
    if kind == MOVE:
        lsn, source, hint, home = _MOVE.unpack_from(payload)
        return Move(lsn, source, hint, home, payload[_MOVE.size :])
    raise KeyError(kind)
