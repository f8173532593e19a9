"""Deadlines in buckets: setting and clearing one costs a dictionary entry, whatever their number.

A bucket holds what is due within one tick of 1/64 s; a heap orders the buckets, not the entries.
Most deadlines are cleared long before they are due (a call has 30 s and takes one millisecond), so
removal must be as cheap as insertion. Within `_NEAR_TICKS` an entry is never looked at early and at
most one tick late.

A deadline further away goes to one of few coarse buckets first and is looked at again when that is
reached, which may be before its time. That bounds the number of buckets whatever deadlines a peer
invents.
"""

import logging
from collections.abc import Callable, Mapping
from heapq import heappop, heappush
from typing import Final, Protocol

_log = logging.getLogger(__name__)

TICKS_PER_S: Final = 64
_NEAR_TICKS: Final = 8 * TICKS_PER_S
_FAR_TICKS: Final = 3600 * TICKS_PER_S
NEVER: Final = float("inf")
# A deadline at least so far away may be noted by `Timers.young` instead of being set.
YOUNG_S: Final = 0.5
_LOOK_S: Final = 0.25


class Timed(Protocol):
    """What can be due. `timer_tick` belongs to `Timers` and is 0 while no deadline is set."""

    timer_tick: int

    def on_time(self, now_s: float) -> None:
        """Look at the clock and act, or set the timer again: the call may come before the deadline,
        or just after it was cleared."""
        ...


class Deadlined(Timed, Protocol):
    """A call with a deadline, on the Trio clock."""

    deadline: float | None
    is_open: bool


class Timers:
    """All deadlines of one poller. Times are seconds of the Trio clock.

    Args:
        on_earlier: Called with the earliest due time when it moves forward.

    Attributes:
        young: Where to find a call whose deadline is at least YOUNG_S away: open calls by their
            stream, and its stream. The deadline is set only if the call is still there a moment
            later, which few are; and those that are not are not kept alive by being here.
    """

    def __init__(self, now_s: float, on_earlier: Callable[[float], None]) -> None:
        self._buckets: dict[int, dict[Timed, None]] = {}
        # Each key of _buckets once. A bucket that ran empty stays until its tick is reached, so
        # that a deadline set and cleared a thousand times does not enter the heap a thousand times.
        self._ticks: list[int] = []
        self._now_tick = int(now_s * TICKS_PER_S)
        self._on_earlier = on_earlier
        self.young: list[tuple[Mapping[int, Deadlined], int]] = []
        self._look = _Look(self)

    def set(self, timed: Timed, at_s: float) -> None:
        """Have `timed.on_time` called at `at_s`, in place of an earlier setting."""
        ahead = at_s * TICKS_PER_S - self._now_tick
        if ahead < _NEAR_TICKS:
            tick = self._now_tick + max(1, int(ahead) + 1)
        elif ahead < _FAR_TICKS:
            tick = (self._now_tick + int(ahead)) // TICKS_PER_S * TICKS_PER_S
        else:
            tick = (self._now_tick + _FAR_TICKS) // TICKS_PER_S * TICKS_PER_S
        if timed.timer_tick == tick:
            return
        if timed.timer_tick:
            self._buckets[timed.timer_tick].pop(timed, None)
        timed.timer_tick = tick
        bucket = self._buckets.get(tick)
        if bucket is None:
            self._buckets[tick] = {timed: None}
            heappush(self._ticks, tick)
            if self._ticks[0] == tick:
                self._on_earlier(tick / TICKS_PER_S)
        else:
            bucket[timed] = None

    def clear(self, timed: Timed) -> None:
        """Forget the deadline of `timed`, if it has one."""
        if timed.timer_tick:
            bucket = self._buckets[timed.timer_tick]
            bucket.pop(timed, None)
            if not bucket:
                bucket.clear()  # gives back the room of all that were in it before
            timed.timer_tick = 0

    def run_due(self, now_s: float) -> None:
        """Call `on_time` of everything due, earliest bucket first."""
        if self.young and not self._look.timer_tick:
            self.set(self._look, now_s + _LOOK_S)
        self._now_tick = now_tick = int(now_s * TICKS_PER_S)
        ticks = self._ticks
        while ticks and ticks[0] <= now_tick:
            bucket = self._buckets.pop(heappop(ticks))
            for timed in bucket:
                timed.timer_tick = 0
            for timed in bucket:
                # An entry before it may have set this one anew; then it is not due any more.
                if timed.timer_tick == 0:
                    try:
                        timed.on_time(now_s)
                    except Exception:  # noqa: BLE001  # the others must not wait for it
                        _log.exception("bug: a deadline's handler raised")

    def next_s(self) -> float:
        """Return when something may be due next, NEVER when nothing is set."""
        while self._ticks and not self._buckets[self._ticks[0]]:
            del self._buckets[heappop(self._ticks)]
        return self._ticks[0] / TICKS_PER_S if self._ticks else NEVER


class _Look:
    """The next look at the calls that are no longer young."""

    __slots__ = ("_timers", "timer_tick")

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self.timer_tick = 0

    def on_time(self, now_s: float) -> None:
        """Set the deadlines of those that are still open."""
        timers = self._timers
        places = timers.young.copy()
        timers.young.clear()
        for calls, stream_id in places:
            call = calls.get(stream_id)
            if call is None or not call.is_open or call.timer_tick or call.deadline is None:
                continue
            timers.set(call, call.deadline)
