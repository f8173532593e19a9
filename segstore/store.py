"""A store: a directory of segments, opened by one writer.

The order of use: `open`, `become_writer`, then `build` and `commit` batch by batch, reads at any
time, `maintain` again and again from a task of the caller, `close`. What the methods promise is the
same on any disk behind `VFS`; the bytes are in FORMAT.md.

The store has no clock and no task. Methods without `await` never block; the others hand the
blocking part to `run_in_worker`.
"""

import secrets
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any

import trio

from segstore.batch import EPOCH
from segstore.bodies import BodyCache, BodyReader
from segstore.builder import Builder
from segstore.built import Batch
from segstore.compaction import Compactor, HasChanges
from segstore.directory import OpenDirectory
from segstore.errors import BodyDamaged, StoreError
from segstore.flusher import Flusher
from segstore.hash_index import HashIndex
from segstore.layout import HeadLayout
from segstore.live_backup import back_up_live
from segstore.local import Note
from segstore.maintenance import Maintenance
from segstore.manifest import Manifest
from segstore.opening import open_log
from segstore.options import Counters, Options, Position, Room, StoreStatistics
from segstore.recovered import Recovered
from segstore.recovery import Progress
from segstore.segment import close_all
from segstore.slots import Slots
from segstore.snapshot import Snapshots
from segstore.statistics import collect
from segstore.usage import Usage
from segstore.vfs import VFS, RealVFS
from segstore.workers import Lane, RunInWorker, TrioWorkers
from segstore.writer import LogWriter


class Store:
    """See the module; made by `open`.

    Attributes:
        slots: The table of live entries; a column for each field.
    """

    def __init__(
        self,
        directory: OpenDirectory,
        layout: HeadLayout,
        options: Options,
        vfs: VFS,
        recovered: Recovered,
        index: HashIndex,
        run_in_worker: RunInWorker,
        *,
        clock_ms: Callable[[], int],
        entropy: Callable[[int], bytes],
    ) -> None:
        self.slots: Slots = recovered.slots
        self._index = self.slots.index = index
        self._directory = directory
        self._layout = layout
        self._clock_ms = clock_ms
        self._entropy = entropy
        self._segments = {segment.id: segment for segment in recovered.segments}
        self._counters = Counters(
            recovered_records=recovered.replayed.record_count,
            cut_bytes=recovered.cut_bytes,
            bodies_damaged=len(recovered.damaged_bodies),
        )
        state = recovered.state
        uuid = directory.marker.store_uuid
        self._writer = LogWriter(
            vfs,
            directory.path,
            uuid,
            layout,
            options,
            state,
            self._segments,
            recovered.next_segment,
            lock=directory.lock,
            clock_ms=clock_ms,
            entropy=entropy,
            counters=self._counters,
        )
        self._writer.victim = recovered.victim
        self._usage = Usage(layout.record_bytes)
        self._usage.recount(self.slots, recovered.needed, self._segments)
        self._usage.victim = recovered.victim
        self._cache = BodyCache(options.cache_bytes)
        self._reader = BodyReader(
            vfs, self.slots, self._segments, self._cache, self._counters, run_in_worker
        )
        self._builder = Builder(self.slots, self._usage, layout)
        position = Position(uuid, state.epoch, state.last_lsn, state.log_clock_ms)
        self._flusher = Flusher(self._writer, self._cache, self._counters, run_in_worker, position)
        self._compactor = Compactor(
            self._writer, self._flusher, self._usage, self.slots, layout, options
        )
        self._maintenance = Maintenance(
            self._writer, self._flusher, self._usage, self._compactor, options, clock_ms
        )
        parts = (self._writer, self._flusher, self._usage, self.slots)
        self._snapshots = Snapshots(*parts, clock_ms, recovered.replayed)
        self._is_closed = False

    @classmethod
    async def open(
        cls,
        path: str,
        *,
        fields: Sequence[tuple[str, str]],
        options: Options | None = None,
        vfs: VFS | None = None,
        clock_ms: Callable[[], int],
        on_progress: Progress | None = None,
        run_in_worker: RunInWorker | None = None,
        entropy: Callable[[int], bytes] = secrets.token_bytes,
    ) -> "Store":
        """Open the store in `path`, or make a new one there; return when the local truth is known.

        Changes nothing but a torn tail, which is kept in quarantine/, gives back space behind the
        log, and removes files that are no part of it. All is durable on return.

        Args:
            path: Directory; made if missing.
            fields: Name and `array` typecode of each head field; the same for the life of a store.
            clock_ms: Wall clock.
            on_progress: Told bytes replayed and bytes in all, on the worker thread.
            run_in_worker: Where blocking calls run, syncs of commits too; by default those are the
                kernel's where it can, and the rest runs on Trio's threads.
            entropy: Random bytes for ids and salts.

        Raises:
            StoreLocked, FormatRefused, StoreDamaged, NotAFile: see there; nothing was changed.
            OSError: the directory cannot be read or written.
        """
        layout = HeadLayout(fields)
        chosen = options or Options()
        disk: VFS = vfs or RealVFS()
        run = run_in_worker or TrioWorkers()

        directory, recovered, index, free = await run(
            lambda: open_log(
                disk,
                path,
                layout,
                chosen,
                run,
                clock_ms=clock_ms,
                entropy=entropy,
                on_progress=on_progress,
            ),
            Lane.MAINTENANCE,
        )
        parts = (directory, layout, chosen, disk, recovered, index, run)
        store = cls(*parts, clock_ms=clock_ms, entropy=entropy)
        if run_in_worker is None:
            store._flusher.syncer = disk.syncer()
        store._maintenance.judge_room(free)
        return store

    # Writing.

    def position(self) -> Position:
        """Return where the committed log stands."""
        return self._flusher.position

    async def become_writer(self) -> int:
        """Begin a new epoch in a segment of its own; return its number.

        On return the epoch is as durable as the persist mode says, and earlier writers are refused.
        Raises NoRoom where a full disk leaves no space for it; call again later.
        """
        self._check()
        if self._writer.active is not None:
            raise StoreError("this store is the writer already")
        await self._maintenance.make_first()
        writer = self._writer
        writer.epoch += 1
        place = writer.reserve(1, 0)
        self._usage.add_segment(place.segment)
        record = self._layout.headless_record.pack(EPOCH, 0, 0, 0, 0, self._entropy(16))
        frame = writer.fill(
            place, records=record, hints=(0,), homes=(0,), clock_ms=self._clock_ms()
        )
        await self._flusher.flush(frame)
        return writer.epoch

    def build(
        self,
        puts: Mapping[int, bytes],
        states: Iterable[int],
        deletes: Iterable[int],
        *,
        clock_ms: int,
    ) -> Batch:
        """Make the next batch from the keys and heads of the named slots as they are now.

        One record a slot: a delete wins over a put, a put over a state. A slot that was in no batch
        before and is deleted here leaves nothing. A new slot named only in `states` is put with an
        empty body. Deleted slots are free for later batches; their columns are zero on return.

        Batches must be committed in the order they were built. What was built and never committed
        is written along with a later one, or by `close`.

        Args:
            puts: Slots with new bodies.
            states: Slots whose heads changed.
            deletes: Slots of entries that ended.
            clock_ms: Wall clock; the log clock never runs back for it.
        """
        self._check()
        writer = self._writer
        assert writer.active is not None, "only a writer builds"
        first_lsn = writer.last_lsn + 1
        gone = list(deletes)
        frame = self._builder.build(writer, puts, states, gone, clock_ms)
        if gone:
            self._cache.forget(gone)
        if self._snapshots.wants_copy:
            self._snapshots.copy()
        if frame is None:
            return Batch(first_lsn, 0, clock_ms, 0, None)
        assert frame.bodies is not None
        self._cache.add_pending(frame.bodies)
        self._compactor.ride(frame)
        return Batch(
            first_lsn, frame.record_count, frame.log_clock_ms, frame.end - frame.offset, frame
        )

    async def commit(self, batch: Batch) -> None:
        """Return when the batch, and each built before it, survives what the persist mode promises.

        Raises:
            StoreFailed: it may or may not be stored; final.
        """
        if batch.frame is None:
            self._check()
            await trio.lowlevel.checkpoint()
        else:
            await self._index.keep_up(batch.count)
            await self._flusher.flush(batch.frame)

    # Reading.

    def locate_nowait(self, table: int, key: bytes) -> int:
        """Return the slot of an entry, ABSENT (-1), or UNKNOWN (-2: `locate` it first)."""
        return self._index.find(table, key)

    async def locate(self, keys: Sequence[tuple[int, bytes]]) -> None:
        """Make sure that `find` and `locate_nowait` answer for these tables and keys."""
        self._check()
        await trio.lowlevel.checkpoint()
        await self._index.locate(keys)

    def scan(self, table: int | None = None) -> Iterator[int]:
        """Yield the slot of each live entry, of a table, that is in a batch; in no order."""
        return self.slots.scan(table)

    def read_bodies_nowait(self, slots: Sequence[int]) -> list[bytes | None]:
        """Return bodies from RAM or page cache.

        None: `read_bodies` has to wait for it, or to tell that it is damaged.

        Args:
            slots: Each must be in a batch that was built.
        """
        self._check()
        return self._reader.read_nowait(slots)

    def read_bodies(self, slots: Sequence[int]) -> Coroutine[Any, Any, list[bytes | BodyDamaged]]:
        """Return, when awaited, bodies, or in place of one what is wrong with it.

        Which bodies are meant is settled at the call, not when it is awaited: the slots may be
        reused from then on.

        Args:
            slots: Each must be in a batch that was built.
        """
        self._check()
        return self._reader.read(slots)

    # The rest.

    def room(self) -> Room:
        """Return what the disk has room for, as `maintain` found it; NONE once it has failed."""
        return self._maintenance.room_now()

    async def maintain(self, has_changes: HasChanges | None = None) -> int:
        """Make segments ahead, drop and compact mostly dead ones, sync in the background.

        Call it again and again from one task of yours, after at most as many ms as it returns.
        It uses no LSN and changes nothing that `scan` and `read_bodies` show.

        Args:
            has_changes: Tells whether keys and heads hold changes that are in no batch yet. While
                it says no, work on the heads may be done here too; without it, only in the turn of
                `build`.

        Raises:
            StoreFailed: final.
        """
        self._check()
        pause_ms = await self._maintenance.maintain(has_changes)
        if self._writer.active is not None:
            if self.room() is Room.OK:
                wait_ms = await self._snapshots.maintain(self._clock_ms(), has_changes)
                pause_ms = pause_ms if wait_ms is None else min(wait_ms, pause_ms)
            await self._index.maintain()
            if self._index.has_work():
                return 0
        return pause_ms

    def stats(self) -> StoreStatistics:
        """Return counts; never a scan."""
        return collect(
            self._counters,
            self._segments,
            self._usage,
            self._cache,
            self._index,
            entry_count=len(self.slots),
            room=self.room(),
            is_failed=self._writer.failure is not None,
        )

    async def backup(self, target: str) -> Manifest:
        """Copy what is committed to a new directory, durably, while the store is in use.

        Opening it gives a store at `Manifest.last_lsn`. Verify it: it is as good as this store.
        Raises as `Backup.steps` does; StoreFailed too.
        """
        self._check()
        return await back_up_live(self._maintenance, target, self._clock_ms())

    async def close(self, has_changes: HasChanges | None = None) -> None:
        """Write what was built, note the clean end, and unlock the directory. Twice is harmless.

        On return everything is durable in every persist mode. A store that failed, or never became
        the writer, is only unlocked.

        Args:
            has_changes: As in `maintain`. Where it says no a snapshot is left for the next open.

        Raises:
            StoreFailed: writing failed now; the directory is unlocked all the same.
        """
        if self._is_closed:
            return
        try:
            if self._writer.active is not None and self._writer.failure is None:
                with trio.CancelScope(shield=True):  # bounded by the disk: two syncs, the index
                    await self._end_log()
                    is_settled = has_changes is not None and not has_changes()
                    await self._flusher.run_in_worker(
                        lambda: self._leave_shortcuts(is_settled), Lane.MAINTENANCE
                    )
        finally:
            self._is_closed = True
            self._index.abandon()
            self._snapshots.abandon()
            await self._close_files()

    def _leave_shortcuts(self, is_settled: bool) -> None:
        """Write what makes the next open fast."""
        self._index.close()
        if is_settled:
            self._snapshots.write_last()

    async def _close_files(self) -> None:
        with trio.CancelScope(shield=True):  # bounded by the disk: syncs under way
            await self._flusher.close()
        spare = self._writer.spare
        files = [segment.file for segment in self._segments.values()]
        close_all([*files, spare.file if spare is not None else None, self._directory.lock])

    async def _end_log(self) -> None:
        """Sync, NOTE, sync: then the note's synced_off vouches for all before it."""
        writer, flusher = self._writer, self._flusher
        if writer.unwritten:
            await flusher.flush(writer.unwritten[-1], is_durable=True)
        active = writer.active
        assert active is not None
        if active.synced < active.written:
            await flusher.sync(active, Lane.COMMIT)
        await flusher.flush(writer.local_frame(Note(writer.last_lsn)), is_durable=True)

    def _check(self) -> None:
        if self._writer.failure is not None:
            raise self._writer.failure
        if self._is_closed:
            raise StoreError("the store is closed")
