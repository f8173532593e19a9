"""The server: purerpc's service model on our own connections."""

import inspect
import ssl
from contextlib import AsyncExitStack
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import purerpc
import trio
from attrs import frozen

from sepp.binding import bind
from sepp.rpc import grpc
from sepp.rpc.call import Call
from sepp.rpc.front import Front, Handler
from sepp.rpc.limits import TransportLimits
from sepp.rpc.listener import Listener
from sepp.rpc.poller import Poller

__all__ = ["Call", "Server", "ServerStatistics"]

_LOOPBACK: Final = "127.0.0.1"


@frozen
class ServerStatistics:
    """Counts of one server since its start, but for the first three, which are of now.

    Args:
        closed: Connections ended, by reason.
        refused: Connections closed at once because there were too many.
        bytes_in, bytes_out: As the sockets saw them, TLS included.
    """

    connections: int
    streams_open: int
    request_bytes: int
    accepted: int
    refused: int
    closed: MappingProxyType[str, int]
    calls: int
    bytes_in: int
    bytes_out: int


class Server(purerpc.Server):  # type: ignore[misc]  # purerpc has no types
    """Serves the services added to it, over plain TCP or TLS.

    Methods of a service are plain functions of one `Call`; they must not block, and answer now or
    later by the call's own methods. Answers given outside of a handler leave with `flush`.

    Args:
        host: The literal address to bind, and no other.
        port: 0 for one that is free; `port` tells the real one once `serve_async` has started.
        ssl_context: See `transport.tls_server_context`; None for plain TCP.
        message_bytes_max: Larger requests are answered with OUT_OF_RANGE.
    """

    def __init__(
        self,
        host: str = _LOOPBACK,
        port: int = 0,
        ssl_context: ssl.SSLContext | None = None,
        *,
        limits: TransportLimits | None = None,
        message_bytes_max: int = grpc.MESSAGE_BYTES_MAX,
    ) -> None:
        super().__init__(port=port, ssl_context=ssl_context)
        self.host = host
        self.port: int = port
        self._ssl_context: ssl.SSLContext | None = ssl_context
        self._poller = Poller()
        self._front = Front(self._poller, limits or TransportLimits(), message_bytes_max)
        self._listener: Listener | None = None
        self._quiet = trio.Event()

    async def serve_async(
        self, *, task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Bind and serve until cancelled; `task_status` is given the real port.

        When cancelled, all connections are closed and the calls still open are gone.

        Raises:
            ValueError: `host` is no literal address.
            OSError: The address cannot be bound.
        """
        async with AsyncExitStack() as stack:
            for name, context in self.services.items():
                service = await stack.enter_async_context(context)
                self._front.handlers.update(_handlers_of(name, service))
            listening = bind(self.host, self.port)
            self.port = listening.getsockname()[1]
            async with trio.open_nursery() as nursery:
                await nursery.start(self._poller.run)
                self._listener = Listener(self._front, listening, self._ssl_context)
                stack.callback(self._close)
                task_status.started(self.port)

    def _close(self) -> None:
        self.stop_accepting()
        for connection in list(self._front.connections.values()):
            connection.end()

    def flush(self) -> None:
        """Send what was answered since the last flush, once for each connection touched."""
        self._poller.flush()

    def use_context(self, ssl_context: ssl.SSLContext) -> None:
        """Greet peers that come from now on with another certificate; connections stay.

        Only for a server that was made with a context: TLS is not turned on or off.
        """
        self._ssl_context = ssl_context
        if self._listener is not None:
            self._listener.use_context(ssl_context)

    def stop_accepting(self) -> None:
        """Close the listening socket; connections stay."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def go_away(self) -> None:
        """Send every peer a GOAWAY; calls that still arrive reach their handlers."""
        for connection in list(self._front.connections.values()):
            connection.go_away()
        self.flush()

    async def drained(self) -> None:
        """Wait until no call is open and no answer unsent, on any connection."""
        front = self._front
        front.on_quiet = self._check_quiet
        try:
            while not all(c.is_quiet for c in front.connections.values()):
                self._quiet = trio.Event()
                await self._quiet.wait()
        finally:
            front.on_quiet = None

    def _check_quiet(self) -> None:
        self._quiet.set()

    def statistics(self) -> ServerStatistics:
        """Return the counts of now; costs a step for each open connection."""
        front = self._front
        connections = list(front.connections.values())
        return ServerStatistics(
            connections=len(connections),
            streams_open=sum(c.stream_count for c in connections),
            request_bytes=front.request_bytes,
            accepted=front.accepted_count,
            refused=front.refused_count,
            closed=MappingProxyType(dict(front.closed)),
            calls=front.call_count,
            bytes_in=front.bytes_in + sum(c.transport.received for c in connections),
            bytes_out=front.bytes_out + sum(c.transport.sent for c in connections),
        )


def _handlers_of(name: str, service: Any) -> dict[bytes, tuple[str, Handler]]:
    """Return path on the wire -> (path as text, handler) for each method of a purerpc service."""
    handlers: dict[bytes, tuple[str, Handler]] = {}
    for method, bound in service.methods.items():
        path = f"/{name}/{method}"
        # purerpc wraps methods of one argument to take (call, request); without that wrapper each
        # call is two function calls cheaper.
        own = inspect.getclosurevars(bound.method_fn).nonlocals.get("method_fn")
        handlers[path.encode()] = (path, own or partial(bound.method_fn, request=None))
    return handlers
