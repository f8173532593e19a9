"""The keys of [limits], and of a [[queues]] entry that overrides some of them for one queue."""

from typing import Annotated, Literal

from msgspec import Struct

from sepp.config.table import HOT, I64_MAX, RESTART, U32_MAX, Spec

Backoff = Literal["none", "exponential"]

MESSAGE_BYTES_CEILING = 64 << 20
"""The largest `max_message_bytes`: one command is never split over two batches of the store."""

UNLIMITED = -1
"""In a [[queues]] entry: `max_queue_depth` that lifts the global cap for this queue."""


class Limits(Struct, frozen=True, kw_only=True):
    """[limits]: what a request may ask for. Spans in ms, sizes in UTF-8 bytes, all inclusive."""

    max_lease_duration_ms: Annotated[
        int, Spec(HOT, "Longest lease; a longer one asked for is cut to it.", ge=1, le=I64_MAX)
    ] = 300_000
    default_max_attempts: Annotated[
        int, Spec(HOT, "Attempts of a job that names none.", ge=1, le=U32_MAX)
    ] = 3
    max_attempts_ceiling: Annotated[
        int, Spec(HOT, "Most attempts a job may have; more are cut to it.", ge=1, le=U32_MAX)
    ] = 100
    default_priority: Annotated[
        int, Spec(HOT, "Priority of a job that names none; 9 is served first.", ge=0, le=9)
    ] = 0
    retry_delay_ms: Annotated[
        int, Spec(HOT, "Wait before a failed job is tried again; 0: none.", ge=0, le=I64_MAX)
    ] = 0
    retry_backoff: Annotated[
        Backoff, Spec(HOT, "How the retry delay grows: not at all, or doubling with each attempt.")
    ] = "none"
    retry_delay_max_ms: Annotated[
        int, Spec(HOT, "Longest retry delay after growth.", ge=1, le=I64_MAX)
    ] = 3_600_000
    max_reserve_batch: Annotated[
        int, Spec(HOT, "Most jobs one Reserve or drain returns.", ge=1, le=U32_MAX)
    ] = 256
    max_reserve_queues: Annotated[
        int, Spec(HOT, "Most queues one Reserve may list.", ge=1, le=U32_MAX)
    ] = 32
    max_wait_timeout_ms: Annotated[
        int, Spec(HOT, "Longest a Reserve waits for a job.", ge=1, le=I64_MAX)
    ] = 300_000
    max_enqueue_batch: Annotated[
        int, Spec(HOT, "Most jobs in one enqueue call.", ge=1, le=U32_MAX)
    ] = 256
    max_queue_depth: Annotated[
        int | None,
        Spec(
            HOT,
            "Most live jobs a queue may hold; unset: no cap, 0: refuse every job.",
            ge=0,
            le=I64_MAX,
            example="100000",
        ),
    ] = None
    max_payload_bytes: Annotated[
        int, Spec(HOT, "Largest payload; at most max_message_bytes.", ge=1, le=I64_MAX)
    ] = 1_048_576
    max_message_bytes: Annotated[
        int, Spec(RESTART, "Largest request message.", ge=1, le=MESSAGE_BYTES_CEILING)
    ] = 16_777_216
    max_custom_entries: Annotated[
        int, Spec(HOT, "Most entries in a job's custom map.", ge=1, le=U32_MAX)
    ] = 64
    max_custom_total_bytes: Annotated[
        int, Spec(HOT, "Largest custom map, keys and values together.", ge=1, le=I64_MAX)
    ] = 16_384
    max_custom_key_bytes: Annotated[
        int, Spec(HOT, "Longest key of a custom map.", ge=1, le=U32_MAX)
    ] = 256
    max_queue_name_bytes: Annotated[int, Spec(HOT, "Longest queue name.", ge=1, le=65_535)] = 512
    max_job_type_bytes: Annotated[int, Spec(HOT, "Longest job type.", ge=1, le=U32_MAX)] = 256
    max_idempotency_key_bytes: Annotated[
        int, Spec(HOT, "Longest idempotency key.", ge=1, le=U32_MAX)
    ] = 256
    max_schedule_horizon_ms: Annotated[
        int, Spec(HOT, "How far ahead a job may be scheduled.", ge=1, le=I64_MAX)
    ] = 2_592_000_000
    allowed_encodings: Annotated[
        tuple[str, ...] | None,
        Spec(
            HOT,
            "Payload encodings let in; unset: any, []: refuse every payload.",
            example='["json", "msgpack"]',
        ),
    ] = None
    max_response_bytes: Annotated[
        int,
        Spec(
            HOT,
            "A Reserve or drain answer stops growing here (one job always fits), so that it stays "
            "under the clients' 4 MiB receive limit; 0: no cap.",
            ge=0,
            le=I64_MAX,
        ),
    ] = 4_128_768


class Queue(Struct, frozen=True, kw_only=True):
    """One [[queues]] entry. None means not set: the global value holds.

    Bounds and explanations of the overrides are those of the global keys of the same name.
    """

    name: Annotated[str, Spec(HOT, "Name of the queue; declares it.", example='"emails"')]
    max_lease_duration_ms: int | None = None
    default_max_attempts: int | None = None
    max_attempts_ceiling: int | None = None
    default_priority: int | None = None
    retry_delay_ms: int | None = None
    retry_backoff: Backoff | None = None
    retry_delay_max_ms: int | None = None
    max_payload_bytes: int | None = None
    allowed_encodings: tuple[str, ...] | None = None
    allowed_job_types: Annotated[
        tuple[str, ...] | None,
        Spec(HOT, "Job types let in; unset: any.", example='["welcome", "receipt"]'),
    ] = None
    max_schedule_horizon_ms: int | None = None
    max_custom_entries: int | None = None
    max_custom_total_bytes: int | None = None
    max_custom_key_bytes: int | None = None
    dedup_window_ms: int | None = None
    max_queue_depth: Annotated[
        int | None,
        Spec(
            HOT,
            "Most live jobs; -1 lifts the global cap, 0: refuse every job.",
            ge=UNLIMITED,
            le=I64_MAX,
            example="10000",
        ),
    ] = None
