"""Reserve without waiting: order, filling, lease length, the byte budget."""

import pytest

from sepp.core.commands import Enqueue, GiveBack, Requeue, Reserve
from sepp.core.limits import QueueLimits
from sepp.core.outcomes import Leased, Parked
from sepp.core.reserve import ANSWER_OVERHEAD_BYTES
from sepp.core.slots import JOBS, LEASED, WAS_REQUEUED
from tests.core.world import FixedPolicy, World


def leased_until(world: World, *queues: str, lease_ms: int) -> int:
    """Reserve one job and return how long it is leased."""
    outcome = world.do(Reserve(queues, lease_ms))
    assert isinstance(outcome, Leased)
    assert outcome.jobs
    return outcome.expires_ms - world.wall_ms


def test_higher_priority_first_then_order_of_the_enqueue() -> None:
    world = World()
    low, high, high_later, middle = (
        world.enqueue(priority=priority)[0] for priority in (0, 9, 9, 5)
    )

    assert world.reserve_ids(max_jobs=9) == [high, high_later, middle, low]


def test_jobs_of_one_millisecond_keep_the_order_of_the_batch() -> None:
    world = World()
    jobs = [world.new_job() for _ in range(50)]
    for number, job in enumerate(jobs):
        job.job_id = (1000 - number).to_bytes(16, "big")  # ids say the opposite
    world.do(Enqueue(jobs))

    assert world.reserve_ids(max_jobs=50) == [job.job_id for job in jobs]


def test_older_job_stays_first_when_the_wall_clock_steps_back() -> None:
    world = World()
    [first] = world.enqueue()
    world.step_wall(-3_600_000)
    [second] = world.enqueue()

    assert world.reserve_ids(max_jobs=2) == [first, second]


def test_promoted_job_takes_its_place_by_enqueue_not_by_due_time() -> None:
    world = World()
    [scheduled] = world.enqueue(delay_ms=100)
    [ready] = world.enqueue()
    world.pass_ms(100)
    world.sweep()

    assert world.reserve_ids(max_jobs=2) == [scheduled, ready]


def test_retried_expired_and_given_back_jobs_return_to_their_old_place() -> None:
    world = World()
    nacked, expired, returned = world.enqueue(count=3)
    world.reserve(max_jobs=3, lease_ms=100)
    [younger] = world.enqueue()
    world.nack(nacked)
    world.do(GiveBack(returned, 1))
    world.pass_ms(100)
    world.sweep()

    jobs = world.reserve(max_jobs=9)

    assert [job.job_id for job in jobs] == [nacked, expired, returned, younger]
    assert [job.attempt for job in jobs] == [2, 2, 1, 1]


def test_requeued_job_goes_to_the_back() -> None:
    world = World(retention_ms=1000)
    first, second = world.enqueue(count=2)
    world.reserve()
    world.nack(first, directive=2)
    world.do(Requeue("q", [first]))

    jobs = world.reserve(max_jobs=2)

    assert [job.job_id for job in jobs] == [second, first]
    assert [job.flags for job in jobs] == [0, WAS_REQUEUED]


def test_queues_are_drained_in_list_order_until_max_jobs() -> None:
    world = World()
    a, b, c = world.enqueue("a", 2), world.enqueue("b", 2, priority=9), world.enqueue("c", 2)

    assert world.reserve_ids("c", "empty", "a", "b", max_jobs=5) == [*c, *a, b[0]]


def test_queue_listed_twice_is_harmless() -> None:
    world = World()
    jobs = world.enqueue("a", 3)

    assert world.reserve_ids("a", "a", max_jobs=9) == jobs


def test_no_more_than_max_jobs_are_leased() -> None:
    world = World()
    jobs = world.enqueue(count=5)

    assert world.reserve_ids(max_jobs=3) == jobs[:3]
    assert [world.state(job) == LEASED for job in jobs] == [True] * 3 + [False] * 2


def test_all_jobs_of_an_answer_share_one_lease_end() -> None:
    world = World()
    jobs = [*world.enqueue("a", 2), *world.enqueue("b", 2)]
    outcome = world.do(Reserve(("a", "b"), 5000, max_jobs=4))

    assert isinstance(outcome, Leased)
    assert outcome.expires_ms == world.wall_ms + 5000
    assert {world.slots.at_ms[world.slots.find(JOBS, job)] for job in jobs} == {outcome.expires_ms}


def test_lease_is_capped_by_the_smallest_ceiling_of_all_listed_queues_empty_or_not() -> None:
    world = World(
        queues={
            "short": QueueLimits(max_lease_duration_ms=700),
            "long": QueueLimits(max_lease_duration_ms=9000),
        }
    )
    world.enqueue("long", 3)

    assert leased_until(world, "long", "short", lease_ms=60_000) == 700
    assert leased_until(world, "long", lease_ms=60_000) == 9000
    assert leased_until(world, "long", lease_ms=100) == 100


@pytest.mark.parametrize("lease_ms", [0, -5])
def test_lease_is_at_least_one_millisecond(lease_ms: int) -> None:
    world = World()
    world.enqueue()

    assert leased_until(world, "q", lease_ms=lease_ms) == 1


def test_lease_longer_than_time_itself_ends_with_year_9999() -> None:
    world = World(default=QueueLimits(max_lease_duration_ms=1 << 64))
    world.enqueue()

    assert leased_until(world, "q", lease_ms=1 << 63) == 253_402_300_799_999 - world.wall_ms
    world.restart()


def test_ceiling_of_a_waiting_reserve_is_the_one_of_its_call() -> None:
    world = World()
    waiting = Reserve(("q",), 60_000, 10_000)
    assert isinstance(world.do(waiting), Parked)
    world.policy = FixedPolicy(QueueLimits(max_lease_duration_ms=5))
    world.machine.reload(world.policy)
    world.enqueue()

    [(reserve, leased)] = world.machine.take_woken()

    assert reserve is waiting
    assert leased.expires_ms == world.wall_ms + 60_000


def test_new_ceiling_holds_for_the_next_reserve() -> None:
    world = World()
    world.enqueue()
    world.machine.reload(FixedPolicy(QueueLimits(max_lease_duration_ms=5)))

    assert leased_until(world, "q", lease_ms=60_000) == 5


def test_nothing_ready_and_no_wait_is_empty_at_once() -> None:
    world = World()
    world.enqueue(delay_ms=1000)

    assert world.reserve() == []
    assert world.machine.take_woken() == []


def test_empty_reserve_writes_nothing_and_is_counted_once_for_each_queue() -> None:
    world = World()

    assert world.reserve("a", "b", "a") == []

    assert not world.has_writes()
    for name in ("a", "b"):
        statistics = world.machine.queue_statistics(name)
        assert statistics is not None
        assert statistics.reserve_empty == 1


def test_answer_is_filled_up_to_its_byte_budget() -> None:
    world = World()
    jobs = world.enqueue(count=10, body=bytes(900))
    budget = 4 * (900 + ANSWER_OVERHEAD_BYTES)

    assert [job.job_id for job in world.reserve(max_jobs=10, bytes_max=budget)] == jobs[:4]
    assert [job.job_id for job in world.reserve(max_jobs=10, bytes_max=budget - 1)] == jobs[4:7]


def test_first_job_always_fits() -> None:
    world = World()
    jobs = world.enqueue(count=2, body=bytes(900))

    assert [job.job_id for job in world.reserve(max_jobs=10, bytes_max=1)] == jobs[:1]


def test_smaller_job_does_not_overtake_one_that_does_not_fit() -> None:
    world = World()
    [small] = world.enqueue("a", body=bytes(10))
    [large] = world.enqueue("a", body=bytes(1000))
    world.enqueue("b", body=bytes(10))

    jobs = world.reserve("a", "b", max_jobs=10, bytes_max=1000)

    assert [job.job_id for job in jobs] == [small]
    assert world.reserve_ids("a") == [large]


def test_byte_budget_counts_bodies_of_the_disk_and_of_the_open_group_alike() -> None:
    world = World()
    first = world.enqueue(body=bytes(500))
    world.commit()
    second = world.enqueue(body=bytes(500))
    world.enqueue(body=bytes(500))
    budget = 2 * (500 + ANSWER_OVERHEAD_BYTES)

    jobs = world.reserve(max_jobs=10, bytes_max=budget)

    assert [job.job_id for job in jobs] == [*first, *second]


def test_reserved_jobs_are_counted_by_queue() -> None:
    world = World()
    world.enqueue("a", 2)
    world.enqueue("b", 2)
    world.reserve("a", "b", max_jobs=3)

    counts = [world.machine.queue_statistics(name) for name in ("a", "b")]

    assert [count.reserved for count in counts if count] == [2, 1]
