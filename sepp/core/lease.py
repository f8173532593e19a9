"""What may be done with a lease: ack, nack, extend, give back, set aside, release.

All are fenced by the attempt number, and by nothing else: the clock is not consulted, so whoever is
still the owner when the sweep has not come yet is believed.
"""

from sepp.core.commands import (
    Ack,
    Cause,
    Directive,
    Extend,
    GiveBack,
    Nack,
    Now,
    Release,
    SetAside,
)
from sepp.core.jobs import LAST_MS, RETRY_REASON_BYTES_MAX, JobTable, cut_utf8
from sepp.core.lifecycle import Event
from sepp.core.outcomes import (
    Acked,
    AttemptMismatch,
    Done,
    Extended,
    GivenBack,
    Nacked,
    NotFound,
)
from sepp.core.queue import Queue
from sepp.core.reserve import wake
from sepp.core.retry import retry_delay_ms
from sepp.core.slots import JOBS, LEASED

ACKED = Acked()
NOT_FOUND = NotFound()
GIVEN_BACK = GivenBack()
DONE = Done()


def ack(table: JobTable, command: Ack, now: Now) -> Acked | NotFound | AttemptMismatch:
    """Delete a leased job."""
    slots = table.slots
    slot = slots.find(JOBS, command.job_id)
    if slot < 0 or slots.state[slot] != LEASED:
        return NOT_FOUND
    if slots.attempt[slot] != command.attempt:
        return AttemptMismatch(slots.attempt[slot])
    queue = table.by_number[slots.queue[slot]]
    table.move(queue, slot, Event.ACK)
    queue.acked += 1
    return ACKED


def nack(table: JobTable, command: Nack, now: Now) -> Nacked | NotFound | AttemptMismatch:
    """End a lease as failed: the next attempt, or a dead letter."""
    slot = _leased_slot(table, command.job_id, command.attempt)
    if not isinstance(slot, int):
        return slot
    queue = table.queue_of(slot)
    reason = command.reason
    queue.nacked += 1
    queue.last_nack_ms = now.wall_ms
    queue.last_nack_reason = None if reason is None else cut_utf8(reason, RETRY_REASON_BYTES_MAX)
    if command.directive == Directive.DEAD_LETTER:
        table.bury(queue, slot, Cause.REJECTED, reason, now)
        return Nacked(queue.name, True)
    if command.attempt >= table.slots.max_attempts[slot]:
        table.bury(queue, slot, Cause.ATTEMPTS_EXHAUSTED, reason, now)
        return Nacked(queue.name, True)
    delay_ms = retry_delay_ms(command, queue.limits)
    return _retry(table, queue, slot, reason, delay_ms, now)


def extend(table: JobTable, command: Extend, now: Now) -> Extended | NotFound | AttemptMismatch:
    """Replace the end of a lease; it may come earlier, too."""
    slot = _leased_slot(table, command.job_id, command.attempt)
    if not isinstance(slot, int):
        return slot
    queue = table.queue_of(slot)
    lease_ms = max(1, min(command.lease_ms, queue.limits.max_lease_duration_ms))
    deadline_ms = min(now.steady_ms + lease_ms, LAST_MS)
    table.move(queue, slot, Event.EXTEND, at_ms=deadline_ms, skew_ms=now.skew_ms)
    return Extended(deadline_ms + now.skew_ms)


def give_back(
    table: JobTable, command: GiveBack, now: Now
) -> GivenBack | NotFound | AttemptMismatch:
    """Undo a lease nobody learnt of: the attempt does not count, the job takes its old place."""
    slot = _leased_slot(table, command.job_id, command.attempt)
    if not isinstance(slot, int):
        return slot
    if command.expires_ms and table.slots.at_ms[slot] != command.expires_ms:
        return NOT_FOUND  # a later lease under the same attempt: the first was given back already
    queue = table.queue_of(slot)
    table.move(queue, slot, Event.GIVE_BACK)
    if queue.waiters:
        wake(table, (queue,), now)
    return GIVEN_BACK


def set_aside(table: JobTable, command: SetAside, now: Now) -> Done | NotFound | AttemptMismatch:
    """Take a job whose body cannot be read out of the queue, but not out of the store."""
    slot = _leased_slot(table, command.job_id, command.attempt)
    if not isinstance(slot, int):
        return slot
    table.move(table.queue_of(slot), slot, Event.SET_ASIDE, at_ms=now.wall_ms)
    return DONE


def release(table: JobTable, command: Release, now: Now) -> Nacked | NotFound | AttemptMismatch:
    """End a lease for the operator: the next attempt at once, or a dead letter when it was the
    last.
    """
    slot = _leased_slot(table, command.job_id, command.attempt)
    if not isinstance(slot, int):
        return slot
    queue = table.queue_of(slot)
    if command.attempt >= table.slots.max_attempts[slot]:
        table.bury(queue, slot, Cause.ADMIN, command.reason, now)
        return Nacked(queue.name, True)
    return _retry(table, queue, slot, command.reason, 0, now)


def _leased_slot(table: JobTable, job_id: bytes, attempt: int) -> int | NotFound | AttemptMismatch:
    """Return the slot of the job leased under `attempt`, or why there is none."""
    slots = table.slots
    slot = slots.find(JOBS, job_id)
    if slot < 0 or slots.state[slot] != LEASED:
        return NOT_FOUND
    if slots.attempt[slot] != attempt:
        return AttemptMismatch(slots.attempt[slot])
    return slot


def _retry(
    table: JobTable, queue: Queue, slot: int, reason: bytes | None, delay_ms: int, now: Now
) -> Nacked:
    if reason is not None:
        table.set_reason(queue, slot, reason, now, is_final=False)
    due_ms = table.retry(queue, slot, now, delay_ms=delay_ms)
    if not due_ms and queue.waiters:
        wake(table, (queue,), now)
    return Nacked(queue.name, False, due_ms)
