"""Everything that can change state, as values: whoever wants a change gives one to the committer.

Commands carry what has been decided outside: ids, encoded bodies, spans already checked and clamped
to global limits. Per-queue limits are looked up by the machine when it handles the command.
"""

from enum import IntEnum

from attrs import define, field, frozen


@frozen
class Now:
    """One reading of the clocks, good for all commands of one millisecond; all in milliseconds.

    Args:
        wall_ms: The wall clock. Schedules, dedup windows and retention go by it. It may step.
        log_ms: The largest wall reading so far. Stamped on jobs and batches, never runs backwards.
        steady_ms: Wall at start plus monotonic time since. Leases and waits go by it.
        skew_ms: `wall_ms - steady_ms` once the wall clock was stepped; 0 while the two agree
            within 50 ms.
    """

    wall_ms: int
    log_ms: int
    steady_ms: int
    skew_ms: int = 0


class Directive(IntEnum):
    """What a nack asks for."""

    POLICY = 0
    DELAY = 1
    DEAD_LETTER = 2


class Cause(IntEnum):
    """Why a job is dead; the numbers of DeadLetterCause on the wire, and on disk."""

    ATTEMPTS_EXHAUSTED = 1
    REJECTED = 2
    LEASE_EXPIRED = 3
    ADMIN = 4


@define
class NewJob:
    """One job to insert. `due_ms` 0 means ready at once; `dedup_key` is the hashed key or None."""

    queue: str
    job_id: bytes
    body: bytes
    priority: int
    max_attempts: int
    due_ms: int = 0
    dedup_key: bytes | None = None


@define
class Enqueue:
    """Insert jobs in order; with `is_atomic` all or none."""

    jobs: list[NewJob]
    is_atomic: bool = False


@define(eq=False)
class Reserve:
    """Lease up to `max_jobs`, queues in list order; park for `wait_ms` when nothing is ready.

    `answer_bytes_max` bounds the summed bodies of one answer (0: no bound); one job always fits.
    The object itself is the handle of the parked wait. Its lease is capped by the smallest ceiling
    of all listed queues when it is handled, also if it is served much later.
    """

    queues: tuple[str, ...]
    lease_ms: int
    wait_ms: int = 0
    max_jobs: int = 1
    answer_bytes_max: int = 0
    # Set by the machine: the lease as capped, and while parked the end of the wait (steady), the
    # place in the order of arrival.
    granted_ms: int = field(default=0, init=False)
    deadline_ms: int = field(default=0, init=False)
    arrival: int = field(default=0, init=False)
    is_parked: bool = field(default=False, init=False)


@define
class Ack:
    """Remove a leased job."""

    job_id: bytes
    attempt: int


@define
class Nack:
    """Give a leased job up: retry it or bury it. `reason` is UTF-8, or None when none was sent."""

    job_id: bytes
    attempt: int
    directive: Directive = Directive.POLICY
    delay_ms: int = 0
    reason: bytes | None = None


@define
class Extend:
    """Replace the end of a lease by now + `lease_ms`, capped by the queue's ceiling."""

    job_id: bytes
    attempt: int
    lease_ms: int


@define
class GiveBack:
    """Undo a lease whose answer never left: same attempt, old place in the queue.

    `expires_ms` is the end of that lease as `Leased` gave it; with 0 the attempt alone is compared.
    """

    job_id: bytes
    attempt: int
    expires_ms: int = 0


@define
class SetAside:
    """Keep a leased job whose body cannot be read out of delivery, for good."""

    job_id: bytes
    attempt: int


@define
class Drain:
    """Take up to `max_records` dead letters out, oldest first; of one queue or of all."""

    queue: str | None = None
    max_records: int = 1
    answer_bytes_max: int = 0


@define
class Sweep:
    """Do what is due, at most `count_max` of each kind; name each job moved if `is_traced`."""

    count_max: int = 10_000
    is_traced: bool = False


@define
class Release:
    """Operator: end a lease at once, fenced by attempt; a failed attempt without a delay."""

    job_id: bytes
    attempt: int
    reason: bytes | None = None


@define
class DeadLetter:
    """Operator: bury ready or scheduled jobs of a queue; ids not there are counted as missing."""

    queue: str
    job_ids: list[bytes]
    reason: bytes | None = None


@define
class Requeue:
    """Operator: send dead letters of a queue to the back of it, attempt 1."""

    queue: str
    job_ids: list[bytes]


@define
class DeleteDead:
    """Operator: delete dead letters of a queue."""

    queue: str
    job_ids: list[bytes]


@define
class Close:
    """Operator: refuse jobs for a queue until `deadline_ms` (wall); repeat it to move that."""

    queue: str
    deadline_ms: int


@define
class Open:
    """Operator: take the closing tombstone away."""

    queue: str


@define
class Purge:
    """Operator: delete up to `count_max` entries of a queue.

    They go in this order: ready, scheduled, dead, set aside, dedup. A leased job stops it before
    anything is deleted, unless `spares_leased`.
    """

    queue: str
    count_max: int = 1000
    spares_leased: bool = False


@define
class AppendAudit:
    """Append one encoded audit entry; its sequence number is the outcome."""

    body: bytes


Command = (
    Enqueue
    | Reserve
    | Ack
    | Nack
    | Extend
    | GiveBack
    | SetAside
    | Drain
    | Sweep
    | Release
    | DeadLetter
    | Requeue
    | DeleteDead
    | Close
    | Open
    | Purge
    | AppendAudit
)
