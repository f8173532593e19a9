"""What differs between two configurations, and what of it must wait for a restart."""

from typing import Final

from sepp.config.model import KEYS, Config

QUEUE_WINDOWS: Final = "queues[].dedup_window_ms"

RESTART_ONLY: Final = (
    "server.listen_addr",
    "server.db_path",
    "server.tls_cert_path",
    "server.tls_key_path",
    "limits.max_message_bytes",
    "storage.persist_mode",
    "storage.sweep_interval_ms",
    "storage.sweep_limit",
    "storage.dead_letter_retention_ms",
    "storage.dedup_window_ms",
    QUEUE_WINDOWS,
    "storage.command_queue_capacity",
    "storage.cache_size_bytes",
    "storage.max_journaling_size_bytes",
    "storage.max_cached_files",
    "storage.worker_threads",
    "logging",
    "tracing",
    "metrics",
    "admin.enabled",
    "admin.listen_addr",
    "admin.tls_cert_path",
    "admin.tls_key_path",
    "storage.segment_bytes",
    "transport",
)
"""Keys and whole sections that wait for a restart, in the order in which they are reported."""


def restart_changes(old: Config, new: Config) -> tuple[str, ...]:
    """Return the entries of RESTART_ONLY in which `old` and `new` differ."""
    return tuple(path for path in RESTART_ONLY if _part(old, path) != _part(new, path))


def changes(old: Config, new: Config) -> tuple[str, ...]:
    """Return every key in which they differ, hot or not; any change of an entry as `queues`."""
    paths = [key.path for key in KEYS]
    return tuple(path for path in (*paths, "queues") if _part(old, path) != _part(new, path))


def _part(config: Config, path: str) -> object:
    if path == QUEUE_WINDOWS:
        windows = {queue.name: queue.dedup_window_ms for queue in config.queues}
        return {name: window for name, window in windows.items() if window is not None}
    section, _, key = path.partition(".")
    part: object = getattr(config, section)
    return getattr(part, key) if key else part
