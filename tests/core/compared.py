"""A machine and the plain model side by side, and what must be the same after every step."""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant

from sepp.core.limits import QueueLimits
from sepp.core.outcomes import AttemptMismatch, NotFound, Outcome, QueueClosing, QueueFull
from sepp.core.slots import DEAD, LEASED, READY, SCHEDULED
from tests.core.model import Job, Model
from tests.core.world import World, job_id

LIMITS = {
    "a": QueueLimits(dedup_window_ms=200),
    "b": QueueLimits(dedup_window_ms=50, max_queue_depth=4, max_lease_duration_ms=40),
    "c": QueueLimits(
        dedup_window_ms=1000,
        retry_delay_ms=30,
        retry_is_exponential=True,
        retry_delay_max_ms=100,
        max_schedule_horizon_ms=90,
    ),
}
STATES = {"ready": READY, "scheduled": SCHEDULED, "leased": LEASED, "dead": DEAD}
REFUSALS = {QueueFull: "full", QueueClosing: "closing"}


class Compared(RuleBasedStateMachine):
    """Rules are added by a subclass; it does each thing to both and compares what they say."""

    @initialize(retention_ms=st.sampled_from([0, 300]))
    def start(self, retention_ms: int) -> None:
        self.world = World(retention_ms=retention_ms, queues=LIMITS)
        self.model = Model(LIMITS, retention_ms)
        self.count = 0

    def do(self, command: Any) -> Outcome:
        return self.world.machine.handle(command, self.world.now())

    def pick(self, number: int) -> bytes:
        return job_id(1 + number % max(1, self.count))

    def target(self, whom: tuple[int, int]) -> tuple[bytes, int]:
        number, attempt = whom
        leased = [job for job in self.model.jobs.values() if job.state == "leased"]
        if attempt == 0 and leased:
            job = leased[number % len(leased)]
            return job.job_id, job.attempt
        return self.pick(number), attempt or 1

    def fenced(self, command: Any) -> Job | None:
        """Do a lease command; return the job of the model if both found it under that lease."""
        job = self.model.fence(command.job_id, command.attempt)
        outcome = told(self.do(command))
        if isinstance(job, Job):
            assert not isinstance(outcome, str)
            return job
        assert outcome == job
        return None

    # What must be true after every step

    @invariant()
    def same_waiters_served(self) -> None:
        woken = [
            (reserve, [(job.job_id, job.attempt) for job in leased.jobs])
            for reserve, leased in self.world.machine.take_woken()
        ]
        assert woken == self.model.served
        self.model.served = []

    @invariant()
    def same_jobs(self) -> None:
        machine = self.world.machine
        for number in range(1, self.count + 1):
            row = machine.job_row(job_id(number))
            job = self.model.jobs.get(job_id(number))
            if job is None or row is None:
                assert job is None
                assert row is None
                continue
            assert (row.queue, row.state) == (job.queue, STATES[job.state])
            assert (row.attempt, row.enqueued_ms) == (job.attempt, job.enqueued_ms)
            at_ms = {
                "ready": 0,
                "scheduled": job.due_ms,
                "leased": job.end_wall_ms,
                "dead": job.failed_ms,
            }
            assert row.at_ms == at_ms[job.state]

    @invariant()
    def same_order_and_deadlines(self) -> None:
        machine = self.world.machine
        for name in LIMITS:
            page = machine.job_page(name, READY, cursor=None, limit=1000)
            ready = [job.job_id for job in self.model.ready(name)]
            assert [row.job_id for row in page.jobs] == ready
        wall_ms, steady_ms = machine.next_deadline()
        assert wall_ms == self.model.next_wall_ms()
        steady = [job.end_ms for job in self.model.jobs.values() if job.state == "leased"]
        steady += [waiter.deadline_ms for waiter in self.model.waiters]
        idle_ms = machine.table.timers.idle.next_ms()
        assert (steady_ms or idle_ms) == min([*steady, idle_ms])

    @invariant()
    def orderings_agree_with_columns(self) -> None:
        self.world.machine.check()


def told(outcome: Outcome) -> object:
    """Return refusals in the model's words, everything else as it is."""
    if isinstance(outcome, NotFound):
        return "not found"
    return "mismatch" if isinstance(outcome, AttemptMismatch) else outcome
