"""Every metric there is, in the order in which it is shown: name, kind, labels, meaning.

A name is written once as Prometheus shows it and once as OpenTelemetry has it; the first follows
from the second by rule: dots become `_`, a unit of ms or bytes is spelled out, counters end in
`_total`. `sepp/OPERATING.md` has a line for each.
"""

from typing import Final, Literal

from attrs import frozen

Kind = Literal["counter", "gauge", "histogram"]
Unit = Literal["", "ms", "By"]

QUEUE: Final = ("queue",)


@frozen
class Family:
    """One metric.

    Args:
        name: As Prometheus shows it.
        otel: As OpenTelemetry has it.
        kind: Counters and histograms only grow during the life of the process.
        text: What it counts, for people.
        labels: Names of its labels.
        unit: "ms", "By" (bytes) or "" for counts.
    """

    name: str
    otel: str
    kind: Kind
    text: str
    labels: tuple[str, ...] = ()
    unit: Unit = ""


def _counter(name: str, otel: str, text: str, *labels: str, unit: Unit = "") -> Family:
    return Family(name, otel, "counter", text, labels, unit)


def _gauge(name: str, otel: str, text: str, *labels: str, unit: Unit = "") -> Family:
    return Family(name, otel, "gauge", text, labels, unit)


# Calls.

REQUESTS: Final = _counter(
    "sepp_requests_total", "sepp.requests", "RPCs by how they ended.", "method", "outcome"
)
REQUEST_DURATION: Final = Family(
    "sepp_request_duration_milliseconds",
    "sepp.request.duration",
    "histogram",
    "Time from reading an RPC to its answer; of Reserve with its wait.",
    ("method",),
    "ms",
)
UNAUTHENTICATED: Final = _counter(
    "sepp_unauthenticated_total", "sepp.unauthenticated", "RPCs without a valid API key."
)
REJECTED: Final = _counter(
    "sepp_jobs_rejected_total",
    "sepp.jobs.rejected",
    "Jobs of gRPC enqueues that were not stored.",
    "queue",
    "reason",
)

# Jobs, by queue. The key is the name of the count in core's statistics.

QUEUE_COUNTERS: Final[dict[str, Family]] = {
    "enqueued": _counter("sepp_jobs_enqueued_total", "sepp.jobs.enqueued", "Jobs stored.", "queue"),
    "reserved": _counter(
        "sepp_jobs_reserved_total", "sepp.jobs.reserved", "Deliveries to workers.", "queue"
    ),
    "acked": _counter("sepp_jobs_acked_total", "sepp.jobs.acked", "Jobs done.", "queue"),
    "nacked": _counter(
        "sepp_jobs_nacked_total", "sepp.jobs.nacked", "Deliveries given up by workers.", "queue"
    ),
    "deduplicated": _counter(
        "sepp_jobs_deduplicated_total",
        "sepp.jobs.deduplicated",
        "Enqueues answered with an older job of the same key.",
        "queue",
    ),
    "reserve_empty": _counter(
        "sepp_reserve_empty_total",
        "sepp.reserve.empty",
        "Reserves that ended without a job, once for each queue listed.",
        "queue",
    ),
    "promotions": _counter(
        "sepp_sweep_promotions_total",
        "sepp.sweep.promotions",
        "Scheduled jobs that became ready.",
        "queue",
    ),
    "lease_redeliveries": _counter(
        "sepp_sweep_lease_redeliveries_total",
        "sepp.sweep.lease_redeliveries",
        "Jobs whose lease ended and that go to the next worker.",
        "queue",
    ),
    "dedup_expirations": _counter(
        "sepp_sweep_dedup_expirations_total",
        "sepp.sweep.dedup_expirations",
        "Idempotency keys whose window ended.",
        "queue",
    ),
}
DEAD_LETTERED: Final = _counter(
    "sepp_jobs_dead_lettered_total",
    "sepp.jobs.dead_lettered",
    "Jobs given up for good, also where dead letters are not kept.",
    "queue",
    "cause",
)
DEAD_EXPIRED: Final = _counter(
    "sepp_dead_letters_expired_total",
    "sepp.dead_letters.expired",
    "Dead letters dropped at the end of their retention.",
)
DEAD_DRAINED: Final = _counter(
    "sepp_dead_letters_drained_total", "sepp.dead_letters.drained", "Dead letters taken out."
)

QUEUE_GAUGES: Final[dict[str, Family]] = {
    "ready": _gauge("sepp_queue_ready", "sepp.queue.ready", "Jobs ready.", "queue"),
    "scheduled": _gauge(
        "sepp_queue_scheduled", "sepp.queue.scheduled", "Jobs not due yet.", "queue"
    ),
    "leased": _gauge("sepp_queue_inflight", "sepp.queue.inflight", "Jobs leased.", "queue"),
    "dead": _gauge(
        "sepp_queue_dead_lettered", "sepp.queue.dead_lettered", "Dead letters kept.", "queue"
    ),
    "aside": _gauge(
        "sepp_queue_set_aside",
        "sepp.queue.set_aside",
        "Jobs with a damaged body, kept out of delivery.",
        "queue",
    ),
    "waiters": _gauge(
        "sepp_queue_waiting_reserves",
        "sepp.queue.waiting_reserves",
        "Reserves waiting on this queue; one that lists several counts in each.",
        "queue",
    ),
}
OLDEST_READY: Final = _gauge(
    "sepp_queue_oldest_ready_age_milliseconds",
    "sepp.queue.oldest_ready_age",
    "Since when the oldest ready job was enqueued.",
    "queue",
    unit="ms",
)

# The whole queue service.

QUEUES: Final = _gauge("sepp_queues", "sepp.queues", "Queues in memory.")
WAITING: Final = _gauge("sepp_reserves_waiting", "sepp.reserves.waiting", "Reserves that wait.")
LEASE_LAG: Final = _gauge(
    "sepp_lease_expiry_lag_milliseconds",
    "sepp.lease_expiry.lag",
    "How long ago the earliest lease ended that no sweep has taken back yet.",
    unit="ms",
)
SCHEDULE_LAG: Final = _gauge(
    "sepp_schedule_lag_milliseconds",
    "sepp.schedule.lag",
    "How long ago the earliest scheduled job was due that no sweep has promoted yet.",
    unit="ms",
)
WITHOUT_TIMER: Final = _gauge(
    "sepp_leases_without_timer",
    "sepp.leases_without_timer",
    "Leased jobs that would never come back; anything but 0 is a bug.",
)
AUDIT: Final = _gauge("sepp_audit_entries", "sepp.audit.entries", "Entries of the audit trail.")

# Commits.

COMMIT_DURATION: Final = Family(
    "sepp_commit_duration_milliseconds",
    "sepp.commit.duration",
    "histogram",
    "Writing and syncing a batch.",
    (),
    "ms",
)
COMMIT_RECORDS: Final = Family(
    "sepp_commit_records", "sepp.commit.records", "histogram", "Records in a batch."
)
COMMAND_QUEUE: Final = _gauge(
    "sepp_command_queue_depth", "sepp.command_queue.depth", "Commands waiting for the writer."
)

# The listener.

FRONT_GAUGES: Final[dict[str, Family]] = {
    "connections": _gauge("sepp_connections", "sepp.connections", "Open gRPC connections."),
    "streams_open": _gauge("sepp_streams", "sepp.streams", "RPCs not answered yet."),
    "request_bytes": _gauge(
        "sepp_request_in_flight_bytes",
        "sepp.request_in_flight",
        "Request bytes held for RPCs not answered yet.",
        unit="By",
    ),
}
FRONT_COUNTERS: Final[dict[str, Family]] = {
    "accepted": _counter(
        "sepp_connections_accepted_total", "sepp.connections.accepted", "Connections accepted."
    ),
    "refused": _counter(
        "sepp_connections_refused_total",
        "sepp.connections.refused",
        "Connections closed at once because there were too many.",
    ),
    "calls": _counter("sepp_calls_total", "sepp.calls", "Streams begun by clients."),
    "bytes_in": _counter(
        "sepp_received_bytes_total", "sepp.received", "Bytes received, TLS included.", unit="By"
    ),
    "bytes_out": _counter(
        "sepp_sent_bytes_total", "sepp.sent", "Bytes sent, TLS included.", unit="By"
    ),
}
CLOSED: Final = _counter(
    "sepp_connections_closed_total",
    "sepp.connections.closed",
    "Connections ended, by reason.",
    "reason",
)

# The process.

RECOVERY: Final = _gauge(
    "sepp_recovery_duration_milliseconds",
    "sepp.recovery.duration",
    "How long opening the store took at the start.",
    unit="ms",
)
SERVING: Final = _gauge("sepp_serving", "sepp.serving", "1 while the queue service serves.")
RELOADS: Final = _counter(
    "sepp_config_reloads_total", "sepp.config.reloads", "Looks at a changed configuration file."
)
RESTART_PENDING: Final = _gauge(
    "sepp_config_restart_pending",
    "sepp.config.restart_pending",
    "Settings whose new value waits for a restart.",
)
MEMORY_SHORT: Final = _gauge(
    "sepp_memory_short", "sepp.memory_short", "1 while server.max_memory_bytes refuses new jobs."
)
LOG_DROPPED: Final = _counter(
    "sepp_log_lines_dropped_total", "sepp.log_lines.dropped", "Log lines that stdout did not take."
)
BUILD: Final = _gauge(
    "sepp_build_info", "sepp.build_info", "Always 1.", "version", "python", "store_format"
)
