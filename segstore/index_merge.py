"""Moving the oldest recent entries into `index.hix`, and keeping its buckets from getting full.

All in steps of about a millisecond: whoever waits for a commit must not wait for more than one.
Pages are read from the page cache in passing; what is not there, and all writes, go to a worker.
"""

from collections.abc import Sequence
from itertools import islice
from typing import Final

from segstore.index_file import ENTRIES_TARGET, Columns, IndexDamaged, IndexFile
from segstore.workers import Lane, RunInWorker

_STEP_ENTRIES: Final = 1024  # hashed
_STEP_BUCKETS: Final = 32  # written
_STEP_SPLITS: Final = 8


class Merge:
    """One merge. Entries leave the recent ones once they are written.

    Args:
        index: Where to.
        columns: The slot table.
        table: Whose entries.
        count_max: How many at most.
        run_in_worker: Where blocking calls run.

    Attributes:
        moved_count: Entries that are no longer recent.
    """

    def __init__(
        self,
        index: IndexFile,
        columns: Columns,
        table: int,
        count_max: int,
        run_in_worker: RunInWorker,
    ) -> None:
        recent = columns.recent[table]
        self.index = index
        self.moved_count = 0
        self._columns = columns
        self._table = table
        self._run_in_worker = run_in_worker
        self._keys = list(islice(recent, count_max))
        self._slots = list(islice(recent.values(), count_max))
        self._hashed = 0  # how many of them are in the groups
        self._groups: dict[int, tuple[list[int], list[bytes]]] = {}
        self._order: list[int] = []  # buckets, so that neighbours are written as one
        self._merged = 0  # how many of the buckets are done
        self._left = 0  # entries that found no room

    async def step(self) -> bool:
        """Do the next step; return whether all is done. May be cancelled and called again.

        Raises:
            IndexDamaged: Delete the file.
            OSError: Some images could not be written and are still pending.
        """
        index = self.index
        if index.pending:  # as created, or left by a failure or a cancelled step
            await write_pending(index, self._run_in_worker)
        elif self._hashed < len(self._keys):
            self._hash_some()
        elif self._merged < len(self._order):
            await self._merge_some()
        else:
            return await self._split_some()
        return False

    def _hash_some(self) -> None:
        start, stop = self._hashed, self._hashed + _STEP_ENTRIES
        key_hash, bucket_of, groups, table = (
            self.index.hash,
            self.index.bucket,
            self._groups,
            self._table,
        )
        for key, slot in zip(self._keys[start:stop], self._slots[start:stop], strict=True):
            hashed = key_hash(table, key)
            bucket = bucket_of(hashed)
            group = groups.get(bucket)
            if group is None:
                groups[bucket] = ([hashed << 32 | slot], [key])
            else:
                group[0].append(hashed << 32 | slot)
                group[1].append(key)
        self._hashed = min(stop, len(self._keys))
        if self._hashed == len(self._keys):
            self._order = sorted(groups)

    async def _merge_some(self) -> None:
        index, groups = self.index, self._groups
        buckets = self._order[self._merged : self._merged + _STEP_BUCKETS]
        pages = await _read(index, buckets, self._run_in_worker)
        left: set[int] = set()
        for bucket, page in zip(buckets, pages, strict=True):
            left.update(index.add(bucket, page, groups[bucket][0]))
        await write_pending(index, self._run_in_worker)
        recent = self._columns.recent[self._table]
        for bucket in buckets:
            for entry, key in zip(*groups.pop(bucket), strict=True):
                if recent.get(key) == entry & 0xFFFFFFFF and entry not in left:
                    del recent[key]
                    self.moved_count += 1
        self._left += len(left)
        self._merged += len(buckets)

    async def _split_some(self) -> bool:
        """Split buckets in turn if there are too few; return whether there are enough."""
        index = self.index
        filed = max(0, len(self._columns) - sum(map(len, self._columns.recent)))
        wanted = filed // ENTRIES_TARGET + 1
        if self._left:  # full buckets: split early, though not for ever if keys all go to one
            early = index.bucket_count + self._left // 16 + 1
            wanted = max(wanted, min(early, filed // 64 + 1))
            self._left = 0
        for _ in range(min(_STEP_SPLITS, wanted - index.bucket_count)):
            [page] = await _read(index, [index.next_split()], self._run_in_worker)
            index.split(page)
        if index.pending:
            await write_pending(index, self._run_in_worker)
        return index.bucket_count >= wanted


async def write_pending(index: IndexFile, run_in_worker: RunInWorker) -> None:
    """Write the images that wait.

    Raises:
        IndexDamaged: The file was given up meanwhile.
        OSError: Some are still pending.
    """
    images = index.take_writes()
    await run_in_worker(lambda: index.write(images), Lane.MAINTENANCE)
    index.written(images)
    if index.is_discarded:
        raise IndexDamaged("given up meanwhile")


async def _read(
    index: IndexFile, buckets: Sequence[int], run_in_worker: RunInWorker
) -> list[bytes]:
    pages = [index.page_nowait(bucket) for bucket in buckets]
    missing = [bucket for bucket, page in zip(buckets, pages, strict=True) if page is None]
    if not missing:
        return [page for page in pages if page is not None]
    # Nobody else changes pages, so these are still the ones wanted when they arrive.
    read = iter(await run_in_worker(lambda: index.read(missing), Lane.MAINTENANCE))
    return [next(read) if page is None else page for page in pages]
