"""What the admin side needs of the server: the one interface between them.

Reads answer from memory, at once and without a scan; only bodies may have to wait for the disk.
They may run one commit ahead of it. Every change goes through `run`, which applies its commands
back to back in one group, so that an action and its audit entry are durable together or not at
all.
"""

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final, Protocol

from attrs import define, field, frozen

from sepp.config.model import Config
from sepp.core.commands import Cause, Command, NewJob
from sepp.core.limits import QueueLimits
from sepp.core.outcomes import Outcome
from sepp.core.statistics import Flow

CustomValue = str | int | float | bool


class State(StrEnum):
    """The states of a job as the API names them."""

    READY = "ready"
    SCHEDULED = "scheduled"
    INFLIGHT = "inflight"
    DEAD_LETTER = "dead_letter"
    ASIDE = "aside"  # its body is damaged: kept, never delivered


CAUSES: Final[dict[int, str]] = {cause.value: cause.name.lower() for cause in Cause}
"""The API's names of the causes, by their number on disk."""


@define
class JobHead:
    """The columns of one job at the moment of the call. Times are wall milliseconds.

    `at_ms` is when it is due, its lease ends or it failed; 0 for a ready job. `slot` and
    `reason_slot` (-1: none) are good for `contents` and `reasons` as long as nothing was awaited
    in between; later those two notice when the slot has gone to another entry. `position` is the
    job's place in the order of its state: a page goes on behind it.
    """

    slot: int
    job_id: bytes
    queue: str
    state: State
    priority: int
    attempt: int
    max_attempts: int
    enqueued_ms: int
    at_ms: int
    cause: int
    body_bytes: int
    reason_slot: int
    has_final_reason: bool
    was_requeued: bool
    position: int


@define
class JobContent:
    """The parts of a job that never change. `payload` is None when it has none."""

    job_type: str
    payload: bytes | None = None
    encoding: str = ""
    custom: dict[str, CustomValue] = field(factory=dict)
    scheduled_at_ms: int | None = None  # as the producer sent it
    traceparent: str | None = None


@define
class QueueNumbers:
    """Counts and counters of one queue, and the earliest moments in it (wall ms; None: none).

    Counters start at 0 with the process, or when the queue was last forgotten.
    """

    name: str
    ready: int = 0
    scheduled: int = 0
    inflight: int = 0
    dead_lettered: int = 0
    aside: int = 0
    dead_by_cause: tuple[int, ...] = (0, 0, 0, 0, 0)  # indexed by cause number
    enqueued_total: int = 0
    reserved_total: int = 0
    acked_total: int = 0
    nacked_total: int = 0
    dead_lettered_total: int = 0
    oldest_ready_at_ms: int | None = None
    next_due_ms: int | None = None
    next_lease_end_ms: int | None = None
    last_nack_at_ms: int | None = None
    last_nack_reason: str | None = None

    @property
    def live(self) -> int:
        """Jobs that count towards the depth limit."""
        return self.ready + self.scheduled + self.inflight


@frozen
class Facts:
    """What does not change while the server runs, as it was at the start."""

    version: str
    started_at_ms: int
    listen_addr: str
    admin_addr: str
    is_tls: bool
    db_path: str
    config_path: str
    retention_ms: int
    command_queue_capacity: int


@define
class Vitals:
    """The state of the moment, from counters."""

    command_queue_len: int = 0
    is_disk_full: bool = False  # new jobs are refused
    is_memory_short: bool = False  # new jobs are refused
    last_reload_error: str | None = None


@define
class Segment:
    """One file of the store: its bytes, and how many of them still belong to live entries."""

    name: str
    total_bytes: int
    live_bytes: int


@define
class ServerDetails:
    """What the server page shows beside the figures; None where it is not known."""

    memory_bytes: int | None = None
    data_bytes: int | None = None
    live_bytes: int | None = None
    segment_count: int | None = None
    entry_count: int | None = None
    disk_free_bytes: int | None = None
    commit_count: int = 0
    commit_p50_ms: float | None = None  # at most so long
    commit_p99_ms: float | None = None
    segments: tuple[Segment, ...] = ()
    last_compaction_ms: int | None = None


@define
class EnqueueForm:
    """A job as an operator describes it; not validated yet."""

    queue: str
    job_type: str
    payload: bytes | None = None
    encoding: str = ""
    priority: int | None = None
    max_attempts: int | None = None
    scheduled_at_ms: int | None = None
    idempotency_key: str | None = None
    custom: dict[str, CustomValue] = field(factory=dict)


@frozen
class Rejection:
    """Why a job is refused: the label of the reason, and a sentence with value and limit."""

    reason: str
    detail: str


@define
class Committed:
    """What became of commands that are durable now; `sequence` is that of their audit entry, if
    any.
    """

    outcomes: list[Outcome]
    sequence: int | None = None


@define
class AuditRow:
    """One entry of the trail as stored; `body` is what was given to `run`."""

    sequence: int
    at_ms: int
    body: bytes


AuditBuilder = Callable[[list[Outcome]], bytes | None]


class BackupFailedError(Exception):
    """No backup was made and nothing of one is left; the text says why."""


@define
class BackupMade:
    """A backup of the whole store."""

    last_lsn: int
    segment_count: int
    byte_count: int


class CommandRefusedError(Exception):
    """The server could not take the commands: nothing of them happened. Its text says why.

    `is_full` is set when waiting may help (the command queue or the disk is full).
    """

    def __init__(self, text: str, *, is_full: bool = True) -> None:
        super().__init__(text)
        self.is_full = is_full


class ConfigSource(Protocol):
    """The running configuration, the one the server booted with, and the file behind them."""

    path: Path
    running: Config
    boot: Config
    reload_count: int  # grows after every cycle of the watcher, also a failed or empty one
    last_error: str | None  # why the newest cycle failed, None when it did not

    def candidate(self, text: str) -> Config:
        """Return what the server would run with if the file held `text`, environment included.

        Raises:
            sepp.config.errors.ConfigError: It would refuse it.
        """
        ...

    def pinned(self) -> tuple[str, ...]:
        """Return the paths set by the environment, also those of fields that do not exist."""
        ...

    async def wait_reload(self, seen: int) -> None:
        """Return once `reload_count` is no longer `seen`."""
        ...


class Backend(Protocol):
    """See the module."""

    config: ConfigSource
    facts: Facts

    def now_ms(self) -> int:
        """Return the wall clock."""
        ...

    def vitals(self) -> Vitals:
        """Return the state of the server; reads counters only."""
        ...

    async def details(self) -> ServerDetails:
        """Return what the server page shows; may look at the disk."""
        ...

    def queue_names(self) -> list[str]:
        """Return the queues that hold something or were in use within 15 minutes, in any order."""
        ...

    def queue(self, name: str) -> QueueNumbers:
        """Return the numbers of a queue; all zero for one that is not known."""
        ...

    def flows(self, names: Sequence[str]) -> list[Flow]:
        """Return the little that is looked at each second, of each of these queues."""
        ...

    def limits(self, name: str) -> QueueLimits:
        """Return the effective limits of a queue, declared or not."""
        ...

    def heads(
        self, queue: str, state: State, after: int | None, limit: int, *, is_newest_first: bool
    ) -> list[JobHead]:
        """Return up to `limit` jobs behind `after`: in dispatch order, or by due time, lease end or
        time of death. `is_newest_first` reverses it for every state but ready."""
        ...

    def seek(self, at_ms: int) -> int:
        """Return the position in front of everything that is sorted at or after `at_ms`."""
        ...

    async def locate(self, job_ids: Sequence[bytes]) -> None:
        """Make sure that `find` can answer for these ids; it reads nothing from the disk."""
        ...

    def find(self, job_id: bytes) -> JobHead | None:
        """Return a job in any state, or None; its id was located before."""
        ...

    async def contents(self, heads: Sequence[JobHead]) -> list[JobContent | None]:
        """Return what the jobs hold; None for one that is gone or damaged meanwhile.

        Reads in slices: the loop is free after every 256 KiB.
        """
        ...

    async def reasons(self, heads: Sequence[JobHead]) -> list[str | None]:
        """Return the last known nack reason of each job, or None."""
        ...

    def prepare(self, form: EnqueueForm) -> NewJob | Rejection:
        """Check a job as the RPC does and return it ready to be inserted, or why not."""
        ...

    async def run(
        self, commands: Iterable[Command], audit: AuditBuilder | None = None
    ) -> Committed:
        """Apply `commands` in order within one group and return once they are durable.

        `audit` sees the outcomes and returns the entry to append in the same group, or None for
        none.

        Raises:
            CommandRefusedError: Nothing was applied.
        """
        ...

    async def backup(self, directory: str) -> BackupMade:
        """Copy the store to a new directory on this machine, durably.

        Raises:
            BackupFailedError: It could not be.
        """
        ...

    async def audit_rows(self, before: int | None, limit: int) -> list[AuditRow]:
        """Return up to `limit` entries below sequence number `before`, newest first."""
        ...
