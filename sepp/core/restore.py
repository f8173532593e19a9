"""Building every ordering anew from the slot table, after an open.

The columns are sorted by queue and kind of their slots; each ordering is then built in one go.
Leases are taken up where they stand on disk, in wall time: what is left of one by the wall clock
now is left of it on the steady clock, and one that has passed is due in the first sweep.
"""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from itertools import compress
from typing import Final

from sortedcontainers import SortedList

from sepp.core.check import count_leases_without_timer
from sepp.core.commands import Now
from sepp.core.jobs import JobTable
from sepp.core.packed import PackedKeys
from sepp.core.queue import SLOT_MASK, Queue
from sepp.core.slots import (
    ASIDE,
    AUDIT,
    CLOSING,
    DEAD,
    DEDUP,
    HAS_REASON,
    LEASED,
    QUEUES,
    READY,
    REASONS,
    SCHEDULED,
)

_HAS_REASON: Final = bytes(flags & HAS_REASON for flags in range(256))


class InconsistentStateError(Exception):
    """Entries of the store contradict each other: a job of no queue, a reason of no job.

    Never a torn write, those are whole batches. The store is damaged or from another program; the
    server must not start on it.
    """


def restore(
    table: JobTable,
    rows: Mapping[int, Sequence[int]],
    job_count: int,
    queue_names: Mapping[int, str],
    now: Now,
) -> None:
    """Fill a new job table; see `Machine.restore`."""
    assert not table.queues
    table.steady_ms = now.steady_ms
    for number, name in queue_names.items():
        queue = table.queue(name)
        queue.assign_number(number)
        table.by_number[number] = queue
        table.number_last = max(table.number_last, number)
    found_count = 0
    for (number, state, priority), keys in _jobs(table).items():
        found_count += len(keys)
        if state == LEASED and now.skew_ms:
            # The wall clock was stepped while the store was opened.
            table.skews.update(dict.fromkeys((key & SLOT_MASK for key in keys), now.skew_ms))
            keys = [key - (now.skew_ms << 32) for key in keys]
        _place_jobs(table, _queue(table, number), state, priority, keys)
    if found_count != job_count:
        raise InconsistentStateError(f"{job_count - found_count} jobs are in an unknown state")
    _place_rows(table, rows)
    _tie_reasons(table, rows[REASONS])
    for queue in table.queues.values():
        if queue.row_slot < 0:
            raise InconsistentStateError(f"queue number {queue.number} has a name but no row")
        for timer in table.timers.all():
            timer.refresh(queue)
    assert count_leases_without_timer(table) == 0


def _jobs(table: JobTable) -> dict[tuple[int, int, int], list[int]]:
    """Return the sort keys of all jobs by kind: (queue number, state, priority).

    The priority is 0 but for ready jobs. Whole columns are gone through one by one, and the slots
    of a kind chosen by a byte for each: a large backlog waits for this.
    """
    slots = table.slots
    states, priorities = slots.state.tobytes(), slots.priority.tobytes()
    found: dict[tuple[int, int, int], list[int]] = {}
    order_max = 0
    for state in (READY, SCHEDULED, LEASED, DEAD, ASIDE):
        chosen = _flags(states, state)
        if 1 not in chosen:
            continue
        order_max = max(order_max, max(compress(slots.order, chosen)))
        if state != READY:
            for number, keys in _grouped(slots.queue, slots.at_ms, chosen):
                found[number, state, 0] = keys
            continue
        for priority in sorted(set(compress(priorities, chosen))):
            lane = _both(chosen, _flags(priorities, priority))
            for number, keys in _grouped(slots.queue, slots.order, lane):
                found[number, READY, priority] = keys
    table.next_order = order_max + 1
    return found


def _flags(column: bytes, value: int) -> bytes:
    """Return 1 for each slot with this value in a column of bytes, 0 for each other."""
    flags = bytearray(256)
    flags[value] = 1
    return column.translate(flags)


def _both(one: bytes, other: bytes) -> bytes:
    """Return 1 for each slot with a 1 in both."""
    together = int.from_bytes(one, "little") & int.from_bytes(other, "little")
    return together.to_bytes(len(one), "little")


def _grouped(
    queues: "array[int]", ranks: "array[int]", chosen: bytes
) -> Iterable[tuple[int, list[int]]]:
    """Return what orderings hold for the chosen slots, by queue number."""
    ranked = zip(compress(ranks, chosen), compress(range(len(chosen)), chosen), strict=True)
    keys = [rank << 32 | slot for rank, slot in ranked]
    distinct = set(compress(queues, chosen))
    if len(distinct) == 1:
        return [(distinct.pop(), keys)]
    groups: dict[int, list[int]] = {number: [] for number in sorted(distinct)}
    for number, key in zip(compress(queues, chosen), keys, strict=True):
        groups[number].append(key)
    return groups.items()


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
    else:
        assert state == ASIDE
        queue.aside = ordering
        return
    queue.live_count += len(keys)


def _place_rows(table: JobTable, rows: Mapping[int, Sequence[int]]) -> None:
    slots = table.slots
    for slot in rows[QUEUES]:
        _queue(table, slots.queue[slot]).row_slot = slot
    for slot in rows[CLOSING]:
        _queue(table, slots.queue[slot]).closing_slot = slot
    if rows[DEDUP]:
        chosen = bytearray(len(slots.state))
        for slot in rows[DEDUP]:
            chosen[slot] = 1
        for number, keys in _grouped(slots.queue, slots.at_ms, bytes(chosen)):
            _queue(table, number).dedup = PackedKeys(keys)
    sequences = [(int.from_bytes(slots.key(slot), "big"), slot) for slot in rows[AUDIT]]
    table.audit = SortedList(sequence << 32 | slot for sequence, slot in sequences)
    table.audit_next = max((sequence for sequence, _ in sequences), default=0) + 1


def _tie_reasons(table: JobTable, reasons: Sequence[int]) -> None:
    """Find the reason of each job that has one by the id they share."""
    slots = table.slots
    flagged = slots.flags.tobytes().translate(_HAS_REASON)
    jobs = compress(range(len(flagged)), flagged)
    by_id = {slots.key(slot): slot for slot in reasons}
    for slot in jobs:
        reason_slot = by_id.pop(slots.key(slot), None)
        if reason_slot is None:
            raise InconsistentStateError(f"job {slots.key(slot).hex()} lost its reason")
        table.reason_slots[slot] = reason_slot
    if by_id:
        raise InconsistentStateError(f"{len(by_id)} reasons belong to no job")
