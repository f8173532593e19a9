"""When something is due next, without a walk over the queues.

Each queue keeps its own deadlines sorted (`queue.py`); a `QueueTimer` holds one entry a queue, its
earliest deadline of one kind. There is one timer a kind rather than one in all, so that a sweep
with a budget for each kind touches only queues that have that kind due.

An entry may be early, never late: adding a deadline moves the entry forward at once, taking one
away leaves it until it comes to the front, where it is compared with the queue. Every entry is
corrected at most once for each deadline that was its queue's earliest, so the work stays O(log
queues) for each change, and nothing but the one entry a queue is ever held.

Wall and steady clock never meet in one timer: schedules, dedup windows, closing tombstones and dead
letters go by the wall clock, leases and forgetting by the steady one.
"""

from collections.abc import Callable, Iterator
from typing import Final

from sortedcontainers import SortedList

from sepp.core.queue import NEVER, Queue
from sepp.core.slots import SlotTable

# A queue that has held nothing for so long is forgotten, and its number freed.
IDLE_MS: Final = 15 * 60 * 1000


class QueueTimer:
    """The earliest deadline of one kind for each queue that has one. All times in milliseconds."""

    __slots__ = ("_at_ms", "_earliest", "_entries", "_timers")

    def __init__(self, timers: "Timers", earliest: Callable[[Queue], int]) -> None:
        self._timers = timers
        self._earliest = earliest  # the true earliest deadline of a queue, or NEVER
        self._at_ms: dict[Queue, int] = {}
        # By name among equals, so that ties do not depend on the history of the process.
        self._entries: SortedList = SortedList()  # of (at_ms, name, queue)

    def hasten(self, queue: Queue, at_ms: int) -> None:
        """Note that `queue` has a deadline at `at_ms`; changes nothing if it has an earlier one."""
        known_ms = self._at_ms.get(queue)
        if known_ms is not None:
            if known_ms <= at_ms:
                return
            self._entries.remove((known_ms, queue.name, queue))
        self._at_ms[queue] = at_ms
        self._entries.add((at_ms, queue.name, queue))
        self._timers.is_hastened = True

    def next_ms(self) -> int:
        """Return the earliest deadline of all queues, NEVER if there is none."""
        while self._entries:
            at_ms, _, queue = self._entries[0]
            true_ms = self._earliest(queue)
            if true_ms == at_ms:
                return true_ms
            assert true_ms > at_ms
            self._entries.pop(0)
            if true_ms == NEVER:
                del self._at_ms[queue]
            else:
                self._at_ms[queue] = true_ms
                self._entries.add((true_ms, queue.name, queue))
        return NEVER

    def first(self) -> Queue | None:
        """Return the queue with the earliest deadline, None if there is none."""
        if self.next_ms() == NEVER:
            return None
        queue = self._entries[0][2]
        assert isinstance(queue, Queue)
        return queue

    def pop_due(self, now_ms: int) -> Queue | None:
        """Take out the queue with the earliest deadline if that is at or before `now_ms`.

        Whoever takes a queue out puts it back with `refresh` when done with it.
        """
        if self.next_ms() > now_ms:
            return None
        _, _, queue = self._entries.pop(0)
        del self._at_ms[queue]
        assert isinstance(queue, Queue)
        return queue

    def refresh(self, queue: Queue) -> None:
        """Put a queue taken out back under its earliest deadline, if it has one."""
        at_ms = self._earliest(queue)
        if at_ms != NEVER:
            self.hasten(queue, at_ms)

    def discard(self, queue: Queue) -> None:
        """Forget `queue`."""
        at_ms = self._at_ms.pop(queue, None)
        if at_ms is not None:
            self._entries.remove((at_ms, queue.name, queue))

    def entries(self) -> Iterator[tuple[int, str, Queue]]:
        """Iterate over (at_ms, name, queue), for checks."""
        return iter(self._entries)

    def noted_ms(self, queue: Queue) -> int:
        """Return where the entry of `queue` stands, NEVER if it has none; for checks."""
        return self._at_ms.get(queue, NEVER)


def _scheduled_ms(queue: Queue) -> int:
    return queue.scheduled[0] >> 32 if queue.scheduled else NEVER


def _leased_ms(queue: Queue) -> int:
    return queue.leased[0] >> 32 if queue.leased else NEVER


def _dedup_ms(queue: Queue) -> int:
    return queue.dedup.first() >> 32 if queue.dedup else NEVER


def _dead_ms(queue: Queue) -> int:
    return queue.dead[0] >> 32 if queue.dead else NEVER


def _idle_ms(queue: Queue) -> int:
    return queue.empty_since_ms + IDLE_MS if queue.holds_nothing() else NEVER


class Timers:
    """One timer a kind. `dead` goes by failed_at: retention is added by who asks.

    Attributes:
        is_hastened: Set when a deadline may be the earliest of all by now; cleared by who looks.
    """

    __slots__ = ("closing", "dead", "dedup", "idle", "is_hastened", "leased", "scheduled")

    def __init__(self, slots: SlotTable) -> None:
        def closing_ms(queue: Queue) -> int:
            return slots.at_ms[queue.closing_slot] if queue.closing_slot >= 0 else NEVER

        self.is_hastened = False
        self.closing = QueueTimer(self, closing_ms)
        self.scheduled = QueueTimer(self, _scheduled_ms)
        self.leased = QueueTimer(self, _leased_ms)
        self.dedup = QueueTimer(self, _dedup_ms)
        self.dead = QueueTimer(self, _dead_ms)
        self.idle = QueueTimer(self, _idle_ms)

    def all(self) -> tuple[QueueTimer, ...]:
        """Return every timer of queues."""
        return (self.closing, self.scheduled, self.leased, self.dedup, self.dead, self.idle)
