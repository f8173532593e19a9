"""The process: one nursery whose children are front, committer, sweeper, reload, metrics and admin.

Start: bind the port (liveness answers, every RPC says UNAVAILABLE), lock and read the data directory,
restore core, start the children, log `queue server listening`, serve.

Stop: the first SIGTERM or SIGINT ends accepting, answers waiting reserves empty and lets calls in
flight finish within `server.shutdown_grace_ms`; then the children are cancelled and the store closes
clean. A second signal ends the process at once. A failed write or sync ends it with exit code 74.
"""

import os
import signal
from time import perf_counter
from typing import Final

import trio

from segstore import Options, Progress, Store, StoreError, StoreFailed
from sepp import exits
from sepp.auth import ApiKeys
from sepp.clock import Clock
from sepp.committer import Committer
from sepp.config.address import Address, parse_address
from sepp.config.load import Loaded
from sepp.config.model import Config
from sepp.config.policy import QueuePolicy
from sepp.core.machine import Machine
from sepp.core.slots import FIELDS
from sepp.journal import Journal
from sepp.logs import configure, get_logger
from sepp.reload import Reloader, watch
from sepp.rpc.health import Health
from sepp.rpc.limits import TransportLimits
from sepp.rpc.server import Server
from sepp.service import Phase, QueueService
from sepp.sweeper import Sweeper

log = get_logger("sepp.server")

SERVICE_NAME: Final = "sepp.v1.QueueService"
# How long refused calls may take to leave once the store has failed.
LAST_WORDS_S: Final = 1.0


def run(loaded: Loaded) -> int:
    """Serve until stopped; return the exit code.

    Raises:
        StartError: Something outside the process stands in the way of starting.
    """
    configure(loaded.config.logging, os.environ)
    try:
        trio.run(_Process(loaded).main)
    except* StoreFailed as group:
        log.error("storage persist failed; aborting", error=str(group.exceptions[0]))
        return exits.STORAGE
    except* exits.StartError as group:
        raise group.exceptions[0]
    return exits.OK


class _Process:
    """One run of the server, from configuration to exit."""

    def __init__(self, loaded: Loaded) -> None:
        self.loaded = loaded
        self.config: Config = loaded.config
        self.policy = QueuePolicy(loaded.config)
        self.clock = Clock()
        self.stop = trio.Event()
        self.service = QueueService(
            self.policy,
            ApiKeys(loaded.config.auth.api_keys),
            self.clock,
            retention_ms=loaded.config.storage.dead_letter_retention_ms,
        )
        self.health = Health()
        self.reloader = Reloader(loaded, os.environ, self.apply)
        self.machine: Machine

    def apply(self, config: Config) -> None:
        """Put a reloaded configuration into effect, but for what needs a restart."""
        self.config = config
        self.policy = QueuePolicy(config, self.loaded.config)
        self.service.reload(self.policy, ApiKeys(config.auth.api_keys))
        self.machine.reload(self.policy, audit_retention_ms=config.admin.audit_retention_ms)

    async def main(self) -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(self._watch_signals)
            front = self._front()
            try:
                port = await nursery.start(front.serve_async)
            except OSError as fault:
                raise exits.StartError(
                    f"cannot listen on {self.config.server.listen_addr}: {fault.strerror}"
                ) from None
            store = await self._open_store()
            try:
                await self._serve(store, front, port)
            finally:
                nursery.cancel_scope.cancel()
                with trio.CancelScope(shield=True):
                    await store.close()
        log.info("queue server stopped")
