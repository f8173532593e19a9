"""The clocks of the process, read once for each millisecond that commands arrive in.

Commands and sweeps know the time from here alone, as `Now`; tests replace the two clocks.
"""

import time
from collections.abc import Callable

from sepp.core.commands import Now

# While wall and steady clock agree this closely the difference is drift, not a step; leases then
# need no correction at all.
SKEW_MS_MIN = 50


def wall_ms() -> int:
    """Return the wall clock, milliseconds since the epoch, for what no command or sweep decides."""
    return time.time_ns() // 1_000_000


class Clock:
    """Turns two system clocks into `Now`.

    Args:
        wall_ns: Wall clock, nanoseconds since the epoch.
        monotonic_ns: A clock that no one can set.
    """

    def __init__(
        self,
        *,
        wall_ns: Callable[[], int] = time.time_ns,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._wall_ns = wall_ns
        self._monotonic_ns = monotonic_ns
        self._log_ms = 0
        # steady = wall at open + monotonic time since then.
        self._steady_base_ns = wall_ns() - monotonic_ns()
        self._fresh_until_ns = 0  # monotonic; before that, `_now` is the reading
        self._now = Now(0, 0, 0, 0)

    def resume(self, log_ms: int) -> None:
        """Never stamp anything earlier than `log_ms`, the log clock of the opened store."""
        self._log_ms = max(self._log_ms, log_ms)
        self._fresh_until_ns = 0

    def now(self) -> Now:
        """Return the current reading; the same object within one millisecond."""
        monotonic_ns = self._monotonic_ns()
        if monotonic_ns < self._fresh_until_ns:
            return self._now
        steady_ms = (self._steady_base_ns + monotonic_ns) // 1_000_000
        wall_ms = self._wall_ns() // 1_000_000
        skew_ms = wall_ms - steady_ms
        if -SKEW_MS_MIN < skew_ms < SKEW_MS_MIN:
            skew_ms = 0
        self._log_ms = max(self._log_ms, wall_ms)
        self._fresh_until_ns = (steady_ms + 1) * 1_000_000 - self._steady_base_ns
        self._now = Now(wall_ms, self._log_ms, steady_ms, skew_ms)
        return self._now

    def seconds_until(self, *, wall_ms: int | None, steady_ms: int | None) -> float:
        """Seconds until the earlier of two deadlines, at least 0; infinity when there is none."""
        now = self.now()
        waits = [float("inf")]
        if wall_ms is not None:
            waits.append((wall_ms - now.wall_ms) / 1000)
        if steady_ms is not None:
            waits.append((steady_ms - now.steady_ms) / 1000)
        return max(0.0, min(waits))
