"""Following the file while the server runs: what changed, what can take effect now, and the watch.

Three configurations matter. The boot copy is what the server started with and, for restart-only
keys, runs with. The snapshot is the newest valid one; its restart-only values wait for a restart.
A candidate becomes the snapshot when it is valid; when it is not, nothing changes.
"""

import signal
from collections.abc import Callable, Mapping
from typing import Final, Literal

import trio

from sepp.config.errors import ConfigError
from sepp.config.load import Identity, Loaded, identity, load_path
from sepp.config.model import KEYS, Config
from sepp.logs import get_logger

log = get_logger("sepp.config.reload")

POLL_S: Final = 0.5
"""Pause between two looks at the file. A change is read once two looks agree on it."""

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

Result = Literal["failed", "unchanged", "applied"]


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


class Reloader:
    """Holds boot copy and snapshot, and replaces the snapshot.

    Args:
        boot: What the server started with.
        environ: The environment it started in.
        apply: Called with a new valid configuration before it becomes the snapshot; puts its limits
            and keys into service. Must not fail: the configuration was checked.

    Attributes:
        boot: The boot copy.
        loaded: The snapshot and where it came from.
        cycle_count: Reloads so far, failed and empty ones too.
        identity: Which file the last cycle met.
    """

    def __init__(
        self, boot: Loaded, environ: Mapping[str, str], apply: Callable[[Config], None]
    ) -> None:
        self.boot: Final = boot.config
        self.loaded = boot
        self.cycle_count = 0
        self.identity: Identity | None = boot.identity
        self._environ = environ
        self._apply = apply
        self._cycle_done = trio.Event()

    @property
    def config(self) -> Config:
        """The snapshot; for restart-only keys ask `boot`."""
        return self.loaded.config

    def pending_restart(self) -> tuple[str, ...]:
        """Return the entries of RESTART_ONLY whose new values wait for a restart."""
        return restart_changes(self.boot, self.config)

    async def wait_cycle(self) -> None:
        """Wait until the next cycle is over."""
        await self._cycle_done.wait()

    def reload(self) -> Result:
        """Read file and environment again, apply what is new; an invalid file changes nothing."""
        self.identity = identity(self.loaded.path)
        try:
            result = self._reload()
        except ConfigError as fault:
            log.error(
                "config reload failed; keeping the running configuration",
                path=self.loaded.path,
                error=str(fault),
            )
            result = "failed"
        self.cycle_count += 1
        done, self._cycle_done = self._cycle_done, trio.Event()
        done.set()
        return result

    def _reload(self) -> Result:
        old = self.loaded
        # A file that never was may still be missing; one that was read must not vanish unnoticed.
        new = load_path(old.path, self._environ, must_exist=old.identity is not None)
        self.identity = new.identity
        if new.config == old.config:
            self.loaded = new
            return "unchanged"
        for text in new.warnings:
            log.warning(text)
        waiting = restart_changes(old.config, new.config)
        pending = restart_changes(self.boot, new.config)
        fields = [path for path in waiting if path in pending]
        if fields:
            log.warning(
                "changed settings need a restart and keep their running values", fields=fields
            )
        self._apply(new.config)
        self.loaded = new
        log.info(
            "configuration reloaded",
            path=new.path,
            changed=changes(old.config, new.config),
        )
        return "applied"


async def watch(
    reloader: Reloader, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Reload when the file changes and at SIGHUP, until cancelled.

    Looking at the path again and again sees what a watch on one inode misses: rename-over saves and
    the swapped links of mounted config maps. A file that appears only later is seen too.
    """
    path = reloader.loaded.path
    with trio.open_signal_receiver(signal.SIGHUP) as hangups:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_poll, reloader)
            if reloader.identity is None:
                log.debug("no config file on disk; watching for one", path=path)
            else:
                log.info("watching config file for hot reload", path=path)
            task_status.started()
            async for _ in hangups:
                reloader.reload()


async def _poll(reloader: Reloader) -> None:
    seen = reloader.identity
    while True:
        await trio.sleep(POLL_S)
        found = identity(reloader.loaded.path)
        # The second look keeps a file from being read while it is being written: cut to nothing,
        # it would pass for a configuration without keys.
        if found != reloader.identity and found == seen:
            reloader.reload()
        seen = found
