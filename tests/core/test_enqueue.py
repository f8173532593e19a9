"""Enqueue: what only the commit can check, best effort and atomic."""

import pytest

from sepp.core.commands import Close, Enqueue
from sepp.core.limits import QueueLimits
from sepp.core.outcomes import Accepted, AtomicRefused, Enqueued, JobResult, QueueClosing, QueueFull
from sepp.core.slots import JOBS, READY, SCHEDULED
from tests.core.world import FixedPolicy, World, job_id

CAP_2 = {"small": QueueLimits(max_queue_depth=2)}


def closed_world() -> World:
    world = World(queues=CAP_2)
    world.do(Close("closed", world.wall_ms + 1000))
    return world


def test_enqueued_ms_is_the_log_clock() -> None:
    world = World()
    world.step_wall(-5000)

    [job] = world.enqueue()

    assert world.slots.enqueued_ms[world.slots.find(JOBS, job)] == world.log_ms


def test_due_now_or_earlier_is_ready_at_once() -> None:
    world = World()
    early, now, later = (world.new_job() for _ in range(3))
    early.due_ms, now.due_ms, later.due_ms = 1, world.wall_ms, world.wall_ms + 1

    world.do(Enqueue([early, now, later]))

    assert [world.state(job.job_id) for job in (early, now, later)] == [READY, READY, SCHEDULED]


def test_due_beyond_year_9999_is_kept_at_its_end() -> None:
    world = World()
    [job] = world.enqueue(delay_ms=1 << 62)

    assert world.slots.at_ms[world.slots.find(JOBS, job)] == 253_402_300_799_999


def test_max_attempts_and_priority_are_kept_from_the_command() -> None:
    world = World()
    [job] = world.enqueue(priority=7, max_attempts=9)

    slot = world.slots.find(JOBS, job)
    assert (world.slots.priority[slot], world.slots.max_attempts[slot]) == (7, 9)
    assert world.slots.attempt[slot] == 1


@pytest.mark.parametrize("depth_max", [0, 1, 2])
def test_best_effort_refuses_what_is_over_the_depth_cap_and_takes_the_rest(depth_max: int) -> None:
    world = World(queues={"small": QueueLimits(max_queue_depth=depth_max)})
    jobs = [world.new_job(name) for name in ("small", "other", "small", "small")]

    outcome = world.do(Enqueue(jobs))

    full: JobResult = QueueFull("small", depth_max)
    taken: list[JobResult] = [Accepted(jobs[0].job_id), Accepted(jobs[2].job_id)]
    del taken[depth_max:]
    small = [*taken, full, full, full][:3]
    assert outcome == Enqueued([small[0], Accepted(jobs[1].job_id), small[1], small[2]])


def test_depth_counts_ready_scheduled_and_leased_but_no_dead_letters() -> None:
    world = World(retention_ms=1000, queues={"q": QueueLimits(max_queue_depth=3)})
    first, _ = world.enqueue(count=2)
    world.enqueue(delay_ms=50)
    world.reserve()
    assert world.do(Enqueue([world.new_job()])) == Enqueued([QueueFull("q", 3)])

    world.nack(first, directive=2)

    world.enqueue()


def test_depth_cap_of_a_queue_replaces_the_global_one_also_to_lift_it() -> None:
    world = World(
        default=QueueLimits(max_queue_depth=0), queues={"free": QueueLimits(max_queue_depth=None)}
    )

    assert world.do(Enqueue([world.new_job("other")])) == Enqueued([QueueFull("other", 0)])
    world.enqueue("free", 5)


def test_retry_redelivery_promotion_and_requeue_may_exceed_the_cap() -> None:
    world = World(retention_ms=10_000)
    dead, retried, expired = world.enqueue(count=3)
    world.enqueue(delay_ms=1000)
    world.reserve(max_jobs=3, lease_ms=1000)
    world.nack(dead, directive=2)
    world.machine.reload(FixedPolicy(QueueLimits(max_queue_depth=0)))

    world.nack(retried)
    world.pass_ms(1000)
    swept = world.sweep()

    assert (swept.promoted, swept.redelivered) == (1, 1)
    assert world.state(expired) == READY


def test_closing_queue_refuses_before_its_dedup_record_is_looked_at() -> None:
    world = World()
    world.enqueue("q", dedup_key="k")
    world.do(Close("q", world.wall_ms + 1000))

    assert world.do(Enqueue([world.new_job(dedup_key="k")])) == Enqueued([QueueClosing("q")])


def test_closing_ends_at_its_deadline_swept_or_not() -> None:
    world = World()
    world.do(Close("q", world.wall_ms + 1000))
    world.pass_ms(999)
    assert world.do(Enqueue([world.new_job()])) == Enqueued([QueueClosing("q")])

    world.pass_ms(1)

    world.enqueue()


def test_atomic_takes_all_across_queues() -> None:
    world = World()
    jobs = [world.new_job("a"), world.new_job("b")]

    outcome = world.do(Enqueue(jobs, is_atomic=True))

    assert outcome == Enqueued([Accepted(job_id(1)), Accepted(job_id(2))])
    assert world.reserve_ids("b", "a", max_jobs=2) == [job_id(2), job_id(1)]


def test_atomic_lists_just_the_jobs_of_closing_queues_and_stores_nothing() -> None:
    world = closed_world()
    world.enqueue("small", 2)
    names = ("closed", "a", "closed", "small")
    jobs = [world.new_job(name) for name in names]

    outcome = world.do(Enqueue(jobs, is_atomic=True))

    closing = QueueClosing("closed")
    assert outcome == AtomicRefused([(0, closing), (2, closing)])
    assert world.reserve("a") == []


def test_atomic_lists_all_jobs_of_each_full_queue_even_those_that_would_fit() -> None:
    world = closed_world()
    world.enqueue("small")
    jobs = [world.new_job(name) for name in ("small", "a", "small")]

    outcome = world.do(Enqueue(jobs, is_atomic=True))

    full = QueueFull("small", 2)
    assert outcome == AtomicRefused([(0, full), (2, full)])
    assert world.reserve("a") == []


def test_atomic_fills_a_queue_to_exactly_its_cap() -> None:
    world = closed_world()

    outcome = world.do(Enqueue([world.new_job("small") for _ in range(2)], is_atomic=True))

    assert isinstance(outcome, Enqueued)


def test_atomic_counts_duplicates_against_the_cap() -> None:
    world = World(queues=CAP_2)
    world.enqueue("small", dedup_key="k")
    jobs = [world.new_job("small", dedup_key="k"), world.new_job("small")]

    outcome = world.do(Enqueue(jobs, is_atomic=True))

    full = QueueFull("small", 2)
    assert outcome == AtomicRefused([(0, full), (1, full)])


def test_atomic_duplicate_is_a_success_with_the_first_id() -> None:
    world = World()
    [first] = world.enqueue(dedup_key="k")
    jobs = [world.new_job(dedup_key="k"), world.new_job()]

    outcome = world.do(Enqueue(jobs, is_atomic=True))

    assert outcome == Enqueued([Accepted(first, True), Accepted(jobs[1].job_id)])


def test_one_job_alone_in_a_large_batch_is_refused_alone() -> None:
    world = World(queues={"full": QueueLimits(max_queue_depth=0)})
    jobs = [world.new_job("full" if n == 50 else "q") for n in range(100)]

    outcome = world.do(Enqueue(jobs))

    assert isinstance(outcome, Enqueued)
    assert [n for n, result in enumerate(outcome.results) if type(result) is not Accepted] == [50]
    statistics = world.machine.queue_statistics("q")
    assert statistics is not None
    assert (statistics.ready, statistics.enqueued) == (99, 99)
