"""The admin side on the real server: its door is the committer, its bodies the journal's."""

import os
import time
from collections.abc import Callable, Sequence
from socket import socket
from ssl import SSLContext
from typing import Final

import trio
from attrs import define

from segstore import BodyDamaged, Room, Store, StoreError
from sepp import __version__, http1
from sepp.admin import app
from sepp.admin.backend import (
    BackupFailedError,
    BackupMade,
    CommandRefusedError,
    Facts,
    ServerDetails,
    Vitals,
)
from sepp.admin.core_backend import CoreBackend, FollowUp
from sepp.binding import bind
from sepp.certificates import Certificates
from sepp.clock import Clock, wall_ms
from sepp.committer import Committer
from sepp.config.address import Address, parse_address
from sepp.config.model import Config
from sepp.config.policy import QueuePolicy
from sepp.core.commands import Command
from sepp.core.outcomes import Outcome
from sepp.counts import BUCKETS_MS
from sepp.journal import Journal
from sepp.logs import get_logger
from sepp.memory import resident_bytes
from sepp.reloader import Reloader
from sepp.request import Refusal, Refused
from sepp.wire import new_job_id

log = get_logger("sepp.admin")

_REFUSALS: Final = {
    Refusal.OVERLOADED: "not done: the server is overloaded, its command queue is full",
    Refusal.DISK_FULL: "not done: the disk is nearly full",
    Refusal.MEMORY_SHORT: "not done: the server is above server.max_memory_bytes",
    Refusal.STOPPING: "not done: the server is stopping",
    Refusal.UNKNOWN: "the store failed; whether it was done is not known",
}


class CommitterDoor:
    """Satisfies `sepp.admin.core_backend.Door`."""

    def __init__(self, committer: Committer, store: Store, db_path: str) -> None:
        self._committer = committer
        self._store = store
        self._db_path = db_path

    async def run_group(self, commands: list[Command], follow_up: FollowUp) -> list[Outcome]:
        """Apply the commands and their audit entry in one group; durable on return."""
        try:
            return await self._committer.run_group(commands, follow_up)
        except Refused as refused:
            raise CommandRefusedError(_REFUSALS[refused.refusal]) from refused

    def vitals(self) -> Vitals:
        """Return the state of the moment."""
        return Vitals(
            command_queue_len=self._committer.waiting_count(),
            is_disk_full=self._store.room() is not Room.OK,
            is_memory_short=self._committer.is_memory_short,
        )

    async def details(self) -> ServerDetails:
        """Return what the server page shows."""
        statistics = self._committer.statistics
        store = self._store.stats()
        await trio.lowlevel.checkpoint()
        return ServerDetails(
            memory_bytes=resident_bytes(),
            data_bytes=store.log_bytes,
            live_bytes=store.live_bytes,
            segment_count=store.segment_count,
            entry_count=store.entry_count,
            disk_free_bytes=_free_bytes(self._db_path),
            commit_count=statistics.commits,
            commit_p50_ms=_quantile_ms(statistics.buckets, 0.5),
            commit_p99_ms=_quantile_ms(statistics.buckets, 0.99),
        )

    async def backup(self, directory: str) -> BackupMade:
        """Copy the store to a new directory, durably."""
        started = time.perf_counter()
        try:
            made = await self._store.backup(_outside(directory, self._db_path))
        except StoreError as fault:
            raise BackupFailedError(str(fault)) from fault
        except OSError as fault:
            raise BackupFailedError(f"{fault.filename or directory}: {fault.strerror}") from fault
        log.info(
            "backup made",
            directory=directory,
            lsn=made.last_lsn,
            segments=len(made.segments),
            bytes=made.byte_count,
            elapsed_ms=round((time.perf_counter() - started) * 1000),
        )
        return BackupMade(made.last_lsn, len(made.segments), made.byte_count)


def _outside(directory: str, db_path: str) -> str:
    """Return a directory with its links resolved.

    Raises:
        BackupFailedError: It lies in the data directory, or around it.
    """
    target, source = os.path.realpath(directory), os.path.realpath(db_path)
    if os.path.commonpath((target, source)) in (target, source):
        raise BackupFailedError(f"{target} and {source} lie within each other; name another one")
    return target


def _free_bytes(path: str) -> int | None:
    try:
        found = os.statvfs(path)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize


def _quantile_ms(buckets: Sequence[int], share: float) -> float | None:
    """Return the upper bound of the bucket that holds the quantile; None when nothing was seen."""
    total = sum(buckets)
    seen = 0
    for count, bound in zip(buckets, BUCKETS_MS, strict=False):
        seen += count
        if total and seen >= share * total:
            return bound
    return None


class JournalReader:
    """Satisfies `sepp.admin.core_backend.Reader`."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def bodies_nowait(self, slots: Sequence[int]) -> list[bytes | None]:
        """Return what RAM and page cache hold."""
        found = self._journal.bodies_nowait(slots)
        return [body if isinstance(body, bytes) else None for body in found]

    async def read_bodies(self, slots: Sequence[int]) -> Sequence[bytes | BodyDamaged]:
        """Return bodies, or what is wrong with one."""
        return await self._journal.store.read_bodies(slots)

    async def locate(self, keys: Sequence[tuple[int, bytes]]) -> None:
        """Bring the places of these keys into RAM."""
        await self._journal.store.locate(keys)


@define
class Listener:
    """The admin port, bound and ready to be served."""

    address: Address
    sockets: list[socket]
    tls: SSLContext | None = None
    certificates: Certificates | None = None

    def close(self) -> None:
        """Give the port back without serving it."""
        for one in self.sockets:
            one.close()


def listen(config: Config) -> Listener | None:
    """Bind the admin port; None when the admin side is off.

    Raises:
        OSError: The address is taken, or a TLS file cannot be used; its text says which.
    """
    admin = config.admin
    if not admin.enabled:
        return None
    address = parse_address(admin.listen_addr)
    assert address is not None, "checked with the configuration"
    tls = _tls(admin.tls_cert_path, admin.tls_key_path)
    try:
        bound = bind(address.host, address.port)
    except OSError as fault:
        text = f"cannot listen on admin.listen_addr {admin.listen_addr}: {fault.strerror}"
        raise OSError(text) from None
    real = Address(address.host, bound.getsockname()[1])
    if admin.keys is not None and not tls and not address.is_loopback:
        log.warning("admin keys and cookies travel in plaintext: admin.tls_cert_path is not set")
    return Listener(real, [bound], *tls)


def _tls(cert: str | None, key: str | None) -> tuple[SSLContext, Certificates] | tuple[()]:
    """Return a context that follows its files, as `Certificates` does; nothing without TLS."""
    if cert is None or key is None:
        return ()
    try:
        context = http1.tls_context(cert, key)
    except (OSError, ValueError) as fault:
        raise OSError(
            f"cannot use admin.tls_cert_path {cert} with admin.tls_key_path {key}: {fault}"
        ) from None
    # New handshakes use what the one context holds, so a new chain is put into it.
    return context, Certificates(
        cert, key, load=http1.tls_context, apply=lambda _: context.load_cert_chain(cert, key)
    )


async def serve(
    listener: Listener | None,
    *,
    clock: Clock,
    journal: Journal,
    committer: Committer,
    reloader: Reloader,
    policy: Callable[[], QueuePolicy],
    grpc_address: Address,
    stop: trio.Event,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve the pages and the API until `stop`; a fault here ends nothing but this listener.

    Without a listener there is nothing to do.
    """
    if listener is None:
        task_status.started()
        return
    boot = reloader.boot
    backend = CoreBackend(
        journal.machine,
        clock,
        JournalReader(journal),
        CommitterDoor(committer, journal.store, boot.server.db_path),
        config=reloader,
        facts=Facts(
            version=__version__,
            started_at_ms=wall_ms(),
            listen_addr=str(grpc_address),
            admin_addr=str(listener.address),
            is_tls=boot.server.tls_cert_path is not None,
            db_path=boot.server.db_path,
            config_path=str(reloader.path),
            retention_ms=boot.storage.dead_letter_retention_ms,
            command_queue_capacity=boot.storage.command_queue_capacity,
        ),
        policy=policy,
        dedup_key=journal.dedup_key,
        new_job_id=new_job_id,
    )
    _log_listening(listener)
    task_status.started()
    try:
        async with trio.open_nursery() as nursery:
            if listener.certificates is not None:
                nursery.start_soon(listener.certificates.watch)
            await app.serve(
                backend,
                listener.sockets,
                tls=listener.tls,
                stop=stop,
                # Half, here and for metrics: a way in when the gRPC port has taken its share.
                reserved_descriptors=boot.transport.reserved_descriptors // 2,
            )
            nursery.cancel_scope.cancel()
    except Exception as fault:  # noqa: BLE001  # the queue goes on without its pages
        log.error("admin listener failed; the queue goes on without it", error=repr(fault))


def _log_listening(listener: Listener) -> None:
    address = listener.address
    host = "localhost" if address.is_wildcard else str(address).rpartition(":")[0]
    scheme = "http" if listener.tls is None else "https"
    log.info(
        f"admin UI listening at {scheme}://{host}:{address.port}",
        addr=str(address),
        tls="disabled" if listener.tls is None else "enabled",
    )
