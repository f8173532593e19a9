"""Giving back the space of segments of which at least half is dead.

Wholly dead segments are dropped as they are (`maintenance.py`). Of a segment that is mostly dead,
the *victim*, all that still counts is copied to the end of the log; then it is wholly dead too.

Invariants:
- I1. COMPACT(V) is logged before the first copy, and until SEGDROP(V) is durable no other segment
  is dropped: an entry that is copied has a PUT in two segments, and its delete names only the
  newer one as its home.
- I2. A delete is needed while its home exists, and is copied forward if its own segment goes first.
  The same holds for a PUT over an entry: what it ended stays ended, so a delete is copied for it.
- I3. Copies durable, then SEGDROP durable, then unlink, then sync of the directory. The first comes
  with the second: SEGDROP lies behind the copies, and a log has no holes.

Together: no PUT outlives its delete, and deletes are moved, never pinned.

Copies go into frames of their own, at a limited pace. While commits come in they ride on these: the
same write, the same sync. Without any they are written lazily, and synced in the background.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from segstore.built import BuiltFrame
from segstore.events import log
from segstore.flusher import Flusher
from segstore.layout import SEGMENT_HEADER_BYTES, HeadLayout
from segstore.local import Compact
from segstore.moves import Copy, Entry, Mover
from segstore.options import Options
from segstore.pace import Pace
from segstore.segment import Segment
from segstore.slots import Slots
from segstore.usage import Usage
from segstore.victim import (
    Sweep,
    TombstoneReader,
    VictimDamaged,
    read_bodies,
    take_places,
)
from segstore.workers import Lane
from segstore.writer import LogWriter

# Tells whether columns hold changes that are in no batch yet.
HasChanges = Callable[[], bool]

MOVE_BYTES_MAX: Final = 256 << 10  # in one frame, and of a commit that takes copies along
_DEAD_SHARE: Final = 0.5
_COST_SHARE_MAX: Final = 0.85  # of a victim: what copying it may take of what it frees
_SMALL_SHARE: Final = 16  # a segment of less than 1/16 of the wanted size is small
_CROWD: Final = 8  # so many small segments are left alone
_ALLOWANCE: Final = 3  # segments beside twice the live bytes until the pace rises
_READ_COST: Final = 4  # so many bytes are read for the price of one written
_RECORD_PRICE: Final = 256  # bytes, for the time that a copy takes
_AHEAD: Final = 512  # copies that are ready; one frame of small ones
_RIDE_MS: Final = 20
_BIG_MAX: Final = 8  # big commits in a row that take no copies along
_COPY_COST: Final = 2  # at most so many bytes are written for a live one
_SEAL_BYTES: Final = 1024  # for what the store has to note of it
_RETRY_MS: Final = 60_000  # after a victim could not be read


class Compactor:
    """See the module.

    Args:
        writer, flusher, usage, slots, layout, options: Of the store.

    Attributes:
        space: Tells the bytes that can be written without new space on the disk; -1: no matter.
    """

    def __init__(
        self,
        writer: LogWriter,
        flusher: Flusher,
        usage: Usage,
        slots: Slots,
        layout: HeadLayout,
        options: Options,
    ) -> None:
        self._writer = writer
        self._flusher = flusher
        self._usage = usage
        self._slots = slots
        self._layout = layout
        self._options = options
        self._mover = Mover(writer, usage, slots, layout)
        self._pace = Pace(4 * MOVE_BYTES_MAX)
        self._copies: deque[Copy] = deque()
        self._victim: Segment | None = None  # the next four tell how far it is read
        self._sweep: Sweep | None = None
        self._bodies: list[int] = []
        self._heads: list[int] = []
        self._tombstones: TombstoneReader | None = None
        self._big_count = 0
        self._retry_at_ms = 0
        cost = usage.record_bytes / self._mover.record_bytes
        self.space: Callable[[], int] = lambda: -1
        self._live_share_max = min(_DEAD_SHARE, _COST_SHARE_MAX * cost)

    # In the turn of a commit.

    def ride(self, frame: BuiltFrame) -> None:
        """Let copies be written along with a frame that was just built."""
        if not self._copies or self._pace.saved <= 0 or frame.segment.is_sealed:
            return
        if self._is_short():
            return
        if frame.end - frame.offset > MOVE_BYTES_MAX and self._big_count < _BIG_MAX:
            self._big_count += 1
            return
        self._big_count = 0
        copies = self._make()
        if copies is not None:
            copies.is_rider = True

    # In the background.

    async def work(self, now_ms: int, has_changes: HasChanges | None) -> int | None:
        """Copy what the pace allows.

        Args:
            now_ms: Wall clock.
            has_changes: See `Store.maintain`.

        Returns:
            After how many ms to go on; None: there is nothing to do, or the victim may be dropped.
        """
        if not self._options.compact_bytes_s or now_ms < self._retry_at_ms:
            return None
        if not self._usage.victim and not self._choose(self.space()):
            return None
        if self._usage.is_copied:
            return None
        rate = self._rate()
        self._pace.fill(now_ms, rate)
        self._begin()
        while True:
            if not await self._read_ahead(now_ms):
                return _RETRY_MS
            if not self._copies:
                self._usage.is_copied = True
                return None
            wait_ms = self._pace.wait_ms(rate)
            if wait_ms:
                return wait_ms
            if has_changes is None or has_changes() or self._flusher.is_busy or self._must_wait():
                return _RIDE_MS
            if self._is_short():
                return _RETRY_MS
            frame = self._make()
            if frame is not None:
                await self._flusher.flush(frame, is_lazy=True)

    def end(self) -> None:
        """Note that the victim is gone."""
        self._victim = None
        self._copies.clear()

    def _must_wait(self) -> bool:
        """Whether the next frame begins a segment whose file is still to be made."""
        active, spare = self._writer.active, self._writer.spare
        assert active is not None
        return active.is_sealed and (spare is None or spare.file is None)

    def _is_short(self) -> bool:
        """Whether the next frame of copies might find the disk full."""
        space = self.space()
        live = self._usage.live(self._usage.victim) if self._usage.victim else 0
        return 0 <= space < min(MOVE_BYTES_MAX, _COPY_COST * live) + _SEAL_BYTES

    def _rate(self) -> int:
        """Return bytes a second: more for each segment by which the disk holds too much."""
        usage, options = self._usage, self._options
        live = sum(map(usage.live, usage.live_bytes))
        held = sum(segment.end for segment in self._writer.segments.values())
        excess = held - 2 * live - _ALLOWANCE * options.segment_bytes
        return options.compact_bytes_s * (1 + max(0, excess) // options.segment_bytes)

    def _choose(self, space: int) -> bool:
        """Choose the segment of which the least is live, if copying it is worth it."""
        usage, segments, active = self._usage, self._writer.segments, self._writer.active
        small_bytes = self._options.segment_bytes // _SMALL_SHARE
        small: list[tuple[float, int]] = []
        large: list[tuple[float, int]] = []
        for segment in segments.values():
            if segment is active or segment.is_leaving:
                continue
            live = usage.live(segment.id)
            held = segment.end - SEGMENT_HEADER_BYTES
            if held < small_bytes:
                small.append((live, segment.id))
            elif live <= self._live_share_max * held and held - live >= small_bytes:
                large.append((live / held, segment.id))
        found = large or (small if len(small) > _CROWD else [])
        if not found:
            return False
        victim = min(found)[1]
        if 0 <= space < _COPY_COST * usage.live(victim) + _SEAL_BYTES:
            return False
        usage.victim = self._writer.victim = victim
        self._writer.pending_locals.append(Compact(victim))
        return True

    def _begin(self) -> None:
        """Start to read the victim: just chosen, or taken over from before an open."""
        victim = self._writer.segments[self._usage.victim]
        if self._victim is victim:
            return
        self._victim = victim
        self._sweep = Sweep(self._slots, victim.id)
        self._bodies, self._heads = [], []
        vfs = self._writer.vfs
        self._tombstones = TombstoneReader(vfs, victim, self._layout)

    async def _read_ahead(self, now_ms: int) -> bool:
        """Have copies for a frame ready, if there are so many; False: it cannot be read now."""
        try:
            while len(self._copies) < _AHEAD and await self._read_more():
                pass
        except (OSError, VictimDamaged) as problem:
            log.error("a segment cannot be read to compact it", problem=problem)
            self._retry_at_ms = now_ms + _RETRY_MS
            return False
        return True

    async def _read_more(self) -> bool:
        """Read one more piece; return whether there was one."""
        victim, sweep, tombstones = self._victim, self._sweep, self._tombstones
        assert victim is not None
        assert sweep is not None
        assert tombstones is not None
        if self._heads:
            self._copies.extend([Entry(slot) for slot in self._heads[-_AHEAD:]])
            del self._heads[-_AHEAD:]
        elif self._bodies:
            await self._read_bodies(victim)
        elif not sweep.is_done:
            bodies, self._heads = sweep.slice()
            self._bodies = bodies[::-1]
            await self._flusher.run_in_worker(_nothing, Lane.MAINTENANCE)
        elif self._usage.needed.get(victim.id) and not tombstones.is_done:
            homes = frozenset(self._usage.needed[victim.id])
            found, byte_count = await self._flusher.run_in_worker(
                lambda: tombstones.read(homes), Lane.MAINTENANCE
            )
            self._pace.spend(byte_count / _READ_COST)
            self._copies.extend(found)
        else:
            return False
        return True

    async def _read_bodies(self, victim: Segment) -> None:
        places = take_places(self._slots, victim.id, self._bodies)
        vfs = self._writer.vfs
        victim.begin_read()
        try:
            entries = await self._flusher.run_in_worker(
                lambda: read_bodies(vfs, victim, places), Lane.MAINTENANCE
            )
        except BaseException:
            self._bodies += [place.slot for place in reversed(places)]
            raise
        finally:
            victim.end_read()
        self._pace.spend(sum(len(entry.body) for entry in entries) / _READ_COST)
        for entry in entries:
            if entry.is_damaged:
                key = self._slots.key(entry.slot).hex()
                log.error("body damaged; copied as it is", path=victim.path, key=key)
        self._copies.extend(entries)

    def _make(self) -> BuiltFrame | None:
        mover, counters = self._mover, self._flusher.counters
        frame = mover.make(self._copies, self._usage.victim, MOVE_BYTES_MAX)
        if frame is not None:
            assert frame.bodies is not None
            self._flusher.cache.add_pending(frame.bodies)
            byte_count = frame.end - frame.offset
            self._pace.spend(byte_count + _RECORD_PRICE * (mover.count - counters.moved))
            counters.moved = mover.count
            counters.moved_bytes += byte_count
        return frame


def _nothing() -> None:
    """Do nothing, elsewhere: whoever waits for it lets others run."""
