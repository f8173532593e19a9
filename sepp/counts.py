"""Plain counters of commits and calls. Parts add to them; whoever exports them reads.

Nothing here is ever reset, and nothing grows with what clients make up.
"""

from bisect import bisect_left
from collections.abc import Container
from time import perf_counter
from typing import Final

BUCKETS_MS: Final = (0, 5, 10, 25, 50, 75, 100, 250, 500, 750, 1000, 2500, 5000, 7500, 10000)
"""Upper bounds of every duration histogram; one more bucket counts what is slower."""

RECORD_BUCKETS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
"""Upper bounds of the histogram of records in a commit; one more for larger ones."""

OTHER: Final = "_other"
"""Stands for all queues beyond those that are counted by name."""

METHODS: Final = {
    f"/sepp.v1.QueueService/{rpc}": name
    for rpc, name in (
        ("EnqueueBatch", "enqueue_batch"),
        ("EnqueueAtomic", "enqueue_atomic"),
        ("Reserve", "reserve"),
        ("Ack", "ack"),
        ("Nack", "nack"),
        ("Extend", "extend"),
        ("DrainDeadLetters", "drain_dead_letters"),
    )
}
"""The RPCs that are counted: path on the wire -> name in the metrics."""

_BUCKETS_S: Final = tuple(ms / 1000 for ms in BUCKETS_MS)
_SHORT_S: Final = _BUCKETS_S[1]  # what most calls stay below


class CommitStatistics:
    """Commits, what was in them, and how long they took, sync included."""

    __slots__ = ("buckets", "commits", "record_buckets", "records", "seconds")

    def __init__(self) -> None:
        self.commits = 0
        self.records = 0
        self.seconds = 0.0
        self.buckets = [0] * (len(BUCKETS_MS) + 1)
        self.record_buckets = [0] * (len(RECORD_BUCKETS) + 1)

    def observe(self, records: int, seconds: float) -> None:
        """Count one commit."""
        self.commits += 1
        self.records += records
        self.seconds += seconds
        self.buckets[bisect_left(_BUCKETS_S, seconds)] += 1
        self.record_buckets[bisect_left(RECORD_BUCKETS, records)] += 1


class MethodStatistics:
    """Calls of one RPC, ended well and badly, and how long they took."""

    __slots__ = ("buckets", "errors", "oks", "seconds")

    def __init__(self) -> None:
        self.oks = 0
        self.errors = 0
        self.seconds = 0.0
        self.buckets = [0] * (len(BUCKETS_MS) + 1)

    def observe(self, started: float, is_ok: bool) -> None:
        """Count one call that began at `started` on the performance counter."""
        seconds = perf_counter() - started
        self.seconds += seconds
        self.buckets[1 if seconds <= _SHORT_S else bisect_left(_BUCKETS_S, seconds)] += 1
        if is_ok:
            self.oks += 1
        else:
            self.errors += 1

    def observe_refusal(self) -> None:
        """Count one call that was refused as soon as it was read."""
        self.buckets[0] += 1
        self.errors += 1


class RejectionStatistics:
    """Rejected jobs by queue and reason.

    Names of queues are made up by clients, so only so many are counted by name: those that are
    declared, and the first others. The rest share `OTHER`.

    Args:
        queues_max: How many undeclared names are kept.

    Attributes:
        counts: (queue, reason) -> jobs.
    """

    NAME_MAX: Final = 512

    __slots__ = ("_left", "_named", "counts")

    def __init__(self, queues_max: int) -> None:
        self.counts: dict[tuple[str, str], int] = {}
        self._named: set[str] = set()
        self._left = queues_max

    def add(self, queue: str, reason: str, declared: Container[str]) -> None:
        """Count one job."""
        if queue not in self._named:
            if len(queue) > self.NAME_MAX or not (queue in declared or self._left):
                queue = OTHER
            else:
                self._left -= queue not in declared
                self._named.add(queue)
        key = (queue, reason)
        self.counts[key] = self.counts.get(key, 0) + 1
