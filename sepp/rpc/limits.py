"""What one peer, or all together, may take from the front: every bound of it in one place."""

from attrs import frozen


@frozen(kw_only=True)
class TransportLimits:
    """The keys of [transport]; spans in ms, sizes in bytes. Polite clients stay far below all.

    Args:
        max_connections: Open connections; a further one is closed as soon as it is accepted.
        max_streams_per_connection: Calls in flight on one connection, waiting ones included.
        max_header_list_bytes: Largest header list of a call, as RFC 9113 counts it (32 extra a
            field).
        max_request_bytes_in_flight: Request bytes held for calls that are not answered yet, all
            connections together. Above it new bodies are refused with RESOURCE_EXHAUSTED; one
            message of the largest size always fits.
        max_connection_request_bytes: The same for one connection. Above it we stop reading from
            that peer until answers leave, for `body_timeout_ms` at most; then, or when there is no
            answer to wait for, bodies are refused.
        preface_timeout_ms: From accept to the end of the TLS handshake and the HTTP/2 preface.
        header_timeout_ms: From the first to the last byte of a header block, or of any frame.
        body_timeout_ms: A body must end, or `body_bytes_min` more of it arrive, within each such
            span.
        body_bytes_min: See `body_timeout_ms`.
        outbound_buffer_bytes: Answers held for a peer that reads slowly before we stop reading from
            it.
        max_outbound_bytes: Answers held for one peer at most; an answer beyond it resets its
            stream.
        write_stall_timeout_ms: An answer must leave within this span, or its stream is reset; a
            socket that takes no byte for so long is closed.
        max_resets_per_second: Streams one connection may reset a second on average; ten times as
            many at once.
        max_pings_per_second: Frames without content (PING, SETTINGS, empty DATA) one connection may
            send a second on average, beyond two for each call it makes; ten times as many at once.
        keepalive_interval_ms: Silence of a peer after which we send it a PING.
        keepalive_timeout_ms: Wait for the answer to our PING before the connection is closed.
        reserved_descriptors: File descriptors kept back for the rest of the process.
    """

    max_connections: int = 4096
    max_streams_per_connection: int = 4096
    max_header_list_bytes: int = 16_384
    max_request_bytes_in_flight: int = 268_435_456
    max_connection_request_bytes: int = 67_108_864
    preface_timeout_ms: int = 5_000
    header_timeout_ms: int = 10_000
    body_timeout_ms: int = 15_000
    body_bytes_min: int = 16_384
    outbound_buffer_bytes: int = 8_388_608
    max_outbound_bytes: int = 67_108_864
    write_stall_timeout_ms: int = 30_000
    max_resets_per_second: int = 1_000
    max_pings_per_second: int = 100
    keepalive_interval_ms: int = 30_000
    keepalive_timeout_ms: int = 10_000
    reserved_descriptors: int = 64
