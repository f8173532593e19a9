"""Keys that are not found at once: a search of the key column, in slices, and what was found."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from segstore.index_file import Columns
from segstore.slots import ABSENT, UNKNOWN

# Lets others run.
Pause = Callable[[], Awaitable[None]]

_RANGE_BYTES: Final = 1 << 20  # searched for one key at a time: a quarter of a millisecond
_SLOTS: Final = 4096  # compared with many keys at a time: a millisecond
_FEW: Final = 32


class Located:
    """Answers that take a disk or a search, kept until at least `count_max` others were given.

    A slot must be checked when it is used. That a key is absent must be taken back (`forget`) when
    it is put.

    Attributes:
        has_absent: Whether there ever was an answer to take back.
    """

    __slots__ = ("_before", "_count_max", "_slots", "has_absent")

    def __init__(self, count_max: int = 8192) -> None:
        self._count_max = count_max
        self._slots: dict[tuple[int, bytes], int] = {}
        self._before: dict[tuple[int, bytes], int] = {}
        self.has_absent = False

    def get(self, table: int, key: bytes) -> int:
        """Return slot, ABSENT, or UNKNOWN if there is no answer."""
        slot = self._slots.get((table, key))
        return self._before.get((table, key), UNKNOWN) if slot is None else slot

    def remember(self, table: int, key: bytes, slot: int) -> None:
        """Keep an answer."""
        if len(self._slots) >= self._count_max:
            self._before, self._slots = self._slots, {}
        self._slots[table, key] = slot
        if slot == ABSENT:
            self.has_absent = True

    def forget(self, table: int, key: bytes) -> None:
        """Drop an answer."""
        self._slots.pop((table, key), None)
        self._before.pop((table, key), None)


async def search(
    columns: Columns, wanted: Sequence[tuple[int, bytes]], pause: Pause
) -> dict[tuple[int, bytes], int]:
    """Return the slots of those of the wanted keys that some slot holds.

    A key that moves while this runs may be missed.
    """
    found: dict[tuple[int, bytes], int] = {}
    left = dict.fromkeys(wanted)
    if len(left) > _FEW:
        for start in range(0, len(columns.tables), _SLOTS):
            _compare(columns, left, start, found)
            await pause()
        return found
    length = len(columns.keys)
    for start in range(0, length, _RANGE_BYTES):
        for number, (table, key) in enumerate(list(left)):
            slot = search_range(columns, table, key, start, min(start + _RANGE_BYTES, length))
            if slot != ABSENT:
                found[table, key] = slot
                del left[table, key]
            if number & 3 == 3:
                await pause()
        await pause()
    return found


def search_range(columns: Columns, table: int, key: bytes, start: int, end: int) -> int:
    """Return the slot of a key between two offsets of the key column, or ABSENT."""
    keys, tables = columns.keys, columns.tables
    at = keys.find(key, start, end)
    while at >= 0:
        if not at & 15 and tables[at >> 4] == table:
            return at >> 4
        at = keys.find(key, (at | 15) + 1, end)
    return ABSENT


def _compare(
    columns: Columns,
    wanted: dict[tuple[int, bytes], None],
    start: int,
    found: dict[tuple[int, bytes], int],
) -> None:
    keys = bytes(columns.keys[16 * start : 16 * (start + _SLOTS)])
    tables = columns.tables[start : start + _SLOTS]
    for index, table in enumerate(tables):
        each = (table, keys[16 * index : 16 * index + 16])
        if each in wanted:
            found[each] = start + index
