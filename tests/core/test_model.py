"""Random lives of many jobs, with clock steps and restarts, against the plain model."""

from operator import add

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    precondition,
    rule,
)

from sepp.core.commands import (
    Ack,
    DeadLetter,
    DeleteDead,
    Directive,
    Drain,
    Enqueue,
    Extend,
    GiveBack,
    Nack,
    NewJob,
    Open,
    Purge,
    Release,
    Requeue,
    Reserve,
    Sweep,
)
from sepp.core.outcomes import (
    Accepted,
    AtomicRefused,
    Drained,
    Enqueued,
    Extended,
    Leased,
    Moved,
    Nacked,
    Parked,
    Purged,
    Swept,
)
from sepp.core.timers import IDLE_MS
from tests.core.compared import LIMITS, REFUSALS, Compared, told
from tests.core.model import Job, Waiter
from tests.core.rebuild import compare_with_rebuilt
from tests.core.world import job_id, key

names = st.sampled_from(sorted(LIMITS))
spans = st.sampled_from([0, 1, 5, 30, 60, 200])
attempts = st.integers(1, 3)
# Which job, and the attempt to name; attempt 0: a leased job and its true attempt, if there is one.
targets = st.tuples(st.integers(0, 999), st.sampled_from([0, 0, 0, 0, 1, 2, 3]))
reasons = st.sampled_from([None, b"", b"because", "ö".encode() * 600])
new_jobs = st.tuples(
    names,
    st.sampled_from([0, 0, 5, 9]),
    attempts,
    spans,
    st.sampled_from([None, None, "k1", "k2"]),
)


class Lives(Compared):
    """Every rule does one thing to both and compares what they say."""

    # Producers

    @rule(jobs=st.lists(new_jobs, min_size=1, max_size=4), is_atomic=st.booleans())
    def enqueue(self, jobs: list[tuple[str, int, int, int, str | None]], is_atomic: bool) -> None:
        now = self.world.now()
        commands, expected = [], []
        refused = self.model.refusal([job[0] for job in jobs], now) if is_atomic else {}
        for queue, priority, max_attempts, delay_ms, text in jobs:
            self.count += 1
            new_id = job_id(self.count)
            due_ms = now.wall_ms + delay_ms if delay_ms else 0
            dedup_key = key(queue + text) if text else None
            commands.append(
                NewJob(queue, new_id, b"body", priority, max_attempts, due_ms, dedup_key)
            )
            if not refused:
                job = Job(new_id, queue, priority, max_attempts, 0, now.log_ms)
                expected.append(
                    self.model.enqueue(job, due_ms, dedup_key, now, is_atomic=is_atomic)
                )
        self.model.wake(now)

        outcome = self.do(Enqueue(commands, is_atomic))

        if isinstance(outcome, AtomicRefused):
            assert {index: REFUSALS[type(why)] for index, why in outcome.errors} == refused
            return
        assert isinstance(outcome, Enqueued)
        assert not refused
        assert expected == [
            (result.job_id, result.is_duplicate)
            if isinstance(result, Accepted)
            else REFUSALS[type(result)]
            for result in outcome.results
        ]

    # Workers

    @rule(
        queues=st.lists(names, min_size=1, max_size=3).map(tuple),
        max_jobs=st.integers(1, 4),
        lease_ms=spans,
        wait_ms=spans,
    )
    def reserve(self, queues: tuple[str, ...], max_jobs: int, lease_ms: int, wait_ms: int) -> None:
        now = self.world.now()
        lease_ms = self.model.lease_ms(queues, lease_ms)
        jobs = self.model.lease(queues, max_jobs, lease_ms, now)
        command = Reserve(queues, lease_ms, wait_ms, max_jobs)

        outcome = self.do(command)

        if isinstance(outcome, Parked):
            assert not jobs
            assert wait_ms
            deadline_ms = now.steady_ms + wait_ms
            self.model.waiters.append(Waiter(command, queues, max_jobs, lease_ms, deadline_ms))
            return
        assert isinstance(outcome, Leased)
        assert outcome.jobs or not wait_ms
        told = [(job.job_id, job.attempt, job.enqueued_ms) for job in outcome.jobs]
        assert told == [(job.job_id, job.attempt, job.enqueued_ms) for job in jobs]
        assert {job.end_wall_ms for job in jobs} <= {outcome.expires_ms}

    @rule(whom=targets)
    def ack(self, whom: tuple[int, int]) -> None:
        job = self.fenced(Ack(*self.target(whom)))
        if job is not None:
            del self.model.jobs[job.job_id]

    @rule(
        whom=targets,
        directive=st.sampled_from([0, 0, 1, 2]),
        delay_ms=spans,
        reason=reasons,
    )
    def nack(
        self, whom: tuple[int, int], directive: int, delay_ms: int, reason: bytes | None
    ) -> None:
        now = self.world.now()
        one, attempt = self.target(whom)
        job = self.model.fence(one, attempt)
        expected: object = job
        if isinstance(job, Job):
            delay_ms_or_policy = delay_ms if directive == 1 else None
            wait_ms = self.model.retry_delay_ms(job, delay_ms_or_policy)
            self.model.fail(job, 2 if directive == 2 else 1, reason, wait_ms, now)
            is_dead = directive == 2 or attempt >= job.max_attempts
            expected = Nacked(job.queue, is_dead, 0 if is_dead else job.due_ms)
            self.model.wake(now)

        outcome = self.do(Nack(one, attempt, Directive(directive), delay_ms, reason))

        assert told(outcome) == expected

    @rule(whom=targets, lease_ms=spans)
    def extend(self, whom: tuple[int, int], lease_ms: int) -> None:
        now = self.world.now()
        one, attempt = self.target(whom)
        job = self.model.fence(one, attempt)
        expected: object = job
        if isinstance(job, Job):
            job.end_ms = now.steady_ms + self.model.lease_ms((job.queue,), lease_ms)
            job.end_wall_ms = job.end_ms + now.skew_ms
            expected = Extended(job.end_wall_ms)

        assert told(self.do(Extend(one, attempt, lease_ms))) == expected

    @rule(whom=targets)
    def give_back(self, whom: tuple[int, int]) -> None:
        job = self.fenced(GiveBack(*self.target(whom)))
        if job is not None:
            job.state = "ready"
            self.model.wake(self.world.now())

    @rule(whom=targets, reason=reasons)
    def release(self, whom: tuple[int, int], reason: bytes | None) -> None:
        job = self.fenced(Release(*self.target(whom), reason))
        if job is None:
            return
        now = self.world.now()
        if job.attempt >= job.max_attempts:
            self.model.bury(job, 4, reason, now)
        else:
            self.model.fail(job, 1, None, 0, now)
            self.model.wake(now)

    @precondition(lambda self: self.model.waiters)
    @rule(number=st.integers(0, 999))
    def drop_waiter(self, number: int) -> None:
        waiter = self.model.waiters.pop(number % len(self.model.waiters))
        assert isinstance(waiter.handle, Reserve)
        assert self.world.machine.drop_waiter(waiter.handle)

    # Operators

    @rule(queue=st.none() | names, count=st.integers(1, 3))
    def drain(self, queue: str | None, count: int) -> None:
        dead = [
            (job.failed_ms, job.queue)
            for job in self.model.jobs.values()
            if job.state == "dead" and queue in (None, job.queue)
        ]

        outcome = self.do(Drain(queue, count))

        assert isinstance(outcome, Drained)
        assert [(r.failed_ms, r.queue) for r in outcome.records] == sorted(dead)[:count]
        for record in outcome.records:
            job = self.model.jobs.pop(record.job_id)
            assert (record.cause, record.attempt) == (job.cause, job.attempt)
            assert (record.reason_slot >= 0) == (job.reason is not None)

    @rule(
        kind=st.sampled_from([DeadLetter, Requeue, DeleteDead]),
        queue=names,
        numbers=st.lists(st.integers(0, 999), max_size=3),
    )
    def act_on_jobs(self, kind: type, queue: str, numbers: list[int]) -> None:
        now = self.world.now()
        wanted = ("ready", "scheduled") if kind is DeadLetter else ("dead",)
        ids = [self.pick(number) for number in numbers]
        moved = []
        for one in ids:
            job = self.model.jobs.get(one)
            if job is None or job.queue != queue or job.state not in wanted:
                continue
            moved.append(one)
            if kind is DeadLetter:
                self.model.bury(job, 4, None, now)
            elif kind is Requeue:
                self.model.requeue(job, now)
            else:
                del self.model.jobs[one]
        self.model.wake(now)

        assert self.do(kind(queue, ids)) == Moved(moved, len(ids) - len(moved))

    @rule(queue=names, span_ms=spans)
    def close(self, queue: str, span_ms: int) -> None:
        self.world.close(queue, span_ms)
        self.model.closing[queue] = self.world.wall_ms + span_ms

    @rule(queue=names)
    def open_queue(self, queue: str) -> None:
        self.do(Open(queue))
        self.model.closing.pop(queue, None)

    @rule(queue=names)
    def purge(self, queue: str) -> None:
        in_flight = len(self.model.of(queue, "leased"))
        gone = [job for job in self.model.jobs.values() if job.queue == queue]
        keys = [pair for pair in self.model.dedup if pair[0] == queue]

        outcome = self.do(Purge(queue, 1000))

        assert isinstance(outcome, Purged)
        assert outcome.in_flight == in_flight
        if not in_flight:
            assert outcome == Purged(len(gone) + len(keys), False, 0)
            for job in gone:
                del self.model.jobs[job.job_id]
            for pair in keys:
                del self.model.dedup[pair]

    # Time

    @rule(span_ms=spans)
    def pass_ms(self, span_ms: int) -> None:
        self.world.pass_ms(span_ms)

    @rule(span_ms=st.sampled_from([-100, -20, 20, 100]))
    def step_wall(self, span_ms: int) -> None:
        self.world.step_wall(span_ms)

    @rule()
    def pass_long_enough_to_forget_queues(self) -> None:
        self.world.pass_ms(IDLE_MS)

    @rule()
    def sweep(self) -> None:
        expected = self.model.sweep(self.world.now())

        assert self.sweep_once(10_000) == (expected, False)

    @precondition(lambda self: not self.model.waiters)
    @rule(count_max=st.integers(1, 3))
    def sweep_in_small_steps(self, count_max: int) -> None:
        """Without anybody waiting the steps add up to one sweep."""
        expected = self.model.sweep(self.world.now())

        sums = (0,) * len(expected)
        has_more = True
        while has_more:
            counts, has_more = self.sweep_once(count_max)
            assert max(counts) <= count_max
            sums = tuple(map(add, sums, counts))

        assert sums == expected

    def sweep_once(self, count_max: int) -> tuple[tuple[int, ...], bool]:
        """Return what the model counts too, and whether more is due."""
        swept = self.do(Sweep(count_max))
        assert isinstance(swept, Swept)
        counts = (
            swept.promoted,
            swept.redelivered,
            swept.dead_lettered,
            swept.dedup_expired,
            swept.dead_expired,
            swept.waits_ended,
        )
        return counts, swept.has_more

    @rule()
    def commit(self) -> None:
        """Write, and compare every ordering with one built from nothing but the slots."""
        self.world.commit()
        compare_with_rebuilt(self.world)

    @rule()
    def restart(self) -> None:
        self.world.restart()
        self.model.restart()


Lives.TestCase.settings = settings(
    max_examples=80, stateful_step_count=50, deadline=None, print_blob=True, database=None
)
TestLives = Lives.TestCase
