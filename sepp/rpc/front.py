"""What all connections of one server share: handlers, limits, counts."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from attrs import define, field

from sepp.rpc.call import Call
from sepp.rpc.limits import TransportLimits
from sepp.rpc.poller import Poller

if TYPE_CHECKING:
    from sepp.rpc.connection import Connection

Handler = Callable[[Call], None]


@define(eq=False)
class Front:
    """Shared state of a server's connections.

    Attributes:
        handlers: Path on the wire -> (path as text, handler).
        message_bytes_max: Larger requests are refused.
        request_bytes: Bytes held for calls that are not answered yet.
        call_count: Calls begun since the start.
        accepted_count, refused_count: Connections since the start; a refused one was accepted too.
        bytes_in, bytes_out: Of closed connections; open ones count for themselves.
        closed: Connections ended, by reason.
        on_quiet: Called when a connection has no call open and no byte unsent; set while someone
            waits for the end of all calls.
    """

    poller: Poller
    limits: TransportLimits
    message_bytes_max: int
    handlers: dict[bytes, tuple[str, Handler]] = field(factory=dict)
    connections: "dict[int, Connection]" = field(factory=dict)  # by descriptor
    request_bytes: int = 0
    call_count: int = 0
    accepted_count: int = 0
    refused_count: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    closed: dict[str, int] = field(factory=dict)
    on_quiet: Callable[[], None] | None = None
