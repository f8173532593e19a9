"""How much of what a store holds, from its directory alone. Changes nothing."""

from dataclasses import dataclass

from segstore.directory import kept_from_writers, look_into
from segstore.options import Position
from segstore.recovery import Progress, Recovery
from segstore.slots import Slots
from segstore.usage import Usage
from segstore.vfs import VFS
from segstore.walk import layout_of


@dataclass(frozen=True, slots=True)
class SegmentSummary:
    """A live segment.

    Attributes:
        log_bytes: Up to the end of its last frame.
        live_bytes: Of what still counts in it.
    """

    segment: int
    log_bytes: int
    live_bytes: int


@dataclass(frozen=True, slots=True)
class Summary:
    """What a store holds.

    Attributes:
        position: Where the log stands.
        slots: Its entries; look, do not change.
        segments: The live ones, oldest first.
        needed_count: Deletes that still hold down an older PUT.
        record_count: Records in the log.
        cut_bytes: Torn tail that the next open cuts off.
    """

    position: Position
    slots: Slots | None
    segments: tuple[SegmentSummary, ...]
    needed_count: int
    record_count: int
    cut_bytes: int


def summarize(path: str, *, vfs: VFS, on_progress: Progress | None = None) -> Summary:
    """Return what a store holds that nobody has open.

    Raises:
        StoreLocked, NoStore, FormatRefused: as `verify`.
        StoreDamaged: an open would be refused.
        OSError: it cannot be read.
    """
    with kept_from_writers(vfs, path):
        directory = look_into(vfs, path)
        uuid = directory.marker.store_uuid
        layout = layout_of(vfs, directory)
        if layout is None:
            return Summary(Position(uuid, 0, 0, 0), None, (), 0, 0, 0)
        recovery = Recovery(vfs, directory, layout, salvage_command="", on_progress=on_progress)
        found = recovery.read()
        usage = Usage(layout.record_bytes)
        usage.recount(found.slots, found.needed, {segment.id for segment in found.segments})
        segments = tuple(
            SegmentSummary(each.id, each.end, usage.live(each.id)) for each in found.segments
        )
        state = found.state
        return Summary(
            Position(uuid, state.epoch, state.last_lsn, state.log_clock_ms),
            found.slots,
            segments,
            sum(usage.needed_count(each.segment) for each in segments),
            found.replayed.record_count,
            found.cut_bytes,
        )
