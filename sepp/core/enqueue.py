"""Enqueue: the checks that only the commit can make, and the insert.

Order of the checks: a closing queue refuses before its dedup records are looked at; a duplicate is
a success whatever the depth; the depth cap comes last. An atomic enqueue asks all of its jobs each
question before the next, and counts every job against the cap, duplicates too.
"""

from sepp.core import dedup
from sepp.core.commands import Enqueue, NewJob, Now
from sepp.core.jobs import JobTable
from sepp.core.outcomes import (
    Accepted,
    AtomicRefused,
    Enqueued,
    JobResult,
    QueueClosing,
    QueueFull,
)
from sepp.core.queue import Queue
from sepp.core.reserve import wake
from sepp.core.slots import DEDUP


def enqueue(table: JobTable, command: Enqueue, now: Now) -> Enqueued | AtomicRefused:
    """Insert jobs in order, each on its own merits or all or none."""
    if command.is_atomic:
        errors = _refusals(table, command.jobs, now)
        if errors:
            return AtomicRefused(errors)
    results: list[JobResult] = []
    # Queues that somebody waits on and that hold a ready job now.
    wanted: dict[Queue, None] = {}
    for job in command.jobs:
        queue = table.queues.get(job.queue) or table.queue(job.queue)
        results.append(_enqueue_one(table, queue, job, now))
        if queue.waiters and queue.ready_count:
            wanted[queue] = None
    if wanted:
        wake(table, wanted, now)
    return Enqueued(results)


def _enqueue_one(table: JobTable, queue: Queue, job: NewJob, now: Now) -> JobResult:
    if queue.closing_slot >= 0 and is_closing(table, queue, now):
        return QueueClosing(queue.name)
    dedup_key = job.dedup_key
    dedup_slot = -1
    if dedup_key is not None:
        dedup_slot = table.slots.find(DEDUP, dedup_key)
        job_id = dedup.find_duplicate(table, dedup_slot, now)
        if job_id is not None:
            queue.deduplicated += 1
            return Accepted(job_id, True)
    depth_max = queue.limits.max_queue_depth
    if depth_max is not None and queue.live_count >= depth_max:
        return QueueFull(queue.name, depth_max)
    table.insert(queue, job, now)
    if dedup_key is not None:
        dedup.remember(table, queue, dedup_key, dedup_slot, job.job_id, now)
    return Accepted(job.job_id)


def is_closing(table: JobTable, queue: Queue, now: Now) -> bool:
    """Whether `queue` refuses jobs: its tombstone has not lapsed, swept or not."""
    return queue.closing_slot >= 0 and table.slots.at_ms[queue.closing_slot] > now.wall_ms


def _refusals(
    table: JobTable, jobs: list[NewJob], now: Now
) -> list[tuple[int, QueueFull | QueueClosing]]:
    """Return why an atomic enqueue cannot be: jobs of closing queues, else jobs of full ones."""
    queues = [table.queues.get(job.queue) or table.queue(job.queue) for job in jobs]
    closing = {queue for queue in queues if is_closing(table, queue, now)}
    if closing:
        return [
            (index, QueueClosing(queue.name))
            for index, queue in enumerate(queues)
            if queue in closing
        ]
    counts: dict[Queue, int] = {}
    for queue in queues:
        counts[queue] = counts.get(queue, 0) + 1
    full: dict[Queue, int] = {}
    for queue, count in counts.items():
        depth_max = queue.limits.max_queue_depth
        if depth_max is not None and queue.live_count + count > depth_max:
            full[queue] = depth_max
    return [
        (index, QueueFull(queue.name, full[queue]))
        for index, queue in enumerate(queues)
        if queue in full
    ]
