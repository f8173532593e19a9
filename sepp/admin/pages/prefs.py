"""What a reader chose: theme, clock, view, range, shortcuts. One cookie, fixed values only."""

from collections.abc import Mapping
from typing import Final

from attrs import evolve, frozen
from starlette.responses import Response

COOKIE: Final = "sepp_ui"
_YEAR_S: Final = 31_536_000

CHOICES: Final[dict[str, tuple[str, ...]]] = {
    "theme": ("auto", "light", "dark"),
    "clock": ("utc", "local"),
    "view": ("auto", "table", "cards"),
    "range": ("15m", "1m", "5m", "1h", "6h"),
    "keys": ("on", "off"),
}
"""The values of each choice, the default first."""

RANGES: Final[dict[str, tuple[int, str]]] = {
    "1m": (60_000, "1 min"),
    "5m": (300_000, "5 min"),
    "15m": (900_000, "15 min"),
    "1h": (3_600_000, "1 h"),
    "6h": (21_600_000, "6 h"),
}
"""Spans of charts, in ms and in words."""


@frozen
class Prefs:
    """See the module."""

    theme: str = "auto"
    clock: str = "utc"
    view: str = "auto"
    range: str = "15m"
    keys: str = "on"

    @property
    def next_theme(self) -> str:
        """What the theme button leads to."""
        themes = CHOICES["theme"]
        return themes[(themes.index(self.theme) + 1) % len(themes)]


def read(cookies: Mapping[str, str]) -> Prefs:
    """Return the choices in a cookie; whatever is not one of the fixed values is the default."""
    found = {}
    for part in cookies.get(COOKIE, "").split("."):
        name, _, value = part.partition("-")
        if value in CHOICES.get(name, ()):
            found[name] = value
    return Prefs(**found)


def change(prefs: Prefs, wanted: Mapping[str, str]) -> Prefs:
    """Return the choices with those changed that are valid."""
    found = {name: value for name, value in wanted.items() if value in CHOICES.get(name, ())}
    return evolve(prefs, **found)


def write(response: Response, prefs: Prefs, *, is_tls: bool) -> None:
    """Put the choices into the cookie."""
    value = ".".join(f"{name}-{getattr(prefs, name)}" for name in CHOICES)
    response.set_cookie(
        COOKIE, value, max_age=_YEAR_S, path="/admin", secure=is_tls, httponly=True, samesite="lax"
    )
