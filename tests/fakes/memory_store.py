"""A store without a disk: the interface of `segstore.Store`, with scripted delay and failure.

It passes the same contract suite as the real one (`tests/segstore/test_contract.py`), so tests of
what lies above a store may use it. What is durable lives in a `MemoryDisk`, which outlives the
store.
"""

import secrets
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any

import trio
from attrs import define, field

from segstore import (
    BodyDamaged,
    Options,
    Position,
    Room,
    Slots,
    StoreError,
    StoreFailed,
    StoreLocked,
    StoreStatistics,
)
from segstore.layout import HeadLayout

Name = tuple[int, bytes]  # table and key


@define
class MemoryDisk:
    """What survives, and the script of what goes wrong.

    Attributes:
        delay_s: Every commit takes so long.
        gate: Commits wait for it, if there is one.
        fail_at_commit: This commit (from 1, EPOCH counts) and all later calls raise StoreFailed.
        is_failing_kept: Whether the batch of the failing commit survives all the same.
        damaged: Entries whose bodies cannot be read.
        room: What `room` says.
        is_cold: Whether `read_bodies_nowait` never has a committed body at hand.
    """

    delay_s: float = 0
    gate: trio.Event | None = None
    fail_at_commit: int | None = None
    is_failing_kept: bool = False
    damaged: set[Name] = field(factory=set)
    room: Room = Room.OK
    is_cold: bool = False
    commit_count: int = 0
    maintain_count: int = 0
    entries: dict[Name, tuple[tuple[int, ...], bytes, int]] = field(factory=dict)
    position: Position = field(factory=lambda: Position(secrets.token_bytes(16), 0, 0, 0))
    is_locked: bool = False


@define(eq=False)
class MemoryBatch:
    """As `segstore.Batch`."""

    first_lsn: int
    count: int
    log_clock_ms: int
    byte_count: int
    changes: list[tuple[Name, tuple[tuple[int, ...], bytes | None, int] | None]]


class MemoryStore:
    """See the module; every argument of `open` but `disk` is as for `segstore.Store`."""

    def __init__(self, disk: MemoryDisk, layout: HeadLayout, clock_ms: Callable[[], int]) -> None:
        self.disk = disk
        self.slots = Slots(layout)
        self._clock_ms = clock_ms
        self._bodies: dict[int, bytes] = {}
        self._unwritten: list[MemoryBatch] = []
        self._last_lsn = disk.position.last_lsn
        self._log_clock_ms = disk.position.log_clock_ms
        self._is_writer = False
        self._is_closed = False
        self._failure: StoreFailed | None = None
        self._turn = trio.Lock()
        for (table, key), (head, body, lsn) in disk.entries.items():
            slot = self.slots.allocate(table, key)
            for column, value in zip(self.slots.heads, head, strict=True):
                column[slot] = value
            self._note(slot, body, lsn)

    @classmethod
    async def open(
        cls,
        path: str,
        *,
        fields: Sequence[tuple[str, str]],
        disk: MemoryDisk,
        clock_ms: Callable[[], int],
        options: Options | None = None,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> "MemoryStore":
        """Open what `disk` holds."""
        await trio.lowlevel.checkpoint()
        if disk.is_locked:
            raise StoreLocked(f"{path} is in use by process 0; stop it first")
        disk.is_locked = True
        if on_progress is not None:
            on_progress(1, 1)
        return cls(disk, HeadLayout(fields), clock_ms)

    def position(self) -> Position:
        return self.disk.position

    async def become_writer(self) -> int:
        self._check()
        if self._is_writer:
            raise StoreError("this store is the writer already")
        self._is_writer = True
        at = self.disk.position
        self.disk.position = Position(at.store_uuid, at.epoch + 1, at.last_lsn, at.log_clock_ms)
        self._last_lsn += 1
        self._log_clock_ms = max(self._log_clock_ms, self._clock_ms())
        await self.commit(self._batch(self._last_lsn, 1, []))
        return self.disk.position.epoch

    def build(
        self,
        puts: Mapping[int, bytes],
        states: Iterable[int],
        deletes: Iterable[int],
        *,
        clock_ms: int,
    ) -> MemoryBatch:
        self._check()
        assert self._is_writer, "only a writer builds"
        slots, gone, bodies = self.slots, dict.fromkeys(deletes), dict(puts)
        first = self._last_lsn + 1
        changes: list[tuple[Name, tuple[tuple[int, ...], bytes | None, int] | None]] = []
        kept = [slot for slot in states if slot not in gone and slot not in bodies]
        bodies.update((slot, b"") for slot in kept if not slots.lsn[slot])
        for slot in gone:
            bodies.pop(slot, None)
            if slots.lsn[slot]:
                changes.append(((slots.table(slot), slots.key(slot)), None))
        for slot in [*bodies, *(slot for slot in kept if slot not in bodies)]:
            lsn = first + len(changes)
            head = tuple(column[slot] for column in slots.heads)
            name = (slots.table(slot), slots.key(slot))
            changes.append((name, (head, bodies.get(slot), lsn)))
            self._note(slot, bodies.get(slot), lsn)
        if changes:
            self._log_clock_ms = max(self._log_clock_ms, clock_ms)
            self._last_lsn += len(changes)
        slots.free(list(gone))
        for slot in gone:
            self._bodies.pop(slot, None)
        return self._batch(first, len(changes), changes)

    async def commit(self, batch: MemoryBatch) -> None:
        self._check()
        if not batch.count:
            await trio.lowlevel.checkpoint()
            return
        async with self._turn:
            self._check()
            if batch not in self._unwritten:
                return
            if self.disk.gate is not None:
                await self.disk.gate.wait()
            await trio.sleep(self.disk.delay_s)
            self._write_up_to(batch)

    def locate_nowait(self, table: int, key: bytes) -> int:
        return self.slots.find(table, key)

    async def locate(self, keys: Sequence[Name]) -> None:
        self._check()
        await trio.lowlevel.checkpoint()

    def scan(self, table: int | None = None) -> Iterator[int]:
        return self.slots.scan(table)

    def read_bodies_nowait(self, slots: Sequence[int]) -> list[bytes | None]:
        self._check()
        pending = {name for batch in self._unwritten for name, _ in batch.changes}
        found: list[bytes | None] = []
        for slot in slots:
            name = (self.slots.table(slot), self.slots.key(slot))
            is_cold = self.disk.is_cold and name not in pending and self._bodies[slot]
            found.append(None if is_cold or name in self.disk.damaged else self._bodies[slot])
        return found

    def read_bodies(self, slots: Sequence[int]) -> Coroutine[Any, Any, list[bytes | BodyDamaged]]:
        self._check()
        found: list[bytes | BodyDamaged] = []
        for slot in slots:
            table, key, body = self.slots.table(slot), self.slots.key(slot), self._bodies[slot]
            if (table, key) in self.disk.damaged:
                found.append(BodyDamaged(table, key, "memory", 0, len(body), 0, 1))
            else:
                found.append(body)

        async def answer() -> list[bytes | BodyDamaged]:
            await trio.lowlevel.checkpoint()
            return found

        return answer()

    def room(self) -> Room:
        return self.disk.room

    async def maintain(self, has_changes: Callable[[], bool] | None = None) -> int:
        self._check()
        self.disk.maintain_count += 1
        await trio.lowlevel.checkpoint()
        return 1000

    def stats(self) -> StoreStatistics:
        counts = dict.fromkeys(StoreStatistics.__dataclass_fields__, 0)
        counts |= {"entry_count": len(self.slots), "batch_count": self.disk.commit_count}
        return StoreStatistics(
            **counts | {"room": self.disk.room, "is_failed": self._failure is not None}  # type: ignore[arg-type]  # a dict of all fields
        )

    async def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self.disk.is_locked = False
        await trio.lowlevel.cancel_shielded_checkpoint()
        if self._unwritten and self._failure is None:
            self._write_up_to(self._unwritten[-1])

    def abandon(self) -> None:
        """Stop as a killed process does: nothing more is written, the lock is gone."""
        self._is_closed = True
        self.disk.is_locked = False

    def _batch(self, first: int, count: int, changes: list) -> MemoryBatch:  # type: ignore[type-arg]  # see MemoryBatch
        batch = MemoryBatch(first, count, self._log_clock_ms, 100 * count, changes)
        if count:
            self._unwritten.append(batch)
        return batch

    def _note(self, slot: int, body: bytes | None, lsn: int) -> None:
        self.slots.lsn[slot] = lsn
        if body is not None:
            self.slots.body_length[slot] = len(body)
            self._bodies[slot] = body

    def _write_up_to(self, batch: MemoryBatch) -> None:
        disk = self.disk
        while batch in self._unwritten:
            each = self._unwritten[0]
            disk.commit_count += 1
            is_failing = disk.commit_count == disk.fail_at_commit
            if not is_failing or disk.is_failing_kept:
                self._apply(each)
            if is_failing:
                self._failure = StoreFailed("memory: scripted failure; stopping")
                raise self._failure
            self._unwritten.pop(0)

    def _apply(self, batch: MemoryBatch) -> None:
        entries, at = self.disk.entries, self.disk.position
        for name, change in batch.changes:
            if change is None:
                entries.pop(name, None)
            else:
                head, body, lsn = change
                entries[name] = (head, entries[name][1] if body is None else body, lsn)
        last = batch.first_lsn + batch.count - 1
        self.disk.position = Position(at.store_uuid, at.epoch, last, batch.log_clock_ms)

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._is_closed:
            raise StoreError("the store is closed")
