"""One call of a channel, from its request to its result."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from sepp.rpc import grpc

if TYPE_CHECKING:
    from sepp.rpc.channel import Channel

Result = bytes | grpc.RpcError


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
