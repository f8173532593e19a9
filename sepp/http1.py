"""HTTP/1.1 for people: one listener on anycorn that refuses every road to HTTP/2.

anycorn speaks HTTP/2 through h2, and the h2 that purerpc allows is old: it crashes on an upgrade
and on prior knowledge, and has known flaws. So here ALPN offers `http/1.1` alone, an `Upgrade: h2c`
header is ignored (the request is answered as HTTP/1.1), and the HTTP/2 preface gets 505. WebSockets
are refused by the application. A peer may be slow, but not for ever: headers, each write and the
TLS handshake have deadlines; the application bounds the time of a body.

Whatever goes wrong with one connection ends that connection only.
"""

import logging
import resource
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

import anyio
import h11
import trio
from anycorn.app_wrappers import ASGIWrapper
from anycorn.config import Config
from anycorn.events import Closed, Event, RawData, Updated
from anycorn.protocol.h11 import H11Protocol
from anycorn.task_group import TaskGroup
from anycorn.tcp_server import TCPServer
from anycorn.typing import ConnectionState, LifespanState
from anycorn.utils import build_tls_extension, parse_socket_addr
from anycorn.worker_context import WorkerContext
from anyio.abc import SocketAttribute, SocketListener, SocketStream
from anyio.streams.tls import TLSAttribute, TLSStream

ASGIApp = Callable[[Any, Any, Any], Awaitable[None]]

CONNECTIONS_MAX: Final = 512  # more are closed as soon as they are accepted
HEADER_BYTES_MAX: Final = (
    64 * 1024
)  # request line and headers; a stream names up to 50 queues in it
HEADERS_S: Final = 10.0  # from connect, or from the last answer, to the end of the next headers
HANDSHAKE_S: Final = 10.0
WRITE_S: Final = 30.0  # for each 64 KiB the peer takes
WRITE_BYTES: Final = 64 * 1024
ACCEPT_RETRY_S: Final = 0.1  # after running out of file descriptors

_log = logging.getLogger("sepp.http1")


class _RefusedError(Exception):
    """The request asked for a protocol that is not spoken here; it was answered already."""


class _Http1(H11Protocol):
    """anycorn's HTTP/1.1 protocol without its two doors to HTTP/2."""

    async def handle(self, event: Event) -> None:
        with suppress(_RefusedError):
            await super().handle(event)

    async def _check_protocol(self, event: h11.Request) -> None:
        if event.http_version not in (b"1.0", b"1.1"):
            await self._send_error_response(505)
            await self.send(Closed())
            raise _RefusedError


class _Connection(TCPServer):
    """One accepted connection, from the first byte to the close."""

    async def run(self) -> None:
        tls = None
        with suppress(anyio.TypedAttributeLookupError):
            self.stream.extra(TLSAttribute.alpn_protocol)
            tls = build_tls_extension(self.config, self.stream)
        try:
            raw_socket = self.stream.extra(SocketAttribute.raw_socket)
            client = parse_socket_addr(raw_socket.family, raw_socket.getpeername())
            server = parse_socket_addr(raw_socket.family, raw_socket.getsockname())
            async with trio.open_nursery() as idling:
                self._idling = idling
                async with TaskGroup() as task_group:
                    self.protocol = _Http1(  # type: ignore[assignment]  # same face
                        self.app,
                        self.config,
                        self.context,
                        task_group,
                        ConnectionState(self.state.copy()),
                        client,
                        server,
                        self.protocol_send,
                        tls,
                    )
                    await self.protocol.initiate()
                    self._idle()
                    await self._read_data()
                idling.cancel_scope.cancel()  # nobody is there any more to be idle
        except OSError:
            pass
        finally:
            await self._close()

    async def protocol_send(self, event: Event) -> None:
        """Write with a deadline: a peer that stops reading is cut off, not waited for."""
        if isinstance(event, RawData):
            async with self.send_lock:
                is_sent = await self._write(event.data)
            if not is_sent:
                await anyio.aclose_forcefully(self.stream)
                await self.protocol.handle(Closed())
        elif isinstance(event, Closed):
            await self._close()
            await self.protocol.handle(Closed())
        elif isinstance(event, Updated):
            self._idle_scope.cancel()
            if event.idle:
                self._idle()

    def _idle(self) -> None:
        # Started without waiting, and not as anycorn does it: an answer that was streamed ends in
        # a scope cancelled already, and what waits there for its task to start loses it.
        self._idle_scope = trio.CancelScope()
        self._idling.start_soon(self._close_when_idle, self._idle_scope)

    async def _close_when_idle(self, scope: trio.CancelScope) -> None:
        with scope:
            await self._idle_timeout()

    async def _write(self, data: bytes) -> bool:
        view = memoryview(data)
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
            for start in range(0, len(view), WRITE_BYTES):
                with anyio.fail_after(WRITE_S):  # TimeoutError is an OSError
                    await self.stream.send(bytes(view[start : start + WRITE_BYTES]))
            return True
        return False


def tls_context(cert_path: str, key_path: str) -> ssl.SSLContext:
    """Return a server context for TLS 1.2 and later that offers HTTP/1.1 alone.

    Raises:
        OSError: A file cannot be read. ssl.SSLError (an OSError): it cannot be parsed.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    context.load_cert_chain(cert_path, key_path)
    return context


async def serve(
    app: ASGIApp,
    listening: Sequence[socket.socket],
    *,
    tls: ssl.SSLContext | None = None,
    stop: trio.Event,
    grace_s: float = 10.0,
    reserved_descriptors: int = 64,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve `app` on sockets of `sepp.binding` until `stop` is set; then finish what is under way.

    After `stop` nothing is accepted, idle connections are closed at once and busy ones after their
    answer or `grace_s`. Streams of the application must end by themselves on the same event.
    A connection that takes one of the last `reserved_descriptors` is closed as it is accepted.
    """
    config = Config()
    config.errorlog = _log
    config.alpn_protocols = ["http/1.1"]
    config.include_server_header = False
    config.h11_max_incomplete_size = HEADER_BYTES_MAX
    config.keep_alive_timeout = HEADERS_S
    context = WorkerContext(None)
    # The kernel hands out the lowest free number, so a high one means that few are left.
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    bound = soft - min(reserved_descriptors, soft // 4)
    connect = partial(_run_connection, app=app, config=config, context=context, tls=tls)

    async with trio.open_nursery() as connections:
        async with trio.open_nursery() as accepting:
            for sock in listening:
                accepting.start_soon(_accept, sock, connect, connections, bound)
            task_status.started()
            await stop.wait()
            accepting.cancel_scope.cancel()
        await context.terminated.set()
        connections.cancel_scope.deadline = trio.current_time() + grace_s


async def _accept(
    sock: socket.socket,
    connect: Callable[[SocketStream], Awaitable[None]],
    connections: trio.Nursery,
    descriptor_max: int,
) -> None:
    async with await SocketListener.from_socket(sock) as listener:
        while True:
            try:
                stream = await listener.accept()
            except anyio.BrokenResourceError as error:
                # Mostly EMFILE: descriptors come back as connections end.
                _log.warning("accept failed: %s", error.__cause__)
                await trio.sleep(ACCEPT_RETRY_S)
                continue
            is_scarce = stream.extra(SocketAttribute.raw_socket).fileno() >= descriptor_max
            if is_scarce or len(connections.child_tasks) >= CONNECTIONS_MAX:
                await anyio.aclose_forcefully(stream)
                continue
            connections.start_soon(connect, stream)


async def _run_connection(
    stream: SocketStream,
    *,
    app: ASGIApp,
    config: Config,
    context: WorkerContext,
    tls: ssl.SSLContext | None,
) -> None:
    try:
        if tls is None:
            peer: Any = stream
        else:
            with anyio.fail_after(HANDSHAKE_S):
                peer = await TLSStream.wrap(
                    stream, server_side=True, ssl_context=tls, standard_compatible=False
                )
        await _Connection(ASGIWrapper(app), config, context, LifespanState({}), peer).run()
    except Exception as error:  # noqa: BLE001  # a fault of one connection ends that one only
        _log.debug("connection ended: %r", error)
        await anyio.aclose_forcefully(stream)
