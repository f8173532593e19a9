"""GetServerInfo: version, clock and the limits a producer can check for itself."""

from typing import Final

from sepp import __version__
from sepp._generated import queue_pb2 as pb
from sepp.config.policy import QueuePolicy

PROTOCOL_VERSION: Final = "v1"


def server_info(policy: QueuePolicy, *, now_ms: int, retention_ms: int) -> pb.GetServerInfoResponse:
    """Return the answer.

    Args:
        policy: The limits that hold now.
        now_ms: The wall clock.
        retention_ms: How long dead letters are kept since the start.
    """
    limits, per_queue = policy.global_limits, policy.defaults
    info = pb.GetServerInfoResponse(
        server_version=__version__,
        supported_protocol_versions=[PROTOCOL_VERSION],
        restricts_encodings=per_queue.allowed_encodings is not None,
        allowed_encodings=per_queue.allowed_encodings or (),
        max_payload_bytes=per_queue.max_payload_bytes,
        max_custom_entries=per_queue.max_custom_entries,
        max_custom_total_bytes=per_queue.max_custom_total_bytes,
        max_custom_key_bytes=per_queue.max_custom_key_bytes,
        max_queue_name_bytes=limits.max_queue_name_bytes,
        max_job_type_bytes=limits.max_job_type_bytes,
        max_idempotency_key_bytes=limits.max_idempotency_key_bytes,
        max_enqueue_batch=limits.max_enqueue_batch,
        max_reserve_batch=limits.max_reserve_batch,
        max_reserve_queues=limits.max_reserve_queues,
        strict_queues=policy.is_strict,
        dead_letter_retention_enabled=retention_ms > 0,
    )
    info.server_time.FromMilliseconds(now_ms)
    info.max_schedule_horizon.FromMilliseconds(per_queue.max_schedule_horizon_ms)
    info.max_wait_timeout.FromMilliseconds(limits.max_wait_timeout_ms)
    info.max_lease_duration.FromMilliseconds(per_queue.max_lease_duration_ms)
    return info
