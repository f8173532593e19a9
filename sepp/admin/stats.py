"""The figures of every second: rates, history, what needs attention, the frame that carries them.

`run` takes one sample a second, in slices of 100 queues, from counters that the core keeps anyway:
a few integers a queue, since with ten thousand queues it happens ten thousand times a second. A
frame, which tells all there is to tell of each queue, is built only when somebody looks. All pages
and streams show the same one, so a thousand viewers cost the server one frame.
"""

from collections.abc import Iterable
from typing import Final

import trio
from attrs import define, field

from sepp.admin import attention
from sepp.admin.attention import Condition
from sepp.admin.backend import CAUSES, Backend, QueueNumbers
from sepp.admin.history import ZERO, Counts, Sample, Series
from sepp.admin.messages import (
    Frame,
    FrameServer,
    History,
    LastNack,
    Moments,
    Point,
    QueueFrame,
    Rates,
    Totals,
)
from sepp.core.statistics import Flow

PERIOD_S: Final = 1.0
FRESH_MS: Final = 250  # depths in an answer are not older than this
SLICE: Final = 100  # queues between two looks at the other tasks
QUEUES_MAX: Final = 1000  # with a history of their own
POINTS_MAX: Final = 360
POINTS_WHOLE: Final = 6000  # of all queues together where the asker names no count
FRAME_REASON_CHARS: Final = 200

_NO_RATES: Final = Rates(enqueued=0.0, acked=0.0, nacked=0.0, dead_lettered=0.0)


@define
class _Track:
    """What is remembered of one queue between samples."""

    totals: Counts = ZERO
    series: Series | None = None
    delta: Counts = ZERO  # since the sample before
    last_acked_ms: int | None = None
    last_died_ms: int | None = None
    stuck_since_ms: int | None = None
    died_10_min: int = 0
    sample: int = 0  # number of the sample that saw it last, 0 before its first


_NO_TRACK: Final = _Track()  # of a queue that no sample saw yet; never changed


@define
class _Sums:
    """All queues together."""

    numbers: QueueNumbers = field(factory=lambda: QueueNumbers(""))
    died_10_min: int = 0

    def add(self, numbers: QueueNumbers, died_10_min: int) -> None:
        # Written out: with a thousand queues this runs a thousand times a second.
        mine = self.numbers
        mine.ready += numbers.ready
        mine.scheduled += numbers.scheduled
        mine.inflight += numbers.inflight
        mine.aside += numbers.aside
        mine.enqueued_total += numbers.enqueued_total
        mine.reserved_total += numbers.reserved_total
        mine.acked_total += numbers.acked_total
        mine.nacked_total += numbers.nacked_total
        mine.dead_lettered_total += numbers.dead_lettered_total
        mine.oldest_ready_at_ms = _earlier(mine.oldest_ready_at_ms, numbers.oldest_ready_at_ms)
        mine.next_due_ms = _earlier(mine.next_due_ms, numbers.next_due_ms)
        mine.next_lease_end_ms = _earlier(mine.next_lease_end_ms, numbers.next_lease_end_ms)
        if numbers.dead_lettered:
            mine.dead_lettered += numbers.dead_lettered
            pairs = zip(mine.dead_by_cause, numbers.dead_by_cause, strict=True)
            mine.dead_by_cause = tuple(one + other for one, other in pairs)
        if (numbers.last_nack_at_ms or 0) > (mine.last_nack_at_ms or 0):
            mine.last_nack_at_ms = numbers.last_nack_at_ms
            mine.last_nack_reason = numbers.last_nack_reason
        self.died_10_min += died_10_min


def _earlier(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


class Stats:
    """See the module."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._tracks: dict[str, _Track] = {}
        self._server = Series()
        self._sampled_ms = 0
        self._elapsed_s = PERIOD_S  # between the last two samples
        self._seq = 0
        self._rates = _NO_RATES
        self._frame = self._empty_frame()
        self._lock = trio.Lock()
        self._sampled = trio.Event()

    async def run(self) -> None:
        """Take a sample each second, until cancelled."""
        while True:
            await self.sample()
            await trio.sleep(PERIOD_S)

    async def wait_sampled(self) -> None:
        """Return after the next sample."""
        await self._sampled.wait()

    @property
    def history_ms(self) -> int:
        """How far back the history goes."""
        return self._backend.config.running.admin.stats_history_ms

    def names(self) -> list[str]:
        """Return all queues to be shown: known to the core or declared, sorted by name."""
        return sorted(self._names())

    def _names(self) -> set[str]:
        declared = (queue.name for queue in self._backend.config.running.queues)
        return {*self._backend.queue_names(), *declared}

    async def frame(self, *, age_ms_max: int = FRESH_MS) -> Frame:
        """Return a frame whose depths are at most so old; 0: all read after this call."""
        oldest_ms = self._backend.now_ms() - age_ms_max
        if self._frame.ts_ms <= oldest_ms:
            async with self._lock:
                # Whoever had the lock may have built what we came for.
                if self._frame.ts_ms <= oldest_ms:
                    self._frame = await self._build()
        return self._frame

    def queue_frame(self, numbers: QueueNumbers) -> QueueFrame:
        """Return one queue as frames carry it, with these numbers and the last sample's rates."""
        return self._queue_frame(numbers, self._tracks.get(numbers.name, _NO_TRACK))

    def _queue_frame(self, numbers: QueueNumbers, track: _Track) -> QueueFrame:
        rates = _NO_RATES if track.delta == ZERO else _rates(track.delta, self._elapsed_s)
        return queue_frame(numbers, rates, track.died_10_min)

    async def sample(self) -> None:
        """Take one sample: rates are over the time since the one before."""
        async with self._lock:
            await self._sample()
        sampled, self._sampled = self._sampled, trio.Event()
        sampled.set()

    async def _sample(self) -> None:
        backend, tracks = self._backend, self._tracks
        now_ms = backend.now_ms()
        self._elapsed_s = max((now_ms - self._sampled_ms) / 1000, 0.001)
        is_first = self._sampled_ms == 0
        self._seq += 1
        self._sampled_ms = now_ms
        delta = [0] * 4
        names = list(self._names())
        for start in range(0, len(names), SLICE):
            if start:
                await trio.lowlevel.checkpoint()
            part = names[start : start + SLICE]
            for name, flow in zip(part, backend.flows(part), strict=True):
                track = tracks.get(name)
                if track is None:
                    track = tracks[name] = _Track()
                self._advance(track, flow, now_ms, delta)
        for name in [name for name, track in tracks.items() if track.sample != self._seq]:
            del tracks[name]
        counts: Counts = (delta[0], delta[1], delta[2], delta[3])
        self._server.add(now_ms, counts)
        self._rates = _NO_RATES if is_first else _rates(counts, self._elapsed_s)

    def _advance(self, track: _Track, flow: Flow, now_ms: int, sums: list[int]) -> None:
        """Bring one queue's track up to this sample."""
        is_first = track.sample == 0
        track.sample = self._seq
        totals, before = flow.counts, track.totals
        if totals != before:
            track.totals = totals
            enqueued, acked, nacked, died = totals
            # A queue that was forgotten in between starts at 0 again.
            if enqueued >= before[0] and acked >= before[1]:
                enqueued -= before[0]
                acked -= before[1]
                nacked -= before[2]
                died -= before[3]
            delta = (enqueued, acked, nacked, died)
            sums[0] += enqueued
            sums[1] += acked
            sums[2] += nacked
            sums[3] += died
            # A rate needs two looks; the counts themselves are history all the same.
            track.delta = ZERO if is_first else delta
            if track.series is None and len(self._tracks) <= QUEUES_MAX:
                track.series = Series()
            if track.series is not None:
                track.series.add(now_ms, delta)
            if acked:
                track.last_acked_ms = now_ms
            if died:
                track.last_died_ms = now_ms
        else:
            track.delta = ZERO
        if not flow.is_at_rest or track.last_acked_ms == now_ms:
            track.stuck_since_ms = None
        elif track.stuck_since_ms is None:
            track.stuck_since_ms = now_ms
        if track.last_died_ms is not None and track.series is not None:
            track.died_10_min = track.series.died(now_ms, attention.DIED_SPAN_MS)

    async def _build(self) -> Frame:
        backend = self._backend
        now_ms = backend.now_ms()
        frames: dict[str, QueueFrame] = {}
        conditions: list[Condition] = []
        sums = _Sums()
        for place, name in enumerate(self.names()):
            if place % SLICE == SLICE - 1:
                await trio.lowlevel.checkpoint()
            numbers = backend.queue(name)
            track = self._tracks.get(name, _NO_TRACK)
            conditions.append(self._condition(track, numbers))
            sums.add(numbers, track.died_10_min)
            frames[name] = self._queue_frame(numbers, track)
        vitals = backend.vitals()
        return Frame(
            seq=self._seq,
            ts_ms=now_ms,
            server=FrameServer(command_queue_len=vitals.command_queue_len),
            queues=frames,
            attention=attention.lines(
                conditions,
                vitals,
                command_queue_capacity=backend.facts.command_queue_capacity,
                now_ms=now_ms,
            ),
            all=queue_frame(sums.numbers, self._rates, sums.died_10_min),
        )

    def _condition(self, track: _Track, numbers: QueueNumbers) -> Condition:
        return Condition(
            numbers,
            self._backend.limits(numbers.name),
            track.died_10_min,
            track.stuck_since_ms,
            track.last_acked_ms,
        )

    # History

    def samples(self, name: str | None, span_ms: int, count: int) -> list[Sample]:
        """Return the history of a queue, or with None of the server, as `Series.samples` does.

        A queue nothing happened to has an empty one.
        """
        span_ms = min(span_ms, self.history_ms)
        now_ms = self._sampled_ms or self._backend.now_ms()
        if name is None:
            return self._server.samples(now_ms, span_ms, count)
        track = self._tracks.get(name)
        if track is None or track.series is None:
            return []
        return track.series.samples(now_ms, span_ms, count)

    async def history(
        self, names: Iterable[str], span_ms: int | None, count: int | None
    ) -> tuple[History, list[Point]]:
        """Return the history of these queues and of the server, as the API carries it."""
        wanted = list(names)
        span_ms = self.history_ms if span_ms is None else span_ms
        if count is None:
            count = max(10, min(POINTS_MAX, POINTS_WHOLE // max(len(wanted), 1)))
        found: History = {}
        for place, name in enumerate(wanted):
            if place % 10 == 9:
                await trio.lowlevel.checkpoint()
            found[name] = [_point(sample) for sample in self.samples(name, span_ms, count)]
        return found, [_point(sample) for sample in self.samples(None, span_ms, count)]

    def _empty_frame(self) -> Frame:
        return Frame(
            seq=0,
            ts_ms=0,
            server=FrameServer(command_queue_len=0),
            queues={},
            attention=[],
            all=queue_frame(QueueNumbers(""), _NO_RATES, 0),
        )


def queue_frame(numbers: QueueNumbers, rates: Rates, died_10_min: int) -> QueueFrame:
    """Return one queue as frames carry it."""
    frame = QueueFrame(
        ready=numbers.ready,
        scheduled=numbers.scheduled,
        inflight=numbers.inflight,
        dead_lettered=numbers.dead_lettered,
        totals=Totals(
            enqueued=numbers.enqueued_total,
            reserved=numbers.reserved_total,
            acked=numbers.acked_total,
            nacked=numbers.nacked_total,
            dead_lettered=numbers.dead_lettered_total,
        ),
        rates=rates,
    )
    fill_moments(frame, numbers)
    if died_10_min:
        frame.died_10_min = died_10_min
    return frame


def fill_moments(body: Moments, numbers: QueueNumbers) -> None:
    """Set what applies of the earliest moments, the last nack and the dead letters by cause."""
    if numbers.oldest_ready_at_ms is not None:
        body.oldest_ready_at_ms = numbers.oldest_ready_at_ms
    if numbers.next_due_ms is not None:
        body.next_due_ms = numbers.next_due_ms
    if numbers.next_lease_end_ms is not None:
        body.next_lease_end_ms = numbers.next_lease_end_ms
    if numbers.last_nack_at_ms is not None:
        body.last_nack = LastNack(at_ms=numbers.last_nack_at_ms)
        if numbers.last_nack_reason is not None:
            body.last_nack.reason = numbers.last_nack_reason[:FRAME_REASON_CHARS]
    if numbers.aside:
        body.aside = numbers.aside
    if numbers.dead_lettered:
        body.dead_by_cause = {
            name: numbers.dead_by_cause[number]
            for number, name in CAUSES.items()
            if numbers.dead_by_cause[number]
        }


def _rates(delta: Counts, elapsed_s: float) -> Rates:
    enqueued, acked, nacked, dead_lettered = (round(n / elapsed_s, 2) for n in delta)
    return Rates(enqueued=enqueued, acked=acked, nacked=nacked, dead_lettered=dead_lettered)


def _point(sample: Sample) -> Point:
    return Point(
        ts_ms=sample.ts_ms,
        enqueued=sample.enqueued,
        acked=sample.acked,
        nacked=sample.nacked,
        dead_lettered=sample.dead_lettered,
    )
