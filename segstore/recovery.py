"""Opening: which segments are the log, replaying them, and what may be done about a bad end.

The rules are FORMAT.md section 6. Nothing on the disk changes before all of it was read and judged;
then the torn tail is cut, what was dropped is removed, and both are made durable before anyone is
served: after a crash of the process the page cache may hold what the disk never got.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NoReturn

from segstore.batch import DAMAGED
from segstore.directory import Directory
from segstore.errors import FormatRefused, StoreDamaged
from segstore.events import log
from segstore.layout import (
    BACKUP_NAME,
    SEGMENT_HEADER_BYTES,
    HeadLayout,
    SegmentHeader,
    decode_header,
)
from segstore.local import Compact, SegmentDrop, SegmentEnd, SegmentList
from segstore.mend import Cut, mend
from segstore.redo import Redo
from segstore.scan import Frame, LogState, SegmentScan
from segstore.segment import Segment
from segstore.slots import Slots
from segstore.usage import Needed
from segstore.vfs import VFS

# Bytes replayed and bytes in all.
Progress = Callable[[int, int], None]


@dataclass(slots=True)
class Recovered:
    """What an open found."""

    slots: Slots
    segments: list[Segment]  # live ones, rising; none may be appended to
    needed: Needed
    victim: int
    state: LogState
    next_segment: int
    record_count: int
    cut_bytes: int = 0  # that went to quarantine
    damaged_bodies: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Loaded:
    """A segment file in memory."""

    path: str
    data: bytes
    header: SegmentHeader


@dataclass(slots=True)
class LogEnd:
    """The newest segment up to its last valid frame, and the live ones before it."""

    segment: int
    data: bytes
    older: tuple[SegmentEnd, ...]
    state: LogState


@dataclass(frozen=True, slots=True)
class Judgement:
    """Torn tails, and paths of what is no part of the log."""

    cuts: tuple[Cut, ...]
    spares: tuple[str, ...]
    dropped: tuple[str, ...]


class Recovery:
    """One open of one directory.

    Args:
        vfs: The disk.
        directory: Its format was read; locked, if `run` is called.
        layout: Of the heads, as declared by the user.
        salvage_command: What the message of a refusal names; may be empty.
        on_progress: Called now and then, on the thread that recovers.
    """

    def __init__(
        self,
        vfs: VFS,
        directory: Directory,
        layout: HeadLayout,
        *,
        salvage_command: str,
        on_progress: Progress | None = None,
    ) -> None:
        self._vfs = vfs
        self._directory = directory
        self._layout = layout
        self._advice = f"salvage with: {salvage_command}" if salvage_command else "salvage it"
        self._on_progress = on_progress
        self._slots = Slots(layout)
        self._redo = Redo(self._slots, layout)
        self._state = LogState()
        self._live: list[Segment] = []
        self._cuts: list[Cut] = []
        self._spares: list[str] = []
        self._dropped: list[str] = []
        self._damaged: list[str] = []
        self._damaged_at: dict[int, list[str]] = {}  # by offset of the frame, in the newest segment
        self._victim = 0

    def run(self) -> Recovered:
        """Find the live segments, replay them, mend the end; a backup is none any more.

        Raises:
            StoreDamaged: the log does not hold what it says it does. Nothing was changed.
            FormatRefused: its heads have other fields.
        """
        recovered = self.read()
        if BACKUP_NAME in self._directory.names:
            self._dropped.append(f"{self._directory.path}/{BACKUP_NAME}")
        mend(
            self._vfs,
            self._directory.path,
            last=self._live[-1] if self._live else None,
            cuts=self._cuts,
            spares=self._spares,
            dropped=self._dropped,
        )
        return recovered

    def read(self) -> Recovered:
        """Find the live segments and replay them; change nothing.

        Raises:
            StoreDamaged, FormatRefused: as `run`.
        """
        ids = self._directory.segments
        for segment in ids[-2:]:
            # After a failed sync the cache shows bytes that the disk does not have.
            file = self._vfs.open(self._directory.segment_path(segment), is_readonly=True)
            file.drop_cache()
            file.close()
        base = self._find_base()
        if base is not None:
            self._replay(base, *self._read_last(base))
        self._redo.finish()
        return Recovered(
            self._slots,
            self._live,
            self._redo.needed,
            self._victim,
            self._state,
            (ids[-1] if ids else 0) + 1,
            self._redo.record_count,
            sum(len(cut.tail) for cut in self._cuts),
            self._damaged,
        )

    def read_end(self) -> "LogEnd | None":
        """Judge the end of the log alone; None: nothing was ever written. Changes nothing.

        Raises:
            StoreDamaged, FormatRefused: as `run`.
        """
        base = self._find_base()
        if base is None:
            return None
        scan, frames = self._read_last(base)
        listed, dropped = self._live_set(frames)
        older = tuple(end for end in listed.segments if end.segment not in dropped)
        return LogEnd(base.header.segment, base.data[: scan.offset], older, scan.state)

    def judgement(self) -> "Judgement":
        """Return what `run` would do about what `read` found."""
        return Judgement(tuple(self._cuts), tuple(self._spares), tuple(self._dropped))

    def _find_base(self) -> _Loaded | None:
        """Return the newest segment with a valid first frame; judge those behind it."""
        ids = self._directory.segments
        for segment in reversed(ids):
            loaded = self._load(segment)
            scan = SegmentScan(loaded.data, loaded.header, self._layout, LogState())
            first = self._whole(scan, scan.parse(SEGMENT_HEADER_BYTES))
            if not isinstance(first, str):
                return loaded
            previous = loaded.header.previous
            if previous and previous not in ids:
                path = self._directory.segment_path(previous)
                raise StoreDamaged(path, 0, "the file is missing", advice=self._advice)
            if scan.content_end() > SEGMENT_HEADER_BYTES:
                if self._cuts:
                    self._refuse(loaded, SEGMENT_HEADER_BYTES, first)
                self._cut(loaded, scan, SEGMENT_HEADER_BYTES, first)
            self._spares.append(loaded.path)  # never used, or all of it was torn
        return None

    def _load(self, segment: int) -> _Loaded:
        path = self._directory.segment_path(segment)
        file = self._vfs.open(path, is_readonly=True)
        try:
            data = file.pread(file.size(), 0)
        finally:
            file.close()
        header = decode_header(data)
        if isinstance(header, str):
            raise StoreDamaged(path, 0, header, advice=self._advice)
        if header.store_uuid != self._directory.marker.store_uuid or header.segment != segment:
            problem = f"segment {header.segment} of store {header.store_uuid.hex()}"
            raise StoreDamaged(path, 0, problem, advice=self._advice)
        if header.fields != self._layout.text:
            raise FormatRefused(
                f"{path} has head fields {header.fields}; this program wants {self._layout.text}"
            )
        return _Loaded(path, data, header)

    def _read_last(self, base: _Loaded) -> tuple[SegmentScan, list[Frame]]:
        """Read the newest segment up to its end, which may be torn if nothing newer holds anything.

        What lies behind a torn frame does not count, not even a drop.
        """
        scan = SegmentScan(base.data, base.header, self._layout, self._stood(base))
        frames: list[Frame] = []
        while not isinstance(frame := self._whole(scan, scan.next()), str):
            frames.append(frame)
            scan.accept(frame)
        if scan.content_end() > scan.offset:
            if self._cuts:  # a newer segment was written to, so this one was whole by then
                self._refuse(base, scan.offset, frame, scan)
            self._cut(base, scan, scan.offset, frame)
        return scan, frames

    def _replay(self, base: _Loaded, scan: SegmentScan, frames: list[Frame]) -> None:
        """Replay the live segments, and then `frames`, those of the newest."""
        listed, dropped = self._live_set(frames)
        ends = [end for end in listed.segments if end.segment not in dropped]
        total = sum(end.end for end in ends) + len(base.data)
        done = 0
        present = set(self._directory.segments)
        before: Segment | None = None
        for end in ends:
            if end.segment not in present:
                path = self._directory.segment_path(end.segment)
                raise StoreDamaged(path, 0, "the file is missing", advice=self._advice)
            before = self._replay_listed(end, before)
            self._live.append(before)
            done += end.end
            if self._on_progress is not None:
                self._on_progress(done, total)
        self._go_on(base, before)
        self._state = scan.state
        for frame in frames:
            for body in self._damaged_at.get(frame.header.offset, ()):
                log.error("body damaged; it is never handed out", path=base.path, body=body)
                self._damaged.append(body)
            self._redo.apply(scan, frame)
        self._live.append(self._segment(base, scan))
        kept = {segment.id for segment in self._live}
        newest = base.header.segment
        for segment in self._directory.segments:
            if segment < newest and segment not in kept:
                self._dropped.append(self._directory.segment_path(segment))
        if self._on_progress is not None:
            self._on_progress(total, total)

    def _live_set(self, frames: list[Frame]) -> tuple[SegmentList, set[int]]:
        """Return the list in the newest segment's first frame, and what was dropped since."""
        dropped: set[int] = set()
        listed = frames[0].locals[0]
        assert isinstance(listed, SegmentList), "the first frame was checked before"
        self._victim = listed.victim
        for frame in frames:
            for local in frame.locals:
                if isinstance(local, SegmentDrop):
                    dropped.add(local.segment)
                elif isinstance(local, Compact):
                    self._victim = local.segment
        if self._victim in dropped:
            self._victim = 0
        return listed, dropped

    def _stood(self, loaded: _Loaded) -> LogState:
        """Return where the log stood before a segment, as its own first frame says."""
        scan = SegmentScan(loaded.data, loaded.header, self._layout, LogState())
        first = scan.parse(SEGMENT_HEADER_BYTES)
        if isinstance(first, str):
            self._refuse(loaded, SEGMENT_HEADER_BYTES, first)
        listed = first.locals[0] if first.locals else None
        if not isinstance(listed, SegmentList):
            self._refuse(loaded, SEGMENT_HEADER_BYTES, "no segment list in the first frame")
        return LogState(
            listed.last_lsn,
            listed.epoch,
            listed.log_clock_ms,
            listed.canonical_crc,
            first.header.local_first,
        )

    def _go_on(self, loaded: _Loaded, before: Segment | None) -> LogState:
        """Check that a segment goes on where the one before it ended; return where that is."""
        stood = self._stood(loaded)
        if before is not None and before.id == loaded.header.previous and stood != self._state:
            problem = f"the log stood at {self._state}, this segment says {stood}"
            self._refuse(loaded, SEGMENT_HEADER_BYTES, problem)
        self._state = stood
        return stood

    def _replay_listed(self, end: SegmentEnd, before: Segment | None) -> Segment:
        """Replay a segment that a later one lists, and hold it against that."""
        loaded = self._load(end.segment)
        scan = SegmentScan(loaded.data, loaded.header, self._layout, self._go_on(loaded, before))
        while scan.offset < end.end:
            frame = scan.next()
            if isinstance(frame, str):
                self._refuse(loaded, scan.offset, frame, scan)
            self._redo.apply(scan, frame)
            scan.accept(frame)
        if scan.offset != end.end or scan.last_crc != end.frame_crc:
            problem = (
                f"ends at {scan.offset} with frame {scan.last_crc:08x};"
                f" listed is {end.end} with {end.frame_crc:08x}"
            )
            self._refuse(loaded, min(scan.offset, end.end), problem)
        behind = scan.content_end() - end.end
        if behind > 0:
            self._refuse(loaded, end.end, f"{behind} bytes behind the listed end")
        return self._segment(loaded, scan)

    def _whole(self, scan: SegmentScan, frame: Frame | str) -> Frame | str:
        """Return `frame` unless a body of it is missing and no later frame vouches for it."""
        if not isinstance(frame, str):
            damaged = scan.damaged_bodies(frame)
            is_known = frame.header.flags & DAMAGED
            if damaged and not is_known and scan.voucher(frame.header.offset) is None:
                return "; ".join(damaged)
            if damaged:
                self._damaged_at[frame.header.offset] = damaged
        return frame

    def _segment(self, loaded: _Loaded, scan: SegmentScan) -> Segment:
        end = scan.offset
        return Segment(
            loaded.header.segment,
            loaded.path,
            loaded.header.salt,
            scan.last_crc,
            end=end,
            is_sealed=True,
            written=end,
            synced=end,
        )

    def _cut(self, loaded: _Loaded, scan: SegmentScan, offset: int, problem: str) -> None:
        """Note a torn tail at `offset`, or refuse if a later frame vouches for what is there."""
        if scan.voucher(offset) is not None:
            self._refuse(loaded, offset, problem, scan)
        end = scan.content_end()
        tail = loaded.data[offset:end]
        header = scan.parse_header(offset)
        frame_end = end if isinstance(header, str) else offset + header.frame_bytes
        is_short = frame_end > len(loaded.data)
        is_suspicious = not is_short and not scan.has_zero_sector(offset, frame_end)
        self._cuts.append(Cut(loaded.path, offset, tail, problem, is_suspicious))

    def _refuse(
        self, loaded: _Loaded, offset: int, problem: str, scan: SegmentScan | None = None
    ) -> NoReturn:
        """Refuse the open; say which LSN was due at `offset` and which comes behind, if any."""
        found = None
        if scan is not None:
            voucher = scan.voucher(offset)
            if isinstance(voucher, Frame) and voucher.batch is not None:
                found = voucher.batch.first_lsn
        raise StoreDamaged(
            loaded.path,
            offset,
            problem,
            lsn_expected=self._state.last_lsn + 1,
            lsn_found=found,
            advice=self._advice,
        )
