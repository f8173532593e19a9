"""The only module that touches ngh2: makes sessions with our settings and names what they yield.

A session is sans-IO: bytes in by `receive_data`, events out by `events`, bytes out by
`data_to_send`. Windows are refilled by the engine as bytes arrive, also for streams that were
reset, so the connection window cannot starve; what we hold is bounded by counting it and by not
reading the socket.
"""

from typing import Any, Final, TypeAlias

import ngh2
from ngh2 import (
    ConnectionClosed as ConnectionClosed,
)
from ngh2 import (
    ConnectionClosingError as ConnectionClosingError,
)
from ngh2 import (
    DataReceived as DataReceived,
)
from ngh2 import (
    DenialOfServiceError as DenialOfServiceError,
)
from ngh2 import (
    GoAwayReceived as GoAwayReceived,
)
from ngh2 import (
    NGH2Error as NGH2Error,
)
from ngh2 import (
    NoAvailableStreamIDError as NoAvailableStreamIDError,
)
from ngh2 import (
    PingAcknowledged as PingAcknowledged,
)
from ngh2 import (
    PingReceived as PingReceived,
)
from ngh2 import (
    RequestReceived as RequestReceived,
)
from ngh2 import (
    ResponseReceived as ResponseReceived,
)
from ngh2 import (
    SettingsReceived as SettingsReceived,
)
from ngh2 import (
    StreamClosed as StreamClosed,
)
from ngh2 import (
    StreamReset as StreamReset,
)
from ngh2 import (
    StreamUnavailableError as StreamUnavailableError,
)
from ngh2 import (
    TrailersReceived as TrailersReceived,
)
from ngh2 import (
    WindowUpdated as WindowUpdated,
)

from sepp.rpc.limits import TransportLimits

# What `Session.events` yields; told apart by `type(event)`, the quickest way.
Event: TypeAlias = Any
Session = ngh2.Connection

NO_ERROR: Final = 0x0
REFUSED_STREAM: Final = 0x7
CANCEL: Final = 0x8
ENHANCE_YOUR_CALM: Final = 0xB
INITIAL_WINDOW_SIZE: Final = 0x4  # the setting
DEFAULT_WINDOW_BYTES: Final = 65_535

_CONNECTION_WINDOW_BYTES: Final = 16_777_216
_STREAM_WINDOW_BYTES: Final = 1_048_576
_HEADER_COUNT_MAX: Final = 128
_ACKS_QUEUED_MAX: Final = 1_000
# libnghttp2 answers too many resets with a mere GOAWAY; ours are counted and end the connection.
_RESETS_UNLIMITED: Final = (2**32, 2**32)


def server_session(limits: TransportLimits) -> Session:
    """Return the server's end of a new connection, its SETTINGS queued."""
    session = Session(
        ngh2.Role.SERVER,
        ngh2.Configuration(
            max_inbound_header_list_size=limits.max_header_list_bytes,
            max_inbound_header_count=_HEADER_COUNT_MAX,
            max_outbound_ack=_ACKS_QUEUED_MAX,
            stream_reset_rate_limit=_RESETS_UNLIMITED,
        ),
    )
    session.initiate_connection(
        {
            ngh2.Setting.MAX_CONCURRENT_STREAMS: limits.max_streams_per_connection,
            ngh2.Setting.INITIAL_WINDOW_SIZE: _STREAM_WINDOW_BYTES,
            ngh2.Setting.MAX_HEADER_LIST_SIZE: limits.max_header_list_bytes,
        }
    )
    session.set_local_window_size(_CONNECTION_WINDOW_BYTES)
    return session


def client_session() -> Session:
    """Return the client's end of a new connection, its preface and SETTINGS queued."""
    session = Session(ngh2.Role.CLIENT, ngh2.Configuration(peer_max_concurrent_streams=1_000))
    session.initiate_connection(
        {
            ngh2.Setting.ENABLE_PUSH: 0,
            ngh2.Setting.INITIAL_WINDOW_SIZE: _STREAM_WINDOW_BYTES,
        }
    )
    session.set_local_window_size(_CONNECTION_WINDOW_BYTES)
    return session


def goaway_frame(last_stream_id: int, error_code: int) -> bytes:
    """Return a GOAWAY by hand, for a session that failed and can make none any more."""
    return (
        b"\x00\x00\x08\x07\x00\x00\x00\x00\x00"
        + last_stream_id.to_bytes(4, "big")
        + error_code.to_bytes(4, "big")
    )


def first_offsets(data: bytes | memoryview, streams: set[int]) -> dict[int, int]:
    """Return where in `data`, whole frames, the first frame of each of `streams` begins."""
    offsets: dict[int, int] = {}
    at, end = 0, len(data)
    while at < end:
        length = int.from_bytes(data[at : at + 3], "big")
        stream_id = int.from_bytes(data[at + 5 : at + 9], "big")
        if stream_id in streams and stream_id not in offsets:
            offsets[stream_id] = at
        at += 9 + length
    return offsets
