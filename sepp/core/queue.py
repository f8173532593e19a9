"""One queue: the orderings of its jobs, its counts, its counters and the reserves waiting on it.

A queue holds integers only. Each ordering is a sorted list of `sort value << 32 | slot`, so one int
a job is all the memory core adds to the slot table (packed for dedup, which may be many):

- ready: one lane a priority, sorted by order (the commit sequence of the enqueue);
- scheduled: by due time, leased: by lease end (steady clock), dead: by failed_at;
- aside: jobs whose body is damaged, by when that was found;
- dedup: records of idempotency keys, by the end of their window.

Who moves a job between them is `JobTable`; a queue only keeps them and knows which lanes hold jobs.

Invariants: bit p of `lane_mask` is set exactly if lane p holds a job; `ready_count` is the sum of
the lanes; `live_count` is ready + scheduled + leased; while a job is ready nobody waits.
"""

from collections import OrderedDict
from typing import Final

from sortedcontainers import SortedList

from sepp.core.commands import Cause, Reserve
from sepp.core.limits import QueueLimits
from sepp.core.packed import PackedKeys

# A later moment than any deadline: nothing is pending.
NEVER: Final = 1 << 62

SLOT_MASK: Final = 0xFFFF_FFFF

PRIORITY_COUNT: Final = 10

# What the orderings of a queue without a number are: nothing is ever added to it. Names that are
# only polled thus cost little.
NO_KEYS: Final = SortedList()
NO_DEDUP: Final = PackedKeys()

# One more than the largest cause number: lists indexed by cause leave place 0 empty.
CAUSE_COUNT: Final = max(Cause) + 1


class Counters:
    """What has happened on a queue since it was first used in this process; plain ints, never
    reset.
    """

    __slots__ = (
        "acked",
        "dead_lettered",
        "dedup_expirations",
        "deduplicated",
        "enqueued",
        "lease_redeliveries",
        "nacked",
        "promotions",
        "reserve_empty",
        "reserved",
    )

    def __init__(self) -> None:
        self.enqueued = 0
        self.reserved = 0
        self.acked = 0
        self.nacked = 0
        self.dead_lettered = [0] * CAUSE_COUNT  # by cause
        self.deduplicated = 0
        self.reserve_empty = 0
        self.promotions = 0
        self.lease_redeliveries = 0
        self.dedup_expirations = 0

    def add(self, other: "Counters") -> None:
        """Add what `other` counted."""
        for name in Counters.__slots__:
            if name != "dead_lettered":
                setattr(self, name, getattr(self, name) + getattr(other, name))
        for cause in Cause:
            self.dead_lettered[cause] += other.dead_lettered[cause]


class Queue(Counters):
    """See the module. `number` is 0 and `row_slot` -1 until it first holds something."""

    __slots__ = (
        "aside",
        "closing_slot",
        "dead",
        "dead_counts",
        "dedup",
        "empty_since_ms",
        "lane_mask",
        "lanes",
        "last_nack_ms",
        "last_nack_reason",
        "leased",
        "limits",
        "live_count",
        "name",
        "number",
        "ready_count",
        "row_slot",
        "scheduled",
        "waiters",
    )

    def __init__(self, name: str, limits: QueueLimits, *, steady_ms: int) -> None:
        super().__init__()
        self.name = name
        self.limits = limits
        self.number = 0
        self.row_slot = -1
        self.closing_slot = -1  # slot of the closing tombstone
        self.lanes: list[SortedList | None] = [None] * PRIORITY_COUNT
        self.lane_mask = 0
        self.ready_count = 0
        self.live_count = 0
        self.scheduled = NO_KEYS
        self.leased = NO_KEYS
        self.dead = NO_KEYS
        self.aside = NO_KEYS
        self.dedup = NO_DEDUP
        self.dead_counts = [0] * CAUSE_COUNT  # dead letters held, by cause
        # An OrderedDict, not a dict: taking the first of a dict walks the places of all taken
        # before.
        self.waiters: OrderedDict[Reserve, None] = OrderedDict()
        self.empty_since_ms = steady_ms  # steady; counts only while the queue holds nothing
        self.last_nack_ms = 0
        self.last_nack_reason: bytes | None = None

    def assign_number(self, number: int) -> None:
        """Make the queue able to hold something."""
        assert self.number == 0
        self.number = number
        self.scheduled = SortedList()
        self.leased = SortedList()
        self.dead = SortedList()
        self.aside = SortedList()
        self.dedup = PackedKeys()

    def add_ready(self, priority: int, key: int) -> None:
        """Put a job into its lane; its place is given by `key` alone."""
        lane = self.lanes[priority]
        if lane is None:
            lane = self.lanes[priority] = SortedList()
        lane.add(key)
        self.lane_mask |= 1 << priority
        self.ready_count += 1

    def remove_ready(self, priority: int, key: int) -> None:
        """Take a job out of its lane. Raises ValueError when it is not there."""
        lane = self.lanes[priority]
        assert lane is not None
        lane.remove(key)
        if not lane:
            self.lane_mask &= ~(1 << priority)
        self.ready_count -= 1

    def pop_ready(self) -> int:
        """Take the next job out and return its slot. The queue must hold a ready job."""
        priority = self.lane_mask.bit_length() - 1
        lane = self.lanes[priority]
        assert lane is not None
        key: int = lane.pop(0)
        if not lane:
            self.lane_mask &= ~(1 << priority)
        self.ready_count -= 1
        return key & SLOT_MASK

    def first_ready(self) -> int:
        """Return the slot of the next job. The queue must hold a ready job."""
        lane = self.lanes[self.lane_mask.bit_length() - 1]
        assert lane is not None
        key: int = lane[0]
        return key & SLOT_MASK

    def holds_nothing(self) -> bool:
        """Whether the queue could be forgotten: no job, record or tombstone, and nobody waits."""
        return not (
            self.live_count
            or self.dead
            or self.aside
            or self.dedup
            or self.waiters
            or self.closing_slot >= 0
        )
