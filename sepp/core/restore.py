"""Building every ordering anew from the slot table, after an open.

One pass over the live slots sorts them by queue and kind; each ordering is then built in one go.
Leases are taken up where they stand on disk, in wall time: what is left of one by the wall clock
now is left of it on the steady clock, and one that has passed is due in the first sweep.
"""

from collections.abc import Iterable, Mapping

from sortedcontainers import SortedList

from sepp.core.check import count_leases_without_timer
from sepp.core.commands import Now
from sepp.core.jobs import JobTable
from sepp.core.queue import SLOT_MASK, Queue
from sepp.core.slots import (
    ASIDE,
    AUDIT,
    CLOSING,
    DEAD,
    DEDUP,
    HAS_REASON,
    JOBS,
    LEASED,
    QUEUES,
    READY,
    REASONS,
    SCHEDULED,
)


class InconsistentStateError(Exception):
    """Entries of the store contradict each other: a job of no queue, a reason of no job.

    Never a torn write, those are whole batches. The store is damaged or from another program; the
    server must not start on it.
    """


def restore(table: JobTable, live: Iterable[int], queue_names: Mapping[int, str], now: Now) -> None:
    """Fill a new job table; see `Machine.restore`."""
    assert not table.queues
    table.steady_ms = now.steady_ms
    for number, name in queue_names.items():
        queue = table.queue(name)
        queue.assign_number(number)
        table.by_number[number] = queue
        table.number_last = max(table.number_last, number)
    jobs, reasoned, others = _split(table, live)
    for (number, state, priority), keys in jobs.items():
        if state == LEASED and now.skew_ms:
            # The wall clock was stepped while the store was opened.
            table.skews.update(dict.fromkeys((key & SLOT_MASK for key in keys), now.skew_ms))
            keys = [key - (now.skew_ms << 32) for key in keys]
        _place_jobs(table, _queue(table, number), state, priority, keys)
    _place_rows(table, others)
    _tie_reasons(table, reasoned, others[REASONS])
    for queue in table.queues.values():
        if queue.row_slot < 0:
            raise InconsistentStateError(f"queue number {queue.number} has a name but no row")
        for timer in table.timers.all():
            timer.refresh(queue)
    assert count_leases_without_timer(table) == 0


def _split(
    table: JobTable, live: Iterable[int]
) -> tuple[dict[tuple[int, int, int], list[int]], list[int], dict[int, list[int]]]:
    """Return sort keys of jobs by kind, slots of jobs with a reason, slots by other table.

    The kind of a job is (queue number, state, priority), priority 0 but for ready jobs.
    """
    slots = table.slots
    table_of = slots.table
    state, at_ms, order = slots.state, slots.at_ms, slots.order
    queue, priority, flags = slots.queue, slots.priority, slots.flags
    jobs: dict[tuple[int, int, int], list[int]] = {}
    others: dict[int, list[int]] = {REASONS: [], DEDUP: [], QUEUES: [], CLOSING: [], AUDIT: []}
    reasoned: list[int] = []
    order_max = 0
    for slot in live:
        number = table_of(slot)
        if number != JOBS:
            others[number].append(slot)
            continue
        if flags[slot] & HAS_REASON:
            reasoned.append(slot)
        place = state[slot]
        rank = order[slot]
        if rank > order_max:
            order_max = rank
        if place == READY:
            group = (queue[slot], READY, priority[slot])
            key = rank << 32 | slot
        else:
            group = (queue[slot], place, 0)
            key = at_ms[slot] << 32 | slot
        keys = jobs.get(group)
        if keys is None:
            jobs[group] = [key]
        else:
            keys.append(key)
    table.next_order = order_max + 1
    return jobs, reasoned, others


def _queue(table: JobTable, number: int) -> Queue:
    queue = table.by_number.get(number)
    if queue is None:
        raise InconsistentStateError(
            f"an entry belongs to queue number {number}, which has no name"
        )
    return queue


def _place_jobs(table: JobTable, queue: Queue, state: int, priority: int, keys: list[int]) -> None:
    ordering = SortedList(keys)
    if state == READY:
        if priority >= len(queue.lanes):
            raise InconsistentStateError(
                f"{len(keys)} jobs of {queue.name!r} have priority {priority}"
            )
        queue.lanes[priority] = ordering
        queue.lane_mask |= 1 << priority
        queue.ready_count += len(keys)
    elif state == SCHEDULED:
        queue.scheduled = ordering
    elif state == LEASED:
        queue.leased = ordering
    elif state == DEAD:
        queue.dead = ordering
        causes = table.slots.cause
        for key in keys:
            queue.dead_counts[causes[key & SLOT_MASK]] += 1
        return
    elif state == ASIDE:
        queue.aside = ordering
        return
    else:
        raise InconsistentStateError(
            f"{len(keys)} jobs of {queue.name!r} are in unknown state {state}"
        )
    queue.live_count += len(keys)


def _place_rows(table: JobTable, others: dict[int, list[int]]) -> None:
    slots = table.slots
    for slot in others[QUEUES]:
        _queue(table, slots.queue[slot]).row_slot = slot
    for slot in others[CLOSING]:
        _queue(table, slots.queue[slot]).closing_slot = slot
    dedup: dict[int, list[int]] = {}
    for slot in others[DEDUP]:
        dedup.setdefault(slots.queue[slot], []).append(slots.at_ms[slot] << 32 | slot)
    for number, keys in dedup.items():
        _queue(table, number).dedup = SortedList(keys)
    sequences = [(int.from_bytes(slots.key(slot), "big"), slot) for slot in others[AUDIT]]
    table.audit = SortedList(sequence << 32 | slot for sequence, slot in sequences)
    table.audit_next = max((sequence for sequence, _ in sequences), default=0) + 1


def _tie_reasons(table: JobTable, jobs: list[int], reasons: list[int]) -> None:
    """Find the reason of each of `jobs` by the id they share."""
    slots = table.slots
    by_id = {slots.key(slot): slot for slot in reasons}
    for slot in jobs:
        reason_slot = by_id.pop(slots.key(slot), None)
        if reason_slot is None:
            raise InconsistentStateError(f"job {slots.key(slot).hex()} lost its reason")
        table.reason_slots[slot] = reason_slot
    if by_id:
        raise InconsistentStateError(f"{len(by_id)} reasons belong to no job")
