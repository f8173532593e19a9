"""Getting built frames onto the disk, in order, for whoever needs them there."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Final

import trio

from segstore.bodies import BodyCache
from segstore.built import BuiltFrame
from segstore.layout import SEGMENT_HEADER_BYTES
from segstore.options import Counters, Position
from segstore.segment import Segment, SyncFailed
from segstore.vfs import Syncer
from segstore.workers import Lane, RunInWorker
from segstore.writer import LogWriter

# Larger writes go to a worker: copying them into pages takes longer than the way there and back.
QUICK_BYTES_MAX: Final = 256 * 1024


@dataclass(slots=True, eq=False)
class Flusher:
    """Writes everything that was built up to a frame; callers take turns.

    So do all syncs, each noting its failure before the next begins: the system tells of lost pages
    once for each open file, and a sync beside or after the one that was told would succeed.

    Attributes:
        position: Behind the last frame on disk.
        syncer: Syncs without a thread of ours; None: a worker does it.
        spare_made: While a spare is being made, set when that is over; else None.
    """

    writer: LogWriter
    cache: BodyCache
    counters: Counters
    run_in_worker: RunInWorker
    position: Position
    syncer: Syncer | None = None
    spare_made: trio.Event | None = None
    _turn: trio.Lock = field(default_factory=trio.Lock)
    _sync_turn: trio.Lock = field(default_factory=trio.Lock)

    @property
    def is_busy(self) -> bool:
        """Whether someone is writing, or has built a batch that is about to be written."""
        return self._turn.locked() or any(frame.record_count for frame in self.writer.unwritten)

    async def flush(
        self, frame: BuiltFrame, *, is_durable: bool = False, is_lazy: bool = False
    ) -> None:
        """Return when `frame` and all before it are on disk.

        Args:
            is_durable: In `buffer` mode too. That sync does not hold up those that only write.
            is_lazy: Sync nothing but what lies before a new segment. Nobody waits for these frames;
                the next sync of their segment takes them along.

        Raises:
            StoreFailed: a write or sync failed, now or before.
        """
        await _take(self._turn)
        try:
            self.check()
            if frame.is_written:
                await trio.lowlevel.checkpoint()
            else:
                frames = self._up_to(frame)
                is_lazy = is_lazy and not any(each.record_count for each in frames)
                await self._wait_for_files(frames)
                await self._write(frames, is_lazy=is_lazy)
        finally:
            self._turn.release()
        if is_durable and frame.segment.synced < frame.end:
            await self.sync(frame.segment, Lane.MAINTENANCE)

    async def sync(self, segment: Segment, lane: Lane) -> None:
        """Make all that was written to a segment durable.

        Raises:
            StoreFailed: a sync failed, now or before.
        """
        async with self._sync_turn:
            self.check()
            await self.guarded(partial(self.writer.sync, segment), lane)

    async def settled(self) -> tuple[Position, dict[int, int]]:
        """Return where the log on disk ends: its position, and what is written of each segment.

        Raises:
            StoreFailed: the store has failed.
        """
        async with self._turn:
            self.check()
            return self.position, {each.id: each.written for each in self.writer.segments.values()}

    async def close(self) -> None:
        """Give back what syncs, once nothing is under way; a store that failed may still sync."""
        async with self._turn, self._sync_turn:
            if self.syncer is not None:
                self.syncer.close()

    def check(self) -> None:
        """Raise StoreFailed if the store has failed."""
        if self.writer.failure is not None:
            raise self.writer.failure

    async def guarded(self, function: Callable[[], None], lane: Lane) -> None:
        """Run a call of which any error is the end of the store."""
        try:
            await self.run_in_worker(function, lane)
        except OSError as problem:
            raise self.writer.fail(problem, "nothing is acknowledged any more") from problem

    def _up_to(self, frame: BuiltFrame) -> list[BuiltFrame]:
        """Return the unwritten frames up to `frame` and those that ride on it, oldest first."""
        frames: list[BuiltFrame] = []
        is_found = False
        for each in self.writer.unwritten:
            if is_found and not each.is_rider:
                break
            frames.append(each)
            is_found = is_found or each is frame
        return frames

    async def _wait_for_files(self, frames: list[BuiltFrame]) -> None:
        """Wait while the file of a segment is being made ahead by someone else."""
        if self.spare_made is not None and any(
            frame.segment.writing_file() is None for frame in frames
        ):
            await self.spare_made.wait()
            self.check()

    async def _write(self, frames: list[BuiltFrame], *, is_lazy: bool) -> None:
        writer, counters = self.writer, self.counters
        await trio.lowlevel.checkpoint_if_cancelled()
        # Those that Ctrl-C left between write and sync, which no shield prevents, are written.
        left = [frame for frame in frames if frame.end > frame.segment.written]
        with trio.CancelScope(shield=True):  # a sync under way is waited for
            try:
                for run in _runs(left):
                    await self._write_run(run)
                if not is_lazy and writer.options.persist != "buffer":
                    await self._sync(frames[-1].segment)
                else:
                    await trio.lowlevel.cancel_shielded_checkpoint()
            except OSError as problem:
                count = sum(frame.record_count for frame in frames)
                raise writer.fail(problem, f"not acknowledging {count} records") from problem
        for frame in frames:
            assert writer.unwritten.popleft() is frame
            frame.is_written = True
            counters.written_bytes += len(frame.data)
            if frame.bodies is not None:
                self.cache.commit(frame.bodies, is_kept=frame.record_count > 0)
                frame.bodies = None
            if frame.record_count:
                counters.batches += 1
                counters.records += frame.record_count
            frame.data = b""
        last = frames[-1]
        self.position = Position(
            self.position.store_uuid, last.epoch, last.last_lsn, last.log_clock_ms
        )

    async def _write_run(self, frames: list[BuiltFrame]) -> None:
        """Write frames of one segment."""
        write = partial(self.writer.write, frames)
        if frames[0].offset == SEGMENT_HEADER_BYTES:
            async with self._sync_turn:  # it may sync the segment before
                self.check()
                await self.run_in_worker(write, Lane.COMMIT)
        elif _size(frames) > QUICK_BYTES_MAX:
            await self.run_in_worker(write, Lane.COMMIT)
        else:
            write()

    async def _sync(self, segment: Segment) -> None:
        """Make frames durable; those of an earlier segment are, or the next could not begin."""
        await _take(self._sync_turn)
        try:
            self.check()
            if not await self._sync_without_thread(segment):
                await self.run_in_worker(partial(self.writer.sync, segment), Lane.COMMIT)
        finally:
            self._sync_turn.release()

    async def _sync_without_thread(self, segment: Segment) -> bool:
        """Sync without a thread of ours; return whether that could be."""
        writer, file, target = self.writer, segment.file, segment.written
        assert file is not None
        if self.syncer is None:
            return False
        try:
            if not await self.syncer.sync(file, is_data_only=writer.is_data_only):
                return False
        except OSError as problem:
            raise SyncFailed.of(problem, file.path) from problem
        writer.note_synced(segment, target)
        return True


async def _take(turn: trio.Lock) -> None:
    """Wait for a turn; in the usual case, that nobody has it, without a turn of the loop."""
    if turn.locked():
        await turn.acquire()
    else:
        turn.acquire_nowait()


def _runs(frames: list[BuiltFrame]) -> Iterator[list[BuiltFrame]]:
    """Part frames by the segment they lie in."""
    return (list(run) for _, run in groupby(frames, key=attrgetter("segment.id")))


def _size(frames: list[BuiltFrame]) -> int:
    return sum(len(frame.data) for frame in frames)
