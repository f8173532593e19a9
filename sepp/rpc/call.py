"""One call as the service sees it, from the end of its request to its answer."""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from purerpc import StatusCode

from sepp.rpc import grpc

if TYPE_CHECKING:
    from sepp.rpc.connection import Connection

_log = logging.getLogger(__name__)

# Smaller messages are not counted as request bytes in flight: the number of streams bounds them.
SMALL_BYTES: Final = 2048


class Call:
    """A unary call, or one whose answer is a stream of messages. Handlers get it whole.

    Attributes:
        path: "/package.Service/Method".
        message: The request, without prefix and decompressed.
        deadline: When the caller gives up, on the Trio clock; None when it never does.
        is_open: True until the call was answered or its caller is gone.
        on_gone: Set by the service; called once when the caller leaves, or its deadline passes,
            before an answer was given.
    """

    __slots__ = (
        "_connection",
        "_fields",
        "assembler",
        "body_checked",
        "deadline",
        "handler",
        "held_bytes",
        "is_begun",
        "is_open",
        "is_reading",
        "is_streaming",
        "leave_by",
        "message",
        "messages",
        "on_gone",
        "on_undelivered",
        "path",
        "stream_id",
        "timer_tick",
        "trailers",
    )

    def __init__(
        self, connection: "Connection", stream_id: int, path: str, fields: dict[bytes, bytes]
    ) -> None:
        self._connection = connection
        self._fields = fields
        self.stream_id = stream_id
        self.path = path
        self.message = b""
        self.deadline: float | None = None
        self.is_open = True
        self.on_gone: Callable[[Call], None] | None = None
        self.handler: Callable[[Call], None] = _unset
        # The rest is the connection's: how far the request has been read, and the answer.
        self.is_reading = True
        self.assembler: grpc.MessageAssembler | None = None
        self.body_checked = 0  # bytes received at the last look at the body's progress
        self.held_bytes = 0  # counted as request bytes in flight
        self.timer_tick = 0
        self.leave_by: float | None = None  # set once the peer was seen not to take the answer
        self.is_begun = False  # response headers are with the engine
        self.is_streaming = False
        self.messages: tuple[bytes, ...] = ()  # answers not yet with the engine, without prefix
        self.trailers: grpc.Headers | None = None  # set once the answer is complete
        self.on_undelivered: Callable[[], None] | None = None

    def header(self, name: bytes) -> bytes | None:
        """Return the first value of a request header; names are lower case."""
        return self._fields.get(name)

    def respond(self, message: bytes, on_undelivered: Callable[[], None] | None = None) -> None:
        """Queue an OK answer; it leaves with the next flush.

        Args:
            message: The encoded response message.
            on_undelivered: Called if the answer is dropped before a byte of it reached the socket;
                at once when the caller has gone already. Never called otherwise.
        """
        if not self.is_open:
            if on_undelivered is not None:
                on_undelivered()
            return
        self.is_open = False
        self.on_gone = None  # nor keep what it refers to alive
        self.messages = (message,)
        self.trailers = grpc.OK_TRAILERS
        self.on_undelivered = on_undelivered
        self._connection.answer(self, len(message))

    def fail(self, code: StatusCode, text: str) -> None:
        """Queue an answer with a status other than OK. Nothing happens when the caller has gone."""
        if self.is_open:
            self.is_open = False
            self.on_gone = None
            self.trailers = grpc.status_headers(code, text)
            self._connection.answer(self, 0)

    def send(self, message: bytes) -> None:
        """Queue one message of a streamed answer; the call stays open."""
        if self.is_open:
            self.is_streaming = True
            self.messages += (message,)
            self._connection.answer(self, len(message))

    def finish(self) -> None:
        """End a streamed answer with OK."""
        if self.is_open:
            self.is_open = False
            self.on_gone = None
            self.is_streaming = True
            self.trailers = grpc.OK_TRAILERS
            self._connection.answer(self, 0)

    def on_time(self, now_s: float) -> None:
        """A deadline of this call may be due."""
        self._connection.on_call_time(self, now_s)

    def leave(self) -> None:
        """The caller is gone: tell the service if it still owes an answer, once."""
        if self.is_open:
            self.is_open = False
            self._tell_gone()

    def expire(self) -> None:
        """The deadline has passed: answer so, and tell the service that no answer is wanted."""
        on_gone = self.on_gone
        self.fail(StatusCode.DEADLINE_EXCEEDED, "deadline passed")
        self.on_gone = on_gone
        self._tell_gone()

    def undeliver(self) -> None:
        """The answer is dropped with no byte of it sent: tell the service, once."""
        on_undelivered, self.on_undelivered = self.on_undelivered, None
        if on_undelivered is not None:
            try:
                on_undelivered()
            except Exception:  # noqa: BLE001  # the peer's other calls must hear of it too
                _log.exception("bug: on_undelivered of %s raised", self.path)

    def _tell_gone(self) -> None:
        on_gone, self.on_gone = self.on_gone, None
        if on_gone is not None:
            try:
                on_gone(self)
            except Exception:  # noqa: BLE001  # the peer's other calls must hear of it too
                _log.exception("bug: on_gone of %s raised", self.path)


def _unset(call: Call) -> None:
    raise AssertionError(f"{call.path} has no handler")
