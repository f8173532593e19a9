"""A slot table over plain arrays, with a dict for directory: what core's tests run on.

It behaves as the store does towards core: a deleted entry stays readable and findable until the
batch is built, and only then can its slot be handed out again. `disk` is what a restart finds:
heads and bodies as the batches built so far have written them, so a change that was not noted is
lost.
"""

from array import array

from sepp.core.slots import ASIDE, FIELDS, JOBS, READY, ROW_TABLES

# Table, key, head fields in their order, body.
Entry = tuple[int, bytes, tuple[int, ...], bytes]


class FakeSlots:
    """Satisfies `sepp.core.slots.SlotTable`; `disk` is what an earlier one left."""

    state: "array[int]"
    priority: "array[int]"
    cause: "array[int]"
    flags: "array[int]"
    attempt: "array[int]"
    max_attempts: "array[int]"
    queue: "array[int]"
    at_ms: "array[int]"
    order: "array[int]"
    enqueued_ms: "array[int]"

    def __init__(self, disk: dict[int, Entry] | None = None) -> None:
        for name, typecode in FIELDS:
            setattr(self, name, array(typecode))
        self.body_length: array[int] = array("I")
        self.disk: dict[int, Entry] = {} if disk is None else disk
        self.finds: list[tuple[int, bytes]] = []  # every key asked for, for tests to look at
        self._keys: list[tuple[int, bytes]] = []
        self._directory: dict[tuple[int, bytes], int] = {}
        self._free: list[int] = []
        self._load()

    def _load(self) -> None:
        for slot in range(max(self.disk, default=-1) + 1):
            self._grow()
            if slot not in self.disk:
                self._free.append(slot)
                continue
            table, key, head, body = self.disk[slot]
            self._keys[slot] = (table, key)
            self._directory[table, key] = slot
            for (name, _), value in zip(FIELDS, head, strict=True):
                getattr(self, name)[slot] = value
            self.body_length[slot] = len(body)

    def _grow(self) -> None:
        self._keys.append((0, bytes(16)))
        for name, _ in FIELDS:
            getattr(self, name).append(0)
        self.body_length.append(0)

    def allocate(self, table: int, key: bytes) -> int:
        assert len(key) == 16
        assert (table, key) not in self._directory, "the key is taken"
        if not self._free:
            self._free.append(len(self._keys))
            self._grow()
        slot = self._free.pop()
        self._keys[slot] = (table, key)
        self._directory[table, key] = slot
        return slot

    def expect(self, table: int, key: bytes, slot: int) -> None:
        """Nothing to do: all is known."""

    def find(self, table: int, key: bytes) -> int:
        self.finds.append((table, key))
        return self._directory.get((table, key), -1)

    def key(self, slot: int) -> bytes:
        return self._keys[slot][1]

    def table(self, slot: int) -> int:
        return self._keys[slot][0]

    def build(
        self, puts: dict[int, bytes], states: dict[int, None], deletes: dict[int, None]
    ) -> None:
        """Take over the writes of a group, as store and committer do, and empty the dicts."""
        for slot in [*puts, *states]:
            assert slot in deletes or READY <= self.state[slot] <= ASIDE
        for slot, body in puts.items():
            if slot not in deletes:
                assert self.body_length[slot] == len(body)
                self._write(slot, body)
        for slot in states:
            if slot not in puts:
                self._write(slot, self.disk[slot][3])
        for slot in deletes:
            self._release(slot)
        puts.clear()
        states.clear()
        deletes.clear()
        self.finds.clear()

    def check_disk(self) -> None:
        """The disk must hold every live entry as its columns are now: nothing went unnoted."""
        assert self.disk.keys() == set(self._directory.values())
        for slot, entry in self.disk.items():
            assert entry[:3] == (*self._keys[slot], self._head(slot))

    def _head(self, slot: int) -> tuple[int, ...]:
        return tuple(getattr(self, name)[slot] for name, _ in FIELDS)

    def _write(self, slot: int, body: bytes) -> None:
        self.disk[slot] = (*self._keys[slot], self._head(slot), body)

    def _release(self, slot: int) -> None:
        del self._directory[self._keys[slot]]
        self._keys[slot] = (0, bytes(16))
        for name, _ in FIELDS:
            getattr(self, name)[slot] = 0
        self.body_length[slot] = 0
        self.disk.pop(slot, None)
        self._free.append(slot)

    def body(self, slot: int) -> bytes:
        """Return the body on disk."""
        return self.disk[slot][3]

    def live(self) -> list[int]:
        """Return the slots of all live entries."""
        return list(self._directory.values())

    def rows(self) -> dict[int, list[int]]:
        """Return the slots of all live entries but jobs, by table."""
        found: dict[int, list[int]] = {table: [] for table in ROW_TABLES}
        for (table, _), slot in self._directory.items():
            if table != JOBS:
                found[table].append(slot)
        return found
