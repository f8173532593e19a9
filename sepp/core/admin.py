"""What only an operator asks for: closing a queue, emptying it, and the audit trail."""

from sepp.core import dedup
from sepp.core.commands import AppendAudit, Close, Now, Open, Purge
from sepp.core.jobs import LAST_MS, JobTable
from sepp.core.lifecycle import Event
from sepp.core.outcomes import Appended, Done, Purged
from sepp.core.queue import SLOT_MASK, Queue
from sepp.core.slots import AUDIT, CLOSING, LIVE

DONE = Done()


def close(table: JobTable, command: Close, now: Now) -> Done:
    """Write the closing tombstone of a queue, or move its deadline."""
    queue = table.queue(command.queue)
    if queue.closing_slot < 0:
        queue.closing_slot = _new_tombstone(table, queue)
    deadline_ms = min(command.deadline_ms, LAST_MS)
    table.write_row(queue.closing_slot, queue, b"", at_ms=deadline_ms)
    table.timers.closing.hasten(queue, deadline_ms)
    return DONE


def _new_tombstone(table: JobTable, queue: Queue) -> int:
    """Return a slot for the tombstone of `queue`: one deleted since the last batch, or new."""
    key = table.number(queue).to_bytes(16, "big")
    for slot in table.deletes:
        if table.slots.table(slot) == CLOSING and table.slots.key(slot) == key:
            return slot
    return table.slots.allocate(CLOSING, key)


def open_queue(table: JobTable, command: Open, now: Now) -> Done:
    """Delete the closing tombstone of a queue if there is one."""
    queue = table.queues.get(command.queue)
    if queue is not None:
        end_closing(table, queue)
    return DONE


def end_closing(table: JobTable, queue: Queue) -> None:
    """Let `queue` take jobs again."""
    if queue.closing_slot >= 0:
        table.delete(queue.closing_slot)
        queue.closing_slot = -1
        table.note_if_empty(queue)


def purge(table: JobTable, command: Purge, now: Now) -> Purged:
    """Delete a chunk of a queue.

    Ready jobs go in the order of delivery, then scheduled and dead ones, those set aside, and dedup
    records.
    """
    queue = table.queues.get(command.queue)
    if queue is None:
        return Purged(0, False, 0)
    count = 0
    if command.spares_leased or not queue.leased:
        count = _purge_jobs(table, queue, command.count_max)
        while queue.dedup and count < command.count_max:
            dedup.forget(table, queue, queue.dedup.first() & SLOT_MASK)
            count += 1
    has_more = bool(
        queue.ready_count or queue.scheduled or queue.dead or queue.aside or queue.dedup
    )
    return Purged(count, has_more, len(queue.leased))


def _purge_jobs(table: JobTable, queue: Queue, count_max: int) -> int:
    count = 0
    while queue.ready_count and count < count_max:
        table.move(queue, queue.first_ready(), Event.PURGE)
        count += 1
    for ordering in (queue.scheduled, queue.dead, queue.aside):
        while ordering and count < count_max:
            table.move(queue, ordering[0] & SLOT_MASK, Event.PURGE)
            count += 1
    return count


def append_audit(table: JobTable, command: AppendAudit, now: Now) -> Appended:
    """Store an audit entry under the next sequence number."""
    sequence = table.audit_next
    table.audit_next += 1
    slots = table.slots
    slot = slots.allocate(AUDIT, sequence.to_bytes(16, "big"))
    slots.state[slot] = LIVE
    slots.at_ms[slot] = now.wall_ms
    slots.body_length[slot] = len(command.body)
    table.puts[slot] = command.body
    table.audit.add(sequence << 32 | slot)
    table.timers.is_hastened = True
    return Appended(sequence)


def audit_due_ms(table: JobTable) -> int | None:
    """Return when the oldest audit entry may go (wall), None if never.

    The newest entry always stays: it is what the numbering goes on from after a restart.
    """
    if not table.audit_retention_ms or len(table.audit) < 2:
        return None
    due_ms: int = table.slots.at_ms[table.audit[0] & SLOT_MASK] + table.audit_retention_ms
    return due_ms


def expire_audit(table: JobTable, count_max: int, now: Now) -> int:
    """Delete audit entries past their retention, oldest first; return how many."""
    count = 0
    while count < count_max:
        due_ms = audit_due_ms(table)
        if due_ms is None or due_ms > now.wall_ms:
            break
        table.delete(table.audit.pop(0) & SLOT_MASK)
        count += 1
    return count
