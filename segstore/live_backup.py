"""Backing up a store from within: what it knows of itself need not be read back.

While it lasts no file is taken away; commits, spares and copying go on.
"""

from collections.abc import Callable

from segstore.backup import Backup
from segstore.layout import SEGMENT_HEADER_BYTES
from segstore.local import SegmentEnd
from segstore.maintenance import Maintenance
from segstore.manifest import Manifest
from segstore.recovered import LogEnd
from segstore.scan import LogState
from segstore.vfs import VFS
from segstore.workers import Lane


async def back_up_live(maintenance: Maintenance, target: str, now_ms: int) -> Manifest:
    """Make a backup of the store that this maintenance belongs to; see `Store.backup`."""
    writer, flusher = maintenance.writer, maintenance.flusher
    async with maintenance.drop_turn:
        backup = Backup(
            writer.vfs,
            writer.directory,
            target,
            now_ms=now_ms,
            read_end=await _end_of(maintenance),
        )
        steps = backup.steps()
        try:
            # One step at a time: a spare that is due has its turn in between.
            while await flusher.run_in_worker(lambda: next(steps, None), Lane.MAINTENANCE):
                pass
        finally:
            steps.close()
    return backup.manifest


async def _end_of(maintenance: Maintenance) -> Callable[[], LogEnd | None]:
    """Return what reads the newest segment up to where it is written now."""
    writer = maintenance.writer
    position, written = await maintenance.flusher.settled()
    begun = [each for each, end in written.items() if end > SEGMENT_HEADER_BYTES]
    if not begun:
        return lambda: None
    newest = max(begun)
    older = tuple(
        SegmentEnd(segment.id, segment.end, segment.last_crc)
        for segment in writer.segments.values()
        if segment.id < newest
    )
    state = LogState(position.last_lsn, position.epoch, position.log_clock_ms)
    path = writer.segments[newest].path
    return lambda: LogEnd(newest, _read(writer.vfs, path, written[newest]), older, state)


def _read(vfs: VFS, path: str, length: int) -> bytes:
    file = vfs.open(path, is_readonly=True)
    try:
        return file.pread(length, 0)
    finally:
        file.close()
