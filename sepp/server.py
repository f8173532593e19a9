"""The process: one nursery whose children are front, committer, sweeper, upkeep and reload.

Start: bind the port (liveness answers, every RPC says UNAVAILABLE), lock and read the data
directory, restore core, start the children, log `queue server listening`, serve.

Stop: the first SIGTERM or SIGINT ends accepting, answers waiting reserves empty and lets calls in
flight finish within `server.shutdown_grace_ms`; then the children are cancelled and the store
closes clean. A second signal ends the process at once. A failed write or sync ends it with exit
code 74.
"""

import os
import signal
import sys
from typing import Final

import trio
from msgspec import structs

from segstore import Store, StoreFailed
from sepp import exits, metrics
from sepp.admin import wiring
from sepp.auth import ApiKeys
from sepp.certificates import Certificates
from sepp.clock import Clock
from sepp.collector import settled
from sepp.committer import Committer
from sepp.config.address import Address, parse_address
from sepp.config.load import Loaded
from sepp.config.model import Config
from sepp.config.policy import QueuePolicy
from sepp.core.machine import Machine
from sepp.journal import Journal
from sepp.logs import Sink, configure, get_logger
from sepp.memory import MemoryWatch, map_large_blocks
from sepp.notify import Notifier
from sepp.opening import open_store
from sepp.reloader import Reloader, watch
from sepp.rpc.health import Health
from sepp.rpc.limits import TransportLimits
from sepp.rpc.server import Server
from sepp.rpc.transport import tls_server_context
from sepp.service import QueueService
from sepp.sweeper import Sweeper
from sepp.tracing import open_tracing

log = get_logger("sepp.server")

SERVICE_NAME: Final = "sepp.v1.QueueService"
# How long refused calls may take to leave once the store has failed.
LAST_WORDS_S: Final = 1.0
# How long a thread waits for the interpreter: one that reads a body, or syncs where the kernel does
# not. It needs it for microseconds, and meanwhile somebody is not answered; the default is 5 ms.
SWITCH_INTERVAL_S: Final = 1e-4


def run(loaded: Loaded) -> int:
    """Serve until stopped; return the exit code.

    Raises:
        StartError: Something outside the process stands in the way of starting.
    """
    logging = loaded.config.logging
    sink = configure(logging.level, logging.format, rust_log=os.environ.get("RUST_LOG", ""))
    _log_configuration(loaded)
    map_large_blocks()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    try:
        trio.run(_Process(loaded, sink).main)
    except BaseExceptionGroup as group:
        return _exit_code(group)
    return exits.OK


def _exit_code(group: BaseExceptionGroup) -> int:
    """What a crash of the nursery means; a bug of ours is raised as it is."""
    failures, others = group.split((StoreFailed, exits.StartError))
    if failures is None or others is not None:
        raise group
    for fault in _leaves(failures):
        if isinstance(fault, exits.StartError):
            raise fault from None
    log.error("storage persist failed; aborting", error=str(_leaves(failures)[0]))
    return exits.STORAGE


def _leaves(group: BaseExceptionGroup) -> list[BaseException]:
    return [
        leaf
        for fault in group.exceptions
        for leaf in (_leaves(fault) if isinstance(fault, BaseExceptionGroup) else [fault])
    ]


class _Process:
    """One run of the server, from configuration to exit."""

    def __init__(self, loaded: Loaded, sink: Sink) -> None:
        self.boot: Config = loaded.config
        self.config: Config = loaded.config
        self.policy = QueuePolicy(loaded.config)
        self.clock = Clock()
        self.stop = trio.Event()
        self.tracing = open_tracing(loaded.config)
        self.tracer = None if self.tracing is None else self.tracing.tracer
        self.service = QueueService(
            self.policy,
            ApiKeys(loaded.config.auth.api_keys),
            self.clock,
            retention_ms=loaded.config.storage.dead_letter_retention_ms,
            rejected_queues_max=loaded.config.metrics.max_queues,
            tracer=self.tracer,
        )
        self.health = Health(serving=("",), not_serving=(SERVICE_NAME,))
        self.reloader = Reloader(loaded, os.environ, self.apply)
        self.notifier = Notifier(os.environ)
        self.sources = metrics.Sources(self.service, self.clock, self.reloader, sink)
        self.machine: Machine
        self.journal: Journal
        self.committer: Committer
        self.admin: wiring.Listener | None

    def apply(self, config: Config) -> None:
        """Put a reloaded configuration into effect, but for what needs a restart."""
        self.config = config
        self.policy = QueuePolicy(config, self.boot)
        self.service.reload(self.policy, ApiKeys(config.auth.api_keys))
        self.machine.reload(self.policy, audit_retention_ms=config.admin.audit_retention_ms)

    async def main(self) -> None:
        """Start, serve and stop."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self._watch_signals)
            await nursery.start(metrics.serve, self.boot, self.sources)
            nursery.start_soon(self.notifier.pat_watchdog)
            if self.tracing is not None:
                nursery.start_soon(self.tracing.run)
            front = self.sources.front = self._front()
            await nursery.start(self._serve_front, front)
            certificates = self._certificates(front)
            if certificates is not None:
                nursery.start_soon(certificates.watch)
            store = await self._open_store()
            if store is not None:
                try:
                    with settled():
                        await self._serve(store, front)
                finally:
                    with trio.CancelScope(shield=True):  # bounded by the disk
                        await store.close(self.journal.has_writes)
            nursery.cancel_scope.cancel()
        log.info("queue server stopped")

    async def _watch_signals(self, task_status: trio.TaskStatus[None]) -> None:
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            task_status.started()
            async for number in signals:
                if self.stop.is_set():
                    log.warning("second signal; ending at once", signal=number)
                    os._exit(128 + number)
                log.info("shutdown signal received", signal=number)
                self.stop.set()

    # Start.

    def _front(self) -> Server:
        server, limits = self.boot.server, self.boot.limits
        address = parse_address(server.listen_addr)
        assert address is not None, "checked with the configuration"
        context = None
        if server.tls_cert_path is not None and server.tls_key_path is not None:
            try:
                context = tls_server_context(server.tls_cert_path, server.tls_key_path)
            except (OSError, ValueError) as fault:
                raise exits.StartError(
                    f"cannot use server.tls_cert_path {server.tls_cert_path} with "
                    f"server.tls_key_path {server.tls_key_path}: {fault}"
                ) from None
        _warn_of_open_doors(self.boot, address)
        front = Server(
            address.host,
            address.port,
            context,
            limits=TransportLimits(**structs.asdict(self.boot.transport)),
            message_bytes_max=limits.max_message_bytes,
        )
        for servicer in (self.service, self.health):
            front.add_service(servicer.service)
        return front

    async def _serve_front(self, front: Server, task_status: trio.TaskStatus[int]) -> None:
        try:
            await front.serve_async(task_status=task_status)
        except OSError as fault:
            address = self.boot.server.listen_addr
            raise exits.StartError(
                f"cannot listen on server.listen_addr {address}: {fault.strerror}"
            ) from None

    def _certificates(self, front: Server) -> Certificates | None:
        cert, key = self.boot.server.tls_cert_path, self.boot.server.tls_key_path
        if cert is None or key is None:
            return None
        return Certificates(cert, key, load=tls_server_context, apply=front.use_context)

    async def _open_store(self) -> Store | None:
        """Open the store and restore core; None when a signal came first."""
        opened = await open_store(
            self.boot,
            self.policy,
            self.clock,
            is_stopped=self.stop.is_set,
            on_progress=self.notifier.alive,
        )
        if opened is None:
            return None
        self.journal, self.machine = opened.journal, opened.journal.machine
        self.sources.store, self.sources.machine = opened.store, self.machine
        self.sources.recovery_ms = opened.seconds * 1000
        return opened.store

    # Serve and stop.

    async def _serve(self, store: Store, front: Server) -> None:
        """Run the children until a signal, then let calls in flight finish."""
        storage = self.boot.storage
        try:
            self.admin = wiring.listen(self.boot)
        except OSError as fault:
            raise exits.StartError(str(fault)) from None
        self.committer = Committer(
            self.journal,
            self.clock,
            capacity=storage.command_queue_capacity,
            flush=front.flush,
        )
        self.sources.committer = self.committer
        memory = MemoryWatch(
            self.committer, lambda: self.config.server.max_memory_bytes, lambda: len(store.slots)
        )
        sweeper = Sweeper(
            self.committer,
            self.clock,
            interval_ms=storage.sweep_interval_ms,
            count_max=storage.sweep_limit,
            retention_ms=storage.dead_letter_retention_ms,
            tracer=self.tracer,
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._commit, front)
            nursery.start_soon(sweeper.serve)
            nursery.start_soon(keep_up, store, self.journal)
            nursery.start_soon(memory.serve)
            self.service.start(self.committer, self.journal.dedup_key)
            self.health.set(SERVICE_NAME, is_serving=True)
            front.flush()
            self._log_listening(front)
            self.notifier.ready()
            await nursery.start(watch, self.reloader)
            async with trio.open_nursery() as pages:  # ends by itself, at most 10 s after the stop
                await pages.start(self._serve_admin, front)
                await self.stop.wait()
                await self._finish_calls(front)
            nursery.cancel_scope.cancel()
        log.info("committer stopped; every answered change is on disk")

    async def _serve_admin(self, front: Server, task_status: trio.TaskStatus[None]) -> None:
        await wiring.serve(
            self.admin,
            clock=self.clock,
            journal=self.journal,
            committer=self.committer,
            reloader=self.reloader,
            policy=lambda: self.policy,
            grpc_address=Address(front.host, front.port),
            stop=self.stop,
            task_status=task_status,
        )

    async def _commit(self, front: Server) -> None:
        try:
            await self.committer.serve()
        except StoreFailed:
            # Whoever waited was refused; give these answers a moment to leave.
            with trio.move_on_after(LAST_WORDS_S, shield=True):
                await front.drained()
            raise

    async def _finish_calls(self, front: Server) -> None:
        self.notifier.stopping()
        self.service.stop()
        self.health.set(SERVICE_NAME, is_serving=False)
        front.stop_accepting()
        front.go_away()
        self.committer.end_waits()
        grace_s = self.config.server.shutdown_grace_ms / 1000
        with trio.move_on_after(grace_s) as grace:
            await self.committer.wait_idle()
            await front.drained()
        if grace.cancelled_caught:
            log.warning("calls were still in flight at the end of the grace time", grace_s=grace_s)

    def _log_listening(self, front: Server) -> None:
        boot = self.boot
        log.info(
            "queue server listening",
            addr=str(Address(front.host, front.port)),
            db_path=boot.server.db_path,
            tls=_enabled(boot.server.tls_cert_path is not None),
            auth=_enabled(boot.auth.api_keys is not None),
            strict_queues=_enabled(boot.server.strict_queues),
            declared_queues=len(boot.queues),
        )


async def keep_up(store: Store, journal: Journal) -> None:
    """Make segments ahead, drop and compact dead ones, sync in the background, until cancelled."""
    while True:
        pause_ms = await store.maintain(journal.has_writes)
        await trio.sleep(pause_ms / 1000)


def _log_configuration(loaded: Loaded) -> None:
    storage = loaded.config.storage
    log.debug(
        "configuration loaded",
        path=loaded.path,
        persist_mode=storage.persist_mode,
        sweep_interval_ms=storage.sweep_interval_ms,
        sweep_limit=storage.sweep_limit,
        command_queue_capacity=storage.command_queue_capacity,
        tracing=_enabled(loaded.config.tracing.enabled),
        metrics=_enabled(loaded.config.metrics.enabled),
    )
    for text in loaded.warnings:
        log.warning(text)
    if loaded.config.queues:
        names = [queue.name for queue in loaded.config.queues]
        log.info("declared queues from config", queues=names)


def _enabled(value: bool) -> str:
    return "enabled" if value else "disabled"


def _warn_of_open_doors(config: Config, address: Address) -> None:
    if config.auth.api_keys is not None and config.server.tls_cert_path is None:
        log.warning("API keys travel in plaintext: server.tls_cert_path is not set")
    if config.auth.api_keys is None and not address.is_loopback:
        log.warning(
            "anyone who reaches this port may enqueue and work jobs: auth.api_keys is not set",
            addr=str(address),
        )
