"""Prometheus' text format 0.0.4, written slice by slice."""

from collections.abc import Iterator
from functools import lru_cache
from itertools import accumulate
from typing import Final

from sepp.metrics.families import Family
from sepp.metrics.reading import Histogram, Points, Series, Value

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
POINTS_PER_SLICE: Final = 250


def render(series: list[Series]) -> Iterator[bytes]:
    """Yield the page in pieces, each the work of one slice; families without points are left out.

    Small families share a piece.
    """
    lines: list[str] = []
    room = POINTS_PER_SLICE
    for family, points in series:
        if not points:
            continue
        lines.append(f"# HELP {family.name} {family.text}\n# TYPE {family.name} {family.kind}\n")
        at = 0
        while at < len(points):
            part = points[at : at + room]
            at += len(part)
            room -= len(part)
            _write(lines, family, part)
            if not room:
                yield "".join(lines).encode()
                lines, room = [], POINTS_PER_SLICE
    if lines:
        yield "".join(lines).encode()


def _write(lines: list[str], family: Family, points: Points) -> None:
    name = family.name
    for values, value in points:
        labels = _label_text(family.labels, values)
        if isinstance(value, Histogram):
            _write_histogram(lines, name, labels, value)
        else:
            lines.append(f"{name}{{{labels}}} {value}\n" if labels else f"{name} {value}\n")


def _write_histogram(lines: list[str], name: str, labels: str, value: Histogram) -> None:
    comma = "," if labels else ""
    totals = list(accumulate(value.counts))
    for bound, total in zip((*value.bounds, "+Inf"), totals, strict=True):
        lines.append(f'{name}_bucket{{{labels}{comma}le="{bound}"}} {total}\n')
    braced = f"{{{labels}}}" if labels else ""
    lines.append(f"{name}_sum{braced} {_number(value.sum)}\n")
    lines.append(f"{name}_count{braced} {totals[-1]}\n")


def _number(value: Value) -> str:
    return repr(round(value, 6)) if isinstance(value, float) else str(value)


@lru_cache(maxsize=4096)
def _label_text(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    return ",".join(f'{n}="{escape(v)}"' for n, v in zip(names, values, strict=True))


def escape(value: str) -> str:
    """Return a label's value as it stands between quotes."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
