"""The figures of every second: rates, history, what needs attention, the frame that carries them.

`run` takes one sample a second, in slices of 100 queues, from counters that the core keeps anyway.
All pages and streams show the same frame, so a thousand viewers cost the server one sample.
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
    Attention,
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
    rates: Rates = _NO_RATES
    last_acked_ms: int | None = None
    last_died_ms: int | None = None
    stuck_since_ms: int | None = None
    died_10_min: int = 0
    sample: int = 0  # number of the sample that saw it last, 0 before its first


@define
class _Sums:
    """All queues together."""

    numbers: QueueNumbers = field(factory=lambda: QueueNumbers(""))
    delta: list[int] = field(factory=lambda: [0] * 4)
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
        self._seq = 0
        self._rates = _NO_RATES
        self._attention: list[Attention] = []
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
        declared = (queue.name for queue in self._backend.config.running.queues)
        return sorted({*self._backend.queue_names(), *declared})

    async def frame(self, *, age_ms_max: int = FRESH_MS) -> Frame:
        """Return a frame whose depths are at most so old; 0: all read after this call."""
        oldest_ms = self._backend.now_ms() - age_ms_max
        if self._frame.ts_ms <= oldest_ms:
            async with self._lock:
                # Whoever had the lock may have built what we came for.
                if self._frame.ts_ms <= oldest_ms:
                    await self._build(is_sample=False)
        return self._frame

    def queue_frame(self, numbers: QueueNumbers) -> QueueFrame:
        """Return one queue as frames carry it, with these numbers and the last sample's rates."""
        track = self._tracks.get(numbers.name)
        if track is None:
            return queue_frame(numbers, _NO_RATES, 0)
        return queue_frame(numbers, track.rates, track.died_10_min)

    @property
    def newest(self) -> Frame:
        """The frame of the last sample, or a fresher one."""
        return self._frame

    async def sample(self) -> None:
        """Take one sample: rates are over the time since the one before."""
        async with self._lock:
            await self._build(is_sample=True)
        sampled, self._sampled = self._sampled, trio.Event()
        sampled.set()

    async def _build(self, *, is_sample: bool) -> None:
        backend = self._backend
        now_ms = backend.now_ms()
        elapsed_s = max((now_ms - self._sampled_ms) / 1000, 0.001)
        is_first = self._sampled_ms == 0
        if is_sample:
            self._seq += 1
            self._sampled_ms = now_ms
        frames: dict[str, QueueFrame] = {}
        conditions: list[Condition] = []
        sums = _Sums()
        for place, name in enumerate(self.names()):
            if place % SLICE == SLICE - 1:
                await trio.lowlevel.checkpoint()
            numbers = backend.queue(name)
            track = self._track(numbers)
            if is_sample:
                self._advance(track, numbers, now_ms, elapsed_s, sums)
                conditions.append(self._condition(track, numbers))
            sums.add(numbers, track.died_10_min)
            frames[name] = queue_frame(numbers, track.rates, track.died_10_min)
        if is_sample:
            self._finish_sample(sums, conditions, now_ms, elapsed_s, is_first=is_first)
        self._frame = Frame(
            seq=self._seq,
            ts_ms=now_ms,
            server=FrameServer(command_queue_len=backend.vitals().command_queue_len),
            queues=frames,
            attention=self._attention,
            all=queue_frame(sums.numbers, self._rates, sums.died_10_min),
        )

    def _track(self, numbers: QueueNumbers) -> _Track:
        track = self._tracks.get(numbers.name)
        if track is None:
            track = self._tracks[numbers.name] = _Track()
        return track

    def _advance(
        self, track: _Track, numbers: QueueNumbers, now_ms: int, elapsed_s: float, sums: _Sums
    ) -> None:
        """Bring one queue's track up to this sample."""
        is_first = track.sample == 0
        track.sample = self._seq
        totals = _counts(numbers)
        before = track.totals
        if totals != before:
            # A queue that was forgotten in between starts at 0 again.
            if totals[0] < before[0] or totals[1] < before[1]:
                before = ZERO
            delta: Counts = tuple(  # type: ignore[assignment]  # four of four
                new - old for new, old in zip(totals, before, strict=True)
            )
            track.totals = totals
            # A rate needs two looks; the counts themselves are history all the same.
            track.rates = _NO_RATES if is_first else _rates(delta, elapsed_s)
            if track.series is None and len(self._tracks) <= QUEUES_MAX:
                track.series = Series()
            if track.series is not None:
                track.series.add(now_ms, delta)
            for place in range(4):
                sums.delta[place] += delta[place]
            if delta[1]:
                track.last_acked_ms = now_ms
            if delta[3]:
                track.last_died_ms = now_ms
        elif track.rates is not _NO_RATES:
            track.rates = _NO_RATES
        is_stuck = numbers.ready and not numbers.inflight and track.last_acked_ms != now_ms
        if not is_stuck:
            track.stuck_since_ms = None
        elif track.stuck_since_ms is None:
            track.stuck_since_ms = now_ms
        track.died_10_min = 0
        if track.last_died_ms is not None and track.series is not None:
            track.died_10_min = track.series.died(now_ms, attention.DIED_SPAN_MS)

    def _condition(self, track: _Track, numbers: QueueNumbers) -> Condition:
        return Condition(
            numbers,
            self._backend.limits(numbers.name),
            track.died_10_min,
            track.stuck_since_ms,
            track.last_acked_ms,
        )

    def _finish_sample(
        self,
        sums: _Sums,
        conditions: list[Condition],
        now_ms: int,
        elapsed_s: float,
        *,
        is_first: bool,
    ) -> None:
        gone = [name for name, track in self._tracks.items() if track.sample != self._seq]
        for name in gone:
            del self._tracks[name]
        delta: Counts = (sums.delta[0], sums.delta[1], sums.delta[2], sums.delta[3])
        self._server.add(now_ms, delta)
        self._rates = _NO_RATES if is_first else _rates(delta, elapsed_s)
        self._attention = attention.lines(
            conditions,
            self._backend.vitals(),
            command_queue_capacity=self._backend.facts.command_queue_capacity,
            now_ms=now_ms,
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


def _counts(numbers: QueueNumbers) -> Counts:
    return (
        numbers.enqueued_total,
        numbers.acked_total,
        numbers.nacked_total,
        numbers.dead_lettered_total,
    )


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
