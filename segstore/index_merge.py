"""Moving the oldest recent entries into `index.hix`, and keeping its buckets from getting full.

All in slices of about a millisecond with a pause between them: whoever waits for a commit must not
wait for this. Pages are read from the page cache in passing; what is not there, and all writes,
go to a worker.
"""

from collections.abc import Awaitable, Callable, Sequence
from itertools import islice
from typing import Final

from segstore.index_file import IndexDamaged, IndexFile
from segstore.workers import Lane, RunInWorker

_SLICE_ENTRIES: Final = 1024
_GROUP_BUCKETS: Final = 32
_GROUP_SPLITS: Final = 8

# Lets others run.
Pause = Callable[[], Awaitable[None]]


async def merge_oldest(
    index: IndexFile,
    recent: dict[bytes, int],
    table: int,
    count_max: int,
    *,
    run_in_worker: RunInWorker,
    pause: Pause,
) -> int:
    """Move up to `count_max` of the oldest entries of a table from `recent` into the file.

    They leave `recent` once they are written. May be cancelled at any pause.

    Returns:
        How many found no room and stay.

    Raises:
        IndexDamaged: Delete the file.
        OSError: Some images could not be written and are still pending.
    """
    groups: dict[int, list[tuple[int, bytes]]] = {}
    oldest = list(islice(recent.items(), count_max))
    for start in range(0, len(oldest), _SLICE_ENTRIES):
        for key, slot in oldest[start : start + _SLICE_ENTRIES]:
            hashed = index.hash(table, key)
            groups.setdefault(index.bucket(hashed), []).append((hashed << 32 | slot, key))
        await pause()
    del oldest
    order = sorted(groups)  # so that neighbours are written as one
    left = 0
    for start in range(0, len(order), _GROUP_BUCKETS):
        buckets = order[start : start + _GROUP_BUCKETS]
        pages = await _read(index, buckets, run_in_worker)
        added: list[tuple[int, bytes]] = []
        for bucket, page in zip(buckets, pages, strict=True):
            group = groups.pop(bucket)
            count = index.add(bucket, page, [entry for entry, _ in group])
            added += group[:count]
            left += len(group) - count
        await write_pending(index, run_in_worker)
        for entry, key in added:
            if recent.get(key) == entry & 0xFFFFFFFF:
                del recent[key]
        await pause()
    return left


async def split_buckets(
    index: IndexFile, bucket_count: int, *, run_in_worker: RunInWorker, pause: Pause
) -> None:
    """Split buckets in turn until there are `bucket_count`. Raises as `merge_oldest`."""
    while index.bucket_count < bucket_count:
        for _ in range(min(_GROUP_SPLITS, bucket_count - index.bucket_count)):
            [page] = await _read(index, [index.next_split()], run_in_worker)
            index.split(page)
        await write_pending(index, run_in_worker)
        await pause()


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


async def write_pending(index: IndexFile, run_in_worker: RunInWorker) -> None:
    """Write the images that wait. Raises as `merge_oldest`."""
    images = index.take_writes()
    await run_in_worker(lambda: index.write(images), Lane.MAINTENANCE)
    index.written(images)
    if index.is_discarded:
        raise IndexDamaged("given up meanwhile")
