"""The process: one nursery whose children are front, committer, sweeper, metrics and admin.

Start: lock the directory and bind the port (liveness answers, every RPC says UNAVAILABLE), read the
store, restore core, start the children, log `queue server listening`, serve.

Stop: the first SIGTERM or SIGINT ends accepting, answers waiting reserves empty and lets calls in
flight finish within `server.shutdown_grace_ms`; then the children are cancelled and the store closes
clean. A second signal ends the process at once.

Exit codes: 0 stopped as asked, 1 could not start, 74 the storage failed, 128 + n second signal n.
"""

import os
import signal
from collections.abc import Awaitable, Callable
from typing import Final

import trio

from segstore import Options, Store, StoreFailed
from sepp.auth import ApiKeys
from sepp.clock import Clock
from sepp.committer import Committer
from sepp.config.model import Config
from sepp.config.policy import QueuePolicy
from sepp.core.machine import Machine
from sepp.core.slots import FIELDS
from sepp.journal import Journal
from sepp.logs import get_logger
from sepp.rpc.health import Health, Status
from sepp.rpc.server import Server
from sepp.service import Phase, QueueService
from sepp.sweeper import Sweeper

log = get_logger("sepp.server")

EXIT_OK: Final = 0
EXIT_START: Final = 1
EXIT_STORAGE: Final = 74
SERVICE: Final = "sepp.v1.QueueService"
# How long refused calls may take to leave once the store has failed.
LAST_WORDS_S: Final = 1.0


def run(config: Config, *, config_path: str | None = None) -> int:
    """Serve until stopped and return the exit code.

    Raises:
        StartFailed: The server could not start; its text is for the person at the console.
    """
    try:
        trio.run(_serve, config, config_path)
    except BaseExceptionGroup as group:
        failures, others = group.split(StoreFailed)
        if failures is None or others is not None:
            raise
        return EXIT_STORAGE
    except StoreFailed:
        return EXIT_STORAGE
    return EXIT_OK


class StartFailed(Exception):
    """Something outside the process stands in the way: a port, a file, a directory in use."""
