"""The keys of [transport]: what one peer, or all together, may take from the gRPC listener.

Names and defaults are those of `sepp.rpc.limits.TransportLimits`, which a test compares.
"""

from typing import Annotated

from msgspec import Struct

from sepp.config.table import RESTART, U32_MAX, Spec

_BYTES_MAX = 2**40  # beyond any machine


class Transport(Struct, frozen=True, kw_only=True):
    """[transport]: limits against broken and hostile peers. Official clients stay far below all."""

    max_connections: Annotated[
        int, Spec(RESTART, "Open connections; a further one is closed at once.", ge=1, le=1_000_000)
    ] = 4096
    max_streams_per_connection: Annotated[
        int,
        Spec(RESTART, "Calls in flight on one connection, waiting ones too.", ge=1, le=1_000_000),
    ] = 4096
    max_header_list_bytes: Annotated[
        int, Spec(RESTART, "Largest header list of a call.", ge=1024, le=1_048_576)
    ] = 16_384
    max_request_bytes_in_flight: Annotated[
        int,
        Spec(
            RESTART,
            "Request bytes held for calls not answered yet, all connections together; one message "
            "of limits.max_message_bytes always fits.",
            ge=65_536,
            le=_BYTES_MAX,
        ),
    ] = 268_435_456
    max_connection_request_bytes: Annotated[
        int, Spec(RESTART, "The same for one connection.", ge=65_536, le=_BYTES_MAX)
    ] = 67_108_864
    preface_timeout_ms: Annotated[
        int, Spec(RESTART, "From accept to the end of TLS and HTTP/2 preface.", ge=1, le=U32_MAX)
    ] = 5_000
    header_timeout_ms: Annotated[
        int, Spec(RESTART, "From first to last byte of a header block or frame.", ge=1, le=U32_MAX)
    ] = 10_000
    body_timeout_ms: Annotated[
        int,
        Spec(
            RESTART,
            "A request body must end, or body_bytes_min more of it arrive, within each such span.",
            ge=1,
            le=U32_MAX,
        ),
    ] = 15_000
    body_bytes_min: Annotated[int, Spec(RESTART, "See body_timeout_ms.", ge=1, le=_BYTES_MAX)] = (
        16_384
    )
    outbound_buffer_bytes: Annotated[
        int,
        Spec(
            RESTART,
            "Answers held for a peer that reads slowly, before we stop reading from it.",
            ge=65_536,
            le=_BYTES_MAX,
        ),
    ] = 8_388_608
    max_outbound_bytes: Annotated[
        int,
        Spec(
            RESTART,
            "Answers held for one peer at most; one beyond it is not sent.",
            ge=65_536,
            le=_BYTES_MAX,
        ),
    ] = 67_108_864
    write_stall_timeout_ms: Annotated[
        int,
        Spec(
            RESTART,
            "An answer must leave within this span; a peer that takes no byte for it is cut off.",
            ge=1,
            le=U32_MAX,
        ),
    ] = 30_000
    max_resets_per_second: Annotated[
        int,
        Spec(
            RESTART,
            "Calls one connection may abandon a second on average, ten times as many at once.",
            ge=1,
            le=1_000_000,
        ),
    ] = 1_000
    max_pings_per_second: Annotated[
        int,
        Spec(
            RESTART,
            "PINGs and other frames without content one connection may send a second on average, "
            "ten times as many at once.",
            ge=1,
            le=1_000_000,
        ),
    ] = 100
    keepalive_interval_ms: Annotated[
        int, Spec(RESTART, "Silence after which we send a PING.", ge=1, le=U32_MAX)
    ] = 30_000
    keepalive_timeout_ms: Annotated[
        int, Spec(RESTART, "Wait for the answer to our PING.", ge=1, le=U32_MAX)
    ] = 10_000
    reserved_descriptors: Annotated[
        int, Spec(RESTART, "File descriptors kept back for the store.", ge=16, le=1_000_000)
    ] = 64
