"""Dead letters: taking them out, sending them round again, and burying jobs by hand."""

from sepp.core.commands import Cause, DeadLetter, DeleteDead, Drain, Now, Requeue
from sepp.core.jobs import JobTable
from sepp.core.lifecycle import Event
from sepp.core.outcomes import DeadJob, Drained, Moved
from sepp.core.queue import SLOT_MASK, Queue
from sepp.core.reserve import ANSWER_OVERHEAD_BYTES, wake
from sepp.core.slots import DEAD, READY, SCHEDULED


def drain(table: JobTable, command: Drain, now: Now) -> Drained:
    """Delete and return the oldest dead letters, of one queue or of all.

    Works on whatever is stored, also when dead letters are no longer kept.
    """
    records: list[DeadJob] = []
    bytes_left = command.answer_bytes_max
    while len(records) < command.max_records:
        queue = _oldest(table, command.queue)
        if queue is None:
            break
        slot = queue.dead[0] & SLOT_MASK
        reason_slot = table.final_reason_slot(slot)
        if command.answer_bytes_max:
            bytes_left -= table.slots.body_length[slot] + ANSWER_OVERHEAD_BYTES
            if reason_slot >= 0:
                bytes_left -= table.slots.body_length[reason_slot]
            if bytes_left < 0 and records:
                break
        records.append(_record(table, queue, slot, reason_slot))
        table.move(queue, slot, Event.REMOVE)
    table.dead_drained += len(records)
    return Drained(records)


def _oldest(table: JobTable, name: str | None) -> Queue | None:
    """Return the queue that holds the oldest dead letter, or the named one if it holds any."""
    if name is not None:
        queue = table.queues.get(name)
        return queue if queue is not None and queue.dead else None
    return table.timers.dead.first()


def _record(table: JobTable, queue: Queue, slot: int, reason_slot: int) -> DeadJob:
    slots = table.slots
    return DeadJob(
        slot=slot,
        reason_slot=reason_slot,
        job_id=slots.key(slot),
        queue=queue.name,
        cause=slots.cause[slot],
        failed_ms=slots.at_ms[slot],
        attempt=slots.attempt[slot],
        enqueued_ms=slots.enqueued_ms[slot],
        flags=slots.flags[slot],
    )


def dead_letter(table: JobTable, command: DeadLetter, now: Now) -> Moved:
    """Bury ready and scheduled jobs of a queue."""
    moved = Moved([], 0)
    for job_id in command.job_ids:
        queue, slot = _find(table, command.queue, job_id)
        if queue is None or table.slots.state[slot] not in (READY, SCHEDULED):
            moved.missing += 1
            continue
        table.bury(queue, slot, Cause.ADMIN, command.reason, now)
        moved.job_ids.append(job_id)
    return moved


def requeue(table: JobTable, command: Requeue, now: Now) -> Moved:
    """Send dead letters of a queue to the back of it; the depth cap and dedup are not asked."""
    moved = Moved([], 0)
    for job_id in command.job_ids:
        queue, slot = _find(table, command.queue, job_id)
        if queue is None or table.slots.state[slot] != DEAD:
            moved.missing += 1
            continue
        table.requeue(queue, slot, now)
        moved.job_ids.append(job_id)
    if moved.job_ids:
        wake(table, (table.queues[command.queue],), now)
    return moved


def delete_dead(table: JobTable, command: DeleteDead, now: Now) -> Moved:
    """Delete dead letters of a queue."""
    moved = Moved([], 0)
    for job_id in command.job_ids:
        queue, slot = _find(table, command.queue, job_id)
        if queue is None or table.slots.state[slot] != DEAD:
            moved.missing += 1
            continue
        table.move(queue, slot, Event.REMOVE)
        moved.job_ids.append(job_id)
    return moved


def _find(table: JobTable, name: str, job_id: bytes) -> tuple[Queue | None, int]:
    """Return queue and slot of a job if it belongs to the named queue."""
    slot = table.find_job(job_id)
    if slot < 0:
        return None, -1
    queue = table.queue_of(slot)
    return (queue, slot) if queue.name == name else (None, -1)
