"""What became of a command, as values. An expected refusal is an outcome, never an exception."""

from attrs import define, field, frozen


@define
class Accepted:
    """The job is stored under `job_id`, or was already (`is_duplicate`)."""

    job_id: bytes
    is_duplicate: bool = False


@define
class QueueFull:
    """The queue held `limit` live jobs already."""

    queue: str
    limit: int


@define
class QueueClosing:
    """The queue is being deleted."""

    queue: str


JobResult = Accepted | QueueFull | QueueClosing


@define
class Enqueued:
    """One result a job, in request order."""

    results: list[JobResult]


@define
class AtomicRefused:
    """Nothing was stored; (index, why) of every failing job, ascending."""

    errors: list[tuple[int, QueueFull | QueueClosing]]


@define
class LeasedJob:
    """A job as it was at the moment of its lease; `flags` as in `slots.py`.

    The slot is good for reading the body until the next command.
    """

    slot: int
    job_id: bytes
    attempt: int
    enqueued_ms: int
    flags: int = 0


@define
class Leased:
    """Jobs now leased until `expires_ms` (wall); none when the wait ended empty."""

    jobs: list[LeasedJob]
    expires_ms: int = 0


@frozen
class Parked:
    """Nothing was ready: the reserve waits inside the machine and will turn up in `take_woken`."""


@define
class Acked:
    """The job is gone."""


@define
class NotFound:
    """No leased job has this id."""


@define
class AttemptMismatch:
    """The job is leased under another attempt."""

    attempt: int


@define
class Nacked:
    """The job was given up: `is_dead`, or ready at `retry_at_ms` (wall; 0 = at once)."""

    queue: str
    is_dead: bool
    retry_at_ms: int = 0


@define
class Extended:
    """The lease now ends at `expires_ms` (wall)."""

    expires_ms: int


@define
class GivenBack:
    """The job is ready again under the same attempt."""


@define
class DeadJob:
    """A dead letter taken out; `flags` as in `slots.py`, `reason_slot` -1: no reason was given.

    Slots are good for reading body and reason until the next command.
    """

    slot: int
    reason_slot: int
    job_id: bytes
    queue: str
    cause: int
    failed_ms: int
    attempt: int
    enqueued_ms: int
    flags: int = 0


@define
class Drained:
    """Dead letters removed from the store, oldest first."""

    records: list[DeadJob]


@define
class SweptJob:
    """A job as it was when a sweep moved it: promoted, redelivered or dead-lettered.

    `attempt` is that of the ended lease, or of the next delivery for a promotion. The slot is good
    for reading the body until the next command.
    """

    kind: str  # "promote", "redeliver" or "dead_letter"
    slot: int
    job_id: bytes
    queue: str
    attempt: int


@define
class Swept:
    """What one sweep did, and whether more is due already.

    `dead_lettered` are leases that ended with the last attempt, `dead_expired` dead letters past
    their retention, `queues_freed` names that held nothing for 15 minutes. `jobs` names those that
    were dead-lettered, and all that were moved when the command asked for it.
    """

    promoted: int = 0
    redelivered: int = 0
    dead_lettered: int = 0
    dedup_expired: int = 0
    dead_expired: int = 0
    waits_ended: int = 0
    closings_ended: int = 0
    audit_expired: int = 0
    queues_freed: int = 0
    has_more: bool = False
    jobs: list[SweptJob] = field(factory=list)


@define
class Moved:
    """How many of the named jobs an operator's action moved, which, and how many were no longer
    there.
    """

    job_ids: list[bytes]
    missing: int


@define
class Purged:
    """`count` entries went; `has_more` are left; `in_flight` leases stood in the way."""

    count: int
    has_more: bool
    in_flight: int


@define
class Done:
    """The command took effect and has nothing more to say."""


@define
class Appended:
    """The audit entry is stored under `sequence`."""

    sequence: int


Outcome = (
    Enqueued
    | AtomicRefused
    | Leased
    | Parked
    | Acked
    | NotFound
    | AttemptMismatch
    | Nacked
    | Extended
    | GivenBack
    | Drained
    | Swept
    | Moved
    | Purged
    | Done
    | Appended
)
