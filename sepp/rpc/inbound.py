"""The reading half of a connection: request headers and bodies become calls, and calls are handled.

What is wrong with a request is answered on its own stream; a body whose fate is known is not kept.
"""

import logging
from typing import TYPE_CHECKING, Final

from purerpc import RpcFailedError, StatusCode

from sepp.rpc import grpc
from sepp.rpc.call import SMALL_BYTES, Call
from sepp.rpc.front import Front
from sepp.rpc.timers import YOUNG_S
from sepp.rpc.watch import Allowance

if TYPE_CHECKING:
    from sepp.rpc.connection import Connection

_log = logging.getLogger(__name__)

_PINGS_PER_CALL: Final = 2  # clients that measure bandwidth ping along with their calls
_TIMEOUTS_MAX: Final = 64


class Inbound:
    """Requests of one connection.

    Attributes:
        calls: The connection's open calls by stream.
        opening: Calls whose headers came with the bytes being handled.
        last_stream_id: The newest stream.
        is_full: No more is to be read until answers leave.
        request_bytes: Held for calls of this connection that are not answered yet.
    """

    __slots__ = (
        "_connection",
        "_due_bytes",
        "_front",
        "_is_patient",
        "_limits",
        "_pings",
        "_poller",
        "_timeouts_s",
        "calls",
        "is_full",
        "last_stream_id",
        "opening",
        "request_bytes",
    )

    def __init__(self, connection: "Connection", front: Front, pings: Allowance) -> None:
        self._connection = connection
        self._front = front
        self._limits = front.limits
        self._poller = front.poller
        self._pings = pings
        self._timeouts_s: dict[bytes, float] = {}  # a client uses few different ones
        self.calls: dict[int, Call] = {}
        self.opening: list[Call] = []
        self.last_stream_id = 0
        self.request_bytes = 0
        self._due_bytes = 0  # of these, what complete calls hold: it goes with their answers
        self.is_full = False
        self._is_patient = True

    def begin_call(self, stream_id: int, headers: grpc.Headers, is_ended: bool) -> None:
        """Make a call of request headers; what cannot become one is answered at once."""
        self.last_stream_id = stream_id
        front = self._front
        front.call_count += 1
        fields = dict(headers[::-1])  # of equal names the first one counts
        path = fields.get(b":path", b"")
        known = front.handlers.get(path)
        call = Call(
            self._connection, stream_id, known[0] if known else path.decode("latin-1"), fields
        )
        call.is_reading = not is_ended
        self.calls[stream_id] = call
        if fields.get(b"content-type") != b"application/grpc" or fields[b":method"] != b"POST":
            refusal = _http_refusal(fields)
            if refusal is not None:
                self._refuse_http(call, *refusal)
                return
        if known is None:
            call.fail(StatusCode.UNIMPLEMENTED, f"{call.path} is not implemented")
            return
        call.handler = known[1]
        timeout = fields.get(b"grpc-timeout")
        if timeout is not None:
            timeout_s = self._timeouts_s.get(timeout)
            if timeout_s is None:
                timeout_s = self._learn_timeout(timeout)
            if timeout_s is None:
                text = f"grpc-timeout {timeout.decode('ascii', 'replace')!r} is malformed"
                call.fail(StatusCode.INVALID_ARGUMENT, text)
                return
            call.deadline = self._poller.now + timeout_s
        if is_ended:
            call.fail(StatusCode.INTERNAL, "body ended without a message")
        else:
            self.opening.append(call)

    def _refuse_http(self, call: Call, status: bytes, text: str) -> None:
        call.is_open = False
        del self.calls[call.stream_id]
        headers = (
            (b":status", status),
            (b"content-type", b"application/grpc"),
            *grpc.status_headers(StatusCode.UNKNOWN, text),
        )
        self._connection.refuse(call, headers)

    def _learn_timeout(self, value: bytes) -> float | None:
        timeout_s = grpc.parse_timeout(value)
        if timeout_s is not None:
            if len(self._timeouts_s) >= _TIMEOUTS_MAX:
                self._timeouts_s.clear()
            self._timeouts_s[value] = timeout_s
        return timeout_s

    def take_data(self, call: Call, data: bytes, is_end: bool) -> None:
        """Take bytes of a request's body; with the last of them the call is handled."""
        if not call.is_open:
            call.is_reading = not is_end  # answered already; only the end matters
            return
        size = len(data)
        assembler = call.assembler
        if assembler is None:
            if (
                is_end
                and size >= grpc.PREFIX_BYTES
                and data[0] == 0
                and int.from_bytes(data[1:5], "big") == size - grpc.PREFIX_BYTES
                and size - grpc.PREFIX_BYTES <= self._front.message_bytes_max
            ):
                # The common case: the whole request in one frame.
                if size > SMALL_BYTES and not self._hold_bytes(call, size):
                    return
                call.is_reading = False
                self._due_bytes += call.held_bytes
                self._dispatch(call, data[grpc.PREFIX_BYTES :])
                return
            call.assembler = assembler = grpc.MessageAssembler(
                self._front.message_bytes_max, call.header(b"grpc-encoding")
            )
        if not size and not is_end:
            self._connection.charge(self._pings)
            return
        fault = assembler.feed(data) if size else None
        if fault is None and not self._hold_bytes(call, size):
            return
        if is_end:
            call.is_reading = False
            self._due_bytes += call.held_bytes
            if fault is None:
                message = assembler.finish()
                call.assembler = None
                if type(message) is bytes:
                    self._dispatch(call, message)
                    return
                fault = message  # type: ignore[assignment]  # a fault, since it is no message
        if fault is not None:
            call.assembler = None
            call.fail(*fault)

    def _hold_bytes(self, call: Call, size: int) -> bool:
        """Count request bytes. Above a bound stop reading, or refuse the call: then False."""
        front, limits = self._front, self._limits
        most = max(limits.max_connection_request_bytes, front.message_bytes_max)
        most_of_all = max(limits.max_request_bytes_in_flight, most)
        if self.request_bytes + size <= most and front.request_bytes + size <= most_of_all:
            self._is_patient = True
        elif self._due_bytes and self._is_patient:
            self.is_full = True
        else:
            # What is held is unfinished bodies, which no answer ends, or calls that wait long.
            call.assembler = None
            call.fail(StatusCode.RESOURCE_EXHAUSTED, "too many request bytes are in flight")
            return False
        call.held_bytes += size
        self.request_bytes += size
        front.request_bytes += size
        return True

    def _dispatch(self, call: Call, message: bytes) -> None:
        deadline = call.deadline
        if deadline is not None and deadline <= self._poller.now:
            call.fail(StatusCode.DEADLINE_EXCEEDED, "deadline passed before the call began")
            return
        call.message = message
        try:
            call.handler(call)
        except RpcFailedError as error:
            call.fail(error.status.status_code, error.status.status_message)
        except Exception:  # noqa: BLE001  # a bug of one method must not end the connection
            _log.exception("bug: %s raised", call.path)
            call.fail(StatusCode.INTERNAL, "internal error")
        if call.is_open and deadline is not None:
            timers = self._poller.timers
            if deadline - self._poller.now > YOUNG_S and not call.timer_tick:
                timers.young.append((self.calls, call.stream_id))
            else:
                timers.set(call, deadline)
        elif call.timer_tick:
            self._poller.timers.clear(call)

    def release_bytes(self, call: Call) -> None:
        """A call was answered or is gone: its request bytes count no more."""
        self.request_bytes -= call.held_bytes
        self._front.request_bytes -= call.held_bytes
        if not call.is_reading:
            self._due_bytes -= call.held_bytes
        call.held_bytes = 0
        self.is_full = self.is_full and self._due_bytes > 0

    def lose_patience(self) -> None:
        """Answers have not left for long: read on, and refuse what does not fit.

        A peer that is not read cannot be seen to leave, and its calls may wait for nothing else.
        """
        self.is_full = self._is_patient = False

    def watch_opening(self) -> None:
        """Set times for the bodies that were begun but not ended by the bytes just handled."""
        opening = self.opening
        self._pings.earn(_PINGS_PER_CALL * len(opening))
        for call in opening:
            if call.is_reading and call.is_open:
                self.watch_body(call)
        opening.clear()

    def watch_body(self, call: Call) -> None:
        """Set the time by which the body must have gone on, or the call's deadline."""
        until = self._poller.now + self._limits.body_timeout_ms / 1e3
        if call.deadline is not None:
            until = min(until, call.deadline)
        self._poller.timers.set(call, until)

    def look_at_body(self, call: Call) -> None:
        """Its time is up: the body must have gone on since the last look."""
        received = call.assembler.received if call.assembler is not None else 0
        if received - call.body_checked < self._limits.body_bytes_min:
            call.fail(StatusCode.CANCELLED, "the body did not arrive in time")
        else:
            call.body_checked = received
            self.watch_body(call)


def _http_refusal(fields: dict[bytes, bytes]) -> tuple[bytes, str] | None:
    """Return HTTP status and text for what is no gRPC request, None for what is one after all."""
    method = fields.get(b":method", b"")
    if method != b"POST":
        return b"405", f"gRPC calls are POST, this is {method.decode('latin-1')}"
    if not grpc.is_grpc_content(fields.get(b"content-type")):
        return b"415", "gRPC calls have content-type application/grpc"
    return None
