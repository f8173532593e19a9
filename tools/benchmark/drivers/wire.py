"""A gRPC client connection with nothing around it: ngh2 on a non-blocking socket.

No task, no future and no deadline a call: an answer is handed to the callback given with the call.
A load generator must cost less than what it measures, and both share two cores.

Not for anything but measuring: whatever is out of the ordinary raises and ends the driver.
"""

import select
import socket
import struct
from collections.abc import Callable

import ngh2

RECEIVE_BYTES = 1 << 18
WINDOW_BYTES = 1 << 24
LOCAL_SETTINGS = {
    ngh2.Setting.INITIAL_WINDOW_SIZE: WINDOW_BYTES,
    ngh2.Setting.ENABLE_PUSH: 0,
}
# Sent with each call, as the official clients do: a deadline is part of what a call costs.
UNARY_TIMEOUT = b"30S"
RESERVE_TIMEOUT = b"310S"

Answered = Callable[[bytes], None]
Headers = tuple[tuple[bytes, bytes], ...]


class CallError(Exception):
    """A call was answered with a status other than OK, or the connection is gone."""


def request_headers(path: bytes, *, timeout: bytes = UNARY_TIMEOUT) -> Headers:
    """The headers of a call, made once a method."""
    return (
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", path),
        (b":authority", b"localhost"),
        (b"te", b"trailers"),
        (b"grpc-timeout", timeout),
        (b"content-type", b"application/grpc"),
        (b"user-agent", b"sepp-bench"),
    )


def frame(message: bytes) -> bytes:
    """A message as gRPC lays it into a body: flag, length, bytes."""
    return b"\0" + struct.pack(">I", len(message)) + message


class Wire:
    """One connection. `call` queues, `flush` sends; `receive` runs the callbacks of what came."""

    __slots__ = ("_bodies", "_calls", "_connection", "_epoll", "_is_blocked", "_unsent", "socket")

    def __init__(self, port: int, epoll: select.epoll) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self._connection = ngh2.Connection(ngh2.Role.CLIENT)
        self._connection.initiate_connection(LOCAL_SETTINGS)
        self._connection.set_local_window_size(WINDOW_BYTES)
        self._calls: dict[int, Answered] = {}
        self._bodies: dict[int, list[bytes]] = {}
        self._unsent = b""
        self._is_blocked = False
        self._epoll = epoll
        epoll.register(self.socket, select.EPOLLIN)
        self.flush()

    @property
    def open_count(self) -> int:
        """Calls without an answer yet."""
        return len(self._calls)

    def call(self, headers: Headers, body: bytes, answered: Answered) -> None:
        """Queue a call; `body` is one framed message. `answered` gets the answer's message."""
        connection = self._connection
        stream_id = connection.send_request(headers)
        connection.send_data(stream_id, body, end_stream=True)
        self._calls[stream_id] = answered

    def flush(self) -> None:
        """Send what is queued, as far as the socket takes it."""
        data = self._unsent + self._connection.data_to_send()
        if not data:
            return
        try:
            sent = self.socket.send(data)
        except BlockingIOError:
            sent = 0
        self._unsent = data[sent:]
        is_blocked = bool(self._unsent)
        if is_blocked != self._is_blocked:
            self._is_blocked = is_blocked
            events = select.EPOLLIN | (select.EPOLLOUT if is_blocked else 0)
            self._epoll.modify(self.socket, events)

    def receive(self) -> None:
        """Read once and run the callbacks of all calls that are answered by it; then flush.

        Raises CallError.
        """
        try:
            data = self.socket.recv(RECEIVE_BYTES)
        except BlockingIOError:
            self.flush()
            return
        if not data:
            raise CallError("the server closed the connection")
        connection = self._connection
        connection.receive_data(data)
        bodies = self._bodies  # stream -> chunks of the answer's body
        for event in connection.events():
            kind = type(event)
            if kind is ngh2.DataReceived:
                chunks = bodies.get(event.stream_id)
                if chunks is None:
                    bodies[event.stream_id] = [event.data]
                else:
                    chunks.append(event.data)
            elif kind is ngh2.TrailersReceived:
                if (b"grpc-status", b"0") not in event.headers:
                    raise CallError(f"answered with {event.headers}")
                chunks = bodies.pop(event.stream_id)
                body = chunks[0] if len(chunks) == 1 else b"".join(chunks)
                self._calls.pop(event.stream_id)(body[5:])
            elif kind is ngh2.ResponseReceived:
                if event.end_stream:
                    raise CallError(f"answered with {event.headers}")
            elif kind is ngh2.StreamReset or kind is ngh2.GoAwayReceived:
                raise CallError(f"ended with {event!r}")
        self.flush()

    def close(self) -> None:
        """Hang up."""
        self._epoll.unregister(self.socket)
        self.socket.close()
