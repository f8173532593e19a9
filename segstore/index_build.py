"""Building `index.hix` from the slot table, in slices, while the store serves.

Two passes: each live slot is hashed into a part of 16 neighbouring buckets, then each part is
packed and written once. A slot that changes behind the first pass needs no care: what is new is
among the recent entries, and what is old is seen to be old when it is looked up.
"""

from array import array
from typing import Final

from segstore.index_file import ENTRIES_TARGET, Columns, IndexFile
from segstore.index_merge import Pause, RunInWorker

_PART_SHIFT: Final = 4  # 16 buckets a part
_SLICE_SLOTS: Final = 1024  # about a millisecond


async def fill_index(
    index: IndexFile,
    columns: Columns,
    recent: list[dict[bytes, int]],
    *,
    run_in_worker: RunInWorker,
    pause: Pause,
) -> list[int]:
    """Write all entries that are not recent into a new index file.

    Args:
        index: New, its buckets not filled.
        columns: The slot table.
        recent: By table, what needs no entry. Nothing may leave it before this has returned,
            but for removed entries.
        run_in_worker: Calls a function on another thread.
        pause: Lets others run; called about once a millisecond.

    Returns:
        Slots that found no room.

    Raises:
        OSError: Delete the file.
    """
    part_count = (index.bucket_count - 1 >> _PART_SHIFT) + 1
    parts = [array("Q") for _ in range(part_count)]
    for start in range(0, len(columns.tables), _SLICE_SLOTS):
        _hash_slots(index, columns, recent, parts, start)
        await pause()
    left: list[int] = []
    for number in range(part_count):
        left += _fill_part(index, number << _PART_SHIFT, parts[number])
        parts[number] = array("Q")
        images = index.take_writes()
        await run_in_worker(index.write, images)
        index.written(images)
        await pause()
    return left


def bucket_count_for(entry_count: int) -> int:
    """Return how many buckets so many entries want."""
    return max(64, entry_count // ENTRIES_TARGET + 1)


def _hash_slots(
    index: IndexFile,
    columns: Columns,
    recent: list[dict[bytes, int]],
    parts: "list[array[int]]",
    start: int,
) -> None:
    keys, tables = columns.keys, columns.tables
    key_hash, bucket = index.hash, index.bucket
    for slot in range(start, min(start + _SLICE_SLOTS, len(tables))):
        table = tables[slot]
        if not table:
            continue
        key = bytes(keys[slot << 4 : (slot << 4) + 16])
        if recent[table].get(key) == slot:
            continue
        hashed = key_hash(table, key)
        parts[bucket(hashed) >> _PART_SHIFT].append(hashed << 32 | slot)


def _fill_part(index: IndexFile, first: int, part: "array[int]") -> list[int]:
    count = min(1 << _PART_SHIFT, index.bucket_count - first)
    entries: list[list[int]] = [[] for _ in range(count)]
    bucket = index.bucket
    for entry in part:
        entries[bucket(entry >> 32) - first].append(entry)
    left: list[int] = []
    for offset, each in enumerate(entries):
        fitting = index.fill(first + offset, each)
        left += [entry & 0xFFFFFFFF for entry in each[fitting:]]
    return left
