"""The watch on one peer: what it must do in time, and how much noise it may make.

A peer that only waits is never touched: it has greeted, it answers our PINGs, and nothing of its is
under way. Every bound here is on something begun and not finished, or on frames that carry nothing.
"""

from typing import Final, Protocol

from sepp.rpc.limits import TransportLimits
from sepp.rpc.poller import Poller
from sepp.rpc.timers import NEVER

BURST_S: Final = 10.0  # a rate limit admits at once what it allows in this time


class Watched(Protocol):
    """A connection, of either side, as its watch sees it."""

    is_closed: bool

    def close(self, reason: str, text: str) -> None:
        """End the connection."""
        ...

    def send_ping(self) -> None:
        """Ask the peer for a sign of life."""
        ...


class Allowance:
    """A rate limit: so many a second on average, `BURST_S` of them at once."""

    __slots__ = ("_at", "_most", "_rate", "left")

    def __init__(self, per_second: int, now_s: float) -> None:
        self._rate = per_second
        self._most = per_second * BURST_S
        self._at = now_s
        self.left = self._most

    def take(self, now_s: float) -> bool:
        """Use one; False when there is none left."""
        self.left -= 1
        if self.left > 0:
            return True
        self.left = min(self._most, self.left + (now_s - self._at) * self._rate)
        self._at = now_s
        return self.left > 0

    def earn(self, count: int) -> None:
        """Give some back, never above the burst."""
        if self.left < self._most:
            self.left += count


class Watch:
    """Deadlines and allowances of one connection; spans in seconds of the Trio clock.

    Attributes:
        heard_at: When bytes last arrived.
        frame_since: When a frame was found to be under way, 0 when none is known to be.
        stalled_since: When the socket last took bytes, 0 while it takes all we give it.
    """

    __slots__ = (
        "_connection",
        "_greet_by",
        "_limits",
        "_pinged_at",
        "_poller",
        "frame_since",
        "heard_at",
        "is_deaf",
        "pings",
        "resets",
        "stalled_since",
        "timer_tick",
    )

    def __init__(self, connection: Watched, limits: TransportLimits, poller: Poller) -> None:
        self._connection = connection
        self._limits = limits
        self._poller = poller
        now = poller.now
        self._greet_by = now + limits.preface_timeout_ms / 1e3  # 0 once the peer has
        self._pinged_at = 0.0  # 0: no PING of ours is unanswered
        self.heard_at = now
        self.frame_since = 0.0
        self.stalled_since = 0.0
        self.is_deaf = False  # we do not read from this peer at present
        self.pings = Allowance(limits.max_pings_per_second, now)
        self.resets = Allowance(limits.max_resets_per_second, now)
        self.timer_tick = 0
        self.arm()

    def greeted(self) -> None:
        """Preface and SETTINGS of the peer have arrived."""
        if self._greet_by:
            self._greet_by = 0.0
            self.arm()

    def ping_answered(self) -> None:
        """The peer answered our PING."""
        self._pinged_at = 0.0

    def hears_again(self) -> None:
        """Reading goes on after a pause of ours: its silence was not the peer's."""
        self.is_deaf = False
        self.heard_at = self._poller.now
        self._pinged_at = 0.0
        self.arm()

    def arm(self) -> None:
        """Set the timer to what is due first."""
        due = self._due_s()
        if due != NEVER:
            self._poller.timers.set(self, due)

    def _due_s(self) -> float:
        limits = self._limits
        due = NEVER
        if self.stalled_since:
            due = self.stalled_since + limits.write_stall_timeout_ms / 1e3
        if self.is_deaf:
            return due
        if self._greet_by:
            return min(due, self._greet_by)
        if self.frame_since:
            due = min(due, self.frame_since + limits.header_timeout_ms / 1e3)
        if self._pinged_at:
            return min(due, self._pinged_at + limits.keepalive_timeout_ms / 1e3)
        return min(due, self.heard_at + limits.keepalive_interval_ms / 1e3)

    def on_time(self, now_s: float) -> None:
        """Close the connection if the peer is late with something, or ask for a sign of life."""
        connection, limits = self._connection, self._limits
        if connection.is_closed:
            return
        if self.stalled_since and now_s >= self.stalled_since + limits.write_stall_timeout_ms / 1e3:
            connection.close("write_stall", "the peer took no byte in time")
        elif self.is_deaf:
            self.arm()
        elif self._greet_by and now_s >= self._greet_by:
            connection.close("preface_timeout", "no TLS handshake and HTTP/2 preface in time")
        elif self.frame_since and now_s >= self.frame_since + limits.header_timeout_ms / 1e3:
            connection.close("header_timeout", "a frame or header block did not end in time")
        elif self._pinged_at and now_s >= self._pinged_at + limits.keepalive_timeout_ms / 1e3:
            connection.close("keepalive", "no answer to PING")
        else:
            if (
                not self._greet_by
                and not self._pinged_at
                and now_s >= self.heard_at + limits.keepalive_interval_ms / 1e3
            ):
                self._pinged_at = now_s
                connection.send_ping()
            self.arm()
