"""A slot table over plain arrays, with a dict for directory: what core's tests run on.

It behaves as the store does towards core: a deleted entry stays readable and findable until the
batch is built, and only then can its slot be handed out again.
"""

from array import array
from collections.abc import Iterable

from sepp.core.slots import FIELDS, LIVE, READY


class FakeSlots:
    """Satisfies `sepp.core.slots.SlotTable`."""

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

    def __init__(self) -> None:
        for name, typecode in FIELDS:
            setattr(self, name, array(typecode))
        self.body_length: array[int] = array("I")
        self.bodies: dict[int, bytes] = {}  # what is on disk
        self._keys: list[tuple[int, bytes]] = []
        self._directory: dict[tuple[int, bytes], int] = {}
        self._free: list[int] = []

    def allocate(self, table: int, key: bytes) -> int:
        assert len(key) == 16
        assert (table, key) not in self._directory, "the key is taken"
        if self._free:
            slot = self._free.pop()
            self._keys[slot] = (table, key)
        else:
            slot = len(self._keys)
            self._keys.append((table, key))
            for name, _ in FIELDS:
                getattr(self, name).append(0)
            self.body_length.append(0)
        self._directory[table, key] = slot
        return slot

    def find(self, table: int, key: bytes) -> int:
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
            assert slot in deletes or self.state[slot] in range(READY, LIVE + 1)
        for slot, body in puts.items():
            if slot not in deletes:
                assert self.body_length[slot] == len(body)
                self.bodies[slot] = body
        for slot in deletes:
            self._release(slot)
        puts.clear()
        states.clear()
        deletes.clear()

    def _release(self, slot: int) -> None:
        del self._directory[self._keys[slot]]
        self._keys[slot] = (0, bytes(16))
        for name, _ in FIELDS:
            getattr(self, name)[slot] = 0
        self.body_length[slot] = 0
        self.bodies.pop(slot, None)
        self._free.append(slot)

    def live(self) -> Iterable[int]:
        """Iterate over the slots of all live entries."""
        return list(self._directory.values())
