"""Reserve: leasing ready jobs, waiting for them, and waking who waits.

A reserve visits its queues in the order listed and takes what is ready there, highest priority and
oldest first, until it has enough. Finding nothing it waits, and is served within the command that
makes a job ready. Reserves that wait are served in order of arrival, each as full as it asked for,
so as many are woken as there are jobs for and no other is touched.
"""

from collections.abc import Iterable
from heapq import heapify, heappop, heapreplace

from sepp.core.commands import Now, Reserve
from sepp.core.jobs import LAST_MS, JobTable
from sepp.core.outcomes import Leased, LeasedJob, Parked
from sepp.core.queue import Queue
from sepp.core.slots import JOBS

# What one job costs in an answer beyond its body: attempt, times, field tags and lengths.
ANSWER_OVERHEAD_BYTES = 96

PARKED = Parked()


def reserve(table: JobTable, command: Reserve, now: Now) -> Leased | Parked:
    """Lease what is ready, or wait, or answer empty at once."""
    queues: list[Queue] = []
    lease_ms = command.lease_ms
    has_ready = False
    for name in command.queues:
        queue = table.queues.get(name) or table.queue(name)
        queues.append(queue)
        ceiling_ms = queue.limits.max_lease_duration_ms
        if ceiling_ms < lease_ms:
            lease_ms = ceiling_ms
        if queue.ready_count:
            has_ready = True
    command.granted_ms = lease_ms if lease_ms > 0 else 1
    if has_ready:
        return lease_jobs(table, command, queues, now)
    for queue in queues:
        table.note_if_empty(queue)
    if command.wait_ms > 0:
        table.waiters.park(command, queues, deadline_ms=now.steady_ms + command.wait_ms)
        table.timers.is_hastened = True
        return PARKED
    count_empty(queues)
    return Leased([])


def lease_jobs(table: JobTable, command: Reserve, queues: list[Queue], now: Now) -> Leased:
    """Lease up to `max_jobs` of what is ready in `queues`; they share one lease end."""
    slots = table.slots
    skew_ms = now.skew_ms
    deadline_ms = min(now.steady_ms + command.granted_ms, LAST_MS)
    jobs_max = command.max_jobs
    bytes_max = command.answer_bytes_max if jobs_max > 1 else 0
    bytes_left = bytes_max
    jobs: list[LeasedJob] = []
    for queue in queues:
        if not queue.ready_count:
            continue
        count_before = len(jobs)
        while queue.ready_count and len(jobs) < jobs_max:
            if bytes_max:
                bytes_left -= slots.body_length[queue.first_ready()] + ANSWER_OVERHEAD_BYTES
                if bytes_left < 0 and jobs:
                    break  # and it stays below 0: no smaller job of a later queue overtakes
            slot = table.lease_next(queue, deadline_ms, skew_ms)
            key = slots.key(slot)
            slots.expect(JOBS, key, slot)  # for its ack
            jobs.append(
                LeasedJob(
                    slot,
                    key,
                    slots.attempt[slot],
                    slots.enqueued_ms[slot],
                    slots.flags[slot],
                )
            )
        count = len(jobs) - count_before
        if count:
            queue.reserved += count
            table.timers.leased.hasten(queue, deadline_ms)
    return Leased(jobs, deadline_ms + skew_ms)


def count_empty(queues: Iterable[Queue]) -> None:
    """Count an answer without jobs, once for each listed queue."""
    for queue in dict.fromkeys(queues):
        queue.reserve_empty += 1


def wake(table: JobTable, queues: Iterable[Queue], now: Now) -> None:
    """Serve who waits on `queues`, in order of arrival, while jobs are ready there."""
    # (arrival of the first waiter, queue) for each queue that has both a waiter and a job.
    heap = [
        (next(iter(queue.waiters)).arrival, queue.name, queue)
        for queue in queues
        if queue.waiters and queue.ready_count
    ]
    heapify(heap)
    while heap:
        arrival, name, queue = heap[0]
        if not (queue.waiters and queue.ready_count):
            heappop(heap)
            continue
        waiter = next(iter(queue.waiters))
        if waiter.arrival != arrival:
            # The one before was served through another of its queues.
            heapreplace(heap, (waiter.arrival, name, queue))
            continue
        _serve(table, waiter, now)


def _serve(table: JobTable, waiter: Reserve, now: Now) -> None:
    queues = _leave(table, waiter)
    leased = lease_jobs(table, waiter, queues, now)
    assert leased.jobs
    table.waiters.woken.append((waiter, leased))


def drop_waiter(table: JobTable, waiter: Reserve) -> bool:
    """Forget a waiting reserve; False when it no longer waits (served or ended)."""
    if not waiter.is_parked:
        return False
    _leave(table, waiter)
    return True


def end_wait(table: JobTable, waiter: Reserve) -> list[Queue]:
    """Answer a waiting reserve without jobs; return the queues it waited on."""
    queues = _leave(table, waiter)
    table.waiters.woken.append((waiter, Leased([])))
    return queues


def _leave(table: JobTable, waiter: Reserve) -> list[Queue]:
    """Take a reserve out of the queues it waits on, and return them as listed.

    It may have been all that kept one of them in RAM.
    """
    queues = [table.queues[name] for name in waiter.queues]
    table.waiters.leave(waiter, queues)
    for queue in queues:
        if not queue.live_count:
            table.note_if_empty(queue)
    return queues
