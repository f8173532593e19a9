"""The contrast of every pair of colours the pages use, in both themes, computed from the
stylesheet.
"""

import re

import pytest

from sepp.admin.pages.assets import STATIC

TEXT, GRAPHIC = 4.5, 3.0

GROUNDS = ("bg", "surface", "surface-2", "select")
TINTS = ("ready", "sched", "flight", "dead", "ok", "warn")

# Colour, ground it stands on, least ratio. A new pair is added here.
PAIRS = [
    *((text, ground, TEXT) for text in ("text", "text-2", "text-3") for ground in GROUNDS),
    *((tint, f"{tint}-tint", TEXT) for tint in TINTS),
    *((tint, ground, TEXT) for tint in ("dead", "warn", "ok")
      for ground in ("surface", "surface-2")),
    *(("text", f"{tint}-tint", TEXT) for tint in TINTS),
    ("link", "surface", TEXT),
    ("link", "bg", TEXT),
    ("link", "select", TEXT),
    ("on-ink", "ink", TEXT),
    ("on-dead", "dead-solid", TEXT),
    ("line-strong", "surface", GRAPHIC),
    ("line-strong", "bg", GRAPHIC),
    ("focus", "surface", GRAPHIC),
    ("focus", "bg", GRAPHIC),
    *((line, ground, GRAPHIC) for line in ("chart-enq", "chart-ack", "chart-dead")
      for ground in ("surface", "chart-enq-area")),
    *((code, "surface-2", TEXT) for code in ("code-key", "code-str", "code-num", "code-lit")),
]  # fmt: skip


def tokens() -> dict[str, tuple[str, str]]:
    """Return name to (light, dark) of every colour."""
    text = (STATIC / "admin.css").read_text(encoding="utf-8")
    found = re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\);", text)
    return {name: (light, dark) for name, light, dark in found}


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def ratio(one: str, other: str) -> float:
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(("colour", "ground", "least"), PAIRS)
def test_a_colour_stands_out(colour: str, ground: str, least: float, theme: str) -> None:
    place = ("light", "dark").index(theme)
    known = tokens()

    assert ratio(known[colour][place], known[ground][place]) >= least


def test_the_computation_is_right() -> None:
    assert round(ratio("#000000", "#ffffff"), 1) == 21.0
    assert round(ratio("#777777", "#ffffff"), 2) == 4.48
