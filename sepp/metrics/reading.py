"""One reading of every metric, in slices: between two of them everybody else has a turn.

A slice reads at most `QUEUES_PER_SLICE` queues, well under 2 ms of the loop; how long a reading
takes grows with the queues, and with nothing else.
"""

import platform
from collections.abc import Awaitable, Callable
from typing import Final

from attrs import define, frozen

from segstore import Store
from segstore.layout import FORMAT_VERSION
from sepp import __version__
from sepp.clock import Clock
from sepp.committer import Committer
from sepp.core.commands import Cause
from sepp.core.machine import Machine
from sepp.core.queue import Counters
from sepp.core.statistics import QueueStatistics
from sepp.counts import BUCKETS_MS, OTHER, RECORD_BUCKETS
from sepp.logs import Sink
from sepp.metrics import families as f
from sepp.metrics.families import Family
from sepp.metrics.store_families import ROOM, STORE_COUNTERS, STORE_GAUGES
from sepp.reloader import Reloader
from sepp.rpc.server import Server
from sepp.service import Phase, QueueService

QUEUES_PER_SLICE: Final = 8

Pause = Callable[[], Awaitable[object]]


@frozen
class Histogram:
    """Counts by bucket, not added up; one more count than bounds, for what is above the last."""

    bounds: tuple[int, ...]
    counts: tuple[int, ...]
    sum: float


Value = int | float | Histogram
Points = list[tuple[tuple[str, ...], Value]]
Series = tuple[Family, Points]


@define(eq=False)
class Sources:
    """Where metrics come from; what is not there yet while the server starts is None.

    Attributes:
        recovery_ms: How long opening the store took.
    """

    service: QueueService
    clock: Clock
    reloader: Reloader
    sink: Sink | None = None
    front: Server | None = None
    store: Store | None = None
    machine: Machine | None = None
    committer: Committer | None = None
    recovery_ms: float | None = None


class NamedQueues:
    """Which queues are shown by name: the first so many, for as long as they stay in memory.

    A queue that came too late is part of `OTHER` until it is forgotten, so that neither its own
    counts nor those of `OTHER` ever go down.
    """

    def __init__(self, queues_max: int) -> None:
        self._max = queues_max
        self._known: dict[str, bool] = {}
        self._next: dict[str, bool] = {}
        self._named_count = 0
        self._other: dict[Family, dict[tuple[str, ...], int]] = {}

    def begin(self) -> None:
        """Begin a reading."""
        self._next = {}

    def is_named(self, queue: str) -> bool:
        """Whether a queue of this reading is shown by name."""
        is_named = self._known.get(queue)
        if is_named is None:
            is_named = self._named_count < self._max
            self._named_count += is_named
        self._next[queue] = is_named
        return is_named

    def end(self) -> None:
        """Forget the queues that this reading did not meet."""
        gone = self._known.keys() - self._next.keys()
        self._named_count -= sum(self._known[queue] for queue in gone)
        self._known = self._next

    def at_least_as_before(self, family: Family, labels: tuple[str, ...], count: int) -> int:
        """Return a count of `OTHER`, or the last one if a queue was forgotten during a reading."""
        last = self._other.setdefault(family, {})
        last[labels] = count = max(count, last.get(labels, 0))
        return count


async def read(sources: Sources, named: NamedQueues, pause: Pause) -> list[Series]:
    """Read everything; `pause` is awaited between slices."""
    series = _process(sources) + _calls(sources.service)
    if sources.front is not None:
        await pause()
        series += _front(sources.front)
    if sources.store is not None:
        await pause()
        series += _store(sources.store)
    if sources.committer is not None:
        series += _commits(sources.committer)
    if sources.machine is not None:
        await pause()
        series += _machine(sources.machine)
        series += await _queues(sources.machine, sources.clock, named, pause)
    return series


def _process(sources: Sources) -> list[Series]:
    version = (__version__, platform.python_version(), str(FORMAT_VERSION))
    reloader, committer = sources.reloader, sources.committer
    series: list[Series] = [
        (f.BUILD, [(version, 1)]),
        (f.SERVING, _one(int(sources.service.phase is Phase.SERVING))),
        (f.RELOADS, _one(reloader.reload_count)),
        (f.RESTART_PENDING, _one(len(reloader.pending_restart()))),
        (f.MEMORY_SHORT, _one(int(committer is not None and committer.is_memory_short))),
    ]
    if sources.sink is not None:
        series.append((f.LOG_DROPPED, _one(sources.sink.dropped_count)))
    if sources.recovery_ms is not None:
        series.append((f.RECOVERY, _one(round(sources.recovery_ms, 3))))
    return series


def _one(value: Value) -> Points:
    return [((), value)]


def _calls(service: QueueService) -> list[Series]:
    requests: Points = []
    durations: Points = []
    for method, counts in service.statistics.items():
        requests += [((method, "ok"), counts.oks), ((method, "error"), counts.errors)]
        times = Histogram(BUCKETS_MS, tuple(counts.buckets), counts.seconds * 1000)
        durations.append(((method,), times))
    return [
        (f.REQUESTS, requests),
        (f.REQUEST_DURATION, durations),
        (f.UNAUTHENTICATED, _one(service.unauthenticated_count)),
        (f.REJECTED, list(service.rejected.counts.items())),
    ]


def _front(front: Server) -> list[Series]:
    statistics = front.statistics()
    both = (*f.FRONT_GAUGES.items(), *f.FRONT_COUNTERS.items())
    series = [(family, _one(getattr(statistics, name))) for name, family in both]
    closed: Points = [((reason,), count) for reason, count in statistics.closed.items()]
    return [*series, (f.CLOSED, closed)]


def _store(store: Store) -> list[Series]:
    statistics = store.stats()
    both = (*STORE_GAUGES.items(), *STORE_COUNTERS.items())
    series = [(family, _one(int(getattr(statistics, name)))) for name, family in both]
    room = statistics.room
    return [*series, (ROOM, [((each.value,), int(each is room)) for each in type(room)])]


def _commits(committer: Committer) -> list[Series]:
    counts = committer.statistics
    times = Histogram(BUCKETS_MS, tuple(counts.buckets), counts.seconds * 1000)
    sizes = Histogram(RECORD_BUCKETS, tuple(counts.record_buckets), counts.records)
    return [
        (f.COMMIT_DURATION, _one(times)),
        (f.COMMIT_RECORDS, _one(sizes)),
        (f.COMMAND_QUEUE, _one(committer.waiting_count())),
    ]


def _machine(machine: Machine) -> list[Series]:
    totals = machine.totals()
    return [
        (f.QUEUES, _one(totals.queues)),
        (f.WAITING, _one(totals.waiters)),
        (f.AUDIT, _one(totals.audit_entries)),
        (f.DEAD_EXPIRED, _one(totals.dead_expired)),
        (f.DEAD_DRAINED, _one(totals.dead_drained)),
        (f.WITHOUT_TIMER, _one(machine.count_leases_without_timer())),
    ]


async def _queues(machine: Machine, clock: Clock, named: NamedQueues, pause: Pause) -> list[Series]:
    table = _QueueTable(named, machine.totals().forgotten)
    named.begin()
    for index, name in enumerate(machine.queue_names()):
        if index % QUEUES_PER_SLICE == 0:
            await pause()
        queue = machine.queue_statistics(name)
        if queue is not None:  # forgotten since the list was made
            table.add(queue, clock.now().wall_ms, is_named=named.is_named(name))
    named.end()
    return table.series()


class _QueueTable:
    """Collects the points of all queues, family by family."""

    def __init__(self, named: NamedQueues, forgotten: Counters) -> None:
        self._named = named
        self._counters: dict[str, Points] = {name: [] for name in f.QUEUE_COUNTERS}
        self._gauges: dict[str, Points] = {name: [] for name in f.QUEUE_GAUGES}
        self._dead: Points = []
        self._oldest: Points = []
        self._others = Counters()
        self._others.add(forgotten)
        self._other_gauges = dict.fromkeys(f.QUEUE_GAUGES, 0)
        self._other_age_ms = self._lease_lag_ms = self._schedule_lag_ms = 0

    def add(self, queue: QueueStatistics, now_ms: int, *, is_named: bool) -> None:
        """Add one queue, under its name or to the rest."""
        lease_end_ms, due_ms = queue.next_lease_end_ms, queue.next_due_ms
        if lease_end_ms is not None:
            self._lease_lag_ms = max(self._lease_lag_ms, now_ms - lease_end_ms)
        if due_ms is not None:
            self._schedule_lag_ms = max(self._schedule_lag_ms, now_ms - due_ms)
        oldest_ms = queue.oldest_ready_enqueued_ms
        age_ms = 0 if oldest_ms is None else max(0, now_ms - oldest_ms)
        if not is_named:
            self._add_other(queue, age_ms)
            return
        labels = (queue.name,)
        for name, points in self._counters.items():
            points.append((labels, getattr(queue, name)))
        for name, points in self._gauges.items():
            count = getattr(queue, name)
            if count:
                points.append((labels, count))
        for cause in Cause:
            self._dead.append(((queue.name, cause.name.lower()), queue.dead_lettered[cause]))
        if oldest_ms is not None:
            self._oldest.append((labels, age_ms))

    def _add_other(self, queue: QueueStatistics, age_ms: int) -> None:
        others = self._others
        for name in f.QUEUE_COUNTERS:
            setattr(others, name, getattr(others, name) + getattr(queue, name))
        for cause in Cause:
            others.dead_lettered[cause] += queue.dead_lettered[cause]
        for name in self._other_gauges:
            self._other_gauges[name] += getattr(queue, name)
        self._other_age_ms = max(self._other_age_ms, age_ms)

    def series(self) -> list[Series]:
        """Return what was collected, the rest of the queues under `OTHER` if it counted."""
        labels = (OTHER,)
        for name, family in f.QUEUE_COUNTERS.items():
            count = getattr(self._others, name)
            count = self._named.at_least_as_before(family, labels, count)
            if count:
                self._counters[name].append((labels, count))
        for cause in Cause:
            both = (OTHER, cause.name.lower())
            count = self._others.dead_lettered[cause]
            count = self._named.at_least_as_before(f.DEAD_LETTERED, both, count)
            if count:
                self._dead.append((both, count))
        for name, count in self._other_gauges.items():
            if count:
                self._gauges[name].append((labels, count))
        if self._other_age_ms:
            self._oldest.append((labels, self._other_age_ms))
        return [
            *((family, self._counters[name]) for name, family in f.QUEUE_COUNTERS.items()),
            (f.DEAD_LETTERED, self._dead),
            *((family, self._gauges[name]) for name, family in f.QUEUE_GAUGES.items()),
            (f.OLDEST_READY, self._oldest),
            (f.LEASE_LAG, _one(self._lease_lag_ms)),
            (f.SCHEDULE_LAG, _one(self._schedule_lag_ms)),
        ]
