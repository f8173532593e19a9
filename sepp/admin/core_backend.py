"""The admin side's view of a running server: core's orderings and counters, bodies from the store.

Reads look at the machine directly, in the same task turn, so they are consistent and take no lock.
Every list starts with a seek in a sorted list; nothing walks over what it does not return.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, Protocol

import trio

from sepp import validate
from sepp._generated import queue_pb2 as pb
from sepp.admin.backend import (
    AuditBuilder,
    AuditRow,
    BackupMade,
    Committed,
    ConfigSource,
    EnqueueForm,
    Facts,
    JobContent,
    JobHead,
    QueueNumbers,
    Rejection,
    ServerDetails,
    State,
    Vitals,
)
from sepp.admin.job_codec import content_of, request_of
from sepp.admin.rejections import describe
from sepp.clock import Clock
from sepp.config.policy import QueuePolicy
from sepp.core import slots as tables
from sepp.core.commands import AppendAudit, Command, NewJob
from sepp.core.limits import QueueLimits
from sepp.core.machine import Machine
from sepp.core.outcomes import Appended, Outcome
from sepp.core.slots import HAS_REASON, REASON_IS_FINAL, WAS_REQUEUED
from sepp.core.statistics import Flow, JobRow

SLICE_BYTES: Final = 256 * 1024  # of bodies read before other tasks get a turn
SLICE_ROWS: Final = 32
AUDIT_BYTES: Final = 1024  # of an entry, as a guess for the slices

_STATES: Final = {
    tables.READY: State.READY,
    tables.SCHEDULED: State.SCHEDULED,
    tables.LEASED: State.INFLIGHT,
    tables.DEAD: State.DEAD_LETTER,
    tables.ASIDE: State.ASIDE,
}
_NUMBERS: Final = {state: number for number, state in _STATES.items()}

FollowUp = Callable[[list[Outcome]], Command | None]


class Reader(Protocol):
    """Bodies of live slots."""

    def bodies_nowait(self, slots: Sequence[int]) -> list[bytes | None]:
        """Return what RAM and page cache hold; None: not there."""
        ...

    def read_bodies(self, slots: Sequence[int]) -> Awaitable[Sequence[object]]:
        """Return the bodies; one that is no bytes is damaged. Places are taken at the call."""
        ...

    async def locate(self, keys: Sequence[tuple[int, bytes]]) -> None:
        """Bring the places of these keys into RAM, so that the slot table finds them."""
        ...


class Door(Protocol):
    """The committer, as far as operators need it."""

    async def run_group(self, commands: list[Command], follow_up: FollowUp) -> list[Outcome]:
        """Apply the commands back to back, then what `follow_up` makes of their outcomes, in one
        group; return all outcomes once durable.

        Raises:
            sepp.admin.backend.CommandRefusedError: Nothing was applied.
        """
        ...

    def vitals(self) -> Vitals:
        """Return the state of the moment; reads counters only."""
        ...

    async def details(self) -> ServerDetails:
        """Return what the server page shows; may look at the disk."""
        ...

    async def backup(self, directory: str) -> BackupMade:
        """See `sepp.admin.backend.Backend.backup`."""
        ...


class CoreBackend:
    """Satisfies `sepp.admin.backend.Backend`.

    Args:
        machine, clock: Those of the committer.
        reader: Bodies.
        door: The way to change anything.
        config, facts: See the protocol.
        policy: Returns the policy that holds now.
        dedup_key: Hashes (queue, idempotency key).
        new_job_id: Makes a job id.
    """

    def __init__(
        self,
        machine: Machine,
        clock: Clock,
        reader: Reader,
        door: Door,
        *,
        config: ConfigSource,
        facts: Facts,
        policy: Callable[[], QueuePolicy],
        dedup_key: Callable[[str, str], bytes],
        new_job_id: Callable[[], bytes],
    ) -> None:
        self.config = config
        self.facts = facts
        self._machine = machine
        self._slots = machine.table.slots
        self._clock = clock
        self._reader = reader
        self._door = door
        self._policy = policy
        self._dedup_key = dedup_key
        self._new_job_id = new_job_id

    def now_ms(self) -> int:
        """Return the wall clock."""
        return self._clock.now().wall_ms

    def vitals(self) -> Vitals:
        """Return the state of the moment."""
        vitals = self._door.vitals()
        vitals.last_reload_error = self.config.last_error
        return vitals

    async def details(self) -> ServerDetails:
        """Return what the server page shows."""
        return await self._door.details()

    def limits(self, name: str) -> QueueLimits:
        """Return the effective limits of a queue."""
        return self._policy().limits(name)

    # Queues

    def queue_names(self) -> list[str]:
        """Return the queues core knows."""
        return self._machine.queue_names()

    def queue(self, name: str) -> QueueNumbers:
        """Return the numbers of a queue."""
        known = self._machine.queue_statistics(name)
        if known is None:
            return QueueNumbers(name)
        reason = known.last_nack_reason
        return QueueNumbers(
            name,
            ready=known.ready,
            scheduled=known.scheduled,
            inflight=known.leased,
            dead_lettered=known.dead,
            aside=known.aside,
            dead_by_cause=known.dead_by_cause,
            enqueued_total=known.enqueued,
            reserved_total=known.reserved,
            acked_total=known.acked,
            nacked_total=known.nacked,
            dead_lettered_total=sum(known.dead_lettered),
            oldest_ready_at_ms=known.oldest_ready_enqueued_ms,
            next_due_ms=known.next_due_ms,
            next_lease_end_ms=known.next_lease_end_ms,
            last_nack_at_ms=known.last_nack_ms,
            last_nack_reason=None if reason is None else reason.decode(errors="replace"),
        )

    def flows(self, names: Sequence[str]) -> list[Flow]:
        """Return what is looked at each second."""
        return self._machine.flows(names)

    # Jobs

    def seek(self, at_ms: int) -> int:
        """Return the position in front of all that is sorted at or after `at_ms`."""
        return at_ms << 32

    def heads(
        self, queue: str, state: State, after: int | None, limit: int, *, is_newest_first: bool
    ) -> list[JobHead]:
        """Return the next jobs of a state behind `after`."""
        page = self._machine.job_page(
            queue,
            _NUMBERS[state],
            cursor=after,
            limit=limit,
            is_newest_first=is_newest_first and state is not State.READY,
        )
        return [_head(row) for row in page.jobs]

    async def locate(self, job_ids: Sequence[bytes]) -> None:
        """Bring the places of these jobs into RAM."""
        await self._reader.locate([(tables.JOBS, job_id) for job_id in job_ids])

    def find(self, job_id: bytes) -> JobHead | None:
        """Return a job in any state."""
        row = self._machine.job_row(job_id)
        return None if row is None else _head(row)

    # Bodies

    async def contents(self, heads: Sequence[JobHead]) -> list[JobContent | None]:
        """Return what the jobs hold."""
        wanted = [(tables.JOBS, head.job_id, head.slot, head.body_bytes) for head in heads]
        bodies = await self._bodies(wanted)
        return [content_of(head, body) for head, body in zip(heads, bodies, strict=True)]

    async def reasons(self, heads: Sequence[JobHead]) -> list[str | None]:
        """Return the last known reason of each job."""
        wanted = [
            (tables.REASONS, head.job_id, head.reason_slot, 1024)
            for head in heads
            if head.reason_slot >= 0
        ]
        found = iter(await self._bodies(wanted))
        texts = [next(found) if head.reason_slot >= 0 else None for head in heads]
        return [None if text is None else text.decode(errors="replace") for text in texts]

    async def _bodies(self, wanted: Sequence[tuple[int, bytes, int, int]]) -> list[bytes | None]:
        """Read (table, key, slot, bytes) in slices; None for what is gone or damaged."""
        found: list[bytes | None] = []
        start = 0
        while start < len(wanted):
            end, total = start, 0
            while end < len(wanted) and end - start < SLICE_ROWS and total < SLICE_BYTES:
                total += wanted[end][3]
                end += 1
            found += await self._slice([entry[:3] for entry in wanted[start:end]])
            start = end
            await trio.lowlevel.checkpoint()
        return found

    async def _slice(self, entries: list[tuple[int, bytes, int]]) -> list[bytes | None]:
        slots = self._slots
        # After a wait a slot may belong to another entry.
        live = [
            place
            for place, (table, key, slot) in enumerate(entries)
            if slots.table(slot) == table and slots.key(slot) == key
        ]
        bodies: list[object] = list(self._reader.bodies_nowait([entries[p][2] for p in live]))
        missing = [place for place, body in enumerate(bodies) if body is None]
        if missing:
            read = await self._reader.read_bodies([entries[live[place]][2] for place in missing])
            for place, body in zip(missing, read, strict=True):
                bodies[place] = body
        found: list[bytes | None] = [None] * len(entries)
        for place, body in zip(live, bodies, strict=True):
            found[place] = body if isinstance(body, bytes) else None
        return found

    # Changes

    def prepare(self, form: EnqueueForm) -> NewJob | Rejection:
        """Check a job as the RPC does and return it ready to be inserted, or why not."""
        request = request_of(form)
        checked = validate.check_job(request, self._policy(), self.now_ms())
        if isinstance(checked, pb.JobRejection):
            return describe(checked)
        return checked.new_job(self._new_job_id(), checked.trace, self._dedup_key)

    async def run(
        self, commands: Iterable[Command], audit: AuditBuilder | None = None
    ) -> Committed:
        """Apply commands and their audit entry in one group."""

        def follow_up(outcomes: list[Outcome]) -> Command | None:
            body = None if audit is None else audit(outcomes)
            return None if body is None else AppendAudit(body)

        outcomes = await self._door.run_group(list(commands), follow_up)
        if outcomes and isinstance(outcomes[-1], Appended):
            return Committed(outcomes[:-1], outcomes[-1].sequence)
        return Committed(outcomes)

    async def backup(self, directory: str) -> BackupMade:
        """Copy the store to a new directory."""
        return await self._door.backup(directory)

    async def audit_rows(self, before: int | None, limit: int) -> list[AuditRow]:
        """Return up to `limit` audit entries below `before`, newest first."""
        rows = self._machine.audit_page(before=before, limit=limit)
        wanted = [
            (tables.AUDIT, sequence.to_bytes(16, "big"), slot, AUDIT_BYTES)
            for sequence, _, slot in rows
        ]
        bodies = await self._bodies(wanted)
        return [
            AuditRow(sequence, at_ms, body or b"")
            for (sequence, at_ms, _), body in zip(rows, bodies, strict=True)
        ]


def _head(row: JobRow) -> JobHead:
    state = _STATES[row.state]
    return JobHead(
        slot=row.slot,
        job_id=row.job_id,
        queue=row.queue,
        state=state,
        priority=row.priority,
        attempt=row.attempt,
        max_attempts=row.max_attempts,
        enqueued_ms=row.enqueued_ms,
        at_ms=0 if state is State.READY else row.at_ms,
        cause=row.cause,
        body_bytes=row.body_length,
        reason_slot=row.reason_slot if row.flags & HAS_REASON else -1,
        has_final_reason=bool(row.flags & REASON_IS_FINAL),
        was_requeued=bool(row.flags & WAS_REQUEUED),
        position=row.cursor,
    )
