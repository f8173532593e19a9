"""Building `index.hix` from the slot table, in slices, while the store serves.

Two passes: each live slot is hashed into a part of 16 neighbouring buckets, then each part is
packed and written once. A slot that changes behind the first pass needs no care: what is new is
among the recent entries, and what is old is seen to be old when it is looked up.
"""

from array import array
from typing import Final

from segstore.index_file import ENTRIES_TARGET, Columns, IndexFile
from segstore.workers import Lane, RunInWorker

_PART_SHIFT: Final = 4  # 16 buckets a part
_SLICE_SLOTS: Final = 1024  # about a millisecond


class IndexBuild:
    """Fills a new index file with all entries that are not recent, slice by slice.

    Until it is done nothing may leave the recent entries but what is removed.

    Args:
        index: New, none of its buckets filled.
        columns: The slot table.
        run_in_worker: Where blocking calls run.

    Attributes:
        left: Slots that found no room.
    """

    def __init__(self, index: IndexFile, columns: Columns, run_in_worker: RunInWorker) -> None:
        self.index = index
        self.left: list[int] = []
        self._columns = columns
        self._run_in_worker = run_in_worker
        part_count = (index.bucket_count - 1 >> _PART_SHIFT) + 1
        self._parts = [array("Q") for _ in range(part_count)]
        self._next_slot = 0
        self._next_part = 0

    async def step(self) -> bool:
        """Do the next slice, about a millisecond of it here; return whether all is done.

        Raises:
            OSError: Delete the file.
        """
        if self._next_slot < len(self._columns.tables):
            self._hash_slots(self._next_slot)
            self._next_slot += _SLICE_SLOTS
            return False
        index = self.index
        if not index.pending:  # else a write was cancelled
            self._fill_part(self._next_part)
        images = index.take_writes()
        await self._run_in_worker(lambda: index.write(images), Lane.MAINTENANCE)
        index.written(images)
        self._next_part += 1
        return self._next_part == len(self._parts)

    def _hash_slots(self, start: int) -> None:
        keys, tables, recent = self._columns.keys, self._columns.tables, self._columns.recent
        key_hash, bucket, parts = self.index.hash, self.index.bucket, self._parts
        for slot in range(start, min(start + _SLICE_SLOTS, len(tables))):
            table = tables[slot]
            if not table:
                continue
            key = bytes(keys[slot << 4 : (slot << 4) + 16])
            if recent[table].get(key) == slot:
                continue
            hashed = key_hash(table, key)
            parts[bucket(hashed) >> _PART_SHIFT].append(hashed << 32 | slot)

    def _fill_part(self, part: int) -> None:
        index, first = self.index, part << _PART_SHIFT
        count = min(1 << _PART_SHIFT, index.bucket_count - first)
        entries: list[list[int]] = [[] for _ in range(count)]
        bucket = index.bucket
        for entry in self._parts[part]:
            entries[bucket(entry >> 32) - first].append(entry)
        self._parts[part] = array("Q")
        for offset, each in enumerate(entries):
            fitting = index.fill(first + offset, each)
            self.left += [entry & 0xFFFFFFFF for entry in each[fitting:]]


def bucket_count_for(entry_count: int) -> int:
    """Return how many buckets so many entries want."""
    return entry_count // ENTRIES_TARGET + 1
