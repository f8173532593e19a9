"""What in each segment still counts.

Live bytes of a segment: newest PUTs or MOVEs with their bodies, newest STATEs where newer, and
needed deletes: records that hold down a PUT of the same key in an older segment (their home). All
else is garbage. The rules that follow from it stand in `compaction.py`.
"""

from collections import Counter, defaultdict
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
        # Of PUTs and STATEs. A segment that holds neither may be unknown here.
        self.live_bytes: defaultdict[int, int] = defaultdict(int)
        self.needed: Needed = {}
        self.victim = 0  # segment under compaction; 0: none
        self.is_copied = False  # whether all that counts in the victim has a copy elsewhere

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
        for (segment, length), count in slots.body_sizes().items():
            live[segment] += count * (record_bytes + ((length + 7) & ~7))
        for head, count in Counter(filter(None, slots.head_segment)).items():
            live[head] += count * record_bytes
        self.live_bytes = defaultdict(int, live)
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

    def move_put(self, segment: int, body_length: int, head_segment: int, target: int) -> None:
        """Count a PUT, and the newest head with it, as lying in another segment."""
        self.end_entry(segment, body_length, head_segment)
        self.live_bytes[target] += self.record_bytes + aligned(body_length)

    def move_state(self, segment: int, target: int) -> None:
        """Count a STATE as lying in another segment."""
        self.live_bytes[segment] -= self.record_bytes
        self.live_bytes[target] += self.record_bytes

    def live(self, segment: int) -> int:
        """Return the bytes of a segment that count, needed deletes too."""
        return self.live_bytes[segment] + self.record_bytes * self.needed_count(segment)

    def droppable(self, sealed: Collection[int]) -> list[int]:
        """Return which of the sealed segments hold nothing that counts, oldest first."""
        if not self.victim:
            return [segment for segment in sorted(sealed) if self._is_dead(segment)]
        is_dead = self._is_dead(self.victim)  # I1
        if is_dead or (self.is_copied and not self.live_bytes[self.victim]):
            return [self.victim]
        return []

    def drop(self, segment: int) -> None:
        """Forget a segment that is gone, and with it the need for deletes at home there."""
        self.live_bytes.pop(segment, None)
        self.needed.pop(segment, None)
        for other in list(self.needed):
            homes = self.needed[other]
            homes.pop(segment, None)
            if not homes:
                del self.needed[other]
        if self.victim == segment:
            self.victim = 0
            self.is_copied = False

    def needed_count(self, segment: int) -> int:
        """Return how many records of `segment` are needed deletes."""
        return sum(self.needed.get(segment, {}).values())

    def _is_dead(self, segment: int) -> bool:
        return not self.live_bytes[segment] and segment not in self.needed
