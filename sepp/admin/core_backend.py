"""The admin side's view of a running server: core's orderings and counters, bodies from the store.

Reads look at the machine directly, in the same task turn, so they are consistent and take no lock.
Every list starts with a seek in a sorted list; nothing walks over what it does not return.
"""

from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import islice
from typing import Final, Protocol

import trio

from sepp import validate, wire
from sepp._generated import queue_pb2 as pb
from sepp.admin.backend import (
    AuditBuilder,
    AuditRow,
    Committed,
    ConfigSource,
    EnqueueForm,
    Facts,
    JobContent,
    JobHead,
    Position,
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
from sepp.core.queue import PRIORITY_COUNT, SLOT_MASK, Queue
from sepp.core.slots import HAS_REASON, REASON_IS_FINAL, WAS_REQUEUED

SLICE_BYTES: Final = 256 * 1024  # of bodies read before other tasks get a turn
SLICE_ROWS: Final = 32

_STATES: Final = {
    tables.READY: State.READY,
    tables.SCHEDULED: State.SCHEDULED,
    tables.LEASED: State.INFLIGHT,
    tables.DEAD: State.DEAD_LETTER,
}

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
        self._table = machine.table
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
        return list(self._table.queues)

    def queue(self, name: str) -> QueueNumbers:
        """Return the numbers of a queue."""
        queue = self._table.queues.get(name)
        if queue is None:
            return QueueNumbers(name)
        slots = self._slots
        numbers = QueueNumbers(
            name,
            ready=queue.ready_count,
            scheduled=len(queue.scheduled),
            inflight=len(queue.leased),
            dead_lettered=len(queue.dead),
            dead_by_cause=tuple(queue.dead_counts),
            enqueued_total=queue.enqueued,
            reserved_total=queue.reserved,
            acked_total=queue.acked,
            nacked_total=queue.nacked,
            dead_lettered_total=sum(queue.dead_lettered),
        )
        if queue.ready_count:
            enqueued_ms = slots.enqueued_ms
            mask = queue.lane_mask
            if mask & (mask - 1) == 0:  # one lane, as most queues have
                lane = queue.lanes[mask.bit_length() - 1]
                assert lane is not None
                numbers.oldest_ready_at_ms = enqueued_ms[lane[0] & SLOT_MASK]
            else:
                firsts = [lane[0] & SLOT_MASK for lane in queue.lanes if lane]
                numbers.oldest_ready_at_ms = min(enqueued_ms[slot] for slot in firsts)
        if queue.scheduled:
            numbers.next_due_ms = queue.scheduled[0] >> 32
        if queue.leased:
            # The key is steady; the column holds the wall time people are shown.
            numbers.next_lease_end_ms = slots.at_ms[queue.leased[0] & SLOT_MASK]
        if queue.last_nack_ms:
            numbers.last_nack_at_ms = queue.last_nack_ms
            if queue.last_nack_reason is not None:
                numbers.last_nack_reason = queue.last_nack_reason.decode(errors="replace")
        return numbers

    # Jobs

    def seek(self, at_ms: int) -> Position:
        """Return the position in front of all that is sorted at or after `at_ms`."""
        return Position(0, at_ms << 32)

    def heads(
        self, queue: str, state: State, after: Position | None, limit: int, *, is_newest_first: bool
    ) -> list[JobHead]:
        """Return the next jobs of a state behind `after`."""
        known = self._table.queues.get(queue)
        if known is None:
            return []
        if state is State.READY:
            return self._ready_heads(known, after, limit)
        ordering = {
            State.SCHEDULED: known.scheduled,
            State.INFLIGHT: known.leased,
            State.DEAD_LETTER: known.dead,
        }[state]
        if is_newest_first:
            end = len(ordering) if after is None else ordering.bisect_left(after.key)
            keys = ordering.islice(max(0, end - limit), end, reverse=True)
        else:
            start = 0 if after is None else ordering.bisect_right(after.key)
            keys = ordering.islice(start, start + limit)
        return [self._head(key & SLOT_MASK, Position(0, key)) for key in keys]

    def _ready_heads(self, queue: Queue, after: Position | None, limit: int) -> list[JobHead]:
        found: list[JobHead] = []
        first = PRIORITY_COUNT - 1 if after is None else after.lane
        for priority in range(first, -1, -1):
            lane = queue.lanes[priority]
            if not lane:
                continue
            is_inside = after is not None and priority == after.lane
            start = lane.bisect_right(after.key) if is_inside and after is not None else 0
            for key in lane.islice(start, start + limit - len(found)):
                found.append(self._head(key & SLOT_MASK, Position(priority, key)))
            if len(found) >= limit:
                break
        return found

    async def locate(self, job_ids: Sequence[bytes]) -> None:
        """Bring the places of these jobs into RAM."""
        await self._reader.locate([(tables.JOBS, job_id) for job_id in job_ids])

    def find(self, job_id: bytes) -> JobHead | None:
        """Return a job in any state."""
        slot = self._table.find_job(job_id)
        if slot < 0 or self._slots.state[slot] not in _STATES:
            return None
        return self._head(slot, self._position(slot))

    def _position(self, slot: int) -> Position:
        slots = self._slots
        state = slots.state[slot]
        if state == tables.READY:
            return Position(slots.priority[slot], slots.order[slot] << 32 | slot)
        at_ms = slots.at_ms[slot]
        if state == tables.LEASED:
            at_ms -= self._table.skews.get(slot, 0)
        return Position(0, at_ms << 32 | slot)

    def _head(self, slot: int, position: Position) -> JobHead:
        slots = self._slots
        flags = slots.flags[slot]
        state = _STATES[slots.state[slot]]
        return JobHead(
            slot=slot,
            job_id=slots.key(slot),
            queue=self._table.by_number[slots.queue[slot]].name,
            state=state,
            priority=slots.priority[slot],
            attempt=slots.attempt[slot],
            max_attempts=slots.max_attempts[slot],
            enqueued_ms=slots.enqueued_ms[slot],
            at_ms=0 if state is State.READY else slots.at_ms[slot],
            cause=slots.cause[slot],
            body_bytes=slots.body_length[slot],
            reason_slot=self._table.reason_slots.get(slot, -1) if flags & HAS_REASON else -1,
            has_final_reason=bool(flags & REASON_IS_FINAL),
            was_requeued=bool(flags & WAS_REQUEUED),
            position=position,
        )

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
        job_id = self._new_job_id()
        body = wire.encode_body(
            request,
            job_id=wire.id_text(job_id),
            priority=checked.priority,
            max_attempts=checked.max_attempts,
            payload=checked.payload,
            has_custom=checked.has_custom,
            trace=checked.trace,
            scheduled=checked.scheduled,
        )
        key = checked.idempotency_key
        dedup_key = None if key is None else self._dedup_key(form.queue, key)
        return NewJob(
            form.queue,
            job_id,
            body,
            checked.priority,
            checked.max_attempts,
            checked.due_ms,
            dedup_key,
        )

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

    async def audit_rows(self, before: int | None, limit: int) -> list[AuditRow]:
        """Return up to `limit` audit entries below `before`, newest first."""
        trail = self._table.audit
        end = len(trail) if before is None else bisect_left(trail, before << 32)
        keys = list(islice(trail.islice(max(0, end - limit), end, reverse=True), limit))
        wanted = [
            (tables.AUDIT, (key >> 32).to_bytes(16, "big"), key & SLOT_MASK, 1024) for key in keys
        ]
        at_ms = [self._slots.at_ms[key & SLOT_MASK] for key in keys]
        bodies = await self._bodies(wanted)
        return [
            AuditRow(key >> 32, at, body or b"")
            for key, at, body in zip(keys, at_ms, bodies, strict=True)
        ]
