"""The client: one connection, many calls in flight. Also what the load generator is made of.

A channel does not reconnect: when its connection is gone, or the server says it is leaving, calls
fail with UNAVAILABLE and `is_unprocessed` tells which of them may be sent again without a thought.
"""

import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import outcome
import trio
from purerpc import StatusCode

from sepp.rpc import grpc, http2
from sepp.rpc.client_call import ClientCall, RequestHeaders, Result, reset_error
from sepp.rpc.grpc import RpcError
from sepp.rpc.limits import TransportLimits
from sepp.rpc.poller import READ, WRITE, Poller
from sepp.rpc.timers import NEVER
from sepp.rpc.transport import PeerGone, TlsTransport, Transport, connect_transport
from sepp.rpc.watch import Watch

__all__ = ["Channel", "ClientCall", "RpcError", "open_channel"]

Metadata = Sequence[tuple[bytes, bytes]]

_PING: Final = b"seppasks"
_OK: Final = grpc.OK_TRAILERS
_STATUS_200: Final = (b":status", b"200")


class Channel:
    """A connection to one server, an `Endpoint`. Made by `connect` or `open_channel`."""

    def __init__(
        self,
        poller: Poller,
        transport: Transport,
        authority: str,
        *,
        metadata: Metadata,
        receive_bytes_max: int,
        limits: TransportLimits,
    ) -> None:
        self._poller = poller
        self._transport = transport
        self._session = http2.client_session()
        self._calls: dict[int, ClientCall] = {}
        self._receive_bytes_max = receive_bytes_max
        scheme = b"https" if isinstance(transport, TlsTransport) else b"http"
        self._headers = RequestHeaders(scheme, authority.encode(), tuple(metadata))
        self._watched = READ
        self._ready = trio.Event()
        self._why_closed = ""
        self.is_closed = False
        self.is_leaving = False
        self.is_touched = False
        self._watch = Watch(self, limits, poller)
        poller.register(transport.sock.fileno(), self)
        poller.touch(self)

    @classmethod
    async def connect(
        cls,
        poller: Poller,
        host: str,
        port: int,
        *,
        ssl_context: ssl.SSLContext | None = None,
        server_hostname: str | None = None,
        metadata: Metadata = (),
        receive_bytes_max: int = grpc.RECEIVE_BYTES_MAX,
        limits: TransportLimits | None = None,
    ) -> "Channel":
        """Connect, and wait until the server has greeted.

        Args:
            poller: Serves the channel; its `run` must be running.
            ssl_context: See `transport.tls_client_context`; None for plain TCP.
            server_hostname: Name in the server's certificate, if other than `host`.
            metadata: Sent with every call.
            receive_bytes_max: Larger answers fail with RESOURCE_EXHAUSTED.
            limits: Times to greet, to keep alive and to stall.

        Raises:
            RpcError: UNAVAILABLE, no connection could be made.
        """
        try:
            transport = await connect_transport(host, port, ssl_context, server_hostname)
        except PeerGone as gone:
            raise RpcError(StatusCode.UNAVAILABLE, str(gone), is_unprocessed=True) from gone
        authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        channel = cls(
            poller,
            transport,
            authority,
            metadata=metadata,
            receive_bytes_max=receive_bytes_max,
            limits=limits or TransportLimits(),
        )
        channel.flush()
        try:
            await channel._ready.wait()
        except trio.Cancelled:
            channel.close("cancelled", "connecting was cancelled")
            raise
        if channel.is_closed:
            raise channel._unavailable(is_unprocessed=True)
        return channel

    async def unary(
        self,
        path: str,
        message: bytes,
        *,
        timeout_s: float | None = None,
        metadata: Metadata = (),
    ) -> bytes:
        """Call "/package.Service/Method" and return the response message.

        Cancelling resets the stream; the server may have done its work all the same.

        Args:
            timeout_s: Sent as the call's deadline, and held here too. None: none.
            metadata: Sent besides the channel's own; names in lower case.

        Raises:
            RpcError: The status the server answered with, or UNAVAILABLE, DEADLINE_EXCEEDED.
        """
        call = self.start(path, message, None, timeout_s=timeout_s, metadata=metadata)
        call.task = trio.lowlevel.current_task()

        def abort(_: Any) -> trio.lowlevel.Abort:
            call.cancel()
            return trio.lowlevel.Abort.SUCCEEDED

        result: Result = await trio.lowlevel.wait_task_rescheduled(abort)
        if type(result) is bytes:
            return result
        raise result  # type: ignore[misc]  # an RpcError, since it is no message

    def start(
        self,
        path: str,
        message: bytes,
        when_done: Callable[[Result], None] | None,
        *,
        timeout_s: float | None = None,
        metadata: Metadata = (),
    ) -> ClientCall:
        """Begin a call and return at once; `when_done` is called with the answer or the error.

        Raises:
            RpcError: UNAVAILABLE: the channel makes no new calls.
        """
        if self.is_closed or self.is_leaving:
            raise self._unavailable(is_unprocessed=True)
        headers = self._headers.of(path, timeout_s)
        if metadata:
            headers += tuple(metadata)
        call = ClientCall(self)
        call.when_done = when_done
        session = self._session
        try:
            call.stream_id = stream_id = session.send_request(headers)
        except (http2.ConnectionClosingError, http2.NoAvailableStreamIDError) as error:
            self.is_leaving = True
            raise RpcError(StatusCode.UNAVAILABLE, str(error), is_unprocessed=True) from error
        session.send_data(stream_id, grpc.frame(message), end_stream=True)
        self._calls[stream_id] = call
        poller = self._poller
        if timeout_s is not None:
            poller.timers.set(call, trio.current_time() + timeout_s)
        if not self.is_touched:
            if len(self._calls) == 1:
                self.flush()  # nothing else is going on that could go along
            else:
                poller.touch(self)
                poller.flush_soon()
        return call

    def forget(self, call: ClientCall) -> None:
        """Reset the stream of a call nobody waits for any more."""
        if self._calls.pop(call.stream_id, None) is not None:
            self._poller.timers.clear(call)
            self._session.reset_stream(call.stream_id, http2.CANCEL)
            self._poller.touch(self)
            self._poller.flush_soon()

    def on_deadline(self, call: ClientCall) -> None:
        """The answer did not come in time."""
        if call.stream_id in self._calls:
            self.forget(call)
            self._finish(call, RpcError(StatusCode.DEADLINE_EXCEEDED, "deadline passed"))

    def _finish(self, call: ClientCall, result: Result) -> None:
        if call.timer_tick:
            self._poller.timers.clear(call)
        if call.task is not None:
            trio.lowlevel.reschedule(call.task, outcome.Value(result))
        elif call.when_done is not None:
            call.when_done(result)

    def _unavailable(self, *, is_unprocessed: bool) -> RpcError:
        text = self._why_closed or "the server is leaving, or stream numbers are used up"
        return RpcError(StatusCode.UNAVAILABLE, text, is_unprocessed=is_unprocessed)

    def on_readable(self) -> None:
        """Read once, and finish every call whose answer is complete by it."""
        try:
            data = self._transport.receive()
            if not data:
                self._poller.touch(self)  # the TLS handshake may just have ended
                return
            self._watch.heard_at = self._poller.now
            self._session.receive_data(data)
        except PeerGone as gone:
            self.close("peer", str(gone))
            return
        except http2.NGH2Error as error:
            self.close("protocol", str(error))
            return
        self._handle(self._session.events())
        if not self.is_touched and not self.is_closed and self._session.want_write:
            self._poller.touch(self)

    def _handle(self, events: list[http2.Event]) -> None:
        calls = self._calls
        for event in events:
            kind = type(event)
            if kind is http2.DataReceived:
                call = calls.get(event.stream_id)
                if call is not None:
                    call.take(event.data, event.end_stream, self._receive_bytes_max)
                    if event.end_stream:
                        self._finish(call, calls.pop(event.stream_id).result(None))
            elif kind is http2.TrailersReceived:
                call = calls.pop(event.stream_id, None)
                if call is not None:
                    headers = event.headers
                    if headers == _OK and type(call.message) is bytes:
                        self._finish(call, call.message)
                    else:
                        self._finish(call, call.result(grpc.read_status(headers)))
            elif kind is http2.ResponseReceived:
                if event.end_stream or event.headers[0] != _STATUS_200:
                    self._end_early(event)
            elif kind is http2.WindowUpdated or kind is http2.StreamReset:
                pass  # the engine's; a reset is seen as StreamClosed
            else:
                self._handle_other(event, kind)
            if self.is_closed:
                return

    def _end_early(self, event: http2.ResponseReceived) -> None:
        """The answer has no body, or is not gRPC."""
        call = self._calls.pop(event.stream_id, None)
        if call is None:
            return
        said = grpc.read_status(event.headers)
        status = said or grpc.http_fault(dict(event.headers).get(b":status", b""))
        if not event.end_stream:
            self._session.reset_stream(event.stream_id, http2.CANCEL)
        self._finish(call, call.result(status, is_answer=said is not None))

    def _handle_other(self, event: http2.Event, kind: type) -> None:
        if kind is http2.StreamClosed:
            call = self._calls.pop(event.stream_id, None)
            if call is not None:
                self._finish(call, reset_error(event.error_code))
        elif kind is http2.SettingsReceived:
            self._watch.greeted()
            self._ready.set()
        elif kind is http2.PingAcknowledged:
            self._watch.ping_answered()
        elif kind is http2.GoAwayReceived:
            self.is_leaving = True
            self._why_closed = f"the server is leaving, GOAWAY code {event.error_code}"
        elif kind is http2.ConnectionClosed:
            self.close("left", self._why_closed or "the HTTP/2 session ended")

    def flush(self) -> None:
        """Send what is queued."""
        if self.is_closed or not self._transport.is_ready:
            return
        transport = self._transport
        try:
            while not transport.unsent:
                data = self._session.data_to_send()
                if not data:
                    break
                transport.send(data)
        except PeerGone as gone:
            self.close("peer", str(gone))
            return
        except http2.NGH2Error as error:
            self.close("protocol", str(error))
            return
        events = self._session.events()
        if events:
            self._handle(events)
        if not self.is_closed and bool(transport.unsent) != bool(self._watched & WRITE):
            self._watch_socket()

    def on_writable(self) -> None:
        """Go on with a write that was cut short."""
        try:
            self._watch.socket_took()
            self._transport.send_rest()
        except PeerGone as gone:
            self.close("peer", str(gone))
            return
        self.flush()

    def _watch_socket(self) -> None:
        is_short = bool(self._transport.unsent)
        self._watched = READ | WRITE if is_short else READ
        self._poller.watch(self._transport.sock.fileno(), self._watched)
        if is_short:
            self._watch.socket_took()
        else:
            self._watch.stall_by = NEVER

    def send_ping(self) -> None:
        """Ask the server for a sign of life."""
        self._session.ping(_PING)
        self._poller.touch(self)

    def listen(self) -> None:
        """A channel always reads."""

    def abort(self) -> None:
        """A method of this channel raised: end it."""
        self.close("bug", "internal error of the channel")

    def close(self, reason: str = "closed", text: str = "the channel was closed") -> None:
        """End the connection; calls still open fail with UNAVAILABLE."""
        if self.is_closed:
            return
        self.is_closed = True
        self._why_closed = f"{reason}: {text}"
        self._poller.timers.clear(self._watch)
        self._poller.unregister(self._transport.sock.fileno())
        self._transport.close()
        calls = list(self._calls.values())
        self._calls.clear()
        self._ready.set()
        for call in calls:
            self._finish(call, self._unavailable(is_unprocessed=False))


@asynccontextmanager
async def open_channel(host: str, port: int, **options: Any) -> AsyncIterator[Channel]:
    """Connect with a poller of its own; options as for `Channel.connect`. Closed at the end."""
    poller = Poller()
    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(poller.run)
            try:
                channel = await Channel.connect(poller, host, port, **options)
                try:
                    yield channel
                finally:
                    channel.close()
            finally:
                nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        # The poller raises nothing of its own, so a single exception is the caller's: as it was.
        if len(group.exceptions) == 1:
            raise group.exceptions[0] from group.exceptions[0].__cause__
        raise
