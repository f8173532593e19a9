"""Looking for keys without an index: a search of the key column, in slices."""

from collections.abc import Sequence
from typing import Final

from segstore.index_file import Columns
from segstore.index_merge import Pause
from segstore.slots import ABSENT

_RANGE_BYTES: Final = 1 << 20  # searched for one key at a time: a quarter of a millisecond
_SLOTS: Final = 4096  # compared with many keys at a time: a millisecond
_FEW: Final = 32


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
