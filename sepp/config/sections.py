"""The keys of every section but [limits] and [transport]: default, bounds, explanation."""

from typing import Annotated, Literal

from msgspec import Struct

from sepp.config.table import HOT, I64_MAX, RESTART, U32_MAX, Spec

Role = Literal["viewer", "operator", "admin"]
PersistMode = Literal["sync_all", "sync_data", "buffer"]


class ApiKey(Struct, frozen=True, kw_only=True):
    """One entry of auth.api_keys. Its text form leaves the secret out: no log can hold it."""

    name: Annotated[str, Spec(HOT, "Name of the key, for people.", example='"billing"')]
    key: Annotated[str, Spec(HOT, "The secret, visible ASCII.", example='"change-me"')]

    def __repr__(self) -> str:
        return f"ApiKey(name={self.name!r})"


class AdminKey(Struct, frozen=True, kw_only=True):
    """One entry of admin.keys. Its text form leaves the secret out: no log can hold it."""

    name: Annotated[str, Spec(HOT, "Name to sign in with.", example='"oncall"')]
    key: Annotated[str, Spec(HOT, "The secret.", example='"change-me"')]
    role: Annotated[
        Role, Spec(HOT, "viewer reads, operator also moves jobs, admin also changes settings.")
    ] = "admin"

    def __repr__(self) -> str:
        return f"AdminKey(name={self.name!r}, role={self.role!r})"


class Server(Struct, frozen=True, kw_only=True):
    """[server]: the gRPC listener and the data directory."""

    listen_addr: Annotated[
        str,
        Spec(RESTART, "Where producers and workers connect; port 0: any free.", is_address=True),
    ] = "0.0.0.0:50051"
    db_path: Annotated[str, Spec(RESTART, "Directory of the job store.")] = "./sepp-data"
    tls_cert_path: Annotated[
        str | None,
        Spec(RESTART, "PEM certificate chain; needs tls_key_path too.", example='"server.pem"'),
    ] = None
    tls_key_path: Annotated[
        str | None,
        Spec(RESTART, "PEM private key; needs tls_cert_path too.", example='"server.key"'),
    ] = None
    strict_queues: Annotated[
        bool, Spec(HOT, "Refuse jobs for queues that are not declared in [[queues]].")
    ] = False
    shutdown_grace_ms: Annotated[
        int, Spec(HOT, "Longest wait for calls in flight after SIGTERM.", ge=0, le=I64_MAX)
    ] = 60_000
    max_memory_bytes: Annotated[
        int,
        Spec(HOT, "Refuse new jobs above this resident size; 0: off.", ge=0, le=I64_MAX),
    ] = 0


class Admin(Struct, frozen=True, kw_only=True):
    """[admin]: the pages and JSON API for operators."""

    enabled: Annotated[bool, Spec(RESTART, "Serve the admin pages and API.")] = True
    listen_addr: Annotated[
        str,
        Spec(RESTART, "Where the admin pages are; beyond loopback needs keys.", is_address=True),
    ] = "127.0.0.1:9465"
    tls_cert_path: Annotated[
        str | None,
        Spec(RESTART, "PEM certificate chain; needs tls_key_path too.", example='"admin.pem"'),
    ] = None
    tls_key_path: Annotated[
        str | None,
        Spec(RESTART, "PEM private key; needs tls_cert_path too.", example='"admin.key"'),
    ] = None
    keys: Annotated[
        tuple[AdminKey, ...] | None,
        Spec(HOT, "Who may sign in; unset: no sign-in (loopback only), []: nobody can."),
    ] = None
    session_ttl_ms: Annotated[
        int, Spec(HOT, "How long a sign-in lasts.", ge=60_000, le=31_536_000_000)
    ] = 43_200_000
    stats_history_ms: Annotated[
        int, Spec(HOT, "How far back the charts go.", ge=60_000, le=21_600_000)
    ] = 3_600_000
    audit_retention_ms: Annotated[
        int, Spec(HOT, "How long audit entries are kept; 0: for ever.", ge=0, le=I64_MAX)
    ] = 0


class Auth(Struct, frozen=True, kw_only=True):
    """[auth]: who may call the gRPC port."""

    api_keys: Annotated[
        tuple[ApiKey, ...] | None,
        Spec(HOT, "Keys callers must send; unset: open to everybody, []: every call is refused."),
    ] = None


class Storage(Struct, frozen=True, kw_only=True):
    """[storage]: the segment store and what ages in it."""

    persist_mode: Annotated[
        PersistMode,
        Spec(
            RESTART,
            "When a change is acknowledged: sync_all and sync_data once the disk has it, buffer "
            "at once (the newest changes are lost with the power).",
        ),
    ] = "sync_all"
    sweep_interval_ms: Annotated[
        int, Spec(RESTART, "Longest pause between two sweeps of what is due.", ge=1, le=I64_MAX)
    ] = 1000
    sweep_limit: Annotated[
        int,
        Spec(RESTART, "Most entries one sweep moves, and one drain looks at.", ge=1, le=U32_MAX),
    ] = 10_000
    dead_letter_retention_ms: Annotated[
        int, Spec(RESTART, "How long dead letters are kept; 0: not at all.", ge=0, le=I64_MAX)
    ] = 0
    dedup_window_ms: Annotated[
        int, Spec(RESTART, "How long an idempotency key is remembered.", ge=1, le=I64_MAX)
    ] = 86_400_000
    command_queue_capacity: Annotated[
        int, Spec(RESTART, "Commands that may wait for the writer.", ge=1, le=U32_MAX)
    ] = 4096
    cache_size_bytes: Annotated[
        int, Spec(RESTART, "Memory for recently stored job bodies.", ge=1, le=I64_MAX)
    ] = 16_777_216
    max_journaling_size_bytes: Annotated[
        int | None,
        Spec(
            RESTART,
            "Journal size of the original's engine.",
            ge=67_108_864,
            le=I64_MAX,
            example="536870912",
            note="inert",
        ),
    ] = None
    max_cached_files: Annotated[
        int | None,
        Spec(
            RESTART,
            "Open files of the original's engine.",
            ge=10,
            le=U32_MAX,
            example="900",
            note="inert",
        ),
    ] = None
    worker_threads: Annotated[
        int | None,
        Spec(
            RESTART,
            "Threads of the original's engine.",
            ge=1,
            le=U32_MAX,
            example="4",
            note="inert",
        ),
    ] = None
    segment_bytes: Annotated[
        int, Spec(RESTART, "Size of one log segment.", ge=65_536, le=1_073_741_824)
    ] = 67_108_864


class Logging(Struct, frozen=True, kw_only=True):
    """[logging]: what is written to stdout."""

    level: Annotated[
        str,
        Spec(RESTART, "A level (trace…error, off) and target=level pairs; RUST_LOG wins."),
    ] = "info,lsm_tree=warn,fjall=warn"
    format: Annotated[
        Literal["text", "json"], Spec(RESTART, "Lines for people, or one JSON object a line.")
    ] = "text"


class Tracing(Struct, frozen=True, kw_only=True):
    """[tracing]: spans over OTLP (needs the extra `otel`)."""

    enabled: Annotated[bool, Spec(RESTART, "Export traces.")] = False
    otlp_endpoint: Annotated[str, Spec(RESTART, "OTLP over gRPC.", may_be_empty=True)] = (
        "http://localhost:4317"
    )
    service_name: Annotated[
        str, Spec(RESTART, "Name under which we report.", may_be_empty=True)
    ] = "sepp"
    sample_ratio: Annotated[
        float,
        Spec(RESTART, "Share of traces begun here that are kept.", ge=0.0, le=1.0),
    ] = 1.0


class Metrics(Struct, frozen=True, kw_only=True):
    """[metrics]: counters and gauges, pushed over OTLP or scraped by Prometheus."""

    enabled: Annotated[bool, Spec(RESTART, "Push metrics over OTLP.")] = False
    otlp_endpoint: Annotated[str, Spec(RESTART, "OTLP over gRPC.", may_be_empty=True)] = (
        "http://localhost:4317"
    )
    export_interval_ms: Annotated[
        int, Spec(RESTART, "Pause between two pushes.", ge=0, le=I64_MAX)
    ] = 5000
    prometheus_enabled: Annotated[bool, Spec(RESTART, "Serve /metrics.")] = False
    prometheus_listen_addr: Annotated[
        str, Spec(RESTART, "Where /metrics is served.", is_address=True)
    ] = "0.0.0.0:9464"
    max_queues: Annotated[
        int,
        Spec(
            RESTART,
            "Queues reported by name; the rest are summed as `_other`.",
            ge=0,
            le=U32_MAX,
        ),
    ] = 1000
