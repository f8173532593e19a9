"""The listening socket: accepts in small bites and survives running out of descriptors."""

import contextlib
import errno
import logging
import os
import resource
import socket
import ssl
from typing import Any, Final

from sepp.rpc.connection import Connection
from sepp.rpc.front import Front
from sepp.rpc.poller import READ
from sepp.rpc.transport import TlsTransport, Transport

_log = logging.getLogger(__name__)

_ACCEPTS_PER_TURN: Final = 4
_PAUSE_S: Final = 0.5
_OUT_OF_MEANS: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Listener:
    """Accepts connections for a front; an `Endpoint` of its poller."""

    def __init__(
        self, front: Front, listening: socket.socket, ssl_context: ssl.SSLContext | None
    ) -> None:
        self._front = front
        self._listening = listening
        self._ssl_context = ssl_context
        # Given up for a moment when descriptors run out, so that a peer can be turned away at all.
        self._reserve = os.open(os.devnull, os.O_RDONLY)
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        # The kernel hands out the lowest free number, so a high one means that few are left.
        self._descriptor_max = soft - min(front.limits.reserved_descriptors, soft // 4)
        self.timer_tick = 0
        self.is_touched = False
        front.poller.register(listening.fileno(), self)

    def on_readable(self) -> None:
        """Accept what is waiting, a bounded number at once."""
        for _ in range(_ACCEPTS_PER_TURN):
            try:
                sock, address = self._listening.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _OUT_OF_MEANS:
                    self._pause(error)
                    return
                continue  # that one peer left before it was accepted
            self._take(sock, address)

    def _take(self, sock: socket.socket, address: tuple[Any, ...]) -> None:
        front = self._front
        front.accepted_count += 1
        if (
            len(front.connections) >= front.limits.max_connections
            or sock.fileno() >= self._descriptor_max
        ):
            front.refused_count += 1
            sock.close()
            return
        host, port = address[:2]
        peer = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            sock.close()
            _log.debug("connection of %s closed: peer: %s", peer, error)
            return
        if self._ssl_context is None:
            transport = Transport(sock)
        else:
            transport = TlsTransport(sock, self._ssl_context, is_server=True)
        connection = Connection(front, transport, peer)
        front.connections[sock.fileno()] = connection
        front.poller.register(sock.fileno(), connection)
        front.poller.serve_last(sock.fileno())  # until it was heard once
        front.poller.touch(connection)

    def _pause(self, error: OSError) -> None:
        """Out of descriptors: turn one peer away, then leave the queue alone for a moment."""
        _log.warning("accepting is paused for %s s: %s", _PAUSE_S, error)
        os.close(self._reserve)
        with contextlib.suppress(OSError):
            self._listening.accept()[0].close()
            self._front.refused_count += 1
        self._reserve = os.open(os.devnull, os.O_RDONLY)
        poller = self._front.poller
        poller.watch(self._listening.fileno(), 0)
        poller.timers.set(self, poller.now + _PAUSE_S)

    def use_context(self, ssl_context: ssl.SSLContext) -> None:
        """Greet peers accepted from now on with another certificate."""
        self._ssl_context = ssl_context

    def on_time(self, now_s: float) -> None:
        """The pause is over."""
        if self._listening.fileno() >= 0:
            self._front.poller.watch(self._listening.fileno(), READ)

    def on_writable(self) -> None:
        """Never watched for."""

    def flush(self) -> None:
        """Nothing is ever queued."""

    def abort(self) -> None:
        """A method raised; go on accepting after a pause rather than not at all."""
        poller = self._front.poller
        poller.watch(self._listening.fileno(), 0)
        poller.timers.set(self, poller.now + _PAUSE_S)

    def close(self) -> None:
        """Stop accepting; what waits in the backlog is reset by the kernel."""
        if self._listening.fileno() >= 0:
            self._front.poller.timers.clear(self)
            self._front.poller.unregister(self._listening.fileno())
            self._listening.close()
            os.close(self._reserve)
