"""Charts as plain data for the templates: paths, axis labels, titles. All geometry, no style."""

from collections.abc import Sequence

from attrs import define

from sepp.admin import wording
from sepp.admin.history import Sample


@define
class Hit:
    """One column to point at."""

    x: str
    width: str
    title: str


@define
class Mark:
    """A label on the time axis."""

    ts_ms: int
    text: str


@define
class Chart:
    """Everything a template needs to draw one chart. `peak` is the top of the scale, per second."""

    width: int
    height: int
    span_ms: int
    peak: float
    enqueued: str
    area: str
    acked: str
    died: str
    grid: str
    hits: list[Hit]
    marks: list[Mark]
    label: str
    enqueued_now: float
    acked_now: float
    died_sum: int
    samples: Sequence[Sample]

    @property
    def is_idle(self) -> bool:
        """Whether nothing happened in the whole span."""
        return not any(s.enqueued or s.acked or s.died for s in self.samples)

    @property
    def last_ms(self) -> int:
        """The end of the newest sample."""
        return self.samples[-1].ts_ms if self.samples else 0

    @property
    def most(self) -> float:
        """The highest rate drawn."""
        return max((max(s.enqueued, s.acked) for s in self.samples), default=0.0)


def draw(
    samples: Sequence[Sample], *, width: int, height: int, span_ms: int, has_hits: bool = True
) -> Chart:
    """Return a chart of these samples. The scale goes from 0 to a round maximum."""
    peak = round_up(max((max(s.enqueued, s.acked) for s in samples), default=0.0))
    enqueued = _line([s.enqueued for s in samples], width, height, peak)
    acked = _line([s.acked for s in samples], width, height, peak)
    middle, last = height / 2, samples[-1] if samples else None
    label = (
        f"Enqueued now {wording.rate(last.enqueued)}/s, acked now {wording.rate(last.acked)}/s, "
        f"most {wording.rate(max(max(s.enqueued, s.acked) for s in samples))}/s"
        if last
        else "Nothing yet"
    )
    return Chart(
        width=width,
        height=height,
        span_ms=span_ms,
        peak=peak,
        enqueued=enqueued,
        area=f"{enqueued}V{height}H0Z" if enqueued else "",
        acked=acked,
        died=_ticks(samples, width, height),
        grid=f"M0 .5H{width}M0 {middle:g}H{width}M0 {height}H{width}",
        hits=_hits(samples, width) if has_hits else [],
        marks=_marks(samples),
        label=label,
        enqueued_now=last.enqueued if last else 0.0,
        acked_now=last.acked if last else 0.0,
        died_sum=sum(s.died for s in samples),
        samples=samples,
    )


def round_up(value: float) -> float:
    """Return the next round number of the kind 1, 2, 5 × 10ⁿ or half of one that looks as good."""
    if value <= 0:
        return 1.0
    power = 1.0
    while power > value:
        power /= 10
    while power * 10 <= value:
        power *= 10
    for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10):
        if power * step >= value:
            return power * step
    return power * 10


def axis(value: float) -> str:
    """Return a number on the rate axis: 600, 0.5, 12."""
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:g}"


def _line(values: Sequence[float], width: int, height: int, peak: float) -> str:
    if not values:
        return ""
    step = width / max(len(values) - 1, 1)
    points = [
        f"{_number(place * step)} {_number(height - value / peak * height)}"
        for place, value in enumerate(values)
    ]
    if len(points) == 1:
        points.append(f"{width} {points[0].partition(' ')[2]}")
    return "M" + " ".join(points)


def _ticks(samples: Sequence[Sample], width: int, height: int) -> str:
    """One tick a sample in which jobs died; a higher one for more."""
    step = width / max(len(samples) - 1, 1)
    parts = []
    for place, sample in enumerate(samples):
        if sample.died:
            share = 0.15 if sample.died == 1 else 0.2 if sample.died < 10 else 0.25
            parts.append(f"M{_number(place * step)} {height}v-{_number(share * height)}")
    return "".join(parts)


def _hits(samples: Sequence[Sample], width: int) -> list[Hit]:
    step = width / max(len(samples), 1)
    return [
        Hit(
            _number(place * step),
            _number(step),
            f"{wording.clock(sample.ts_ms)} UTC: enqueued {wording.rate(sample.enqueued)}/s, "
            f"acked {wording.rate(sample.acked)}/s, died {sample.died}",
        )
        for place, sample in enumerate(samples)
    ]


def _marks(samples: Sequence[Sample]) -> list[Mark]:
    """First, last and two in between."""
    if not samples:
        return []
    first, last = samples[0].ts_ms, samples[-1].ts_ms
    times = [first + (last - first) * part // 3 for part in range(4)]
    is_short = last - first <= 120_000
    return [Mark(at, wording.clock(at) if is_short else wording.clock(at)[:5]) for at in times]


def _number(value: float) -> str:
    return f"{value:.1f}".rstrip("0").rstrip(".")
