"""Following the configuration file while the server runs.

Three configurations matter. The boot copy is what the server started with and, for restart-only
keys, runs with. The snapshot is the newest valid one; its restart-only values wait for a restart. A
candidate becomes the snapshot when it is valid; when it is not, nothing changes.
"""

import os
import signal
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Literal

import trio

from sepp.config.errors import ConfigError
from sepp.config.load import Loaded, identity, load_path, parse
from sepp.config.model import Config
from sepp.config.reload import changes, restart_changes
from sepp.logs import get_logger
from sepp.quoting import quote

log = get_logger("sepp.reloader")

POLL_S: Final = 0.5
"""Pause between two looks at the file. A change is read once two looks agree on it."""

Result = Literal["failed", "unchanged", "applied"]


class Reloader:
    """Holds boot copy and snapshot, and replaces the snapshot.

    Args:
        loaded: What the server starts with.
        environ: The environment it starts in.
        apply: Called with a new valid configuration before it becomes the snapshot; puts its limits
            and keys into service. Must not fail: the configuration was checked.

    Attributes:
        path: The file.
        boot: The boot copy: what holds for restart-only keys.
        running: The snapshot: what holds for all others.
        reload_count: Cycles so far, failed and empty ones too.
        last_error: Why the newest cycle failed; None when it did not.
        identity: Which file the last cycle met; None for none.
    """

    def __init__(
        self, loaded: Loaded, environ: Mapping[str, str], apply: Callable[[Config], None]
    ) -> None:
        self.path = Path(loaded.path)
        self.boot = loaded.config
        self.running = loaded.config
        self.reload_count = 0
        self.last_error: str | None = None
        self.identity = loaded.identity
        self._loaded = loaded
        self._environ = environ
        self._apply = apply
        self._cycle_done = trio.Event()

    def pinned(self) -> tuple[str, ...]:
        """Return the sorted paths the environment sets, also those of fields that do not exist."""
        return self._loaded.env_pinned

    def pending_restart(self) -> tuple[str, ...]:
        """Return the entries of RESTART_ONLY whose new values wait for a restart."""
        return restart_changes(self.boot, self.running)

    def candidate(self, text: str) -> Config:
        """Return what would hold if the file held `text`, environment included.

        Raises:
            ConfigError: It would be refused.
        """
        return parse(text, self._loaded.path, self._environ).config

    async def wait_reload(self, seen: int) -> None:
        """Return once `reload_count` is no longer `seen`."""
        while self.reload_count == seen:
            await self._cycle_done.wait()

    def reload(self) -> Result:
        """Read file and environment again, apply what is new; an invalid file changes nothing."""
        self.identity = identity(self._loaded.path)
        self.last_error = None
        try:
            result = self._reload()
        except ConfigError as fault:
            self.last_error = str(fault)
            log.error(
                "config reload failed; keeping the running configuration",
                path=self._loaded.path,
                error=str(fault),
            )
            result = "failed"
        self.reload_count += 1
        done, self._cycle_done = self._cycle_done, trio.Event()
        done.set()
        return result

    def _reload(self) -> Result:
        old = self._loaded
        # A file that never was may still be missing; one that was read must not vanish unnoticed,
        # nor be emptied, by a copy onto a full disk, say: all keys would be gone.
        _check_file(old.path, had_content=old.identity is not None and old.identity[2] > 0)
        new = load_path(old.path, self._environ, must_exist=old.identity is not None)
        self.identity = new.identity
        if new.config == old.config:
            self._loaded = new
            return "unchanged"
        for text in new.warnings:
            if text not in old.warnings:
                log.warning(text)
        waiting = restart_changes(old.config, new.config)
        pending = restart_changes(self.boot, new.config)
        fields = [path for path in waiting if path in pending]
        if fields:
            log.warning(
                "changed settings need a restart and keep their running values", fields=fields
            )
        self._apply(new.config)
        self._loaded, self.running = new, new.config
        log.info(
            "configuration reloaded",
            path=new.path,
            changed=changes(old.config, new.config),
        )
        return "applied"


def _check_file(path: str, *, had_content: bool) -> None:
    """Raise ConfigError for what is no file to read while the server runs.

    Opening a pipe would hold everybody up until somebody writes into it.
    """
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return  # told when it is read
    if not stat.S_ISREG(found.st_mode):
        raise ConfigError("", f"config file {quote(path)} is no regular file; put one there")
    if had_content and not found.st_size:
        text = f"config file {quote(path)} is empty; for the defaults alone write a comment into it"
        raise ConfigError("", text)


async def watch(
    reloader: Reloader, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Reload when the file changes and at SIGHUP, until cancelled.

    Looking at the path again and again sees what a watch on one inode misses: rename-over saves and
    the swapped links of mounted config maps. A file that appears only later is seen too.
    """
    path = str(reloader.path)
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
    path, seen = str(reloader.path), reloader.identity
    while True:
        await trio.sleep(POLL_S)
        found = identity(path)
        # The second look keeps a file from being read while it is being written: cut to nothing,
        # it would pass for a configuration without keys.
        if found != reloader.identity and found == seen:
            reloader.reload()
        seen = found
