"""What a store does beside its commits: a spare ahead, dropping dead segments, background syncs.

Nothing here changes what a reader sees, and nothing here uses an LSN. One call of `maintain` does
what is due; the caller says when to call again. Waits happen in the maintenance lane, except that
local records take their turn with the commits.
"""

import errno
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import trio

from segstore.built import BuiltFrame
from segstore.compaction import Compactor, HasChanges
from segstore.errors import NoRoom
from segstore.events import log
from segstore.flusher import Flusher
from segstore.local import SegmentDrop
from segstore.options import Options, Room
from segstore.segment import Segment, Spare, SyncFailed, check_place, make_file, sync_names
from segstore.usage import Usage
from segstore.workers import Lane
from segstore.writer import LogWriter

_NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_PAUSE_MS: Final = 1000  # nothing is due before
_SOON_MS: Final = 20  # a commit comes along, if there are any
_DROP_ROUNDS: Final = 8  # in one call of `maintain`
_NOTE_BYTES: Final = 512
_FIRST_BYTES_MIN: Final = 16 << 10  # of a segment, on a full disk


@dataclass(slots=True, eq=False)
class Maintenance:
    """See the module.

    Attributes:
        room: As last judged; `Store.room` looks closer when it is not OK.
        is_spare_refused: Whether the disk had no room for the last attempt at a spare.
        drop_turn: Held while files are taken away; whoever else holds it finds them all there.
    """

    writer: LogWriter
    flusher: Flusher
    usage: Usage
    compactor: Compactor
    options: Options
    clock_ms: Callable[[], int]
    room: Room = Room.OK
    is_spare_refused: bool = False
    drop_turn: trio.Lock = field(default_factory=trio.Lock)
    _free: int = 0  # bytes, when last looked at
    _record_count: int = -1  # committed when last looked at
    _quiet_since_ms: int = 0
    _synced_at_ms: int = 0
    _is_running: bool = False
    _leaving: list[Segment] = field(default_factory=list)  # SEGDROP built, file perhaps still there
    _leaving_frame: BuiltFrame | None = None
    _is_waiting: bool = False  # whether that frame was left to the next commit

    def __post_init__(self) -> None:
        self.compactor.space = lambda: -1 if self.room is Room.OK else self._space()

    async def maintain(self, has_changes: HasChanges | None) -> int:
        """Do what is due; return after how many ms to call again at the latest."""
        assert not self._is_running, "one call of maintain at a time"
        self._is_running = True
        try:
            self.flusher.check()
            free = await self._look_at_room()
            if self.writer.active is None:
                return _PAUSE_MS
            if free >= self.options.segment_bytes:
                await self._make_spare()
            await self._drop_dead()
            wait_ms = await self.compactor.work(self.clock_ms(), has_changes)
            if wait_ms is None and self.usage.is_copied:
                await self._drop_dead()
                wait_ms = _SOON_MS  # there may be another
            settle_ms = await self._settle(self.clock_ms())
            if self._leaving or free < 2 * self.options.enough_bytes:
                wait_ms = _SOON_MS  # or what is kept for acks would be gone before the next look
            return settle_ms if wait_ms is None else min(wait_ms, settle_ms)
        finally:
            self._is_running = False

    async def _look_at_room(self) -> int:
        """Judge the free space; return it in bytes.

        Raises:
            StoreFailed: the directory cannot be looked at: it was taken away, or its disk was.
        """
        writer = self.writer
        try:
            free = await self.flusher.run_in_worker(self._free_bytes, Lane.MAINTENANCE)
        except OSError as problem:
            raise writer.fail(problem, "nothing is acknowledged any more") from problem
        self.judge_room(free)
        return free

    def _free_bytes(self) -> int:
        check_place(self.writer.lock)
        return self.writer.vfs.free_bytes(self.writer.directory)

    def judge_room(self, free: int) -> None:
        """Set `room` from the free bytes, with hysteresis."""
        writer, before = self.writer, self.room
        self._free = free
        if free < self.options.low_bytes:
            self.room = Room.ACKS_ONLY
        elif free >= self.options.enough_bytes and not self.is_spare_refused:
            self.room = Room.OK
        if self.room is not before:
            log.warning(
                "room on disk changed", path=writer.directory, free=free, room=self.room.value
            )

    def _leave_unfilled(self, spare: Spare) -> None:
        """Go on in the spare just made when no space is kept here, as in a first segment.

        There each sync is also one of the file's growth: it takes twice the time.
        """
        active = self.writer.active
        assert active is not None
        if self.writer.spare is spare and spare.allocated and not active.allocated:
            active.seal_at = 0

    def room_now(self) -> Room:
        """Return `room`, or NONE when the last segment that can be written to is nearly full."""
        if self.writer.failure is not None:
            return Room.NONE
        if self.room is Room.OK:
            return Room.OK
        active, spare = self.writer.active, self.writer.spare
        if active is None or (spare is not None and spare.file is not None):
            return self.room
        if active.end >= active.seal_at or self._space() < self.options.short_bytes:
            return Room.NONE
        return self.room

    def _space(self) -> int:
        """Return the bytes that can be written without new space on the disk.

        Where none was set aside it is what the disk had when last looked at.
        """
        active, spare = self.writer.active, self.writer.spare
        assert active is not None
        space = active.allocated - active.end if active.allocated else self._free
        if active.is_sealed:
            space = 0
        ahead = spare.allocated if spare is not None and spare.file is not None else 0
        return max(0, space) + ahead

    def _is_short(self) -> bool:
        """Whether there may be no space even for a few local records."""
        note_bytes = _NOTE_BYTES + 24 * len(self.writer.segments)
        return self.room is not Room.OK and self._space() < note_bytes

    async def make_first(self) -> None:
        """On a nearly full disk, set space aside for the first segment, as much as there is.

        Raises:
            NoRoom: there is not even a little.
            StoreFailed: a sync failed; final.
        """
        await self._look_at_room()
        if self.room is Room.OK:
            return
        writer = self.writer
        spare = writer.spare or writer.plan_spare()
        size = self.options.segment_bytes
        size_min = _FIRST_BYTES_MIN + 32 * len(writer.segments)  # its first frame lists them
        while spare.file is None:
            try:
                make = partial(self._make, spare, size)
                await self.flusher.run_in_worker(make, Lane.MAINTENANCE)
            except SyncFailed as problem:
                raise writer.fail(problem, "making the first segment") from problem
            except OSError as problem:
                if problem.errno not in _NO_SPACE:
                    raise writer.fail(problem, "making the first segment") from problem
                size //= 2
                if size < size_min:
                    text = f"{writer.directory}: no room for {size_min} bytes to begin a segment"
                    raise NoRoom(text) from None

    async def _make_spare(self) -> None:
        """Make the next segment ahead; a full disk is no failure, it only leaves less room."""
        writer, flusher = self.writer, self.flusher
        if writer.spare is not None and writer.spare.file is not None:
            return
        assert writer.active is not None
        if writer.active.writing_file() is None:
            # Its file comes with its first write. The header of a spare names it, and must not be
            # there first: after a crash in between it would look lost.
            return
        spare = writer.spare or writer.plan_spare()
        flusher.spare_made = trio.Event()
        try:
            make = partial(self._make, spare, self.options.segment_bytes)
            await flusher.run_in_worker(make, Lane.MAINTENANCE)
        except SyncFailed as problem:
            raise writer.fail(problem, "making a segment ahead") from problem
        except OSError as problem:
            if problem.errno not in _NO_SPACE:
                raise writer.fail(problem, "making a segment ahead") from problem
            if not self.is_spare_refused:
                log.warning("no room to make a segment ahead", path=spare.path)
            self.is_spare_refused = True
            self.room = Room.ACKS_ONLY
        else:
            self.is_spare_refused = False
            self._leave_unfilled(spare)
        finally:
            flusher.spare_made.set()
            flusher.spare_made = None

    def _make(self, spare: Spare, segment_bytes: int) -> None:
        writer, options = self.writer, self.options
        check_place(writer.lock)
        spare.file = make_file(
            writer.vfs,
            writer.directory,
            spare.path,
            spare.encoded,
            prealloc=options.prealloc,
            segment_bytes=segment_bytes,
        )
        spare.allocated = 0 if options.prealloc == "none" else segment_bytes
        self.flusher.counters.spares_made += 1

    async def _drop_dead(self) -> None:
        """Drop the segments in which nothing counts any more.

        When they are gone the deletes at home there count no more, so others may follow.
        """
        if not self.drop_turn.locked():
            async with self.drop_turn:
                await self._drop_rounds()

    async def _drop_rounds(self) -> None:
        for _ in range(_DROP_ROUNDS):
            if not self._leaving and (self._is_short() or not self._choose_dead()):
                return
            frame = self._leaving_frame
            assert frame is not None
            if not frame.is_written and self.flusher.is_busy and not self._is_waiting:
                self._is_waiting = True  # let a commit take it along
                return
            self._is_waiting = False
            await self.flusher.flush(frame, is_durable=True)
            await self._finish_drop()

    def _choose_dead(self) -> bool:
        """Note in the log that the dead segments are to go; return whether there are any."""
        writer = self.writer
        assert writer.active is not None
        sealed = [each for each in writer.segments if each != writer.active.id]
        self._leaving = [writer.segments[each] for each in self.usage.droppable(sealed)]
        if not self._leaving:
            return False
        # From here on they are in no later list: a batch that rolls while this waits must not name
        # what is about to go.
        if writer.victim in [each.id for each in self._leaving]:
            writer.victim = 0
        for segment in self._leaving:
            segment.is_leaving = True
        self._leaving_frame = writer.local_frame(*(SegmentDrop(each.id) for each in self._leaving))
        return True

    async def _finish_drop(self) -> None:
        """Take the files away, now that their drop is durable."""
        writer, flusher = self.writer, self.flusher
        await flusher.guarded(lambda: self._remove(self._leaving), Lane.MAINTENANCE)
        for segment in self._leaving:
            if segment.id == self.usage.victim:
                self.compactor.end()
            del writer.segments[segment.id]
            self.usage.drop(segment.id)
            segment.is_dropped = True
            if not segment.reader_count:
                segment.close()
            flusher.counters.drops += 1
        self._leaving = []

    def _remove(self, segments: list[Segment]) -> None:
        """Take the files away; the names are durably gone on return, before any later drop."""
        vfs, directory = self.writer.vfs, self.writer.directory
        for segment in segments:
            if vfs.exists(segment.path):
                vfs.unlink(segment.path)
        sync_names(vfs, directory)

    async def _settle(self, now_ms: int) -> int:
        """Sync in the background in `buffer` mode; after a pause note how far that got."""
        writer, flusher, options = self.writer, self.flusher, self.options
        active = writer.active
        assert active is not None
        # In `buffer` mode all is synced here, else what was copied while no commit came.
        if active.synced < active.written and (options.persist == "buffer" or not flusher.is_busy):
            waited_ms = now_ms - self._synced_at_ms
            if not 0 <= waited_ms < options.buffer_sync_ms:
                await flusher.sync(active, Lane.MAINTENANCE)
                self._synced_at_ms = now_ms
        if flusher.counters.records != self._record_count:
            self._record_count = flusher.counters.records
            self._quiet_since_ms = now_ms
        if writer.is_last_idle or self._is_short():
            return min(_PAUSE_MS, options.buffer_sync_ms)
        quiet_ms = now_ms - self._quiet_since_ms
        if 0 <= quiet_ms < options.idle_sync_ms or writer.unwritten or active.synced < active.end:
            return options.idle_sync_ms
        await flusher.flush(writer.local_frame(), is_durable=options.persist != "buffer")
        return min(_PAUSE_MS, options.buffer_sync_ms)
