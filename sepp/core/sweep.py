"""The sweep: whatever the clock has made due, each kind within a budget of its own.

Order: closing tombstones, scheduled jobs, leases, dedup records, dead letters; then those who wait
are served, waits that are over end, audit entries past their age go, and queues that held nothing
for long are forgotten. A deadline is due when it is at or before now. Each kind takes its queues in
the order of their earliest deadline, a turn of at most `TURN_MAX` at a time, so a queue with a
large backlog does not keep the others waiting until it is done.
"""

from collections.abc import Callable

from sepp.core import dedup
from sepp.core.admin import audit_due_ms, end_closing, expire_audit
from sepp.core.commands import Cause, Now, Sweep
from sepp.core.jobs import JobTable
from sepp.core.lifecycle import Event
from sepp.core.outcomes import Swept, SweptJob
from sepp.core.queue import NEVER, SLOT_MASK, Queue
from sepp.core.reserve import count_empty, end_wait, wake
from sepp.core.timers import QueueTimer

# How many deadlines of one queue are handled before the next queue has its turn.
TURN_MAX = 256


def sweep(table: JobTable, command: Sweep, now: Now) -> Swept:
    """Do what is due, at most `count_max` of each kind."""
    swept = Swept()
    is_traced = command.is_traced
    timers = table.timers
    count_max = command.count_max
    # Queues that may have gained a ready job.
    grown: dict[Queue, None] = {}

    def turns(
        timer: QueueTimer, now_ms: int, turn: Callable[[Queue, int], int], grows: bool = False
    ) -> None:
        left = count_max
        while left and (queue := timer.pop_due(now_ms)) is not None:
            count = turn(queue, min(left, TURN_MAX))
            # A queue taken out has something due; without progress this would never end.
            assert count > 0
            left -= count
            timer.refresh(queue)
            if grows:
                grown[queue] = None

    def end_closing_turn(queue: Queue, _count_max: int) -> int:
        end_closing(table, queue)
        swept.closings_ended += 1
        return 1

    turns(timers.closing, now.wall_ms, end_closing_turn)
    turns(
        timers.scheduled,
        now.wall_ms,
        lambda queue, count: _promote(table, swept, queue, count, now, is_traced),
        grows=True,
    )
    turns(
        timers.leased,
        now.steady_ms,
        lambda queue, count: _expire_leases(table, swept, queue, count, now, is_traced),
        grows=True,
    )
    turns(
        timers.dedup,
        now.wall_ms,
        lambda queue, count: _expire_dedup(table, swept, queue, count, now),
    )
    if table.retention_ms:
        turns(
            timers.dead,
            now.wall_ms - table.retention_ms,
            lambda queue, count: _expire_dead(table, swept, queue, count, now),
        )
    wake(table, grown, now)
    _end_waits(table, swept, count_max, now)
    swept.audit_expired = expire_audit(table, count_max, now)
    _forget_idle(table, swept, count_max, now)
    wall_ms, steady_ms = next_deadlines(table)
    swept.has_more = wall_ms <= now.wall_ms or steady_ms <= now.steady_ms
    return swept


def next_deadlines(table: JobTable) -> tuple[int, int]:
    """Return the earliest deadlines of any kind (wall, steady); NEVER where there is none."""
    timers = table.timers
    wall_ms = min(timers.closing.next_ms(), timers.scheduled.next_ms(), timers.dedup.next_ms())
    if table.retention_ms:
        wall_ms = min(wall_ms, timers.dead.next_ms() + table.retention_ms)
    audit_ms = audit_due_ms(table)
    if audit_ms is not None:
        wall_ms = min(wall_ms, audit_ms)
    steady_ms = min(timers.leased.next_ms(), table.waiters.next_ms(), timers.idle.next_ms())
    return min(wall_ms, NEVER), steady_ms


def _promote(
    table: JobTable, swept: Swept, queue: Queue, count_max: int, now: Now, is_traced: bool
) -> int:
    count = 0
    while count < count_max and queue.scheduled and queue.scheduled[0] >> 32 <= now.wall_ms:
        slot = queue.scheduled[0] & SLOT_MASK
        if is_traced:
            _tell(table, swept, "promote", queue, slot)
        table.move(queue, slot, Event.PROMOTE)
        count += 1
    queue.promotions += count
    swept.promoted += count
    return count


def _tell(table: JobTable, swept: Swept, kind: str, queue: Queue, slot: int) -> None:
    slots = table.slots
    job = SweptJob(kind, slot, slots.key(slot), queue.name, slots.attempt[slot])
    swept.jobs.append(job)


def _expire_leases(
    table: JobTable, swept: Swept, queue: Queue, count_max: int, now: Now, is_traced: bool
) -> int:
    slots = table.slots
    count = 0
    while count < count_max and queue.leased and queue.leased[0] >> 32 <= now.steady_ms:
        slot = queue.leased[0] & SLOT_MASK
        if slots.attempt[slot] < slots.max_attempts[slot]:
            if is_traced:
                _tell(table, swept, "redeliver", queue, slot)
            table.retry(queue, slot, now)
            queue.lease_redeliveries += 1
            swept.redelivered += 1
        else:
            _tell(table, swept, "dead_letter", queue, slot)
            table.bury(queue, slot, Cause.LEASE_EXPIRED, None, now)
            swept.dead_lettered += 1
        count += 1
    return count


def _expire_dedup(table: JobTable, swept: Swept, queue: Queue, count_max: int, now: Now) -> int:
    count = 0
    while count < count_max and queue.dedup and queue.dedup.first() >> 32 <= now.wall_ms:
        dedup.forget(table, queue, queue.dedup.first() & SLOT_MASK)
        count += 1
    queue.dedup_expirations += count
    swept.dedup_expired += count
    return count


def _expire_dead(table: JobTable, swept: Swept, queue: Queue, count_max: int, now: Now) -> int:
    count = 0
    failed_ms_max = now.wall_ms - table.retention_ms
    while count < count_max and queue.dead and queue.dead[0] >> 32 <= failed_ms_max:
        table.move(queue, queue.dead[0] & SLOT_MASK, Event.REMOVE)
        count += 1
    table.dead_expired += count
    swept.dead_expired += count
    return count


def _end_waits(table: JobTable, swept: Swept, count_max: int, now: Now) -> None:
    waiters = table.waiters
    while swept.waits_ended < count_max and waiters.next_ms() <= now.steady_ms:
        count_empty(end_wait(table, waiters.first()))
        swept.waits_ended += 1


def _forget_idle(table: JobTable, swept: Swept, count_max: int, now: Now) -> None:
    while swept.queues_freed < count_max:
        queue = table.timers.idle.pop_due(now.steady_ms)
        if queue is None:
            return
        table.forget(queue)
        swept.queues_freed += 1
