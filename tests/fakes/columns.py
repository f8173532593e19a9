"""The part of a slot table that the hash index reads, with a plain dict as the truth beside it."""

import copy
from array import array
from random import Random

from segstore.hash_index import UNKNOWN, HashIndex
from segstore.vfs import VFS
from tests.fakes.simvfs import SimVFS

UUID = b"u" * 16
SEED = bytes(range(32))


class FakeColumns:
    """Keys and tables of slots; free slots are reused, newest first."""

    def __init__(self) -> None:
        self.keys = bytearray()
        self.tables = array("B")
        self.recent: list[dict[bytes, int]] = [{} for _ in range(256)]
        self.truth: dict[tuple[int, bytes], int] = {}
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self.truth)

    def allocate(self, table: int, key: bytes) -> int:
        """Give a key a slot."""
        if not self._free:
            first = len(self.tables)
            self.keys.extend(bytes(16 * 64))
            self.tables.extend(bytes(64))
            self._free.extend(range(first + 63, first - 1, -1))
        slot = self._free.pop()
        self.keys[16 * slot : 16 * slot + 16] = key
        self.tables[slot] = table
        self.truth[table, key] = slot
        return slot

    def free(self, table: int, key: bytes) -> int:
        """Take the slot of a key away."""
        slot = self.truth.pop((table, key))
        self.keys[16 * slot : 16 * slot + 16] = bytes(16)
        self.tables[slot] = 0
        self._free.append(slot)
        return slot

    def clear_free(self) -> None:
        """Nothing is left in free slots anyway."""


class IndexRig:
    """A hash index over fake columns, changed together."""

    def __init__(
        self,
        vfs: VFS | None = None,
        columns: FakeColumns | None = None,
        *,
        recent_max: int = 64,
        uuid: bytes = UUID,
        run_in_worker=None,
        pause=None,
    ) -> None:
        self.vfs = SimVFS() if vfs is None else vfs
        self.columns = FakeColumns() if columns is None else columns
        self.pause_count = 0
        self._pause = pause
        self.index = HashIndex(
            self.columns,
            vfs=self.vfs,
            directory="/store",
            store_uuid=uuid,
            entropy=lambda count: SEED[:count],
            run_in_worker=run_in_worker or self._run_here,
            pause=self._count_pause,
            recent_max=recent_max,
        )
        self.index.open(self._newest(recent_max))

    def _newest(self, count: int) -> list[int]:
        """Fill the recent entries as a replay does; return slots to keep if that is too many."""
        columns = self.columns
        for keys in columns.recent:
            keys.clear()
        for (table, key), slot in columns.truth.items():
            columns.recent[table][key] = slot
        return list(columns.truth.values())[-count:]

    async def _run_here(self, function, lane):
        return function()

    async def _count_pause(self) -> None:
        self.pause_count += 1
        if self._pause is not None:
            await self._pause()

    def put(self, table: int, key: bytes) -> None:
        """Add an entry."""
        self.index.put(table, key, self.columns.allocate(table, key))

    def remove(self, table: int, key: bytes) -> None:
        """Take an entry away."""
        slot = self.columns.free(table, key)
        if self.columns.recent[table].get(key) == slot:
            del self.columns.recent[table][key]

    async def settle(self) -> None:
        """Do all maintenance there is."""
        index = self.index
        while index.is_building() or index.recent_count() > index.recent_max or index.has_work():
            await index.maintain()

    async def fill(self, count: int, random: Random, table: int = 1) -> list[bytes]:
        """Add entries, with maintenance now and then; return their keys."""
        keys = [random.randbytes(16) for _ in range(count)]
        for number, key in enumerate(keys):
            self.put(table, key)
            if number % 512 == 511:
                await self.settle()
        await self.settle()
        return keys

    async def check(
        self, random: Random, absent_count: int = 200, *, count: int | None = None
    ) -> None:
        """All entries (or `count` of them) are found, others are not."""
        truth = self.columns.truth
        known = list(truth) if count is None else random.sample(list(truth), count)
        absent = [(random.randrange(1, 4), random.randbytes(16)) for _ in range(absent_count)]
        wanted = [*known, *absent]
        for start in range(0, len(wanted), 1000):
            await self.index.locate(wanted[start : start + 1000])
            for table, key in wanted[start : start + 1000]:
                expected = truth.get((table, key), -1)
                found = self.index.find(table, key)
                while found == UNKNOWN:  # the page turned out to be damaged
                    await self.index.locate([(table, key)])
                    found = self.index.find(table, key)
                assert found == expected
                if key not in self.columns.recent[table]:
                    assert self.index.find_old_blocking(table, key) == expected

    def reopen(self, vfs: VFS | None = None, **options) -> "IndexRig":
        """Open another index over equal columns, as after a restart."""
        columns = copy.deepcopy(self.columns)
        return IndexRig(self.vfs if vfs is None else vfs, columns, **options)
