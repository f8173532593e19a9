"""Bar charts as hand-written SVG: no script, no font but the reader's own, fine in light and dark.

A chart is a title, panels side by side with one horizontal bar a row, an axis from zero with its
unit under each panel, and a few lines of text below.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

LABEL_WIDTH = 250
PANEL_WIDTH = 260
PANEL_GAP = 26
VALUE_WIDTH = 62
ROW_HEIGHT = 26
BAR_HEIGHT = 16
TOP = 72
AXIS_HEIGHT = 46
NOTE_HEIGHT = 17
MARGIN = 20
TICKS_MAX = 4

STYLE = """
  text { font: 12px system-ui, sans-serif; fill: #1f2933; }
  .title { font-size: 16px; font-weight: 600; }
  .panel { font-weight: 600; }
  .note, .tick { font-size: 11px; fill: #5c6670; }
  .grid { stroke: #d9dee3; }
  .axis { stroke: #7b8794; }
  .bar { fill: #9aa5b1; }
  .ours { fill: #2f6f9f; }
  .paper { fill: #ffffff; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e4e7eb; }
    .note, .tick { fill: #9aa5b1; }
    .grid { stroke: #323f4b; }
    .axis { stroke: #9aa5b1; }
    .bar { fill: #616e7c; }
    .ours { fill: #62b0e8; }
    .paper { fill: #12181d; }
  }
"""


@dataclass(frozen=True)
class Row:
    """One line of bars: a value a panel, None where it was not measured."""

    label: str
    values: Sequence[float | None]
    is_ours: bool = False


def axis_step(largest: float) -> float:
    """The distance of ticks: 1, 2 or 5 times a power of ten, so that at most TICKS_MAX fit."""
    if largest <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(largest / TICKS_MAX))
    for factor in (1, 2, 5, 10):
        if power * factor * TICKS_MAX >= largest:
            return power * factor
    raise AssertionError("ten times the power always reaches")


def number(value: float) -> str:
    """A figure short enough for a tick or a bar's end."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _text(x: float, y: float, words: str, *, kind: str = "", anchor: str = "start") -> str:
    of_kind = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{of_kind} text-anchor="{anchor}">{escape(words)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _panel(
    left: float, name: str, unit: str, rows: Sequence[Row], index: int, bottom: float
) -> list[str]:
    values = [row.values[index] for row in rows]
    largest = max((value for value in values if value is not None), default=0.0)
    step = axis_step(largest)
    width = PANEL_WIDTH - VALUE_WIDTH
    scale = width / (step * max(1, math.ceil(largest / step)))
    parts = [_text(left, TOP - 14, name, kind="panel")]
    tick = 0.0
    while tick * scale <= width + 0.01:
        x = left + tick * scale
        parts.append(_line(x, TOP, x, bottom, "grid"))
        parts.append(_text(x, bottom + 15, number(tick), kind="tick", anchor="middle"))
        tick += step
    parts.append(_text(left + width / 2, bottom + 32, unit, kind="note", anchor="middle"))
    for i, (row, value) in enumerate(zip(rows, values, strict=True)):
        y = TOP + i * ROW_HEIGHT + (ROW_HEIGHT - BAR_HEIGHT) / 2
        end = left if value is None else left + value * scale
        if value is not None:
            kind = "bar ours" if row.is_ours else "bar"
            parts.append(
                f'<rect class="{kind}" x="{left:.1f}" y="{y:.1f}" '
                f'width="{max(value * scale, 0.5):.1f}" height="{BAR_HEIGHT}"/>'
            )
        words = "not measured" if value is None else number(value)
        parts.append(_text(end + 5, y + BAR_HEIGHT - 4, words, kind="note"))
    parts.append(_line(left, TOP, left, bottom, "axis"))
    return parts


def bars(
    title: str,
    panels: Sequence[tuple[str, str]],
    rows: Sequence[Row],
    notes: Sequence[str] = (),
) -> str:
    """An SVG document. `panels` are pairs of name and unit; each row has a value for each.

    Raises ValueError when a row has not a value for each panel.
    """
    for row in rows:
        if len(row.values) != len(panels):
            raise ValueError(f"{row.label}: {len(row.values)} values for {len(panels)} panels")
    bottom = TOP + len(rows) * ROW_HEIGHT
    height = bottom + AXIS_HEIGHT + len(notes) * NOTE_HEIGHT + MARGIN
    width = MARGIN + LABEL_WIDTH + len(panels) * (PANEL_WIDTH + PANEL_GAP) + MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="paper" width="{width}" height="{height}"/>',
        _text(MARGIN, 32, title, kind="title"),
    ]
    for i, row in enumerate(rows):
        y = TOP + i * ROW_HEIGHT + ROW_HEIGHT / 2 + 4
        parts.append(_text(MARGIN + LABEL_WIDTH - 10, y, row.label, anchor="end"))
    for index, (name, unit) in enumerate(panels):
        left = MARGIN + LABEL_WIDTH + index * (PANEL_WIDTH + PANEL_GAP)
        parts += _panel(left, name, unit, rows, index, bottom)
    for i, note in enumerate(notes):
        parts.append(_text(MARGIN, bottom + AXIS_HEIGHT + 14 + i * NOTE_HEIGHT, note, kind="note"))
    parts.append("</svg>")
    return "\n".join(parts) + "\n"
