"""What was built and waits for the disk: a frame at its place, and the batch its caller holds."""

from dataclasses import dataclass

from segstore.segment import Segment


@dataclass(slots=True, eq=False)
class BuiltFrame:
    """A frame in memory, at its place.

    Attributes:
        offset, end: Where it lies in its segment.
        data: Its bytes, until they are written.
        bodies: That it puts or moves, by slot.
        last_lsn, log_clock_ms, epoch: Where the log stands behind it.
        is_rider: Written along with the frame before it, for whoever wants that one.
        is_written: Whether the disk has it, as durably as its writer asked for.
    """

    segment: Segment
    offset: int
    end: int
    data: bytes
    record_count: int
    last_lsn: int
    log_clock_ms: int
    epoch: int
    bodies: dict[int, bytes] | None = None
    is_rider: bool = False
    is_written: bool = False


@dataclass(slots=True, eq=False)
class Batch:
    """Records that become durable together or not at all.

    Attributes:
        first_lsn: LSN of its first record.
        count: Records; 0: there is nothing to commit.
        log_clock_ms: Wall clock of the batch.
        byte_count: What it adds to the log.
    """

    first_lsn: int
    count: int
    log_clock_ms: int
    byte_count: int
    frame: BuiltFrame | None
