"""One call of a channel, from its request to its result."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import trio
from purerpc import StatusCode

from sepp.rpc import grpc, http2

if TYPE_CHECKING:
    from sepp.rpc.channel import Channel

Result = bytes | grpc.RpcError

_MADE_MAX: Final = 256
# gRPC's table from HTTP/2 error codes to statuses; the rest is INTERNAL.
_RESET_CODES: Final = {
    http2.REFUSED_STREAM: StatusCode.UNAVAILABLE,
    http2.CANCEL: StatusCode.CANCELLED,
    http2.ENHANCE_YOUR_CALM: StatusCode.RESOURCE_EXHAUSTED,
}


class RequestHeaders:
    """The headers of a channel's calls, made once for each path and timeout."""

    def __init__(self, scheme: bytes, authority: bytes, metadata: grpc.Headers) -> None:
        self._first = ((b":method", b"POST"), (b":scheme", scheme), (b":authority", authority))
        self._last = (
            (b"te", b"trailers"),
            (b"content-type", b"application/grpc"),
            (b"user-agent", b"sepp-trio"),
            *metadata,
        )
        self._made: dict[tuple[str, float | None], grpc.Headers] = {}

    def of(self, path: str, timeout_s: float | None) -> grpc.Headers:
        """Return the headers of a call to `path`."""
        headers = self._made.get((path, timeout_s))
        if headers is None:
            headers = (*self._first, (b":path", path.encode()), *self._last)
            if timeout_s is not None:
                headers += ((b"grpc-timeout", grpc.encode_timeout(timeout_s)),)
            if len(self._made) >= _MADE_MAX:
                self._made.clear()
            self._made[path, timeout_s] = headers
        return headers


class ClientCall:
    """One call under way. `cancel` tells the server to forget it."""

    __slots__ = (
        "_assembler",
        "_channel",
        "message",
        "stream_id",
        "task",
        "timer_tick",
        "when_done",
    )

    def __init__(self, channel: "Channel") -> None:
        self._channel = channel
        self.stream_id = 0
        self.timer_tick = 0
        self.message: bytes | grpc.Fault | None = None
        self.task: trio.lowlevel.Task | None = None
        self.when_done: Callable[[Result], None] | None = None
        self._assembler: grpc.MessageAssembler | None = None

    def cancel(self) -> None:
        """Reset the stream; `when_done` is not called any more."""
        self._channel.forget(self)

    def on_time(self, now_s: float) -> None:
        """The deadline has passed."""
        self._channel.on_deadline(self)

    def take(self, data: bytes, is_end: bool, receive_bytes_max: int) -> None:
        """Take bytes of the answer."""
        size = len(data)
        if (
            self._assembler is None
            and size >= grpc.PREFIX_BYTES
            and data[0] == 0
            and int.from_bytes(data[1:5], "big") == size - grpc.PREFIX_BYTES
            and size - grpc.PREFIX_BYTES <= receive_bytes_max
        ):
            self.message = data[grpc.PREFIX_BYTES :]
            return
        if self._assembler is None:
            self._assembler = grpc.MessageAssembler(receive_bytes_max, None)
        fault = self._assembler.feed(data)
        if fault is not None:
            self.message = fault
        elif self._assembler.received == self._assembler.total:
            self.message = self._assembler.finish()

    def result(self, status: grpc.Fault | None, *, is_answer: bool = True) -> Result:
        """Return what the call came to, its stream ended with `status`; None: it brought none.

        `is_answer`: the status is the server's own, not made from what HTTP says.
        """
        message = self.message
        if status is None:
            return grpc.RpcError(StatusCode.INTERNAL, "the answer ended without a status")
        if status[0] is not StatusCode.OK:
            return grpc.RpcError(*status, is_answer=is_answer)
        if type(message) is bytes:
            return message
        if message is None:
            return grpc.RpcError(StatusCode.INTERNAL, "the answer has no whole message")
        code, text = message
        if code is StatusCode.OUT_OF_RANGE:
            code = StatusCode.RESOURCE_EXHAUSTED  # what gRPC clients call it
        return grpc.RpcError(code, str(text))


def reset_error(error_code: int) -> grpc.RpcError:
    """Return what a reset stream means to its call."""
    code = _RESET_CODES.get(error_code, StatusCode.INTERNAL)
    text = f"stream reset, HTTP/2 error code {error_code}"
    return grpc.RpcError(code, text, is_unprocessed=error_code == http2.REFUSED_STREAM)
