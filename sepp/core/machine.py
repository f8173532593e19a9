"""The machine: one door in, `handle`, and what a committer must know of the state behind it.

It has no clock, no randomness, no thread, no file and no await: the same commands with the same
clock readings on the same slots give the same outcomes and the same writes. Everything changes at
once in RAM; the writes pile up in `puts`, `states` and `deletes` until the committer builds a batch
of them and empties the three dicts in place. There is no way back, so a failed commit ends the
process.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sepp.core import admin, check, dead, enqueue, lease, reserve, restore, statistics, sweep
from sepp.core.commands import (
    Ack,
    AppendAudit,
    Close,
    Command,
    DeadLetter,
    DeleteDead,
    Drain,
    Enqueue,
    Extend,
    GiveBack,
    Nack,
    Now,
    Open,
    Purge,
    Release,
    Requeue,
    Reserve,
    SetAside,
    Sweep,
)
from sepp.core.jobs import JobTable
from sepp.core.limits import Policy
from sepp.core.outcomes import Leased, Outcome
from sepp.core.queue import NEVER
from sepp.core.slots import SlotTable
from sepp.core.statistics import (
    Flow,
    JobPage,
    JobRow,
    MachineStatistics,
    QueueStatistics,
    Totals,
)

# The handler of each command; each takes (table, command, now).
HANDLERS: dict[type, Callable[[JobTable, Any, Now], Outcome]] = {
    Enqueue: enqueue.enqueue,
    Reserve: reserve.reserve,
    Ack: lease.ack,
    Nack: lease.nack,
    Extend: lease.extend,
    GiveBack: lease.give_back,
    SetAside: lease.set_aside,
    Drain: dead.drain,
    Sweep: sweep.sweep,
    Release: lease.release,
    DeadLetter: dead.dead_letter,
    Requeue: dead.requeue,
    DeleteDead: dead.delete_dead,
    Close: admin.close,
    Open: admin.open_queue,
    Purge: admin.purge,
    AppendAudit: admin.append_audit,
}


class Machine:
    """See the module.

    Args:
        slots: The slot table of the store; core keeps nothing of a job but its slot.
        policy: Where limits of queues come from.
        retention_ms: How long dead letters are kept; 0 keeps none and expires none that are stored.
        audit_retention_ms: How long audit entries are kept; 0: for ever.
    """

    def __init__(
        self,
        slots: SlotTable,
        policy: Policy,
        *,
        retention_ms: int,
        audit_retention_ms: int = 0,
    ) -> None:
        self.table = JobTable(slots, policy, retention_ms=retention_ms)
        self.table.audit_retention_ms = audit_retention_ms
        # The writes of the open group; emptied in place by the committer, never replaced.
        self.puts: dict[int, bytes] = self.table.puts
        self.states: dict[int, None] = self.table.states
        self.deletes: dict[int, None] = self.table.deletes

    def handle(self, command: Command, now: Now) -> Outcome:
        """Do `command` and return what became of it; `Parked` for a reserve that waits."""
        table = self.table
        table.steady_ms = now.steady_ms
        return HANDLERS[type(command)](table, command, now)

    def take_woken(self) -> list[tuple[Reserve, Leased]]:
        """Return the reserves served or ended since the last call, in that order."""
        return self.table.waiters.take_woken()

    def drop_waiter(self, waiter: Reserve) -> bool:
        """Forget a waiting reserve whose caller is gone; nothing is leased to it.

        Returns False when it no longer waits: its answer is on the way, or will be found
        undelivered.
        """
        return reserve.drop_waiter(self.table, waiter)

    def end_waits(self) -> None:
        """End every wait: all turn up empty in `take_woken`, and are not counted as empty."""
        waiters = self.table.waiters
        while len(waiters):
            reserve.end_wait(self.table, waiters.first())

    def take_hastened(self) -> bool:
        """Whether `next_deadline` may be earlier than when this was last asked; O(1)."""
        timers = self.table.timers
        is_hastened, timers.is_hastened = timers.is_hastened, False
        return is_hastened

    def next_deadline(self) -> tuple[int | None, int | None]:
        """Return when a sweep next has something to do: (wall ms, steady ms), None: never."""
        wall_ms, steady_ms = sweep.next_deadlines(self.table)
        return (
            None if wall_ms >= NEVER else wall_ms,
            None if steady_ms >= NEVER else steady_ms,
        )

    def restore(
        self,
        rows: Mapping[int, Sequence[int]],
        job_count: int,
        queue_names: Mapping[int, str],
        now: Now,
    ) -> None:
        """Build every ordering from the slots that are live in the store; the machine must be new.

        Args:
            rows: The slot of each live entry of other tables than JOBS, by table.
            job_count: How many jobs there are.
            queue_names: The rows of QUEUES, number to name.
            now: The clocks as they are now.

        Raises:
            InconsistentStateError: The entries contradict each other; the server must not start.
        """
        restore.restore(self.table, rows, job_count, queue_names, now)

    def reload(self, policy: Policy, *, audit_retention_ms: int | None = None) -> None:
        """Take over new limits; they hold from the next command on."""
        table = self.table
        table.policy = policy
        for queue in table.queues.values():
            queue.limits = policy.limits(queue.name)
        if audit_retention_ms is not None:
            table.audit_retention_ms = audit_retention_ms
        table.timers.is_hastened = True

    def check(self) -> None:
        """Compare every ordering, count and timer with the columns, for tests; O(everything).

        Raises AssertionError naming the difference.
        """
        check.check(self.table)

    def count_leases_without_timer(self) -> int:
        """Return how many leased jobs would never come back; always 0. About 1 ns a slot."""
        return check.count_leases_without_timer(self.table)

    # What metrics and admin pages read

    def queue_names(self) -> list[str]:
        """Return the names of all queues in RAM: in use, waited on, or used within 15 minutes."""
        return list(self.table.queues)

    def queue_statistics(self, name: str) -> QueueStatistics | None:
        """Return depths and counters of one queue, None if it is not in RAM; O(1)."""
        queue = self.table.queues.get(name)
        return None if queue is None else statistics.queue_statistics(self.table, queue)

    def flows(self, names: Sequence[str]) -> list[Flow]:
        """Return the flow of each of these queues, of one that is not in RAM zeros."""
        return statistics.flows(self.table, names)

    def statistics(self) -> MachineStatistics:
        """Return all queues and the totals; O(queues)."""
        return statistics.statistics(self.table)

    def totals(self) -> Totals:
        """Return what belongs to no one queue; O(1)."""
        return statistics.totals(self.table)

    def job_row(self, job_id: bytes) -> JobRow | None:
        """Return a job in any state, None if there is none of that id."""
        return statistics.job_row(self.table, job_id)

    def job_page(
        self,
        queue: str,
        state: int,
        *,
        cursor: int | None,
        limit: int,
        is_newest_first: bool = False,
    ) -> JobPage:
        """Return one page of the jobs of a queue in one state; see `statistics.job_page`."""
        return statistics.job_page(
            self.table, queue, state, cursor=cursor, limit=limit, is_newest_first=is_newest_first
        )

    def audit_page(self, *, before: int | None, limit: int) -> list[tuple[int, int, int]]:
        """Return (sequence, at_ms, slot) of audit entries below `before`, newest first."""
        return statistics.audit_page(self.table, before=before, limit=limit)
