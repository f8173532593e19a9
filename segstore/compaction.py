"""What in each segment still counts, and which segments can go.

Live bytes of a segment: newest PUTs or MOVEs with their bodies, newest STATEs where newer, and
needed deletes: records that hold down a PUT of the same key in an older segment (their home).

Invariants:
- I1. COMPACT(V) is logged first, and until SEGDROP(V) is durable no other segment is dropped.
- I2. A delete is needed while its home exists, and is copied forward if its own segment goes first.
- I3. Copies durable, then SEGDROP durable, then unlink, then sync of the directory.

Together: no PUT outlives its delete, and deletes are moved, never pinned.
Dropping wholly dead segments is all that is done so far; copying comes with the same records.
"""

from collections.abc import Collection

from segstore.layout import aligned
from segstore.slots import Slots

# needed[segment][home]: records in `segment` that hold down a PUT in `home`.
Needed = dict[int, dict[int, int]]


class Usage:
    """Live bytes and needed deletes of each segment.

    Args:
        record_bytes: Size of one canonical record.
    """

    def __init__(self, record_bytes: int) -> None:
        self.record_bytes = record_bytes
        self.live_bytes: dict[int, int] = {}  # of PUTs and STATEs
        self.needed: Needed = {}
        self.victim = 0  # segment under compaction; 0: none

    def add_segment(self, segment: int) -> None:
        """Begin to count a segment."""
        self.live_bytes[segment] = 0

    def recount(self, slots: Slots, needed: Needed, segments: Collection[int]) -> None:
        """Count afresh after a replay.

        Args:
            slots: All live entries.
            needed: As the log told it, also for segments that are gone.
            segments: The live ones.
        """
        live = dict.fromkeys(segments, 0)
        record_bytes = self.record_bytes
        for lsn, segment, length, head in zip(
            slots.lsn, slots.segment, slots.body_length, slots.head_segment, strict=True
        ):
            if lsn:
                live[segment] += record_bytes + ((length + 7) & ~7)
                if head:
                    live[head] += record_bytes
        self.live_bytes = live
        self.needed = {}
        for segment, homes in needed.items():
            kept = {home: count for home, count in homes.items() if home in live}
            if kept and segment in live:
                self.needed[segment] = kept

    def need(self, segment: int, home: int) -> None:
        """Count a record in `segment` that holds down a PUT in `home`."""
        homes = self.needed.setdefault(segment, {})
        homes[home] = homes.get(home, 0) + 1

    def end_entry(self, segment: int, body_length: int, head_segment: int) -> None:
        """Take back what an entry counted for: it was deleted or written anew."""
        self.live_bytes[segment] -= self.record_bytes + aligned(body_length)
        if head_segment:
            self.live_bytes[head_segment] -= self.record_bytes

    def droppable(self, sealed: Collection[int]) -> list[int]:
        """Return which of the sealed segments hold nothing that counts, oldest first."""
        if self.victim:  # I1
            return [self.victim] if self._is_dead(self.victim) else []
        return [segment for segment in sorted(sealed) if self._is_dead(segment)]

    def drop(self, segment: int) -> None:
        """Forget a segment that is gone, and with it the need for deletes at home there."""
        del self.live_bytes[segment]
        self.needed.pop(segment, None)
        for other in list(self.needed):
            homes = self.needed[other]
            homes.pop(segment, None)
            if not homes:
                del self.needed[other]
        if self.victim == segment:
            self.victim = 0

    def needed_count(self, segment: int) -> int:
        """Return how many records of `segment` are needed deletes."""
        return sum(self.needed.get(segment, {}).values())

    def _is_dead(self, segment: int) -> bool:
        return not self.live_bytes[segment] and segment not in self.needed
