"""Effective limits of one queue, and where core gets them from.

A limit counts at the moment of use: lease and retry limits when the call is handled, the depth cap
when the job is inserted. A job keeps the priority and max_attempts it was enqueued with.
"""

from typing import Protocol

from attrs import frozen


@frozen
class QueueLimits:
    """The per-queue value if set, else the global one. Spans in ms, sizes in UTF-8 bytes."""

    max_lease_duration_ms: int = 300_000
    default_max_attempts: int = 3
    max_attempts_ceiling: int = 100
    default_priority: int = 0
    retry_delay_ms: int = 0
    retry_is_exponential: bool = False
    retry_delay_max_ms: int = 3_600_000
    max_queue_depth: int | None = None  # None: no cap; 0: every new job is refused
    max_payload_bytes: int = 1_048_576
    max_custom_entries: int = 64
    max_custom_total_bytes: int = 16_384
    max_custom_key_bytes: int = 256
    max_schedule_horizon_ms: int = 2_592_000_000
    allowed_encodings: tuple[str, ...] | None = None
    allowed_job_types: tuple[str, ...] | None = None
    dedup_window_ms: int = 86_400_000  # the value the server booted with


class Policy(Protocol):
    """Answers which limits hold for a queue; swapped whole when the configuration is reloaded."""

    def limits(self, queue: str) -> QueueLimits:
        """Return the effective limits of `queue`, declared or not."""
        ...
