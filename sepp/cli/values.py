"""Spans, instants and settings as people type them."""

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Final

from sepp.cli.options import UsageError

_UNITS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_SPAN: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_SPAN_DAYS_MAX: Final = 365_000  # from now on, a date can still tell it
_I64: Final = range(-(2**63), 2**63)
Scalar = str | int | float | bool


def parse_span(text: str) -> timedelta:
    """Return a span: 250ms, 30s, 5m, 1h30m, 2d.

    Raises:
        UsageError: It is none.
    """
    if not text or _SPAN.sub("", text):
        raise UsageError(f"{text!r} is no span; one is 250ms, 30s, 5m, 1h30m or 2d")
    seconds = sum(float(number) * _UNITS[unit] for number, unit in _SPAN.findall(text))
    if seconds > _SPAN_DAYS_MAX * _UNITS["d"]:
        raise UsageError(f"{text!r} is too long; a span is at most {_SPAN_DAYS_MAX}d")
    return timedelta(seconds=seconds)


def parse_instant(text: str) -> datetime:
    """Return an instant in ISO form; without an offset it is local time.

    Raises:
        UsageError: It is none.
    """
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        raise UsageError(
            f"{text!r} is no time; one is 2026-01-31T08:00, or with offset 2026-01-31T08:00+01:00"
        ) from None


def parse_pair(text: str) -> tuple[str, Scalar | list[str] | None]:
    """Return name and value of NAME=VALUE; numbers, true, false, null and lists are read as JSON.

    Raises:
        UsageError: There is no equals sign, or no name.
    """
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(f"{text!r} is no NAME=VALUE")
    try:
        found = json.loads(value)
    except ValueError:
        return name, value
    is_list = isinstance(found, list) and all(isinstance(item, str) for item in found)
    if is_list or found is None or isinstance(found, str | int | float):
        return name, found
    return name, value


def parse_custom(pairs: list[str]) -> dict[str, Scalar]:
    """Return a custom map of NAME=VALUE pairs; what is neither number nor truth is text.

    Raises:
        UsageError: One is none, or its number does not fit 64 bits.
    """
    found: dict[str, Scalar] = {}
    for pair in pairs:
        name, value = parse_pair(pair)
        if isinstance(value, int) and value not in _I64:
            raise UsageError(f"{pair} has more than 64 bits; for text put it in double quotes")
        is_scalar = isinstance(value, str | int | float)
        found[name] = value if is_scalar else pair.partition("=")[2]  # type: ignore[assignment]  # see is_scalar
    return found


def show_instant(ms: int | None) -> str:
    """Return milliseconds since 1970 as local time; empty for None."""
    if ms is None:
        return ""
    return datetime.fromtimestamp(ms / 1000, UTC).astimezone().isoformat(" ", "milliseconds")[:23]
