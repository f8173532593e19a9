"""Opening a directory: lock it, make the slot table from it, and take over its index file."""

from collections.abc import Callable

from segstore.directory import OpenDirectory, open_directory
from segstore.errors import StoreDamaged
from segstore.events import log
from segstore.hash_index import HashIndex
from segstore.index_file import set_recent
from segstore.layout import HeadLayout
from segstore.options import Options
from segstore.recovered import Recovered, SnapshotRefused
from segstore.recovery import Progress, Recovery
from segstore.snapshot_file import read_snapshot
from segstore.vfs import VFS
from segstore.workers import RunInWorker


def recover(
    vfs: VFS,
    directory: OpenDirectory,
    layout: HeadLayout,
    *,
    salvage_command: str,
    on_progress: Progress | None,
) -> Recovered:
    """Find the live segments, replay them on the newest snapshot that fits, mend the end.

    Raises:
        StoreDamaged: the log does not hold what it says it does. Nothing was changed.
        FormatRefused: its heads have other fields.
    """
    refused: list[str] = []
    for path in directory.snapshot_paths():
        found = read_snapshot(vfs, path, directory.marker.store_uuid, layout)
        try:
            if isinstance(found, str):
                raise SnapshotRefused(found)
            recovery = Recovery(
                vfs,
                directory,
                layout,
                salvage_command=salvage_command,
                on_progress=on_progress,
                snapshot=found,
            )
            return recovery.run(refused)
        except (SnapshotRefused, StoreDamaged) as problem:
            log.warning("snapshot not used", path=path, problem=problem)
            refused.append(path)
    recovery = Recovery(
        vfs, directory, layout, salvage_command=salvage_command, on_progress=on_progress
    )
    return recovery.run(refused)


def open_log(
    vfs: VFS,
    path: str,
    layout: HeadLayout,
    options: Options,
    run_in_worker: RunInWorker,
    *,
    clock_ms: Callable[[], int],
    entropy: Callable[[int], bytes],
    on_progress: Progress | None,
) -> tuple[OpenDirectory, Recovered, HashIndex, int]:
    """Return the locked directory, what is in it, its index, and the free bytes. Blocks.

    Arguments and errors are those of `Store.open`.
    """
    directory = open_directory(vfs, path, clock_ms=clock_ms, entropy=entropy)
    try:
        recovered = recover(
            vfs,
            directory,
            layout,
            salvage_command=options.salvage_command,
            on_progress=on_progress,
        )
        index = HashIndex(
            recovered.slots,
            vfs=vfs,
            directory=directory.path,
            store_uuid=directory.marker.store_uuid,
            entropy=entropy,
            run_in_worker=run_in_worker,
            recent_max=options.recent_entries_max,
        )
        _open_index(index, recovered)
        return directory, recovered, index, vfs.free_bytes(path)
    except BaseException:
        directory.lock.close()
        raise


def _open_index(index: HashIndex, recovered: Recovered) -> None:
    """Use the index file if it fits what was recovered; otherwise it is built anew later."""
    slots, recent_max = recovered.slots, index.recent_max
    if sum(map(len, slots.recent)) < len(slots) <= recent_max:  # all from a snapshot
        set_recent(slots, slots.scan())
    index.open(slots.changed_since(recovered.state.last_lsn - recent_max))
