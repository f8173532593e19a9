"""The keys of [transport]: what one peer, or all together, may take from the gRPC listener."""

from typing import Annotated

from msgspec import Struct

from sepp.config.table import RESTART, U32_MAX, Spec


class Transport(Struct, frozen=True, kw_only=True):
    """[transport]: limits against broken and hostile peers. Official clients stay far below all."""

    max_connections: Annotated[
        int,
        Spec(RESTART, "Open connections; further ones wait to be accepted.", ge=1, le=1_000_000),
    ] = 4096
    max_streams_per_connection: Annotated[
        int, Spec(RESTART, "Calls in flight on one connection.", ge=1, le=1_000_000)
    ] = 4096
    max_header_list_bytes: Annotated[
        int, Spec(RESTART, "Largest header block of a call.", ge=1024, le=1_048_576)
    ] = 16_384
    max_request_bytes_in_flight: Annotated[
        int,
        Spec(
            RESTART,
            "Request bytes held for calls not yet complete, all connections together; one message "
            "of limits.max_message_bytes always fits.",
            ge=65_536,
            le=2**40,
        ),
    ] = 67_108_864
    preface_timeout_ms: Annotated[
        int, Spec(RESTART, "From accept to the end of TLS and HTTP/2 preface.", ge=1, le=U32_MAX)
    ] = 5000
    header_timeout_ms: Annotated[
        int, Spec(RESTART, "From the first to the last byte of a header block.", ge=1, le=U32_MAX)
    ] = 10_000
    body_timeout_ms: Annotated[
        int, Spec(RESTART, "From a call's headers to the end of its message.", ge=1, le=U32_MAX)
    ] = 60_000
    outbound_buffer_bytes: Annotated[
        int,
        Spec(
            RESTART,
            "Answers held for a peer that reads slowly, before we stop reading from it.",
            ge=65_536,
            le=2**40,
        ),
    ] = 8_388_608
    write_stall_timeout_ms: Annotated[
        int, Spec(RESTART, "A peer that takes no byte for so long is cut off.", ge=1, le=U32_MAX)
    ] = 30_000
    max_resets_per_second: Annotated[
        int, Spec(RESTART, "Calls one connection may abandon a second.", ge=1, le=1_000_000)
    ] = 1000
    max_pings_per_second: Annotated[
        int, Spec(RESTART, "PINGs one connection may send a second.", ge=1, le=1_000_000)
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
