"""Writing snapshots of the slot table, so that an open need not replay all of the log.

A snapshot is copied chunk by chunk while commits go on, so it is *fuzzy*: each chunk is of another
moment between its begin and its end. That is enough, for records are absolute and carry their LSN:
replaying what the log says from the begin on makes it right, chunk by chunk (`redo.py`).

Rules:
- A chunk is copied only while the columns hold no change that is in no batch yet: in the turn of
  `build`, or when the caller says so.
- A snapshot gets its name only once the log is durable up to its end: it never holds what a power
  cut could take from the log.
- Nothing is ever dropped from the log because a snapshot holds it. The newest two are kept.
- A snapshot that cannot be written is no failure of the store.
"""

import errno
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from segstore.compaction import HasChanges
from segstore.events import log
from segstore.flusher import Flusher
from segstore.layout import TMP_SUFFIX
from segstore.local import Compact, SegmentEnd
from segstore.pace import Pace
from segstore.recovered import Replayed
from segstore.scan import LogPoint
from segstore.segment import Segment, SyncFailed, sync_names
from segstore.slots import Slots
from segstore.snapshot_file import (
    END,
    SLOTS,
    Begin,
    encode_block,
    encode_end,
    encode_header,
    encode_slots,
    snapshot_lsn,
    snapshot_name,
)
from segstore.usage import Usage
from segstore.vfs import Buffer, File
from segstore.workers import Lane
from segstore.writer import LogWriter

CHUNK_SLOTS: Final = 1 << 14  # copied in half a millisecond
_EMPTY_MAX: Final = 64  # chunks of free slots that are passed over in one turn
_BYTES_S: Final = 32 << 20
_SYNC_BYTES: Final = 4 << 20  # synced in pieces, so that no commit waits for all of it
_KEPT: Final = 2
_SIZE_FACTOR: Final = 4  # so many times its size of log is written before the next
# What replaying costs, in records: a frame costs as much as so many.
_FRAME_COST: Final = 3
_COST_MIN: Final = 400_000
_CLOSE_SHARE: Final = 64  # at a clean stop, a log of this share of `snapshot_log_bytes` is enough
_FREE_SEGMENTS: Final = 3  # that stay free beside a snapshot
_SOON_MS: Final = 20
_RETRY_MS: Final = 60_000


@dataclass(slots=True, eq=False)
class _Work:
    """A snapshot in the making.

    Attributes:
        begin: None until the first chunk is copied.
        end_segment: Where the log ended when the last chunk was copied; None before.
        chunk: Copied and not written yet: first slot, number of slots, columns.
    """

    started_ms: int
    begin: Begin | None = None
    end: LogPoint | None = None
    end_segment: Segment | None = None
    used_count: int = 0
    next_slot: int = 0
    chunk: "tuple[int, int, list[bytearray | array[int]]] | None" = None
    path: str = ""
    file: File | None = None
    salt: int = 0
    offset: int = 0
    synced: int = 0
    block_count: int = 0
    is_written: bool = False


@dataclass(slots=True, eq=False)
class Snapshots:
    """See the module.

    Args:
        writer, flusher, usage, slots, clock_ms: Of the store.
        replayed: By the open.

    Attributes:
        wants_copy: Whether `copy` is to be called in the next turn in which that is allowed.
    """

    writer: LogWriter
    flusher: Flusher
    usage: Usage
    slots: Slots
    clock_ms: Callable[[], int]
    replayed: Replayed
    wants_copy: bool = False
    _work: _Work | None = None
    _pace: Pace = field(default_factory=lambda: Pace(_SYNC_BYTES))
    _retry_at_ms: int = 0
    _bytes_due: int = 0  # of the log, and cost of replaying it, when the next one is due
    _cost_due: int = 0

    def __post_init__(self) -> None:
        replayed = self.replayed
        counters = self.flusher.counters
        counters.snapshot_lsn = replayed.snapshot_lsn
        counters.snapshot_bytes = replayed.snapshot_bytes
        cost = replayed.record_count + _FRAME_COST * replayed.frame_count
        self._plan_next(replayed.byte_count, cost)

    # In the turn of a commit.

    def copy(self) -> None:
        """Copy the next chunk; no column holds a change that is in no batch."""
        work = self._work
        assert work is not None
        assert work.chunk is None
        if work.begin is None:
            work.begin = self._begin()
        slots = self.slots
        for _ in range(_EMPTY_MAX):
            start, stop = work.next_slot, min(work.next_slot + CHUNK_SLOTS, slots.used_count())
            if start >= stop:
                break
            work.next_slot = stop
            if any(slots.tables[start:stop]):
                work.chunk = (start, stop - start, slots.copy(start, stop))
                break
        self.wants_copy = False
        if work.next_slot >= slots.used_count():
            work.used_count = slots.used_count()
            work.end = self.writer.point()
            work.end_segment = self.writer.active

    def _begin(self) -> Begin:
        writer = self.writer
        point = writer.point()
        segments = tuple(
            SegmentEnd(segment.id, segment.end, segment.last_crc)
            for segment in writer.segments.values()
            if segment.id != point.segment and not segment.is_leaving
        )
        needed = {segment: dict(homes) for segment, homes in self.usage.needed.items()}
        self._plan_next(0, 0)
        is_noted = not any(isinstance(local, Compact) for local in writer.pending_locals)
        return Begin(point, writer.victim if is_noted else 0, segments, needed)

    # In the background.

    async def maintain(self, now_ms: int, has_changes: HasChanges | None) -> int | None:
        """Do a share of the snapshot that is due; return after how many ms to go on.

        Returns:
            None: there is nothing to do.

        Raises:
            StoreFailed: the directory could not be synced.
        """
        work = self._work
        if work is None:
            if not self._is_due(now_ms):
                return None
            work = self._work = _Work(now_ms)
            self.wants_copy = True
        self._pace.fill(now_ms, _BYTES_S)
        wait_ms = self._pace.wait_ms(_BYTES_S)
        if wait_ms:
            return wait_ms
        if self.wants_copy and has_changes is not None and not has_changes():
            self.copy()
        if self.wants_copy:
            return _SOON_MS  # a batch will come, and takes a chunk along
        try:
            return await self._write(work)
        except SyncFailed as problem:
            raise self.writer.fail(problem, "naming a snapshot") from problem
        except OSError as problem:
            log.warning("snapshot not written", path=work.path, error=problem)
            self._retry_at_ms = now_ms + _RETRY_MS
            self._bytes_due = 0
            await self.flusher.run_in_worker(self.abandon, Lane.SNAPSHOT)
            return None

    def abandon(self) -> None:
        """Give up the snapshot in the making. Blocks."""
        work, self._work = self._work, None
        self.wants_copy = False
        if work is None or work.file is None:
            return
        try:
            work.file.close()
            self.writer.vfs.unlink(work.path + TMP_SUFFIX)
        except OSError as problem:
            log.warning("snapshot not written", path=work.path, error=problem)

    def write_last(self) -> None:
        """Write a snapshot of the end, if the log is worth it. Blocks; nothing changes any more.

        Raises:
            SyncFailed: The directory could not be synced.
        """
        self.abandon()
        wanted = self.writer.options.snapshot_log_bytes
        held = sum(segment.end for segment in self.writer.segments.values())
        if not wanted or held < wanted // _CLOSE_SHARE:
            return
        work = self._work = _Work(self.clock_ms())
        try:
            self._create(work)
            while work.end is None or work.chunk is not None:
                self.copy()
                self._write_chunk(work)
            self._write_end(work)
            self._publish(work)
        except SyncFailed:
            raise
        except OSError as problem:
            log.warning("snapshot not written", path=work.path, error=problem)
            self.abandon()

    async def _write(self, work: _Work) -> int:
        """Write what was copied, or the end; return after how many ms to go on."""
        run = self.flusher.run_in_worker
        if work.file is None:
            await run(lambda: self._create(work), Lane.SNAPSHOT)
        if work.chunk is not None:
            before = work.offset
            await run(lambda: self._write_chunk(work), Lane.SNAPSHOT)
            self._pace.spend(work.offset - before)
        if work.end is None:
            self.wants_copy = True
            return 0
        if not work.is_written:
            await run(lambda: self._write_end(work), Lane.SNAPSHOT)
        segment = work.end_segment
        assert segment is not None
        if segment.synced < work.end.offset:
            return _SOON_MS
        await run(lambda: self._publish(work), Lane.SNAPSHOT)
        return _SOON_MS

    # On a worker thread.

    def _create(self, work: _Work) -> None:
        if work.begin is None:
            work.begin = self._begin()
        writer = self.writer
        vfs, directory = writer.vfs, writer.directory
        work.path = f"{directory}/{snapshot_name(work.begin.point.state.last_lsn)}"
        spared = _FREE_SEGMENTS * self.writer.options.segment_bytes
        if vfs.free_bytes(directory) < spared + self._size():
            raise OSError(f"less than {spared} bytes would be left in {directory}")
        tmp = work.path + TMP_SUFFIX
        if vfs.exists(tmp):  # of an attempt that was given up
            vfs.unlink(tmp)
        work.file = vfs.open(tmp, is_new=True)
        header = encode_header(self.flusher.position.store_uuid, self.slots.layout.text, work.begin)
        work.salt = int.from_bytes(header[-4:], "little")
        self._append(work, [header])

    def _write_chunk(self, work: _Work) -> None:
        if work.chunk is None:
            return
        self._append(work, encode_block(SLOTS, encode_slots(*work.chunk), work.salt))
        work.block_count += 1
        work.chunk = None

    def _write_end(self, work: _Work) -> None:
        assert work.end is not None
        assert work.file is not None
        pieces = encode_end(work.end, work.used_count, work.block_count)
        self._append(work, encode_block(END, pieces, work.salt))
        work.file.fsync()
        work.is_written = True

    def _append(self, work: _Work, buffers: list[Buffer]) -> None:
        assert work.file is not None
        length = sum(map(len, buffers))
        if work.file.pwritev(buffers, work.offset) != length:
            raise OSError(errno.ENOSPC, "short write", work.path)
        work.offset += length
        if work.offset - work.synced >= _SYNC_BYTES:
            work.file.fdatasync()
            work.synced = work.offset

    def _publish(self, work: _Work) -> None:
        """Give a finished snapshot its name; remove those that are too many."""
        assert work.file is not None
        assert work.begin is not None
        vfs, directory = self.writer.vfs, self.writer.directory
        work.file.close()
        vfs.rename(work.path + TMP_SUFFIX, work.path)
        sync_names(vfs, directory)
        self._work = None
        counters = self.flusher.counters
        counters.snapshots += 1
        counters.snapshot_bytes = work.offset
        counters.snapshot_lsn = work.begin.point.state.last_lsn
        counters.snapshot_ms = max(0, self.clock_ms() - work.started_ms)
        log.info(
            "snapshot written",
            path=work.path,
            bytes=work.offset,
            entries=len(self.slots),
            elapsed_ms=counters.snapshot_ms,
        )
        names = [name for name in vfs.list_dir(directory) if snapshot_lsn(name) is not None]
        for name in sorted(names, reverse=True)[_KEPT:]:
            vfs.unlink(f"{directory}/{name}")

    # When.

    def _is_due(self, now_ms: int) -> bool:
        if not self.writer.options.snapshot_log_bytes or now_ms < self._retry_at_ms:
            return False
        counters = self.flusher.counters
        return counters.written_bytes >= self._bytes_due or self._cost() >= self._cost_due

    def _plan_next(self, byte_count: int, cost: int) -> None:
        """Settle when the next one is due, with so much log behind the one before."""
        wanted = max(self.writer.options.snapshot_log_bytes, _SIZE_FACTOR * self._size())
        self._bytes_due = self.flusher.counters.written_bytes + wanted - byte_count
        self._cost_due = self._cost() + max(_COST_MIN, len(self.slots)) - cost

    def _cost(self) -> int:
        counters = self.flusher.counters
        return counters.records + _FRAME_COST * counters.batches

    def _size(self) -> int:
        """Return about how many bytes a snapshot takes."""
        return len(self.slots) * (self.slots.layout.head_bytes + 45)
