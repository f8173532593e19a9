"""The dedup window: which idempotency keys are taken, by which job, until when.

A record is a row of the table DEDUP under the hashed key. Its body is empty: the id of the job it
stands for is split over the head fields `order` and `enqueued_ms`, so a hit reads nothing from
disk. The deadline is pinned when the record is made; whether the job still exists does not matter.
"""

from struct import Struct

from sepp.core.commands import Now
from sepp.core.jobs import LAST_MS, JobTable
from sepp.core.queue import Queue
from sepp.core.slots import DEDUP, LIVE

_HALVES = Struct(">QQ")


def find_duplicate(table: JobTable, slot: int, now: Now) -> bytes | None:
    """Return the id of the job that holds the key found in `slot`, None when the key is free.

    A record whose deadline has come is no longer a hit, swept or not. `slot` -1: no such key.
    """
    slots = table.slots
    if slot < 0 or slots.at_ms[slot] <= now.wall_ms or slots.state[slot] != LIVE:
        return None
    return _HALVES.pack(slots.order[slot], slots.enqueued_ms[slot])


def remember(table: JobTable, queue: Queue, key: bytes, slot: int, job_id: bytes, now: Now) -> None:
    """Tie `key` to `job_id` for the window of `queue`.

    `slot` is where the key was found, -1 if nowhere: an expired record is replaced.
    """
    slots = table.slots
    if slot < 0:
        slot = slots.allocate(DEDUP, key)
    elif slots.state[slot] == LIVE:
        queue.dedup.remove(slots.at_ms[slot] << 32 | slot)
    deadline_ms = min(now.wall_ms + queue.limits.dedup_window_ms, LAST_MS)
    table.write_row(slot, queue, b"", at_ms=deadline_ms)
    slots.order[slot], slots.enqueued_ms[slot] = _HALVES.unpack(job_id)
    queue.dedup.add(deadline_ms << 32 | slot)
    table.timers.dedup.hasten(queue, deadline_ms)


def forget(table: JobTable, queue: Queue, slot: int) -> None:
    """Free the key of the record in `slot`."""
    queue.dedup.remove(table.slots.at_ms[slot] << 32 | slot)
    table.delete(slot)
    table.note_if_empty(queue)
