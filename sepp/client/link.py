"""The client's way to its server: one channel at a time, made anew when it is gone.

A call that finds no usable channel waits for the attempt to connect that is under way, or starts
one; attempts are spaced by a growing wait, shared by all calls. A call that certainly never reached
the server (it met a GOAWAY, or a refused stream) goes over the next channel by itself. Any other
call whose connection breaks fails, and its caller decides.
"""

import ssl
from typing import Final

import trio
from attrs import define, field, frozen
from purerpc import StatusCode

from sepp.client.retry import RECONNECT
from sepp.rpc.channel import Channel, Metadata
from sepp.rpc.grpc import RECEIVE_BYTES_MAX, RpcError
from sepp.rpc.poller import Poller

# A server that greets and then refuses every stream must not keep a call going in circles.
_RESENDS_MAX: Final = 3


@frozen(kw_only=True)
class Target:
    """Where to connect, and how.

    Args:
        ssl_context: None for plain TCP.
        server_hostname: The name in the server's certificate, if other than the host.
        metadata: Sent with every call.
        connect_timeout_s: For one attempt.
        receive_bytes_max: The largest answer taken.
    """

    host: str
    port: int
    ssl_context: ssl.SSLContext | None = None
    server_hostname: str | None = None
    metadata: Metadata = ()
    connect_timeout_s: float = 5.0
    receive_bytes_max: int = RECEIVE_BYTES_MAX


@define(eq=False)
class _Attempt:
    """One attempt to connect, shared by all who wait for it."""

    is_over: trio.Event = field(factory=trio.Event)
    error: RpcError | None = None


class Link:
    """A channel that comes back. All its methods belong to one Trio run.

    Args:
        nursery: Runs the attempts; when it is cancelled the link is of no use any more.
        poller: Serves the channels; it must be running in that nursery.
    """

    def __init__(self, nursery: trio.Nursery, poller: Poller, target: Target) -> None:
        self._nursery = nursery
        self._poller = poller
        self._target = target
        self._channel: Channel | None = None
        self._leaving: list[Channel] = []  # they finish what is under way
        self._attempt: _Attempt | None = None
        self._failures = 0
        self._is_closed = False

    async def connect(self) -> None:
        """Connect now.

        Raises:
            RpcError: UNAVAILABLE, it did not succeed.
        """
        await self._connected()

    async def call(
        self, path: str, message: bytes, *, timeout_s: float, metadata: Metadata = ()
    ) -> bytes:
        """Make a call and return the answer's message.

        Raises:
            RpcError: As `Channel.unary`; also when no connection could be made.
        """
        channel = self._channel
        if channel is not None and not channel.is_leaving and not channel.is_closed:
            try:
                return await channel.unary(path, message, timeout_s=timeout_s, metadata=metadata)
            except RpcError as error:
                if not error.is_unprocessed:
                    raise
        return await self._call_anew(path, message, timeout_s, metadata)

    async def _call_anew(
        self, path: str, message: bytes, timeout_s: float, metadata: Metadata
    ) -> bytes:
        deadline = trio.current_time() + timeout_s
        for resend in range(_RESENDS_MAX):
            channel = None
            with trio.move_on_at(deadline):
                channel = await self._connected()
            left_s = deadline - trio.current_time()
            if channel is None or left_s <= 0:
                text = "no connection before the deadline"
                raise RpcError(StatusCode.DEADLINE_EXCEEDED, text, is_unprocessed=True)
            try:
                return await channel.unary(path, message, timeout_s=left_s, metadata=metadata)
            except RpcError as error:
                if not error.is_unprocessed or resend == _RESENDS_MAX - 1:
                    raise
        raise AssertionError("the last turn returns or raises")

    async def _connected(self) -> Channel:
        """Return a channel that takes calls."""
        while True:
            if self._is_closed:
                text = "the client was closed"
                raise RpcError(StatusCode.UNAVAILABLE, text, is_unprocessed=True)
            channel = self._channel
            if channel is not None and not channel.is_leaving and not channel.is_closed:
                return channel
            if channel is not None:
                self._leaving.append(channel)
                self._channel = None
            if self._attempt is None:
                self._attempt = _Attempt()
                self._nursery.start_soon(self._try_to_connect, self._attempt)
            attempt = self._attempt
            await attempt.is_over.wait()
            if attempt.error is not None:
                # One exception object for each caller: a traceback grows on the one raised.
                raise RpcError(attempt.error.code, attempt.error.text, is_unprocessed=True)

    async def _try_to_connect(self, attempt: _Attempt) -> None:
        target = self._target
        try:
            if self._failures:
                await trio.sleep(RECONNECT.wait_s(self._failures))
            text = f"no answer from {target.host}:{target.port}"
            attempt.error = RpcError(StatusCode.UNAVAILABLE, text, is_unprocessed=True)
            with trio.move_on_after(target.connect_timeout_s):
                self._channel = await Channel.connect(
                    self._poller,
                    target.host,
                    target.port,
                    ssl_context=target.ssl_context,
                    server_hostname=target.server_hostname,
                    metadata=target.metadata,
                    receive_bytes_max=target.receive_bytes_max,
                )
                attempt.error = None
        except RpcError as error:
            attempt.error = error
        finally:
            self._failures = 0 if attempt.error is None else self._failures + 1
            self._leaving = [channel for channel in self._leaving if not channel.is_closed]
            self._attempt = None
            attempt.is_over.set()

    def close(self) -> None:
        """End all connections; calls under way fail with UNAVAILABLE."""
        self._is_closed = True
        for channel in [self._channel, *self._leaving]:
            if channel is not None:
                channel.close("closed", "the client was closed")
