"""Non-blocking sockets, plain and TLS, with one face: receive what is there, send what fits.

Neither side ever waits. `receive` returns b"" when nothing is there yet and raises `PeerGone` at
the end. `send` gives bytes to the kernel and keeps what did not fit; `unsent` tells how much that
is.
"""

import os
import socket
import ssl
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

import trio

# One turn of one connection handles at most this many bytes, so that no peer holds up the others,
# and the first calls of a burst are with the disk while the rest is still being read: about fifty
# small calls, a few milliseconds also when all of them are reset again.
RECEIVE_BYTES: Final = 8_192
_TLS_RECORD_BYTES: Final = 16_384
_ALPN: Final = "h2"


class _Shared(threading.local):
    """A buffer for all connections of a thread.

    There reading is never interrupted, and what was read is used before the next. Clients may run
    in several threads.
    """

    def __init__(self) -> None:
        self.buffer = bytearray(RECEIVE_BYTES)
        self.view = memoryview(self.buffer)


_shared = _Shared()


class PeerGone(Exception):
    """The peer closed, or the connection broke, or its TLS is unusable. The text tells which."""


class Transport:
    """A connected plain socket. `is_ready` is True once bytes of the protocol may flow.

    Stays in the thread that made it.
    """

    __slots__ = (
        "_buffer",
        "_out",
        "_out_at",
        "_view",
        "is_ready",
        "received",
        "sent",
        "sock",
        "unsent",
    )

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._buffer = _shared.buffer
        self._view = _shared.view
        self.is_ready = True
        self.received = 0  # bytes from the socket so far
        self.sent = 0  # bytes the socket took so far
        self.unsent = 0  # bytes given to `send` that the socket did not take yet
        self._out = b""
        self._out_at = 0

    def receive(self, bytes_max: int = RECEIVE_BYTES) -> memoryview | bytes:
        """Return what has arrived; valid until the next call of any transport of this thread.

        Args:
            bytes_max: To read from the socket, RECEIVE_BYTES at most.

        Raises:
            PeerGone: The stream ended or broke.
        """
        try:
            count = self.sock.recv_into(self._buffer, bytes_max)
        except BlockingIOError:
            return b""
        except OSError as error:
            raise PeerGone(f"receive failed: {error}") from error
        if not count:
            raise PeerGone("closed by the peer")
        self.received += count
        return self._view[:count]

    def send(self, data: bytes) -> None:
        """Send `data`; what does not fit is kept, and `unsent` is not 0. Only called while it is 0.

        Raises:
            PeerGone: The connection broke.
        """
        count = self._send_some(data)
        if count < len(data):
            self._out, self._out_at, self.unsent = data, count, len(data) - count

    def send_rest(self) -> None:
        """Try again with what was kept.

        Raises:
            PeerGone: The connection broke.
        """
        count = self._send_some(memoryview(self._out)[self._out_at :])
        self._out_at += count
        self.unsent -= count
        if not self.unsent:
            self._out, self._out_at = b"", 0

    def started(self) -> int:
        """Return how many bytes of the last `send` the socket took; asked only while `unsent`."""
        return self._out_at

    def _send_some(self, data: bytes | memoryview) -> int:
        try:
            count = self.sock.send(data)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise PeerGone(f"send failed: {error}") from error
        self.sent += count
        return count

    def close(self) -> None:
        """Close the socket; what was not sent is lost."""
        self.sock.close()


class TlsTransport(Transport):
    """TLS over a connected socket. ALPN h2 is required of the peer."""

    __slots__ = ("_incoming", "_outgoing", "_queued", "_records", "_tls")

    def __init__(
        self,
        sock: socket.socket,
        context: ssl.SSLContext,
        *,
        server_hostname: str | None = None,
        is_server: bool,
    ) -> None:
        super().__init__(sock)
        self.is_ready = False
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=is_server, server_hostname=server_hostname
        )
        self._queued = 0  # ciphertext ever handed to the socket or kept
        # Of the last `send`: for each record, where its ciphertext begins among all ever queued and
        # where its plain bytes end within `data`.
        self._records: list[tuple[int, int]] = []
        if not is_server:
            self._handshake()

    def receive(self, bytes_max: int = RECEIVE_BYTES) -> memoryview | bytes:
        """Return plain bytes that have arrived; the handshake goes on in here as well."""
        data = super().receive(bytes_max)
        if not data:
            return b""
        self._incoming.write(data)
        try:
            if not self.is_ready:
                self._handshake()
                if not self.is_ready:
                    return b""
            return self._read()
        except ssl.SSLError as error:
            self._push()  # the alert that tells the peer why, if the socket takes it
            raise PeerGone(f"TLS failed: {error}") from error

    def _handshake(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._push()
            return
        self._push()
        if self._tls.selected_alpn_protocol() != _ALPN:
            raise PeerGone("TLS peer did not agree on ALPN h2")
        self.is_ready = True

    def _read(self) -> bytes:
        parts: list[bytes] = []
        try:
            while part := self._tls.read(RECEIVE_BYTES):
                parts.append(part)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError as error:
            if not parts:
                raise PeerGone("closed by the peer") from error
        if self._outgoing.pending:
            self._push()  # answers to key updates
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def send(self, data: bytes) -> None:
        """Encrypt and send `data`, record by record."""
        self._records = []
        view = memoryview(data)
        for start in range(0, len(data), _TLS_RECORD_BYTES):
            part = view[start : start + _TLS_RECORD_BYTES]
            self._records.append((self._queued + self._outgoing.pending, start + len(part)))
            try:
                self._tls.write(part)
            except ssl.SSLError as error:
                raise PeerGone(f"TLS failed: {error}") from error
        self._push()

    def started(self) -> int:
        """Return the plain bytes of the last `send` whose records have begun to leave."""
        started = 0
        for begin, plain_end in self._records:
            if begin >= self.sent:
                break
            started = plain_end
        return started

    def _push(self) -> None:
        """Hand ciphertext to the socket, behind what is still kept."""
        data = self._outgoing.read()
        self._queued += len(data)
        if self.unsent:
            self._out = bytes(memoryview(self._out)[self._out_at :]) + data
            self._out_at, self.unsent = 0, len(self._out)
        elif data:
            super().send(data)

    def close(self) -> None:
        """Say goodbye if the socket takes it, and close."""
        if self.is_ready and not self.unsent:
            with suppress(ssl.SSLError):  # expected: the peer's own goodbye has not arrived
                self._tls.unwrap()
            with suppress(PeerGone):
                self._push()
        super().close()


async def connect_transport(
    host: str, port: int, context: ssl.SSLContext | None, server_hostname: str | None
) -> Transport:
    """Connect to a server; the TLS handshake, if there is one, is only begun.

    Raises:
        PeerGone: No connection could be made, or it broke at once.
    """
    try:
        stream = await trio.open_tcp_stream(host, port)
    except OSError as error:
        raise PeerGone(f"cannot connect to {host}:{port}: {_reason(error)}") from error
    sock = socket.socket(fileno=stream.socket.detach())
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if context is None:
        return Transport(sock)
    return TlsTransport(sock, context, server_hostname=server_hostname or host, is_server=False)


def _reason(error: OSError) -> str:
    """Return the operating system's words; Trio has one error for all addresses of a name."""
    cause: BaseException | None = error.__cause__
    while isinstance(cause, BaseExceptionGroup):
        cause = cause.exceptions[0]
    if isinstance(cause, OSError) and cause.errno is not None:
        return os.strerror(cause.errno)
    return str(error)


def tls_server_context(cert_path: str | Path, key_path: str | Path) -> ssl.SSLContext:
    """Return a context for the gRPC port: TLS 1.2 or newer, ALPN h2, no client certificates.

    Raises:
        OSError: A file cannot be read.
        ssl.SSLError: The files are no PEM certificate chain and key, or do not belong together.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols([_ALPN])
    context.load_cert_chain(cert_path, key_path)
    return context


def tls_client_context(
    ca_path: str | Path | None = None, ca_pem: str | None = None
) -> ssl.SSLContext:
    """Return a context for channels.

    A file or a text of certificate authorities in PEM replaces the system's.
    """
    context = ssl.create_default_context(cafile=ca_path, cadata=ca_pem)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols([_ALPN])
    return context
