"""Figures and times in words, the same everywhere: pages, attention lines, audit details."""

from datetime import UTC, datetime
from typing import Final

from sepp.core.jobs import LAST_MS

CAUSE_WORDS: Final = {
    "attempts_exhausted": "Attempts exhausted",
    "rejected": "Rejected",
    "lease_expired": "Lease expired",
    "admin": "By an admin",
}
STATE_WORDS: Final = {
    "ready": "Ready",
    "scheduled": "Scheduled",
    "inflight": "In-flight",
    "dead_letter": "Dead letters",
    "aside": "Set aside",
}
NOTHING: Final = "–"

_DAY_MS: Final = 86_400_000
_UNITS: Final = ((_DAY_MS, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"))


def count(number: int) -> str:
    """Return 1,284; from ten million on 12.4 M."""
    if number < 10_000_000:
        return f"{number:,}"
    if number < 10_000_000_000:
        return f"{number / 1_000_000:,.1f} M"
    return f"{number / 1_000_000_000:,.1f} G"


def rate(per_s: float) -> str:
    """Return 41.2, or 331 from a hundred on."""
    return f"{per_s:.1f}" if per_s < 99.95 else f"{per_s:,.0f}"


def size(byte_count: int) -> str:
    """Return 658 B, 1.8 KB, 1.0 MB: powers of 1000."""
    amount = float(byte_count)
    if amount < 1000:
        return f"{byte_count} B"
    for unit in ("KB", "MB", "GB", "TB"):
        amount /= 1000
        if amount < 999.95:
            return f"{amount:.1f} {unit}"
    return f"{amount / 1000:,.1f} PB"


def span(ms: int, units: int = 1) -> str:
    """Return a span in at most `units` units, rounded down: 14 min, 6 d 4 h. Under 1 s: 0 s."""
    parts: list[str] = []
    for unit_ms, name in _UNITS:
        number, rest = divmod(ms, unit_ms)
        if number or parts:
            parts += [f"{number} {name}"] if number else []
            ms = rest
            units -= 1
            if units == 0:
                break
    return " ".join(parts) or "0 s"


def exact_span(ms: int) -> str:
    """Return a configured span without loss: 5 min, 1 h 30 min, 250 ms."""
    parts = []
    for unit_ms, name in (*_UNITS, (1, "ms")):
        number, ms = divmod(ms, unit_ms)
        if number:
            parts.append(f"{number} {name}")
    return " ".join(parts) or "0 ms"


def exact_size(byte_count: int) -> str:
    """Return a configured size without loss: 1 MiB, 1.5 KiB; "" where only bytes say it."""
    for power, unit in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        amount = byte_count / 1024**power
        if amount >= 1 and (amount * 4).is_integer():
            return f"{amount:g} {unit}"
    return ""


def moment(ms: int) -> str:
    """Return 2026-11-29 12:42:55.204 UTC."""
    return f"{_at(ms):%Y-%m-%d %H:%M:%S}.{ms % 1000:03} UTC"


def iso(ms: int) -> str:
    """Return 2026-11-29T12:42:55.204Z, as a `datetime` attribute has it."""
    return f"{_at(ms):%Y-%m-%dT%H:%M:%S}.{ms % 1000:03}Z"


def clock(ms: int) -> str:
    """Return 12:42:55."""
    return f"{_at(ms):%H:%M:%S}"


def day(ms: int, now_ms: int) -> str:
    """Return 13 Dec 12:42, with the year where it is another."""
    at = _at(ms)
    year = "" if at.year == _at(now_ms).year else f" {at.year:04}"
    return f"{at.day} {at:%b}{year} {at:%H:%M}"


def relative(ms: int, now_ms: int) -> str:
    """Return 2 min ago, in 21 s, now; after 48 hours the date."""
    distance = now_ms - ms
    if abs(distance) > 2 * _DAY_MS:
        return day(ms, now_ms)
    if abs(distance) < 1000:
        return "now"
    return f"{span(distance)} ago" if distance > 0 else f"in {span(-distance)}"


def plural(number: int, one: str, many: str = "") -> str:
    """Return 1 job, 1,284 jobs."""
    return f"{count(number)} {one if number == 1 else many or one + 's'}"


def _at(ms: int) -> datetime:
    # Times on disk are capped at year 9999, which `datetime` can say.
    return datetime.fromtimestamp(max(0, min(ms, LAST_MS)) / 1000, UTC)
