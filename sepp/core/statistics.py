"""What metrics and admin pages may see of the machine, as frozen values.

Depths and counters are read from plain ints; listings seek to where the last page ended. Nothing
here walks jobs, so the cost does not grow with the backlog. All of it may be one commit ahead of
the disk.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from attrs import frozen
from sortedcontainers import SortedList

from sepp.core.commands import Cause
from sepp.core.jobs import JobTable
from sepp.core.queue import NEVER, PRIORITY_COUNT, SLOT_MASK, Counters, Queue
from sepp.core.slots import ASIDE, DEAD, JOBS, LEASED, READY, SCHEDULED

# A cursor is a sort key; for ready jobs the place of the lane stands above it. Sort keys of jobs
# need at most 96 bits: 64 of order and 32 of slot.
_LANE_SHIFT = 96


@frozen
class QueueStatistics:
    """One queue at one moment; what is by cause is indexed by the `Cause` number, place 0 unused.

    Args:
        number: The queue's number on disk, 0 while it has held nothing yet.
        live: ready + scheduled + leased, what the depth cap counts.
        dead_by_cause: Dead letters held now.
        aside: Jobs with a damaged body, kept out of delivery; not counted as live.
        oldest_ready_enqueued_ms: When the oldest ready job was enqueued (wall), None if none is.
        next_due_ms: When the first scheduled job is due (wall).
        next_lease_end_ms: When the first lease ends (wall as of now).
        closing_until_ms: Deadline of the closing tombstone (wall), None while the queue is open.
        last_nack_ms: When the last nack came in this process (wall), None if none did.
        last_nack_reason: The first 1 KiB of what it said, UTF-8.
        enqueued: This and the rest are counters since the queue was first used in this process.
        dead_lettered: By cause; also counted when dead letters are not kept.
    """

    name: str
    number: int
    ready: int
    scheduled: int
    leased: int
    dead: int
    aside: int
    live: int
    dedup_records: int
    waiters: int
    dead_by_cause: tuple[int, ...]
    oldest_ready_enqueued_ms: int | None
    next_due_ms: int | None
    next_lease_end_ms: int | None
    closing_until_ms: int | None
    last_nack_ms: int | None
    last_nack_reason: bytes | None
    enqueued: int
    reserved: int
    acked: int
    nacked: int
    dead_lettered: tuple[int, ...]
    deduplicated: int
    reserve_empty: int
    promotions: int
    lease_redeliveries: int
    dedup_expirations: int


class Flow(NamedTuple):
    """What went through a queue: a tuple, since there may be ten thousand each second.

    Attributes:
        counts: Enqueued, acked, nacked and dead-lettered since it was first used in this process.
        is_at_rest: Jobs are ready and none is leased.
    """

    counts: tuple[int, int, int, int]
    is_at_rest: bool


NO_FLOW: Final = Flow((0, 0, 0, 0), False)


@frozen
class MachineStatistics:
    """Every queue by name, and totals, which include what forgotten queues counted."""

    queues: tuple[QueueStatistics, ...]
    ready: int
    scheduled: int
    leased: int
    dead: int
    aside: int
    dedup_records: int
    audit_entries: int
    waiters: int
    dead_expired: int
    dead_drained: int
    enqueued: int
    reserved: int
    acked: int
    nacked: int
    dead_lettered: tuple[int, ...]
    deduplicated: int


@frozen
class Totals:
    """What belongs to no one queue; reading it costs the same however much is stored.

    Args:
        queues: Queues in RAM.
        waiters: Reserves that wait.
        forgotten: What queues counted that are in RAM no more; it only grows.
    """

    queues: int
    waiters: int
    audit_entries: int
    dead_expired: int
    dead_drained: int
    forgotten: Counters


@frozen
class JobRow:
    """One job as its columns are now; for a lease `at_ms` is its end (wall), for a dead letter
    failed_at.

    `reason_slot` is where the last nack's reason is, -1 if none was given; flags say whether the
    job died of it. `cursor` is the job's own place in the order of its state. Slots are good for
    reading bodies until the next command.
    """

    slot: int
    job_id: bytes
    queue: str
    state: int
    priority: int
    attempt: int
    max_attempts: int
    cause: int
    flags: int
    at_ms: int
    enqueued_ms: int
    body_length: int
    reason_slot: int
    cursor: int


@frozen
class JobPage:
    """Jobs in the order of their state, and the cursor of the next page; None at the end."""

    jobs: tuple[JobRow, ...]
    next_cursor: int | None


def queue_statistics(table: JobTable, queue: Queue) -> QueueStatistics:
    """Return depths and counters of one queue."""
    slots = table.slots
    return QueueStatistics(
        name=queue.name,
        number=queue.number,
        ready=queue.ready_count,
        scheduled=len(queue.scheduled),
        leased=len(queue.leased),
        dead=len(queue.dead),
        aside=len(queue.aside),
        live=queue.live_count,
        dedup_records=len(queue.dedup),
        waiters=len(queue.waiters),
        dead_by_cause=tuple(queue.dead_counts),
        oldest_ready_enqueued_ms=_oldest_ready_ms(table, queue),
        next_due_ms=queue.scheduled[0] >> 32 if queue.scheduled else None,
        next_lease_end_ms=slots.at_ms[queue.leased[0] & SLOT_MASK] if queue.leased else None,
        closing_until_ms=slots.at_ms[queue.closing_slot] if queue.closing_slot >= 0 else None,
        last_nack_ms=queue.last_nack_ms or None,
        last_nack_reason=queue.last_nack_reason,
        enqueued=queue.enqueued,
        reserved=queue.reserved,
        acked=queue.acked,
        nacked=queue.nacked,
        dead_lettered=tuple(queue.dead_lettered),
        deduplicated=queue.deduplicated,
        reserve_empty=queue.reserve_empty,
        promotions=queue.promotions,
        lease_redeliveries=queue.lease_redeliveries,
        dedup_expirations=queue.dedup_expirations,
    )


def flows(table: JobTable, names: Sequence[str]) -> list[Flow]:
    """Return the flow of each of these queues, of one that is not in RAM zeros."""
    found = []
    for name in names:
        queue = table.queues.get(name)
        if queue is None:
            found.append(NO_FLOW)
            continue
        counts = (queue.enqueued, queue.acked, queue.nacked, sum(queue.dead_lettered))
        found.append(Flow(counts, queue.ready_count > 0 and not queue.leased))
    return found


def _oldest_ready_ms(table: JobTable, queue: Queue) -> int | None:
    firsts = [lane[0] for lane in queue.lanes if lane]
    return table.slots.enqueued_ms[min(firsts) & SLOT_MASK] if firsts else None


def statistics(table: JobTable) -> MachineStatistics:
    """Return all queues by name and the totals; O(queues)."""
    queues = tuple(queue_statistics(table, table.queues[name]) for name in sorted(table.queues))
    retired = table.retired
    return MachineStatistics(
        queues=queues,
        ready=sum(queue.ready for queue in queues),
        scheduled=sum(queue.scheduled for queue in queues),
        leased=sum(queue.leased for queue in queues),
        dead=sum(queue.dead for queue in queues),
        aside=sum(queue.aside for queue in queues),
        dedup_records=sum(queue.dedup_records for queue in queues),
        audit_entries=len(table.audit),
        waiters=len(table.waiters),
        dead_expired=table.dead_expired,
        dead_drained=table.dead_drained,
        enqueued=retired.enqueued + sum(queue.enqueued for queue in queues),
        reserved=retired.reserved + sum(queue.reserved for queue in queues),
        acked=retired.acked + sum(queue.acked for queue in queues),
        nacked=retired.nacked + sum(queue.nacked for queue in queues),
        dead_lettered=(
            0,
            *(
                retired.dead_lettered[cause] + sum(queue.dead_lettered[cause] for queue in queues)
                for cause in Cause
            ),
        ),
        deduplicated=retired.deduplicated + sum(queue.deduplicated for queue in queues),
    )


def totals(table: JobTable) -> Totals:
    """Return what belongs to no one queue; O(1)."""
    forgotten = Counters()
    forgotten.add(table.retired)
    return Totals(
        queues=len(table.queues),
        waiters=len(table.waiters),
        audit_entries=len(table.audit),
        dead_expired=table.dead_expired,
        dead_drained=table.dead_drained,
        forgotten=forgotten,
    )


def job_row(table: JobTable, job_id: bytes) -> JobRow | None:
    """Return a job in any state, None if there is none of that id."""
    slot = table.find_job(job_id)
    return None if slot < 0 else _row(table, slot, _cursor(table, slot))


def _cursor(table: JobTable, slot: int) -> int:
    slots = table.slots
    state = slots.state[slot]
    if state == READY:
        lane = PRIORITY_COUNT - 1 - slots.priority[slot]
        return lane << _LANE_SHIFT | slots.order[slot] << 32 | slot
    # Leases are sorted by the steady clock; the column holds the wall.
    skew_ms = table.skews.get(slot, 0) if state == LEASED else 0
    return (slots.at_ms[slot] - skew_ms) << 32 | slot


def _row(table: JobTable, slot: int, cursor: int) -> JobRow:
    slots = table.slots
    assert slots.table(slot) == JOBS
    return JobRow(
        slot=slot,
        job_id=slots.key(slot),
        queue=table.queue_of(slot).name,
        state=slots.state[slot],
        priority=slots.priority[slot],
        attempt=slots.attempt[slot],
        max_attempts=slots.max_attempts[slot],
        cause=slots.cause[slot],
        flags=slots.flags[slot],
        at_ms=slots.at_ms[slot],
        enqueued_ms=slots.enqueued_ms[slot],
        body_length=slots.body_length[slot],
        reason_slot=table.reason_slots.get(slot, -1),
        cursor=cursor,
    )


def job_page(
    table: JobTable,
    name: str,
    state: int,
    *,
    cursor: int | None,
    limit: int,
    is_newest_first: bool = False,
) -> JobPage:
    """Return jobs of a queue in one state, from behind `cursor` on.

    Ready jobs come in the order of delivery, the others by due time, lease end, failed_at or when
    they were set aside. The cursor is a place in that order, not a count: jobs that come and go
    between two pages neither shift nor repeat the rest. O(limit + log jobs).

    Args:
        table: The job table.
        name: The queue; an unknown one has no jobs.
        state: READY, SCHEDULED, LEASED, DEAD or ASIDE.
        cursor: `next_cursor` of the page before, None for the first.
        limit: How many jobs at most, at least 1.
        is_newest_first: Go through the order from its end; not for ready jobs.
    """
    assert limit > 0
    queue = table.queues.get(name)
    if queue is None:
        return JobPage((), None)
    if state == READY:
        assert not is_newest_first
        keys = _ready_keys(queue, -1 if cursor is None else cursor)
    else:
        ordering = {
            SCHEDULED: queue.scheduled,
            LEASED: queue.leased,
            DEAD: queue.dead,
            ASIDE: queue.aside,
        }[state]
        if is_newest_first:
            keys = ordering.irange(None, cursor, inclusive=(True, False), reverse=True)
        else:
            keys = _keys_after(ordering, -1 if cursor is None else cursor)
    found = list(islice(keys, limit + 1))
    rows = tuple(_row(table, key & SLOT_MASK, key) for key in found[:limit])
    return JobPage(rows, found[limit - 1] if len(found) > limit else None)


def _ready_keys(queue: Queue, after: int) -> Iterator[int]:
    """Yield cursors of ready jobs behind `after`, highest priority first."""
    for priority in range(PRIORITY_COUNT - 1, -1, -1):
        lane = queue.lanes[priority]
        base = (PRIORITY_COUNT - 1 - priority) << _LANE_SHIFT
        if lane and base + lane[-1] > after:
            yield from (base + key for key in _keys_after(lane, after - base))


def _keys_after(ordering: SortedList, after: int) -> Iterator[int]:
    keys: Iterator[int] = ordering.irange(after, inclusive=(False, True))
    return keys


def audit_page(table: JobTable, *, before: int | None, limit: int) -> list[tuple[int, int, int]]:
    """Return (sequence, at_ms, slot) of audit entries below sequence `before`, newest first."""
    bound = (NEVER if before is None else before) << 32
    keys = islice(table.audit.irange(None, bound, inclusive=(True, False), reverse=True), limit)
    return [(key >> 32, table.slots.at_ms[key & SLOT_MASK], key & SLOT_MASK) for key in keys]
