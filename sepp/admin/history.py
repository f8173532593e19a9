"""What happened, in three resolutions: 1 s for 5 minutes, 10 s for 1 hour, 60 s beyond.

A series holds counts, not rates, in flat arrays that are made when something first happens. An idle
queue costs nothing, a busy one about 16 KiB.
"""

from array import array
from typing import Final

from attrs import define

WIDTH: Final = 4  # enqueued, acked, nacked, dead-lettered
HISTORY_MS_MAX: Final = 21_600_000
_RINGS: Final = ((1_000, 300), (10_000, 360), (60_000, 360))  # step in ms, count of steps

Counts = tuple[int, int, int, int]
ZERO: Final[Counts] = (0, 0, 0, 0)


@define
class Sample:
    """Rates per second over the span that ends at `ts_ms` (wall), two decimals."""

    ts_ms: int
    enqueued: float
    acked: float
    nacked: float
    dead_lettered: float
    died: int  # not a rate: how many died in the span


class _Ring:
    """The last `size` steps of one width. Steps never touched read as 0."""

    __slots__ = ("last", "size", "step_ms", "values")

    def __init__(self, step_ms: int, size: int) -> None:
        self.step_ms = step_ms
        self.size = size
        self.last = 0  # number of the newest step that was written
        self.values: array[int] | None = None

    def add(self, step: int, counts: Counts) -> None:
        if self.values is None or step - self.last >= self.size:
            self.values = array("I", bytes(4 * WIDTH * self.size))
        else:
            for gone in range(self.last + 1, step + 1):
                at = gone % self.size * WIDTH
                self.values[at : at + WIDTH] = array("I", (0, 0, 0, 0))
        self.last = max(step, self.last)
        at = step % self.size * WIDTH
        values = self.values
        for place, count in enumerate(counts):
            values[at + place] += count

    def total(self, first: int, end: int) -> Counts:
        """Return the summed counts of steps `first` up to, not including, `end`."""
        values = self.values
        first = max(first, self.last - self.size + 1)
        end = min(end, self.last + 1)
        if values is None or first >= end:
            return ZERO
        sums = [0] * WIDTH
        for step in range(first, end):
            at = step % self.size * WIDTH
            for place in range(WIDTH):
                sums[place] += values[at + place]
        return (sums[0], sums[1], sums[2], sums[3])


class Series:
    """The history of one queue, or of the whole server."""

    __slots__ = ("_rings",)

    def __init__(self) -> None:
        self._rings = tuple(_Ring(step_ms, size) for step_ms, size in _RINGS)

    def add(self, now_ms: int, counts: Counts) -> None:
        """Note what happened in the second that ends at `now_ms`. All zero is not noted."""
        if counts == ZERO:
            return
        for ring in self._rings:
            ring.add((now_ms - 1) // ring.step_ms, counts)

    def samples(self, now_ms: int, span_ms: int, count: int) -> list[Sample]:
        """Return the last `span_ms` as at most `count` samples of equal width, oldest first.

        The newest sample may be under way; its rates are over the part that is past.
        """
        ring = next((r for r in self._rings if r.step_ms * r.size >= span_ms), self._rings[-1])
        steps = max(1, -(-span_ms // (count * ring.step_ms)))  # of a sample, rounded up
        width_ms = steps * ring.step_ms
        last = (now_ms - 1) // width_ms
        found = []
        for place in range(last - -(-span_ms // width_ms) + 1, last + 1):
            start_ms = place * width_ms
            end_ms = min(start_ms + width_ms, now_ms)
            counts = ring.total(place * steps, (place + 1) * steps)
            if counts == ZERO:
                found.append(Sample(end_ms, 0.0, 0.0, 0.0, 0.0, 0))
                continue
            seconds = max(end_ms - start_ms, 1000) / 1000
            enqueued, acked, nacked, died = (round(number / seconds, 2) for number in counts)
            found.append(Sample(end_ms, enqueued, acked, nacked, died, counts[3]))
        return found

    def died(self, now_ms: int, span_ms: int) -> int:
        """Return how many jobs died in the last `span_ms`, to the nearest 10 s."""
        ring = self._rings[1]
        last = (now_ms - 1) // ring.step_ms
        return ring.total(last - span_ms // ring.step_ms + 1, last + 1)[3]
