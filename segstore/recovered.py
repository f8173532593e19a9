"""What an open found, and how much log it took to find it."""

from dataclasses import dataclass, field

from segstore.local import SegmentEnd
from segstore.mend import Cut
from segstore.scan import LogState
from segstore.segment import Segment
from segstore.slots import Slots
from segstore.usage import Needed


class SnapshotRefused(Exception):
    """A snapshot does not fit the log."""


@dataclass(slots=True)
class Replayed:
    """How much log lies behind the snapshot that an open used, or behind none."""

    byte_count: int = 0
    record_count: int = 0
    frame_count: int = 0
    snapshot_lsn: int = 0
    snapshot_bytes: int = 0  # 0: none was used


@dataclass(slots=True)
class Recovered:
    """What an open found."""

    slots: Slots
    segments: list[Segment]  # live ones, rising; none may be appended to
    needed: Needed
    victim: int
    state: LogState
    next_segment: int
    replayed: Replayed
    cut_bytes: int = 0  # that went to quarantine
    damaged_bodies: list[str] = field(default_factory=list)


@dataclass(slots=True)
class LogEnd:
    """The newest segment up to its last valid frame, and the live ones before it."""

    segment: int
    data: bytes
    older: tuple[SegmentEnd, ...]
    state: LogState


@dataclass(frozen=True, slots=True)
class Judgement:
    """Torn tails, and paths of what is no part of the log."""

    cuts: tuple[Cut, ...]
    spares: tuple[str, ...]
    dropped: tuple[str, ...]
