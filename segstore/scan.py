"""Reading a segment frame by frame, and judging the bytes behind the last good one."""

from dataclasses import dataclass
from typing import Final
from zlib import crc32

from segstore.batch import (
    BATCH_HEADER_BYTES,
    FRAME_MAGIC,
    PUT,
    BatchHeader,
    FrameHeader,
    parse_batch,
    parse_frame,
)
from segstore.layout import SEGMENT_HEADER_BYTES, HeadLayout, SegmentHeader, aligned
from segstore.local import Local, Move, Seal, SegmentList, decode_locals

SECTOR_BYTES: Final = 512
_ZEROS: Final = bytes(1 << 20)


@dataclass(slots=True)
class LogState:
    """Where the log stands: what the next frame has to continue."""

    last_lsn: int = 0
    epoch: int = 0
    log_clock_ms: int = 0
    canonical_crc: int = 0
    local_next: int = 1


@dataclass(frozen=True, slots=True)
class LogPoint:
    """A place between two frames.

    Attributes:
        frame_crc: Of the frame before it; directly behind the header of a segment: of that.
        state: Where the log stands there.
    """

    segment: int
    offset: int
    frame_crc: int
    state: LogState


@dataclass(slots=True)
class Frame:
    """A valid frame."""

    header: FrameHeader
    batch: BatchHeader | None
    locals: list[Local]


class SegmentScan:
    """Reads the frames of one segment in order: `next`, then `accept` to go on behind it.

    Args:
        data: The whole file.
        header: Its decoded header.
        state: Where the log stood before this segment; goes on with each accepted frame.
    """

    def __init__(
        self, data: bytes, header: SegmentHeader, layout: HeadLayout, state: LogState
    ) -> None:
        self.data = data
        self.view = memoryview(data)
        self.header = header
        self.layout = layout
        self.state = state
        self.offset = SEGMENT_HEADER_BYTES
        self.last_crc = header.crc
        self.is_sealed = False

    def next(self) -> Frame | str:
        """Return the frame at `offset` if it is intact and continues the log, else what is wrong.

        Its bodies are not looked at.
        """
        found = self.parse(self.offset)
        if isinstance(found, str):
            return found
        return self._discontinuity(found) or found

    def accept(self, frame: Frame) -> None:
        """Go on behind `frame`, which `next` returned."""
        batch, state = frame.batch, self.state
        state.local_next += frame.header.local_count
        self.is_sealed = bool(frame.locals) and isinstance(frame.locals[-1], Seal)
        if batch is not None:
            state.last_lsn += batch.count
            state.canonical_crc = batch.crc
            state.epoch = batch.epoch
            state.log_clock_ms = batch.log_clock_ms
        self.offset += frame.header.frame_bytes
        self.last_crc = frame.header.crc

    def parse(self, offset: int) -> Frame | str:
        """Return the frame at `offset` if all but its bodies is intact, else what is wrong."""
        header = self.parse_header(offset)
        if isinstance(header, str):
            return header
        if offset + header.frame_bytes > len(self.data):
            return "the file ends inside a frame"
        batch: BatchHeader | None = None
        if header.record_count:
            read = parse_batch(self.view, header, self.layout.record_bytes)
            if isinstance(read, str):
                return read
            batch = read
            if batch.store_uuid != self.header.store_uuid:
                return f"batch of store {batch.store_uuid.hex()}"
        found = self.locals_of(header)
        return found if isinstance(found, str) else Frame(header, batch, found)

    def parse_header(self, offset: int) -> FrameHeader | str:
        """Return the header of the frame at `offset` if its private part is intact."""
        return parse_frame(self.view, offset, self.header.segment, self.header.salt)

    def locals_of(self, header: FrameHeader) -> list[Local] | str:
        """Return the local records of a frame."""
        if not header.local_count:
            return []
        return decode_locals(self.data[header.locals_at : header.canonical_at], header.local_count)

    def record_bytes_of(self, frame: Frame) -> memoryview:
        """Return the records of the batch in `frame`."""
        assert frame.batch is not None
        start = frame.header.canonical_at + BATCH_HEADER_BYTES
        return self.view[start : start + frame.batch.count * frame.batch.record_bytes]

    def damaged_bodies(self, frame: Frame) -> list[str]:
        """Return which bodies in `frame` do not match their CRC, in words."""
        damaged: list[str] = []
        header = frame.header
        if not header.body_bytes and not header.moved_bytes:
            return damaged
        unpack = self.layout.raw_record.iter_unpack
        position = header.bodies_at
        records = unpack(self.record_bytes_of(frame)) if frame.batch else ()
        for kind, _table, _zero, length, crc, key, _head in records:
            if kind == PUT:
                if crc32(self.view[position : position + length]) != crc:
                    damaged.append(f"body of key {key.hex()} at {position}")
                position += aligned(length)
        position = header.moved_at
        for local in frame.locals:
            if isinstance(local, Move):
                for kind, _table, _zero, length, crc, key, _head in unpack(local.record):
                    if kind == PUT:
                        if crc32(self.view[position : position + length]) != crc:
                            damaged.append(f"moved body of key {key.hex()} at {position}")
                        position += aligned(length)
        return damaged

    def voucher(self, offset: int) -> Frame | FrameHeader | None:
        """Return a later frame that says this segment was durable beyond `offset`, if one does."""
        position = self.data.find(FRAME_MAGIC, offset)
        while position >= 0:
            if not position & 7:
                header = self.parse_header(position)
                if not isinstance(header, str) and header.synced_off > offset:
                    whole = self.parse(position)
                    return header if isinstance(whole, str) else whole
            position = self.data.find(FRAME_MAGIC, position + 1)
        return None

    def content_end(self) -> int:
        """Return where the last byte that is not zero ends."""
        return content_end(self.view)

    def has_zero_sector(self, start: int, stop: int) -> bool:
        """Whether a whole sector between the offsets is zero: the mark of a write half done."""
        for sector in range(aligned_up(start), stop, SECTOR_BYTES):
            piece = self.view[sector : sector + SECTOR_BYTES]
            if piece == _ZEROS[: len(piece)]:
                return True
        return False

    def _discontinuity(self, frame: Frame) -> str:
        """Return how `frame` fails to continue the log, or an empty string."""
        header, batch, state = frame.header, frame.batch, self.state
        if header.previous_crc != self.last_crc:
            return f"frame follows {header.previous_crc:08x}, not {self.last_crc:08x}"
        if self.is_sealed:
            return "a frame behind the seal"
        is_first = self.offset == SEGMENT_HEADER_BYTES
        if is_first != (bool(frame.locals) and isinstance(frame.locals[0], SegmentList)):
            return "no segment list first" if is_first else "a segment list in the middle"
        if header.local_first != state.local_next:
            return f"local record {header.local_first} where {state.local_next} was due"
        if batch is None:
            return ""
        if batch.first_lsn != state.last_lsn + 1:
            return f"LSN {batch.first_lsn} where {state.last_lsn + 1} was due"
        if batch.previous_crc != state.canonical_crc:
            return f"batch follows {batch.previous_crc:08x}, not {state.canonical_crc:08x}"
        if batch.epoch < state.epoch or batch.log_clock_ms < state.log_clock_ms:
            return f"epoch {batch.epoch} or log clock {batch.log_clock_ms} goes back"
        return ""


def ends_with(
    data: bytes, header: SegmentHeader, end: int, frame_crc: int, *, base: int = 0
) -> bool:
    """Whether a frame with this CRC, or the header itself, ends at an offset of a segment.

    Args:
        data: Bytes of the segment.
        base: Where in the segment they start.
    """
    if end == SEGMENT_HEADER_BYTES:
        return frame_crc == header.crc
    if not base < end <= base + len(data):
        return False
    view = memoryview(data)
    at = data.rfind(FRAME_MAGIC, 0, end - base)
    while at >= 0:
        if not (base + at) & 7:
            frame = parse_frame(view, base + at, header.segment, header.salt, base=base)
            if not isinstance(frame, str):
                return frame.crc == frame_crc and frame.offset + frame.frame_bytes == end
        at = data.rfind(FRAME_MAGIC, 0, at)
    return False


def aligned_up(offset: int) -> int:
    """Round up to a sector border."""
    return -(-offset // SECTOR_BYTES) * SECTOR_BYTES


def content_end(view: memoryview) -> int:
    """Return where the last byte that is not zero ends."""
    end = len(view)
    while end:
        # As bytes: two views are compared one by one, which takes a hundred times as long.
        piece = bytes(view[max(0, end - len(_ZEROS)) : end])
        if piece != _ZEROS[: len(piece)]:
            return end - len(piece) + len(piece.rstrip(b"\0"))
        end -= len(piece)
    return 0
