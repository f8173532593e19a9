"""A machine on plain arrays with a clock to turn: short words for what core's tests do often."""

from collections.abc import Mapping

from sepp.core.commands import (
    Ack,
    Close,
    Command,
    Enqueue,
    Extend,
    Nack,
    NewJob,
    Now,
    Reserve,
    Sweep,
)
from sepp.core.limits import QueueLimits
from sepp.core.machine import Machine
from sepp.core.outcomes import Accepted, Done, Enqueued, Leased, LeasedJob, Outcome, Parked, Swept
from sepp.core.slots import JOBS, QUEUES
from tests.core.lookups import lookups
from tests.fakes.slots import FakeSlots

START_MS = 1_800_000_000_000


def job_id(number: int) -> bytes:
    """Return the id tests give their job of that number."""
    return number.to_bytes(16, "big")


def key(text: str) -> bytes:
    """Return a hashed idempotency key as the service would make it; here only padded."""
    return text.encode().rjust(16, b"\0")


class FixedPolicy:
    """Limits by queue name, the global ones for the rest."""

    def __init__(
        self, default: QueueLimits | None = None, queues: Mapping[str, QueueLimits] | None = None
    ) -> None:
        self.default = default or QueueLimits()
        self.queues = dict(queues or {})

    def limits(self, queue: str) -> QueueLimits:
        return self.queues.get(queue, self.default)


class World:
    """One machine and its clock. `steady_ms` runs with the wall unless `step_wall` parts them."""

    def __init__(
        self,
        *,
        retention_ms: int = 0,
        audit_retention_ms: int = 0,
        default: QueueLimits | None = None,
        queues: Mapping[str, QueueLimits] | None = None,
    ) -> None:
        self.policy = FixedPolicy(default, queues)
        self.retention_ms = retention_ms
        self.audit_retention_ms = audit_retention_ms
        self.slots = FakeSlots()
        self.wall_ms = self.log_ms = self.steady_ms = START_MS
        self.machine = self._new_machine()
        self._next_job = 1

    def _new_machine(self) -> Machine:
        return Machine(
            self.slots,
            self.policy,
            retention_ms=self.retention_ms,
            audit_retention_ms=self.audit_retention_ms,
        )

    def now(self) -> Now:
        skew_ms = self.wall_ms - self.steady_ms
        return Now(self.wall_ms, self.log_ms, self.steady_ms, skew_ms)

    def pass_ms(self, span_ms: int) -> None:
        """Let time pass on both clocks."""
        self.steady_ms += span_ms
        self.step_wall(span_ms)

    def step_wall(self, span_ms: int) -> None:
        """Turn the wall clock alone."""
        self.wall_ms += span_ms
        self.log_ms = max(self.log_ms, self.wall_ms)

    def do(self, command: Command) -> Outcome:
        """Handle one command; the machine must be sound afterwards and have kept its word."""
        self.slots.finds.clear()
        outcome = self.machine.handle(command, self.now())
        assert set(self.slots.finds) <= set(lookups(command)), "looked up what was not announced"
        self.machine.check()
        return outcome

    def commit(self) -> None:
        """Write the open group, as the committer does."""
        self.slots.build(self.machine.puts, self.machine.states, self.machine.deletes)
        self.slots.check_disk()

    def restart(self, *, skew_ms: int = 0) -> None:
        """Stop and start: nothing is left but the disk; the steady clock is set to the wall.

        `skew_ms` is how far the wall clock is stepped while the store is opened.
        """
        self.commit()
        self.steady_ms = self.wall_ms
        self.step_wall(skew_ms)
        self.slots = FakeSlots(self.slots.disk)
        self.machine = self._new_machine()
        rows = self.slots.rows()
        names = {self.slots.queue[slot]: self.slots.body(slot).decode() for slot in rows[QUEUES]}
        job_count = len(self.slots.live()) - sum(map(len, rows.values()))
        self.machine.restore(rows, job_count, names, self.now())
        self.machine.check()

    def has_writes(self) -> bool:
        """Whether the open group has anything to write."""
        return bool(self.machine.puts or self.machine.states or self.machine.deletes)

    # Short words

    def new_job(
        self,
        queue: str = "q",
        *,
        priority: int = 0,
        max_attempts: int = 3,
        delay_ms: int = 0,
        dedup_key: str | None = None,
        body: bytes = b"body",
    ) -> NewJob:
        number = self._next_job
        self._next_job += 1
        return NewJob(
            queue,
            job_id(number),
            body,
            priority,
            max_attempts,
            self.wall_ms + delay_ms if delay_ms else 0,
            key(dedup_key) if dedup_key is not None else None,
        )

    def enqueue(self, queue: str = "q", count: int = 1, **fields: object) -> list[bytes]:
        """Enqueue jobs that must all be accepted; return their ids."""
        jobs = [self.new_job(queue, **fields) for _ in range(count)]  # type: ignore[arg-type] # names are checked at the call
        outcome = self.do(Enqueue(jobs))
        assert isinstance(outcome, Enqueued)
        ids = []
        for result in outcome.results:
            assert isinstance(result, Accepted)
            ids.append(result.job_id)
        return ids

    def reserve(
        self, *queues: str, max_jobs: int = 1, lease_ms: int = 30_000, bytes_max: int = 0
    ) -> list[LeasedJob]:
        """Reserve without waiting."""
        outcome = self.do(Reserve(queues or ("q",), lease_ms, 0, max_jobs, bytes_max))
        assert isinstance(outcome, Leased)
        return outcome.jobs

    def reserve_ids(self, *queues: str, max_jobs: int = 1) -> list[bytes]:
        return [job.job_id for job in self.reserve(*queues, max_jobs=max_jobs)]

    def park(self, *queues: str, wait_ms: int = 10_000, max_jobs: int = 1) -> Reserve:
        """Start a reserve that must wait."""
        reserve = Reserve(queues or ("q",), 30_000, wait_ms, max_jobs)
        assert isinstance(self.do(reserve), Parked)
        return reserve

    def woken(self) -> list[tuple[Reserve, list[bytes]]]:
        """Return who was served or ended since the last call, with the ids of the jobs."""
        return [
            (reserve, [job.job_id for job in leased.jobs])
            for reserve, leased in self.machine.take_woken()
        ]

    def close(self, queue: str, span_ms: int) -> None:
        """Close a queue for so long."""
        assert self.do(Close(queue, self.wall_ms + span_ms)) == Done()

    def ack(self, job: bytes, attempt: int = 1) -> Outcome:
        return self.do(Ack(job, attempt))

    def nack(self, job: bytes, attempt: int = 1, **fields: object) -> Outcome:
        return self.do(Nack(job, attempt, **fields))  # type: ignore[arg-type] # names are checked at the call

    def extend(self, job: bytes, lease_ms: int, attempt: int = 1) -> Outcome:
        return self.do(Extend(job, attempt, lease_ms))

    def sweep(self, count_max: int = 10_000) -> Swept:
        outcome = self.do(Sweep(count_max))
        assert isinstance(outcome, Swept)
        return outcome

    def state(self, job: bytes) -> int:
        """Return the state of a job, FREE when it is gone."""
        slot = self.slots.find(JOBS, job)
        return 0 if slot < 0 else self.slots.state[slot]

    def attempt(self, job: bytes) -> int:
        return self.slots.attempt[self.slots.find(JOBS, job)]
