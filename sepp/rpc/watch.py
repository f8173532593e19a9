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

    def listen(self) -> None:
        """Read again, if a socket that takes nothing is not the reason why we do not."""
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
        if self.left < 1:
            self.left = min(self._most, self.left + (now_s - self._at) * self._rate)
            self._at = now_s
            if self.left < 1:
                return False
        self.left -= 1
        return True

    def earn(self, count: int) -> None:
        """Give some back, never above the burst."""
        if self.left < self._most:
            self.left += count


class Watch:
    """Deadlines and allowances of one connection; times of the Trio clock, NEVER while not set.

    Attributes:
        heard_at: When bytes last arrived.
        frame_by: When the frame that is under way must have ended. One that began behind a whole
            one is timed from the next read on, as to look for it would cost each call something; if
            nothing more comes, the PING that it keeps from being answered ends the connection.
        stall_by: When the socket must have taken some of what it owes us.
        pings, resets: How much noise the peer has left.
    """

    __slots__ = (
        "_connection",
        "_greet_by",
        "_hear_by",
        "_interval_s",
        "_is_deaf",
        "_limits",
        "_poller",
        "_pong_by",
        "frame_by",
        "heard_at",
        "pings",
        "resets",
        "stall_by",
        "timer_tick",
    )

    def __init__(self, connection: Watched, limits: TransportLimits, poller: Poller) -> None:
        self._connection = connection
        self._limits = limits
        self._poller = poller
        self._interval_s = limits.keepalive_interval_ms / 1e3
        now = poller.now
        self._greet_by = now + limits.preface_timeout_ms / 1e3
        self._pong_by = NEVER
        self._is_deaf = False  # we do not read from this peer at present
        self._hear_by = NEVER
        self.frame_by = NEVER
        self.stall_by = NEVER
        self.heard_at = now
        self.pings = Allowance(limits.max_pings_per_second, now)
        self.resets = Allowance(limits.max_resets_per_second, now)
        self.timer_tick = 0
        self._arm()

    def greeted(self) -> None:
        """Preface and SETTINGS of the peer have arrived."""
        if self._greet_by != NEVER:
            self._greet_by = NEVER
            self._arm()

    def frame_begun(self) -> None:
        """Bytes came of which nothing was heard: it seems that a frame is under way."""
        if self.frame_by == NEVER:
            self.frame_by = self._poller.now + self._limits.header_timeout_ms / 1e3
            self._arm()

    def ping_answered(self) -> None:
        """The peer answered our PING."""
        self._pong_by = NEVER

    def socket_took(self) -> None:
        """The socket took some, and owes us more."""
        self.stall_by = self._poller.now + self._limits.write_stall_timeout_ms / 1e3
        self._arm()

    def turn_deaf(self) -> None:
        """We read no more from this peer for a while, and its silence means nothing."""
        self._is_deaf = True
        self._hear_by = self._poller.now + self._limits.body_timeout_ms / 1e3
        self._arm()

    def hear_again(self) -> None:
        """Reading goes on after a pause of ours."""
        self._is_deaf = False
        self._hear_by = NEVER
        self.heard_at = self._poller.now
        self._pong_by = NEVER
        self._arm()

    def _arm(self) -> None:
        """Set the timer to what is due first."""
        due = min(self.stall_by, self._hear_by)
        if not self._is_deaf:
            due = min(due, self._greet_by, self.frame_by, self._pong_by, self._ping_at())
        if due != NEVER:
            self._poller.timers.set(self, due)

    def _ping_at(self) -> float:
        """When to ask for a sign of life: not before the peer has greeted, one PING at a time.

        Half-way to `frame_by` too: nothing is heard of whole frames either if they are of a kind
        that means nothing here, but only behind a whole frame can an answer come.
        """
        if self._greet_by != NEVER or self._pong_by != NEVER:
            return NEVER
        ask_at = self.frame_by - self._limits.header_timeout_ms / 2e3
        return min(self.heard_at + self._interval_s, ask_at)

    def on_time(self, now_s: float) -> None:
        """Close the connection if the peer is late with something, or ask for a sign of life."""
        connection = self._connection
        if connection.is_closed:
            return
        if now_s >= self.stall_by:
            connection.close("write_stall", "the peer took no byte in time")
        elif self._is_deaf:
            if now_s >= self._hear_by:
                self.turn_deaf()  # for as long again, unless the connection thinks better of it
                connection.listen()
            else:
                self._arm()
        elif now_s >= self._greet_by:
            connection.close("preface_timeout", "no TLS handshake and HTTP/2 preface in time")
        elif now_s >= self.frame_by:
            connection.close("header_timeout", "a frame or header block did not end in time")
        elif now_s >= self._pong_by:
            connection.close("keepalive", "no answer to PING")
        else:
            if now_s >= self._ping_at():
                self._pong_by = now_s + self._limits.keepalive_timeout_ms / 1e3
                connection.send_ping()
            self._arm()
