"""Holding snapshots against the log that they abbreviate, without changing anything."""

from segstore.directory import Directory
from segstore.errors import StoreDamaged
from segstore.index_file import set_recent
from segstore.layout import HeadLayout
from segstore.recovered import SnapshotRefused
from segstore.recovery import Recovery
from segstore.slots import Slots
from segstore.snapshot_file import read_snapshot
from segstore.vfs import VFS
from segstore.walk import Break


def check_snapshots(
    vfs: VFS, directory: Directory, layout: HeadLayout, slots: Slots
) -> tuple[list[Break], list[str], Slots]:
    """Return what is wrong with snapshots, which the next open passes over, and its slot table.

    Args:
        slots: As a replay of the whole log left them.
    """
    breaks: list[Break] = []
    notes: list[str] = []
    used: Slots | None = None
    if sum(map(len, slots.recent)) < len(slots):
        set_recent(slots, slots.scan())
    for path in directory.snapshot_paths():
        found = read_snapshot(vfs, path, directory.marker.store_uuid, layout)
        if isinstance(found, str):
            problem = f"{found}; it is derived, and removed by the next open"
            breaks.append(Break(path, 0, 0, problem))
            continue
        recovery = Recovery(vfs, directory, layout, salvage_command="", snapshot=found)
        try:
            recovered = recovery.read()
        except (SnapshotRefused, StoreDamaged) as refused:
            notes.append(f"{path}: {refused}; the next open does without")
            continue
        count = _difference(recovered.slots, slots)
        if count:
            problem = f"{count} entries are not as the log has them; delete it, it is derived"
            breaks.append(Break(path, 0, 0, problem))
        used = used or recovered.slots
    return breaks, notes, used or slots


def _difference(slots: Slots, truth: Slots) -> int:
    """Return how many entries differ between two tables."""
    columns = list(zip(slots.columns(), truth.columns(), strict=True))
    same = 0
    for slot in slots.scan():
        other = truth.recent[slots.tables[slot]].get(slots.key(slot), -1)
        if other >= 0 and all(one[slot] == two[other] for one, two in columns):
            same += 1
    return len(slots) + len(truth) - 2 * same
