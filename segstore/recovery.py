"""Opening: which segments are the log, replaying them, and what may be done about a bad end.

The rules are FORMAT.md section 6. A snapshot saves replaying what lies before its begin; of that
only headers and ends are looked at. At the least doubt about it, or about the log when it is read
with it, everything is done once more without: the log alone decides.

Nothing on the disk changes before all of it was read and judged; then the torn tail is cut, what
was dropped is removed, and both are made durable before anyone is served: after a crash of the
process the page cache may hold what the disk never got.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from typing import NoReturn

from segstore.batch import DAMAGED
from segstore.directory import Directory
from segstore.errors import StoreDamaged
from segstore.events import log
from segstore.layout import BACKUP_NAME, SEGMENT_HEADER_BYTES, HeadLayout
from segstore.local import Compact, SegmentDrop, SegmentEnd, SegmentList
from segstore.mend import Cut, mend
from segstore.recovered import Judgement, LogEnd, Recovered, SnapshotRefused
from segstore.redo import Redo
from segstore.runs import Run, RunReader
from segstore.scan import Frame, LogPoint, LogState, SegmentScan, ends_with
from segstore.segment import Segment
from segstore.segment_files import Loaded, SegmentFiles, sealed_segment
from segstore.slots import Slots
from segstore.snapshot_file import Snapshot
from segstore.vfs import VFS

# Bytes replayed and bytes in all.
Progress = Callable[[int, int], None]


class Recovery:
    """One attempt at an open.

    Args:
        vfs: The disk.
        directory: Its format was read; locked, if `run` is called.
        layout: Of the heads, as declared by the user.
        salvage_command: What the message of a refusal names; may be empty.
        on_progress: Called now and then, on the thread that recovers.
        snapshot: To start from.
    """

    def __init__(
        self,
        vfs: VFS,
        directory: Directory,
        layout: HeadLayout,
        *,
        salvage_command: str,
        on_progress: Progress | None = None,
        snapshot: Snapshot | None = None,
    ) -> None:
        self._vfs = vfs
        self._directory = directory
        self._layout = layout
        self._advice = f"salvage with: {salvage_command}" if salvage_command else "salvage it"
        self._files = SegmentFiles(vfs, directory, layout, self._advice)
        self._on_progress = on_progress
        self._slots = Slots(layout)
        self._redo = Redo(self._slots, layout)
        self._runs = RunReader(layout)
        self._state = LogState()
        self._live: list[Segment] = []
        self._cuts: list[Cut] = []
        self._spares: list[str] = []
        self._dropped: list[str] = []
        self._damaged: list[str] = []
        self._damaged_at: dict[int, list[str]] = {}  # by offset of the frame, in the newest segment
        self._victim = 0
        self._snapshot = snapshot
        self._begin = snapshot.begin.point if snapshot is not None else None

    def run(self, refused: Sequence[str] = ()) -> Recovered:
        """Find the live segments, replay them, mend the end; a backup is none any more.

        Args:
            refused: Snapshots that are of no use; they are removed.

        Raises:
            SnapshotRefused, StoreDamaged, FormatRefused: nothing was changed.
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
            dropped=[*self._dropped, *refused],
        )
        return recovered

    def read(self) -> Recovered:
        """Find the live segments and replay them; change nothing. Raises what `run` does."""
        ids = self._directory.segments
        for segment in ids[-2:]:
            # After a failed sync the cache shows bytes that the disk does not have.
            file = self._vfs.open(self._directory.segment_path(segment), is_readonly=True)
            file.drop_cache()
            file.close()
        if self._snapshot is not None:
            self._redo.take_over(self._snapshot)
        base = self._find_base()
        if base is not None:
            self._replay(base, *self._read_last(base))
        if self._snapshot is not None:
            self._check_snapshot_end(self._snapshot.end)
        self._redo.finish([segment.id for segment in self._live])
        return Recovered(
            self._slots,
            self._live,
            self._redo.needed,
            self._victim,
            self._state,
            (ids[-1] if ids else 0) + 1,
            self._redo.replayed,
            sum(len(cut.tail) for cut in self._cuts),
            self._damaged,
        )

    def read_end(self) -> LogEnd | None:
        """Judge the end of the log alone; None: nothing was ever written. Changes nothing.

        Raises what `run` does; without a snapshot only.
        """
        base = self._find_base()
        if base is None:
            return None
        scan, frames = self._read_last(base)
        older = tuple(self._live_set(base, frames))
        return LogEnd(base.header.segment, base.data[: scan.offset], older, scan.state)

    def judgement(self) -> Judgement:
        """Return what `run` would do about what `read` found."""
        return Judgement(tuple(self._cuts), tuple(self._spares), tuple(self._dropped))

    def _find_base(self) -> Loaded | None:
        """Return the newest segment with a valid first frame; judge those behind it."""
        ids = self._directory.segments
        for segment in reversed(ids):
            loaded = self._files.load(segment)
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

    def _read_last(self, base: Loaded) -> tuple[SegmentScan, list[Frame | Run]]:
        """Read the newest segment up to its end, which may be torn if nothing newer holds anything.

        What lies behind a torn frame does not count, not even a drop.
        """
        scan = self._scan(base, lambda: self._stood(base))
        frames: list[Frame | Run] = []
        while not isinstance(frame := self._next_whole(scan), str):
            frames.append(frame)
        if scan.content_end() > scan.offset:
            if self._cuts:  # a newer segment was written to, so this one was whole by then
                self._refuse(base, scan.offset, frame, scan)
            self._cut(base, scan, scan.offset, frame)
        return scan, frames

    def _replay(self, base: Loaded, scan: SegmentScan, frames: list[Frame | Run]) -> None:
        """Replay the live segments, and then `frames`, those of the newest."""
        ends = self._live_set(base, frames)
        total = sum(end.end for end in ends) + len(base.data)
        done = 0
        present = set(self._directory.segments)
        before: Segment | None = None
        for end in ends:
            if end.segment not in present:
                path = self._directory.segment_path(end.segment)
                raise StoreDamaged(path, 0, "the file is missing", advice=self._advice)
            if self._begin is not None and end.segment < self._begin.segment:
                before = self._files.pass_over(end)
            else:
                before = self._replay_listed(end, before)
            self._live.append(before)
            done += end.end
            if self._on_progress is not None:
                self._on_progress(done, total)
        if self._begin is None or base.header.segment > self._begin.segment:
            self._go_on(base, before)
        self._state = scan.state
        for frame in frames:
            offset = frame.header.offset if isinstance(frame, Frame) else 0
            for body in self._damaged_at.get(offset, ()):
                log.error("body damaged; it is never handed out", path=base.path, body=body)
                self._damaged.append(body)
            self._redo.apply(scan, frame)
        self._live.append(sealed_segment(base.path, base.header, scan.offset, scan.last_crc))
        kept = {segment.id for segment in self._live}
        newest = base.header.segment
        for segment in self._directory.segments:
            if segment < newest and segment not in kept:
                self._dropped.append(self._directory.segment_path(segment))
        if self._on_progress is not None:
            self._on_progress(total, total)

    def _live_set(self, base: Loaded, frames: list[Frame | Run]) -> list[SegmentEnd]:
        """Return the live segments before the newest one, of which `frames` were read.

        They stand in its first frame, or in the snapshot; what was dropped since is left out.
        """
        dropped: set[int] = set()
        listed: tuple[SegmentEnd, ...]
        if self._is_begin(base):
            assert self._snapshot is not None
            self._victim, listed = self._snapshot.begin.victim, self._snapshot.begin.segments
        else:
            assert isinstance(frames[0], Frame), "the first frame was checked before"
            first = frames[0].locals[0]
            assert isinstance(first, SegmentList)
            self._victim, listed = first.victim, first.segments
        for local in chain.from_iterable(each.locals for each in frames if type(each) is Frame):
            if isinstance(local, SegmentDrop):
                dropped.add(local.segment)
            elif isinstance(local, Compact):
                self._victim = local.segment
        if self._victim in dropped:
            self._victim = 0
        return [end for end in listed if end.segment not in dropped]

    def _is_begin(self, loaded: Loaded) -> bool:
        """Whether the snapshot begins in this segment."""
        return self._begin is not None and self._begin.segment == loaded.header.segment

    def _scan(self, loaded: Loaded, stood: Callable[[], LogState]) -> SegmentScan:
        """Return a scan of what is to be replayed of a segment.

        Args:
            stood: Tells where the log stood before the segment.
        """
        snapshot = self._snapshot
        if snapshot is not None and snapshot.end.segment == loaded.header.segment:
            self._check_point(loaded, snapshot.end)
        if self._begin is None or not self._is_begin(loaded):
            return SegmentScan(loaded.data, loaded.header, self._layout, stood())
        self._check_point(loaded, self._begin)
        scan = SegmentScan(loaded.data, loaded.header, self._layout, replace(self._begin.state))
        scan.offset, scan.last_crc = self._begin.offset, self._begin.frame_crc
        return scan

    def _check_point(self, loaded: Loaded, point: LogPoint) -> None:
        """Refuse the snapshot unless a segment has the frame that it speaks of.

        The CRC of a frame covers that of the one before, so what lies before is the same log too.
        """
        if not ends_with(loaded.data, loaded.header, point.offset, point.frame_crc):
            raise SnapshotRefused(
                f"{loaded.path} has no frame {point.frame_crc:08x} before {point.offset}"
            )

    def _check_snapshot_end(self, end: LogPoint) -> None:
        """Refuse the snapshot unless the log reaches at least as far."""
        state = self._state
        newest, last_end = (self._live[-1].id, self._live[-1].end) if self._live else (0, 0)
        is_short = (newest, last_end) < (end.segment, end.offset)
        if is_short or (state.last_lsn, state.local_next) < (
            end.state.last_lsn,
            end.state.local_next,
        ):
            raise SnapshotRefused(f"the log ends at {state} before the snapshot, {end.state}")

    def _stood(self, loaded: Loaded) -> LogState:
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

    def _go_on(self, loaded: Loaded, before: Segment | None) -> LogState:
        """Check that a segment goes on where the one before it ended; return where that is."""
        stood = self._stood(loaded)
        if before is not None and before.id == loaded.header.previous and stood != self._state:
            problem = f"the log stood at {self._state}, this segment says {stood}"
            self._refuse(loaded, SEGMENT_HEADER_BYTES, problem)
        self._state = stood
        return stood

    def _replay_listed(self, end: SegmentEnd, before: Segment | None) -> Segment:
        """Replay a segment that a later one lists, and hold it against that."""
        loaded = self._files.load(end.segment)
        scan = self._scan(loaded, lambda: self._go_on(loaded, before))
        while scan.offset < end.end:
            run = self._runs.read(scan, end.end)
            if run is not None:
                self._redo.apply(scan, run)
                continue
            frame = scan.next()
            if isinstance(frame, str):
                self._refuse(loaded, scan.offset, frame, scan)
            self._redo.apply(scan, frame)
            scan.accept(frame)
        self._state = scan.state
        if scan.offset != end.end or scan.last_crc != end.frame_crc:
            problem = (
                f"ends at {scan.offset} with frame {scan.last_crc:08x};"
                f" listed is {end.end} with {end.frame_crc:08x}"
            )
            self._refuse(loaded, min(scan.offset, end.end), problem)
        behind = scan.content_end() - end.end
        if behind > 0:
            self._refuse(loaded, end.end, f"{behind} bytes behind the listed end")
        return sealed_segment(loaded.path, loaded.header, scan.offset, scan.last_crc)

    def _next_whole(self, scan: SegmentScan) -> Frame | Run | str:
        """Return what comes next in the newest segment and go on behind it, or what is wrong."""
        run = self._runs.read(scan, len(scan.data), with_bodies=True)
        if run is not None:
            return run
        frame = self._whole(scan, scan.next())
        if not isinstance(frame, str):
            scan.accept(frame)
        return frame

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

    def _cut(self, loaded: Loaded, scan: SegmentScan, offset: int, problem: str) -> None:
        """Note a torn tail at `offset`, or refuse if a later frame vouches for what is there.

        Or if only that tail vouches for a body that is damaged: without it the next open would take
        the body's frame for torn.
        """
        if scan.voucher(offset) is not None:
            self._refuse(loaded, offset, problem, scan)
        for at, damaged in self._damaged_at.items():
            voucher = scan.voucher(at)
            vouching = voucher.header if isinstance(voucher, Frame) else voucher
            if vouching is not None and vouching.offset >= offset:
                self._refuse(loaded, at, "; ".join(damaged), scan)
        end = scan.content_end()
        tail = loaded.data[offset:end]
        header = scan.parse_header(offset)
        frame_end = end if isinstance(header, str) else offset + header.frame_bytes
        is_short = frame_end > len(loaded.data)
        is_suspicious = not is_short and not scan.has_zero_sector(offset, frame_end)
        self._cuts.append(Cut(loaded.path, offset, tail, problem, is_suspicious))

    def _refuse(
        self, loaded: Loaded, offset: int, problem: str, scan: SegmentScan | None = None
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
