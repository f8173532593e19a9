"""Reading segments past damage: for tools that have to say all of what is wrong, not only the
first.

A frame counts if it is intact, wherever it lies; what lies between two such frames, or behind the
last, is a `Break`. Nothing here decides what may be done about it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from segstore.batch import BATCH_HEADER_BYTES, FRAME_MAGIC, PUT
from segstore.directory import Directory
from segstore.errors import StoreDamaged
from segstore.layout import (
    SEGMENT_HEADER_BYTES,
    HeadLayout,
    SegmentHeader,
    aligned,
    decode_header,
)
from segstore.local import Move, SegmentEnd, SegmentList
from segstore.scan import Frame, LogState, SegmentScan
from segstore.vfs import VFS, File

_PIECE_BYTES: Final = 4096


@dataclass(slots=True)
class Break:
    """Where the log does not go on as it should.

    Attributes:
        path, offset: Of the first byte that is wrong.
        length: Bytes that no intact frame covers; 0 where nothing is missing but the order.
        problem: In words.
        lsn_first, lsn_last: Of the records that are missing here, where that is known; the last one
            is once an intact batch followed.
        keys: Table and key of the records of a damaged batch, as they read there: not proven.
    """

    path: str
    offset: int
    length: int
    problem: str
    lsn_first: int | None = None
    lsn_last: int | None = None
    keys: tuple[tuple[int, bytes], ...] = ()

    def __str__(self) -> str:
        text = f"{self.path}+{self.offset}: {self.problem}"
        if self.length:
            text += f"; {self.length} bytes"
        if self.lsn_first is not None:
            last = "the end" if self.lsn_last is None else self.lsn_last
            text += f"; LSN {self.lsn_first} to {last}"
        return text


@dataclass(slots=True)
class FoundBody:
    """A body where a frame has it.

    Attributes:
        lsn: Of the PUT.
        offset: From the start of the segment.
    """

    lsn: int
    table: int
    key: bytes
    offset: int
    length: int
    crc: int


@dataclass(slots=True)
class LoadedSegment:
    """A segment file in memory."""

    id: int
    path: str
    data: bytes
    header: SegmentHeader | str  # or what is wrong with it
    unreadable: list[Break]  # pieces that the disk refused; zeros stand for them in `data`


def load(vfs: VFS, path: str, segment: int, store_uuid: bytes) -> LoadedSegment:
    """Read a segment, past sectors that cannot be read.

    A header of another store or segment counts as wrong.
    """
    file = vfs.open(path, is_readonly=True)
    unreadable: list[Break] = []
    try:
        size = file.size()
        try:
            data = file.pread(size, 0)
        except OSError:
            data = _read_pieces(file, size, unreadable)
    finally:
        file.close()
    header = decode_header(data)
    if not isinstance(header, str) and (header.store_uuid, header.segment) != (store_uuid, segment):
        header = f"segment {header.segment} of store {header.store_uuid.hex()}"
    return LoadedSegment(segment, path, data, header, unreadable)


def _read_pieces(file: File, size: int, unreadable: list[Break]) -> bytes:
    pieces = []
    for offset in range(0, size, _PIECE_BYTES):
        length = min(_PIECE_BYTES, size - offset)
        try:
            piece = file.pread(length, offset)
        except OSError as problem:
            unreadable.append(Break(file.path, offset, length, f"cannot be read: {problem}"))
            piece = bytes(length)
        pieces.append(piece)
    return b"".join(pieces)


Rescue = Callable[[SegmentScan, int, int], Frame | None]


class LogWalk:
    """Walks segments in the order of the log; `breaks` collects what is wrong.

    Args:
        layout: Of the heads.
        rescue: Finds the batch that is due between two offsets, where no intact frame starts.
    """

    def __init__(self, layout: HeadLayout, rescue: Rescue | None = None) -> None:
        self._rescue = rescue
        self.breaks: list[Break] = []
        self.frame_count = 0
        self.byte_count = 0  # of intact frames
        self._layout = layout
        self._state: LogState | None = None  # None: nothing was read yet
        self._last_segment = 0
        self._open: list[Break] = []  # since the last intact batch
        self._is_unsure = False  # whether local records may have been in front of a rescued batch
        self._stopped = (0, 0)  # end of the last segment that was walked, crc of its last frame

    def lose(self, path: str, length: int, problem: str) -> None:
        """Note that a whole segment, due now, cannot be read."""
        self._break(Break(path, 0, length, problem))
        self._last_segment = 0

    def walk(self, loaded: LoadedSegment) -> Iterator[tuple[SegmentScan, Frame]]:
        """Yield the intact frames of the next segment; its header is good."""
        header = loaded.header
        assert not isinstance(header, str)
        scan = SegmentScan(loaded.data, header, self._layout, self._state or LogState())
        self._begin(loaded, scan)
        while True:
            found = scan.next()
            if isinstance(found, str):
                frame = self._resume(loaded.path, scan, found)
                if frame is None:
                    break
                found = frame
            if found.batch is not None:
                self._close_breaks(found.batch.first_lsn - 1)
            scan.accept(found)
            self.frame_count += 1
            self.byte_count += found.header.frame_bytes
            yield scan, found
        self._state = scan.state
        self._last_segment = loaded.id
        self._stopped = (scan.offset, scan.last_crc)

    def _take_rescued(self, path: str, scan: SegmentScan, problem: str, frame: Frame) -> None:
        """Go to a batch without its frame."""
        self._is_unsure = True
        start, scan.offset = scan.offset, frame.header.offset
        self._break(Break(path, start, scan.offset - start, problem, scan.state.last_lsn + 1))

    def check_end(self, path: str, listed: SegmentEnd | None) -> None:
        """Hold the end of the segment just walked against what a later one says of it."""
        offset, crc = self._stopped
        if listed is None or any(each.path == path for each in self.breaks):
            return
        if (offset, crc) != (listed.end, listed.frame_crc):
            problem = f"ends here with frame {crc:08x}; listed is {listed.end} with frame"
            missing = max(0, listed.end - offset)
            self._break(Break(path, offset, missing, f"{problem} {listed.frame_crc:08x}"))

    def _begin(self, loaded: LoadedSegment, scan: SegmentScan) -> None:
        """Take over where the log stood from the first frame, and compare with where we stand."""
        first = scan.parse(SEGMENT_HEADER_BYTES)
        if isinstance(first, str) or not first.locals:
            return
        listed = first.locals[0]
        if not isinstance(listed, SegmentList):
            return
        stood = LogState(
            listed.last_lsn,
            listed.epoch,
            listed.log_clock_ms,
            listed.canonical_crc,
            first.header.local_first,
        )
        before = self._state
        is_next = before is not None and scan.header.previous == self._last_segment
        if before is not None and self._is_unsure:
            before = replace(before, local_next=stood.local_next)
        if is_next and before != stood and not self._open:
            problem = f"the log stood at {before}, this segment says {stood}"
            self._break(Break(loaded.path, SEGMENT_HEADER_BYTES, 0, problem))
        self._close_breaks(stood.last_lsn)
        scan.state = stood

    def _resume(self, path: str, scan: SegmentScan, problem: str) -> Frame | None:
        """Go to the next intact frame, as if all before it were there; None: that was the last."""
        start = scan.offset
        frame = next_intact(scan, start)
        if self._rescue is not None and (frame is None or frame.header.offset > start):
            stop = len(scan.data) if frame is None else frame.header.offset
            rescued = self._rescue(scan, start, stop)
            if rescued is not None:
                self._take_rescued(path, scan, problem, rescued)
                return rescued
        if frame is None:
            end = scan.content_end()
            if end > start:
                lost = Break(path, start, end - start, problem, scan.state.last_lsn + 1)
                self._break(lost, scan)
            return None
        stop = frame.header.offset
        lsn_due = scan.state.last_lsn + 1
        # What is missing was told already, and only now comes the batch that shows how much it is.
        is_known = stop == start and (bool(self._open) or self._is_unsure)
        self._is_unsure = False
        if not is_known:
            self._break(Break(path, start, stop - start, problem, lsn_due), scan)
        scan.offset = stop
        scan.state.local_next = frame.header.local_first
        if frame.batch is not None:
            scan.state.last_lsn = frame.batch.first_lsn - 1
        return frame

    def _close_breaks(self, lsn_last: int) -> None:
        """Note of the open breaks up to which LSN records are missing, if any are."""
        for each in self._open:
            each.lsn_last = lsn_last
            if each.lsn_first is not None and each.lsn_first > lsn_last:
                each.lsn_first = each.lsn_last = None
        self._open.clear()

    def _break(self, found: Break, scan: SegmentScan | None = None) -> None:
        if scan is not None and found.length:
            found.keys = _keys_at(scan, found.offset)
        if found.lsn_first is None and self._state is not None:
            found.lsn_first = self._state.last_lsn + 1
        self.breaks.append(found)
        self._open.append(found)


def next_intact(scan: SegmentScan, offset: int) -> Frame | None:
    """Return the first frame from `offset` on of which all but the bodies is intact."""
    position = scan.data.find(FRAME_MAGIC, offset)
    while position >= 0:
        if not position & 7:
            found = scan.parse(position)
            if not isinstance(found, str):
                return found
        position = scan.data.find(FRAME_MAGIC, position + 1)
    return None


def _keys_at(scan: SegmentScan, offset: int) -> tuple[tuple[int, bytes], ...]:
    """Return table and key of each record of a frame of which only the batch is damaged."""
    header = scan.parse_header(offset)
    if isinstance(header, str) or not header.record_count:
        return ()
    start = header.canonical_at + BATCH_HEADER_BYTES
    stop = start + header.record_count * scan.layout.record_bytes
    if stop > len(scan.data):
        return ()
    records = scan.layout.raw_record.iter_unpack(scan.view[start:stop])
    return tuple((record[1], record[5]) for record in records if record[1])


def bodies_in(scan: SegmentScan, frame: Frame) -> Iterator[FoundBody]:
    """Yield the bodies in a frame, moved ones too."""
    header = frame.header
    if frame.batch is not None and header.body_bytes:
        position = header.bodies_at
        lsn = frame.batch.first_lsn
        unpack = scan.layout.raw_record.iter_unpack
        for kind, table, _zero, length, crc, key, _head in unpack(scan.record_bytes_of(frame)):
            if kind == PUT:
                yield FoundBody(lsn, table, key, position, length, crc)
                position += aligned(length)
            lsn += 1
    if header.moved_bytes:
        position = header.moved_at
        for local in frame.locals:
            if isinstance(local, Move):
                record = scan.layout.raw_record.unpack(local.record)
                kind, table, _zero, length, crc, key, _head = record
                if kind == PUT:
                    yield FoundBody(local.lsn, table, key, position, length, crc)
                    position += aligned(length)


def layout_of(vfs: VFS, directory: Directory) -> HeadLayout | None:
    """Return the layout of the heads as the first good segment header tells it.

    None: there are no segments.

    Raises:
        StoreDamaged: there are some, and no header of them is good.
    """
    for segment in directory.segments:
        file = vfs.open(directory.segment_path(segment), is_readonly=True)
        try:
            header = decode_header(file.pread(SEGMENT_HEADER_BYTES, 0))
        finally:
            file.close()
        if not isinstance(header, str):
            return HeadLayout.from_text(header.fields)
    if directory.segments:
        raise StoreDamaged(directory.segment_path(directory.segments[0]), 0, str(header))
    return None
