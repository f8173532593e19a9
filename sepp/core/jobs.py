"""The job table: every job of every queue, moved along the life-cycle table, and the writes that
makes.

`JobTable` is the one place where a job changes state. A move looks its pair up in `TRANSITIONS`,
takes the job out of the ordering of its old state, sets its columns, puts it into the ordering of
its new state, tells the timer, and notes the slot for the next batch. So orderings, columns, timers
and writes cannot come apart. Everything else in this package decides what to move.

What the next batch has to write is in three dicts that the committer empties in place:
`puts` (slot -> body, new or replaced), `states` (slots whose head changed) and `deletes`.
"""

from sortedcontainers import SortedList

from sepp.core.commands import Cause, NewJob, Now
from sepp.core.lifecycle import TRANSITIONS, Event
from sepp.core.limits import Policy
from sepp.core.queue import Counters, Queue
from sepp.core.slots import (
    ASIDE,
    DEAD,
    FREE,
    HAS_REASON,
    JOBS,
    LEASED,
    LIVE,
    QUEUES,
    READY,
    REASON_IS_FINAL,
    REASONS,
    SCHEDULED,
    WAS_REQUEUED,
    SlotTable,
)
from sepp.core.timers import IDLE_MS, Timers
from sepp.core.waiters import Waiters

# The end of year 9999: the last moment a Timestamp can say. No deadline lies beyond.
LAST_MS = 253_402_300_799_999

# A reason kept while its job is retried is cut to so many bytes.
RETRY_REASON_BYTES_MAX = 1024

QUEUE_NUMBER_MAX = 0xFFFF_FFFF


class JobTable:
    """See the module. `retention_ms` 0 means that dead letters are not kept."""

    __slots__ = (
        "audit",
        "audit_next",
        "audit_retention_ms",
        "by_number",
        "dead_drained",
        "dead_expired",
        "deletes",
        "next_order",
        "number_last",
        "policy",
        "puts",
        "queues",
        "reason_slots",
        "retention_ms",
        "retired",
        "skews",
        "slots",
        "states",
        "steady_ms",
        "timers",
        "waiters",
    )

    def __init__(self, slots: SlotTable, policy: Policy, *, retention_ms: int) -> None:
        self.slots = slots
        self.policy = policy
        self.retention_ms = retention_ms
        self.queues: dict[str, Queue] = {}
        self.by_number: dict[int, Queue] = {}
        self.number_last = 0
        self.next_order = 1
        self.steady_ms = 0  # of the newest command
        self.timers = Timers(slots)
        self.waiters = Waiters()
        # Leases taken while the wall clock was off the steady one: slot -> wall minus steady.
        self.skews: dict[int, int] = {}
        # Slot of a job -> slot of its reason. Most jobs have none.
        self.reason_slots: dict[int, int] = {}
        self.puts: dict[int, bytes] = {}
        self.states: dict[int, None] = {}
        self.deletes: dict[int, None] = {}
        # Totals no queue can keep: counters of forgotten queues, dead letters gone.
        self.retired = Counters()
        self.dead_expired = 0
        self.dead_drained = 0
        self.audit: SortedList = SortedList()  # of sequence << 32 | slot
        self.audit_next = 1
        self.audit_retention_ms = 0

    # Queues

    def queue(self, name: str) -> Queue:
        """Return the queue of that name, made if need be; nothing is written for an empty queue."""
        queue = self.queues.get(name)
        if queue is None:
            queue = Queue(name, self.policy.limits(name), steady_ms=self.steady_ms)
            self.queues[name] = queue
            self.timers.idle.hasten(queue, self.steady_ms + IDLE_MS)
        return queue

    def number(self, queue: Queue) -> int:
        """Return the number of `queue`; its first use writes the row that ties number and name."""
        if queue.number == 0:
            number = self.number_last
            while True:
                number = number + 1 if number < QUEUE_NUMBER_MAX else 1
                if number not in self.by_number:
                    break
            self.number_last = number
            queue.assign_number(number)
            self.by_number[number] = queue
            queue.row_slot = self.slots.allocate(QUEUES, number.to_bytes(16, "big"))
            self.write_row(queue.row_slot, queue, queue.name.encode(), at_ms=0)
        return queue.number

    def forget(self, queue: Queue) -> None:
        """Drop a queue that holds nothing and free its number."""
        assert queue.holds_nothing()
        if queue.row_slot >= 0:
            self.delete(queue.row_slot)
            del self.by_number[queue.number]
        del self.queues[queue.name]
        for timer in self.timers.all():
            timer.discard(queue)
        self.retired.add(queue)

    def note_if_empty(self, queue: Queue) -> None:
        """Start the clock after which an empty queue is forgotten."""
        if queue.holds_nothing():
            queue.empty_since_ms = self.steady_ms
            self.timers.idle.hasten(queue, self.steady_ms + IDLE_MS)

    # Rows

    def write_row(self, slot: int, queue: Queue, body: bytes, *, at_ms: int) -> None:
        """Fill the row in `slot`, of any table but JOBS.

        A row deleted since the last batch lives again.
        """
        slots = self.slots
        if self.deletes:
            self.deletes.pop(slot, None)
        slots.state[slot] = LIVE
        slots.queue[slot] = queue.number
        slots.at_ms[slot] = at_ms
        slots.body_length[slot] = len(body)
        self.puts[slot] = body

    def delete(self, slot: int) -> None:
        """Note that `slot` dies with the next batch; its columns stay readable until then."""
        self.slots.state[slot] = FREE
        self.states.pop(slot, None)
        self.deletes[slot] = None

    # Jobs

    def insert(self, queue: Queue, job: NewJob, now: Now) -> int:
        """Store a new job, ready or scheduled, at the end of its lane; return its slot."""
        slots = self.slots
        slot = slots.allocate(JOBS, job.job_id)
        order = self.next_order
        self.next_order = order + 1
        priority = job.priority
        slots.priority[slot] = priority
        slots.attempt[slot] = 1
        slots.max_attempts[slot] = job.max_attempts
        slots.queue[slot] = queue.number or self.number(queue)
        slots.order[slot] = order
        slots.enqueued_ms[slot] = now.log_ms
        slots.body_length[slot] = len(job.body)
        if job.due_ms > now.wall_ms:
            due_ms = min(job.due_ms, LAST_MS)
            slots.state[slot] = TRANSITIONS[slots.state[slot], Event.SCHEDULE]
            slots.at_ms[slot] = due_ms
            queue.scheduled.add(due_ms << 32 | slot)
            self.timers.scheduled.hasten(queue, due_ms)
        else:
            slots.state[slot] = TRANSITIONS[slots.state[slot], Event.ENQUEUE]
            queue.add_ready(priority, order << 32 | slot)
        queue.live_count += 1
        queue.enqueued += 1
        self.puts[slot] = job.body
        return slot

    def lease_next(self, queue: Queue, deadline_ms: int, skew_ms: int) -> int:
        """Lease the next ready job of `queue` until `deadline_ms` (steady); return its slot.

        `skew_ms` is what turns the steady deadline into the wall one that is stored. The caller
        hastens the lease timer, once for all jobs it takes.
        """
        slots = self.slots
        slot = queue.pop_ready()
        slots.state[slot] = TRANSITIONS[slots.state[slot], Event.LEASE]
        slots.at_ms[slot] = deadline_ms + skew_ms
        if skew_ms:
            self.skews[slot] = skew_ms
        queue.leased.add(deadline_ms << 32 | slot)
        self.states[slot] = None
        return slot

    def move(
        self, queue: Queue, slot: int, event: Event, *, at_ms: int = 0, skew_ms: int = 0
    ) -> None:
        """Do `event` to the job in `slot`.

        Args:
            queue: The job's queue.
            slot: The job.
            event: What happens. Enqueue, schedule and lease have methods of their own.
            at_ms: When the new state ends or began: due, lease end (steady), failed at or set
                aside.
            skew_ms: For a lease, what turns `at_ms` into the wall time that is stored.

        Raises:
            IllegalTransitionError: The state of the job does not allow it; nothing was changed.
        """
        slots = self.slots
        before = slots.state[slot]
        after = TRANSITIONS[before, event]
        self._leave(queue, slot, before)
        slots.state[slot] = after
        slots.at_ms[slot] = at_ms + skew_ms
        if after == FREE:
            self.delete(slot)
            reason_slot = self.reason_slots.pop(slot, None) if self.reason_slots else None
            if reason_slot is not None:
                self.delete(reason_slot)
            if not queue.live_count:
                self.note_if_empty(queue)
            return
        self.states[slot] = None
        if after == READY:
            queue.live_count += 1
            queue.add_ready(slots.priority[slot], slots.order[slot] << 32 | slot)
            return
        key = at_ms << 32 | slot
        if after == SCHEDULED:
            queue.live_count += 1
            queue.scheduled.add(key)
            self.timers.scheduled.hasten(queue, at_ms)
        elif after == LEASED:
            queue.live_count += 1
            if skew_ms:
                self.skews[slot] = skew_ms
            queue.leased.add(key)
            self.timers.leased.hasten(queue, at_ms)
        elif after == ASIDE:
            queue.aside.add(key)
        else:
            queue.dead.add(key)
            queue.dead_counts[slots.cause[slot]] += 1
            self.timers.dead.hasten(queue, at_ms)

    def _leave(self, queue: Queue, slot: int, state: int) -> None:
        """Take a job out of the ordering of its state."""
        slots = self.slots
        if state == LEASED:
            skew_ms = self.skews.pop(slot, 0) if self.skews else 0
            queue.leased.remove((slots.at_ms[slot] - skew_ms) << 32 | slot)
        elif state == READY:
            queue.remove_ready(slots.priority[slot], slots.order[slot] << 32 | slot)
        elif state == SCHEDULED:
            queue.scheduled.remove(slots.at_ms[slot] << 32 | slot)
        elif state == ASIDE:
            queue.aside.remove(slots.at_ms[slot] << 32 | slot)
            return
        else:
            assert state == DEAD
            queue.dead.remove(slots.at_ms[slot] << 32 | slot)
            queue.dead_counts[slots.cause[slot]] -= 1
            slots.cause[slot] = 0
            return
        queue.live_count -= 1

    def bury(self, queue: Queue, slot: int, cause: Cause, reason: bytes | None, now: Now) -> None:
        """Give a job up: keep it as a dead letter with its whole `reason`, or delete it.

        It counts as dead-lettered either way.
        """
        # Looked up before the cause is set, so that an illegal burial changes nothing.
        event = Event.BURY if self.retention_ms else Event.DISCARD
        _ = TRANSITIONS[self.slots.state[slot], event]
        queue.dead_lettered[cause] += 1
        if event == Event.DISCARD:
            self.move(queue, slot, event)
            return
        self.slots.cause[slot] = cause
        self.move(queue, slot, event, at_ms=now.wall_ms)
        if reason is not None:
            self.set_reason(queue, slot, reason, now, is_final=True)

    def retry(self, queue: Queue, slot: int, now: Now, *, delay_ms: int = 0) -> int:
        """Send a leased job into its next attempt; return when it is due, 0 for at once."""
        if delay_ms:
            due_ms = min(now.wall_ms + delay_ms, LAST_MS)
            self.move(queue, slot, Event.RETRY_LATER, at_ms=due_ms)
        else:
            due_ms = 0
            self.move(queue, slot, Event.RETRY)
        self.slots.attempt[slot] += 1
        return due_ms

    def requeue(self, queue: Queue, slot: int, now: Now) -> None:
        """Send a dead letter to the back of its lane as a job enqueued now, attempt 1."""
        slots = self.slots
        _ = TRANSITIONS[slots.state[slot], Event.REQUEUE]
        slots.attempt[slot] = 1
        slots.enqueued_ms[slot] = now.log_ms
        slots.order[slot] = self.next_order
        # The schedule it was enqueued with is over; a reason it died of is now one of a past
        # attempt.
        slots.flags[slot] = slots.flags[slot] & ~REASON_IS_FINAL | WAS_REQUEUED
        self.next_order += 1
        self.move(queue, slot, Event.REQUEUE)

    def set_reason(
        self, queue: Queue, slot: int, reason: bytes, now: Now, *, is_final: bool
    ) -> None:
        """Keep why a job failed: whole if it died of it, the first 1 KiB while it is retried."""
        flags = self.slots.flags[slot] & ~REASON_IS_FINAL | HAS_REASON
        if is_final:
            flags |= REASON_IS_FINAL
        else:
            reason = cut_utf8(reason, RETRY_REASON_BYTES_MAX)
        self.slots.flags[slot] = flags
        reason_slot = self.reason_slots.get(slot, -1)
        if reason_slot < 0:
            reason_slot = self.slots.allocate(REASONS, self.slots.key(slot))
            self.reason_slots[slot] = reason_slot
        self.write_row(reason_slot, queue, reason, at_ms=now.wall_ms)

    def final_reason_slot(self, slot: int) -> int:
        """Return the slot of the reason a dead letter died of, -1 if none was given."""
        if self.slots.flags[slot] & REASON_IS_FINAL:
            return self.reason_slots[slot]
        return -1

    def find_job(self, job_id: bytes) -> int:
        """Return the slot of a job in any state, or -1."""
        slot = self.slots.find(JOBS, job_id)
        if slot >= 0 and self.slots.state[slot] == FREE:
            return -1  # deleted since the last batch
        return slot

    def queue_of(self, slot: int) -> Queue:
        """Return the queue of the entry in `slot`."""
        return self.by_number[self.slots.queue[slot]]


def cut_utf8(text: bytes, byte_count_max: int) -> bytes:
    """Return the start of UTF-8 `text`, at most `byte_count_max` bytes, no character cut."""
    if len(text) <= byte_count_max:
        return text
    end = byte_count_max
    while end and text[end] & 0xC0 == 0x80:
        end -= 1
    return text[:end]
