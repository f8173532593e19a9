"""From a data directory to a machine that can take commands, told step by step in the log."""

from collections.abc import Callable
from time import perf_counter
from typing import Final

import trio
from attrs import frozen

from segstore import MarkerDamaged, NoRoom, Options, Store, StoreError
from sepp import exits
from sepp.clock import Clock, wall_ms
from sepp.committer import BYTES_MAX
from sepp.config.model import Config
from sepp.config.policy import QueuePolicy
from sepp.core.machine import Machine
from sepp.core.restore import InconsistentStateError
from sepp.core.slots import FIELDS
from sepp.journal import Journal, QueueNameDamaged
from sepp.logs import get_logger

log = get_logger("sepp.opening")

# A snapshot is due after so many segments of log; with small ones, often.
SNAPSHOT_SEGMENTS: Final = 4
NO_ROOM_PAUSE_S: Final = 1


@frozen
class Opened:
    """A store whose writer we are, and the machine restored from it.

    Args:
        seconds: How long that took.
    """

    journal: Journal
    seconds: float

    @property
    def store(self) -> Store:
        """The store; closing it is the owner's affair."""
        return self.journal.store


async def open_store(
    boot: Config,
    policy: QueuePolicy,
    clock: Clock,
    *,
    is_stopped: Callable[[], bool],
    on_progress: Callable[[], None],
) -> Opened | None:
    """Open the store and restore core; None when we were told to stop meanwhile.

    Args:
        boot: What the server started with.
        policy: Limits of queues.
        clock: Resumed where the log stands.
        is_stopped: Asked once the log was read.
        on_progress: Called now and then while it is read, on another thread.

    Raises:
        StartError: The store cannot be used.
    """
    path, storage = boot.server.db_path, boot.storage
    log.info("opening storage...", db_path=path)
    if storage.persist_mode == "buffer":
        log.warning("writes are not fsynced; recent ones can be lost", persist_mode="buffer")
    started = perf_counter()
    options = Options(
        persist=storage.persist_mode,
        segment_bytes=storage.segment_bytes,
        cache_bytes=storage.cache_size_bytes,
        snapshot_log_bytes=SNAPSHOT_SEGMENTS * storage.segment_bytes,
        batch_bytes_max=2 * (BYTES_MAX + boot.limits.max_message_bytes),
        salvage_command=f"sepp-trio store salvage {path} NEW_DIRECTORY",
    )
    try:
        store = await Store.open(
            path,
            fields=FIELDS,
            options=options,
            clock_ms=wall_ms,
            on_progress=_Progress(on_progress),
        )
    except (StoreError, OSError) as fault:
        how = f": {options.salvage_command}" if isinstance(fault, MarkerDamaged) else ""
        raise exits.StartError(f"cannot open the store in {path}: {fault}{how}") from None
    if is_stopped() or not await _become_writer(store, is_stopped, on_progress):
        await store.close()
        return None
    clock.resume(store.position().log_clock_ms)
    machine = Machine(
        store.slots,
        policy,
        retention_ms=storage.dead_letter_retention_ms,
        audit_retention_ms=boot.admin.audit_retention_ms,
    )
    journal = Journal(store, machine)
    try:
        await journal.restore(clock.now())
    except (InconsistentStateError, QueueNameDamaged) as fault:
        await store.close()
        raise exits.StartError(f"cannot use the store in {path}: {fault}") from None
    opened = Opened(journal, perf_counter() - started)
    _log_ready(opened, boot, policy)
    return opened


async def _become_writer(
    store: Store, is_stopped: Callable[[], bool], on_progress: Callable[[], None]
) -> bool:
    """Begin to write, as soon as the disk has room for it; False when we were told to stop."""
    is_told = False
    while not is_stopped():
        try:
            await store.become_writer()
        except NoRoom as fault:
            if not is_told:
                log.warning("the disk is full; waiting for space to begin", reason=fault)
            is_told = True
            on_progress()
            await trio.sleep(NO_ROOM_PAUSE_S)
        else:
            return True
    return False


def _log_ready(opened: Opened, boot: Config, policy: QueuePolicy) -> None:
    totals = opened.journal.machine.statistics()
    storage = boot.storage
    log.info(
        "storage ready",
        elapsed_ms=round(opened.seconds * 1000),
        ready=totals.ready,
        scheduled=totals.scheduled,
        inflight=totals.leased,
        dead_letter=totals.dead,
    )
    if totals.dead and not storage.dead_letter_retention_ms:
        log.warning(
            "dead letters are stored but retention is off; they are kept until drained",
            dead_letter=totals.dead,
        )
    if totals.aside:
        log.warning(
            "jobs with damaged bodies are kept out of delivery; a purge of their queue deletes "
            "them",
            aside=totals.aside,
        )
    if policy.is_strict:
        foreign = [queue.name for queue in totals.queues if not policy.is_declared(queue.name)]
        if foreign:
            log.warning("strict mode: these queues are undeclared and out of reach", queues=foreign)
    log.info(
        "storage opened",
        persist_mode=storage.persist_mode,
        segment_bytes=storage.segment_bytes,
        cache_size_bytes=storage.cache_size_bytes,
    )


class _Progress:
    """Logs how far the log was read: from the first second on, once a second."""

    def __init__(self, on_progress: Callable[[], None]) -> None:
        self._next_s = perf_counter() + 1
        self._on_progress = on_progress

    def __call__(self, done_bytes: int, total_bytes: int) -> None:
        now_s = perf_counter()
        if now_s >= self._next_s:
            self._next_s = now_s + 1
            percent = round(100 * done_bytes / max(total_bytes, 1))
            log.info("reading the log", percent=percent, bytes=done_bytes, total_bytes=total_bytes)
            self._on_progress()
