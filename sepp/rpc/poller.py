"""The one task behind all sockets: a nested epoll that Trio watches as a single descriptor.

A task per connection costs 40 % more CPU at a hundred connections. Here Trio wakes one task when
any socket is ready; it serves each ready socket once, bounded, then flushes what was touched and
goes back to Trio. Deadlines share the task: it sleeps until the earliest.
"""

import logging
import select
from typing import Final, Protocol

import trio

from sepp.rpc.timers import Timers

_log = logging.getLogger(__name__)

READ: Final = select.EPOLLIN
WRITE: Final = select.EPOLLOUT
# A peer that hung up is heard even while nothing is read from it.
_HANG_UP: Final = select.EPOLLRDHUP
_BROKEN: Final = select.EPOLLERR | select.EPOLLHUP  # nothing is left to be read
# Sockets served in one turn. Those left over are ready again in the next one.
_SOCKETS_PER_TURN: Final = 128


class Endpoint(Protocol):
    """What owns a socket. No method may block; an exception from one is our bug."""

    is_touched: bool

    def on_readable(self) -> None:
        """The socket has bytes, its end, or an error to be read."""
        ...

    def on_writable(self) -> None:
        """The socket takes bytes again; called only while WRITE is watched."""
        ...

    def flush(self) -> None:
        """Send what was queued since `Poller.touch`."""
        ...

    def abort(self) -> None:
        """A method raised: close this endpoint for good, whatever its state."""
        ...


class Poller:
    """Serves endpoints while `run` runs.

    Attributes:
        now: The Trio clock at the beginning of this turn, in seconds.
        timers: Deadlines of the endpoints and of their calls.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.timers = Timers(0.0, self._sleep_less)
        self._epoll = select.epoll()
        self._endpoints: dict[int, Endpoint] = {}
        self._touched: list[Endpoint] = []
        self._last: dict[int, None] = {}  # descriptors, the longest waiting first
        self._scope: trio.CancelScope | None = None
        self._flusher: trio.lowlevel.Task | None = None

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled. Descriptors registered by then stay their owners' to close."""
        self.now = trio.current_time()
        self.timers = Timers(self.now, self._sleep_less)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._flush_when_asked)
                task_status.started()
                await self._watch()
        finally:
            self._scope = None
            self._epoll.close()

    async def _watch(self) -> None:
        timers = self.timers
        while True:
            with trio.CancelScope(deadline=timers.next_s()) as scope:
                self._scope = scope
                while True:
                    await trio.lowlevel.wait_readable(self._epoll.fileno())
                    self._serve_ready()
            self._run_due()

    def _sleep_less(self, at_s: float) -> None:
        if self._scope is not None:
            self._scope.deadline = at_s

    def _serve_ready(self) -> None:
        self.now = trio.current_time()
        endpoints, last = self._endpoints, self._last
        put_off: dict[int, int] = {}
        for descriptor, ready in self._epoll.poll(0, _SOCKETS_PER_TURN):
            endpoint = endpoints.get(descriptor)
            if endpoint is None:
                continue  # closed earlier in this turn
            if descriptor in last and not ready & _BROKEN:
                put_off[descriptor] = ready
            else:
                self._serve(endpoint, ready)
        if put_off:
            self._serve_one(put_off)
        self._run_due()

    def _serve_one(self, put_off: dict[int, int]) -> None:
        """Serve the one that has waited longest."""
        for descriptor in self._last:  # some may have been closed earlier in this turn
            if descriptor in put_off:
                del self._last[descriptor]
                self._serve(self._endpoints[descriptor], put_off[descriptor])
                return

    def _serve(self, endpoint: Endpoint, ready: int) -> None:
        try:
            if ready & WRITE:
                endpoint.on_writable()
            if ready & ~WRITE:
                endpoint.on_readable()
        except Exception:  # noqa: BLE001  # a bug met by one peer must not end the others
            self._abort(endpoint)

    def _run_due(self) -> None:
        self.now = now = trio.current_time()
        self.timers.run_due(now)
        self.flush()

    def flush(self) -> None:
        """Send what all touched endpoints have queued."""
        touched = self._touched
        while touched:
            endpoint = touched.pop()
            endpoint.is_touched = False
            try:
                endpoint.flush()
            except Exception:  # noqa: BLE001  # see above
                self._abort(endpoint)

    def _abort(self, endpoint: Endpoint) -> None:
        _log.exception("bug: closing one connection because of it")
        try:
            endpoint.abort()
        except Exception:  # noqa: BLE001  # nothing is left to try on this endpoint
            _log.exception("bug: the connection could not be closed either")

    def touch(self, endpoint: Endpoint) -> None:
        """Have `endpoint` flushed at the end of this turn, or at the next `flush`."""
        if not endpoint.is_touched:
            endpoint.is_touched = True
            self._touched.append(endpoint)

    def flush_soon(self) -> None:
        """Have everything touched flushed once the tasks now running have had their say."""
        if self._flusher is not None:
            flusher, self._flusher = self._flusher, None
            trio.lowlevel.reschedule(flusher)

    async def _flush_when_asked(self) -> None:
        def abort(_: object) -> trio.lowlevel.Abort:
            self._flusher = None
            return trio.lowlevel.Abort.SUCCEEDED

        while True:
            self._flusher = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(abort)
            self.flush()

    def register(self, descriptor: int, endpoint: Endpoint) -> None:
        """Watch a descriptor for reading."""
        self._endpoints[descriptor] = endpoint
        self._epoll.register(descriptor, READ | _HANG_UP)

    def watch(self, descriptor: int, wanted: int) -> None:
        """Change what is watched: READ, WRITE, both or 0. Errors and hang-ups always are."""
        self._epoll.modify(descriptor, wanted | _HANG_UP)

    def serve_last(self, descriptor: int) -> None:
        """Serve a peer the next time only when its turn has come, unless its connection broke.

        Each turn serves one of them, after all others: however many they are, they cost the others
        no more than that.
        """
        self._last[descriptor] = None

    def unregister(self, descriptor: int) -> None:
        """Stop watching a descriptor, before it is closed."""
        self._last.pop(descriptor, None)
        if self._endpoints.pop(descriptor, None) is not None and not self._epoll.closed:
            self._epoll.unregister(descriptor)
