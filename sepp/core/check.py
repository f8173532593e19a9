"""Whether orderings, counts and timers agree with the columns: for tests, and once at each start.

Each check names what it found. A failure is a fault of this package.
"""

from collections.abc import Iterator

from sepp.core.jobs import JobTable
from sepp.core.queue import NEVER, NO_DEDUP, NO_KEYS, SLOT_MASK, Queue
from sepp.core.slots import (
    ASIDE,
    DEAD,
    DEDUP,
    FREE,
    HAS_REASON,
    JOBS,
    LEASED,
    LIVE,
    QUEUES,
    READY,
    REASONS,
    SCHEDULED,
)


def count_leases_without_timer(table: JobTable) -> int:
    """Return how many jobs are leased in the columns but in no ordering; always 0.

    One pass over one column at the speed of memory: about 1 ms for each million slots.
    """
    leased = table.slots.state.tobytes().count(LEASED)
    return leased - sum(len(queue.leased) for queue in table.queues.values())


def check(table: JobTable) -> None:
    """Compare orderings, counts and timers with the columns; AssertionError names a difference."""
    assert not NO_KEYS
    assert not NO_DEDUP
    for name, queue in table.queues.items():
        assert queue.name == name
        _check_queue(table, queue)
        _check_timers(table, queue)
        if queue.number:
            assert table.by_number[queue.number] is queue
            _check_row(table, queue, queue.row_slot, QUEUES)
    assert len(table.by_number) == sum(1 for queue in table.queues.values() if queue.number)
    assert count_leases_without_timer(table) == 0
    _check_reasons(table)
    _check_waiters(table)
    for slot in table.deletes:
        assert table.slots.state[slot] == FREE
        assert slot not in table.states


def _check_queue(table: JobTable, queue: Queue) -> None:
    slots = table.slots
    live_count = 0
    for slot, state, key in _jobs(table, queue):
        assert slots.table(slot) == JOBS
        assert slots.state[slot] == state, f"slot {slot}: {slots.state[slot]}, listed as {state}"
        assert slots.queue[slot] == queue.number
        assert slots.order[slot] < table.next_order
        live_count += state not in (DEAD, ASIDE)
        if state == READY:
            assert key == slots.order[slot]
        else:
            assert key == slots.at_ms[slot] - table.skews.get(slot, 0)
        if state != LEASED:
            assert slot not in table.skews
        assert (slots.cause[slot] != 0) == (state == DEAD)
    assert queue.live_count == live_count
    lanes = [lane or [] for lane in queue.lanes]
    assert queue.ready_count == sum(len(lane) for lane in lanes)
    assert queue.lane_mask == sum(1 << p for p, lane in enumerate(lanes) if lane)
    causes = [0] * len(queue.dead_counts)
    for key in queue.dead:
        causes[slots.cause[key & SLOT_MASK]] += 1
    assert queue.dead_counts == causes
    for key in queue.dedup:
        _check_row(table, queue, key & SLOT_MASK, DEDUP)
        assert key >> 32 == slots.at_ms[key & SLOT_MASK]


def _jobs(table: JobTable, queue: Queue) -> Iterator[tuple[int, int, int]]:
    """Yield (slot, state by ordering, sort value) of each job of `queue`."""
    for priority, lane in enumerate(queue.lanes):
        for key in lane or []:
            assert table.slots.priority[key & SLOT_MASK] == priority
            yield key & SLOT_MASK, READY, key >> 32
    for ordering, state in (
        (queue.scheduled, SCHEDULED),
        (queue.leased, LEASED),
        (queue.dead, DEAD),
        (queue.aside, ASIDE),
    ):
        for key in ordering:
            yield key & SLOT_MASK, state, key >> 32


def _check_row(table: JobTable, queue: Queue, slot: int, number: int) -> None:
    assert table.slots.table(slot) == number
    assert table.slots.state[slot] == LIVE
    assert table.slots.queue[slot] == queue.number


def _check_timers(table: JobTable, queue: Queue) -> None:
    """An entry may be early, never late or missing."""
    timers = table.timers
    for ordering, timer in (
        (queue.scheduled, timers.scheduled),
        (queue.leased, timers.leased),
        (queue.dedup, timers.dedup),
        (queue.dead, timers.dead),
    ):
        if ordering:
            assert timer.noted_ms(queue) <= next(iter(ordering)) >> 32
    if queue.closing_slot >= 0:
        assert timers.closing.noted_ms(queue) <= table.slots.at_ms[queue.closing_slot]
    if queue.holds_nothing():
        assert timers.idle.noted_ms(queue) != NEVER


def _check_reasons(table: JobTable) -> None:
    for slot, reason_slot in table.reason_slots.items():
        assert table.slots.flags[slot] & HAS_REASON
        assert table.slots.table(reason_slot) == REASONS
        assert table.slots.state[reason_slot] == LIVE
        assert table.slots.key(reason_slot) == table.slots.key(slot)


def _check_waiters(table: JobTable) -> None:
    """Nobody waits where a job is ready, and everybody stands in each queue listed."""
    places = 0
    for queue in table.queues.values():
        assert not (queue.waiters and queue.ready_count)
        arrivals = [waiter.arrival for waiter in queue.waiters]
        assert arrivals == sorted(arrivals)
        for waiter in queue.waiters:
            assert waiter.is_parked
            assert queue.name in waiter.queues
        places += len(queue.waiters)
    assert places == sum(len(set(waiter.queues)) for waiter in table.waiters.all())
