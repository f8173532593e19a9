"""How fast work in the background may go: a bucket that fills with time."""

from dataclasses import dataclass
from typing import Final

_SPAN_MS_MAX: Final = 1000  # a clock that jumps gives no more than this


@dataclass(slots=True)
class Pace:
    """Bytes that may be spent: so many a second, saved up to a limit.

    The clock is a wall clock; one that is set back only makes the next bytes come later.

    Attributes:
        saved_max: Bytes.
        saved: Bytes; below 0 after more was spent than there was.
    """

    saved_max: int
    saved: float = 0.0
    _filled_at_ms: int = -1

    def fill(self, now_ms: int, bytes_s: int) -> None:
        """Let time pass."""
        if self._filled_at_ms < 0:
            self.saved = self.saved_max
        span_ms = min(max(now_ms - self._filled_at_ms, 0), _SPAN_MS_MAX)
        self._filled_at_ms = now_ms
        self.saved = min(self.saved + span_ms * bytes_s / 1000, self.saved_max)

    def spend(self, byte_count: float) -> None:
        """Take bytes away, whether they are there or not."""
        self.saved -= byte_count

    def wait_ms(self, bytes_s: int) -> int:
        """Return how long it takes until there is something to spend; 0: there is."""
        if self.saved > 0:
            return 0
        return int(-self.saved * 1000 / max(bytes_s, 1)) + 1
