"""Reserves that wait: who is served, in which order, how it ends, and what it costs."""

import sys
from collections.abc import Callable

import pytest

from sepp.core.commands import (
    Close,
    Enqueue,
    GiveBack,
    Nack,
    Release,
    Requeue,
    Reserve,
    Sweep,
)
from sepp.core.outcomes import Parked
from sepp.core.reserve import reserve
from sepp.core.slots import FREE
from tests.core.world import World


def test_waiter_is_served_by_the_enqueue_of_a_job() -> None:
    world = World()
    waiter = world.park()
    world.pass_ms(500)

    [job] = world.enqueue()

    [(reserve, leased)] = world.machine.take_woken()
    assert reserve is waiter
    assert [job.job_id for job in leased.jobs] == [job]
    assert leased.expires_ms == world.wall_ms + 30_000
    assert not waiter.is_parked
    assert world.woken() == []


def lease_and_park(world: World, lease_ms: int = 30_000) -> bytes:
    """Lease one job and let somebody wait for it; return its id."""
    [job] = world.enqueue()
    world.reserve(lease_ms=lease_ms)
    world.park()
    return job


def make_ready_by_nack(world: World) -> None:
    world.nack(lease_and_park(world))


def make_ready_by_delayed_nack(world: World) -> None:
    world.nack(lease_and_park(world), directive=1, delay_ms=100)
    world.pass_ms(100)
    world.sweep()


def make_ready_by_expiry(world: World) -> None:
    lease_and_park(world, lease_ms=100)
    world.pass_ms(100)
    world.sweep()


def make_ready_by_schedule(world: World) -> None:
    world.enqueue(delay_ms=100)
    world.park()
    world.pass_ms(100)
    world.sweep()


def make_ready_by_requeue(world: World) -> None:
    job = lease_and_park(world)
    world.nack(job, directive=2)
    world.do(Requeue("q", [job]))


def make_ready_by_give_back(world: World) -> None:
    world.do(GiveBack(lease_and_park(world), 1))


def make_ready_by_release(world: World) -> None:
    world.do(Release(lease_and_park(world), 1))


@pytest.mark.parametrize(
    "make_ready",
    [
        make_ready_by_nack,
        make_ready_by_delayed_nack,
        make_ready_by_expiry,
        make_ready_by_schedule,
        make_ready_by_requeue,
        make_ready_by_give_back,
        make_ready_by_release,
    ],
)
def test_waiter_is_served_however_the_job_becomes_ready(
    make_ready: Callable[[World], None],
) -> None:
    world = World(retention_ms=1000)

    make_ready(world)

    [(_, jobs)] = world.woken()
    assert len(jobs) == 1


def test_two_waiters_and_one_job_first_come_first_served() -> None:
    world = World()
    first, second = world.park(wait_ms=2000), world.park(wait_ms=2000)
    world.pass_ms(1000)

    [job] = world.enqueue()

    assert world.woken() == [(first, [job])]
    world.pass_ms(999)
    assert world.sweep().waits_ended == 0
    world.pass_ms(1)
    assert world.sweep().waits_ended == 1
    assert world.woken() == [(second, [])]


def test_as_many_waiters_are_woken_as_there_are_jobs() -> None:
    world = World()
    waiters = [world.park() for _ in range(5)]

    jobs = world.enqueue(count=3)

    assert world.woken() == [(waiters[n], [jobs[n]]) for n in range(3)]
    assert [waiter.is_parked for waiter in waiters] == [False] * 3 + [True] * 2


def test_waiter_for_many_jobs_takes_what_one_command_made_ready() -> None:
    world = World()
    many, one = world.park(max_jobs=3), world.park()

    jobs = world.enqueue(count=5)

    assert world.woken() == [(many, jobs[:3]), (one, jobs[3:4])]
    assert world.reserve_ids() == jobs[4:]


def test_waiter_on_several_queues_fills_in_list_order_and_leaves_all_of_them() -> None:
    world = World()
    waiter = world.park("a", "b", "c", max_jobs=3)
    names = ("c", "a", "c", "b")
    jobs = [world.new_job(name) for name in names]

    world.do(Enqueue(jobs))

    assert world.woken() == [(waiter, [jobs[1].job_id, jobs[3].job_id, jobs[0].job_id])]
    for name in "abc":
        statistics = world.machine.queue_statistics(name)
        assert statistics is not None
        assert statistics.waiters == 0


def test_order_of_arrival_holds_across_queues() -> None:
    """The later waiter prefers b, but b's job belongs to whoever waited for it first."""
    world = World()
    first = world.park("b")
    second = world.park("b", "a")
    jobs = [world.new_job("a"), world.new_job("b")]

    world.do(Enqueue(jobs))

    assert world.woken() == [(first, [jobs[1].job_id]), (second, [jobs[0].job_id])]


def test_order_of_arrival_holds_when_the_first_of_a_queue_was_served() -> None:
    """Queue a has a second job, but its next waiter is younger than the first of queue b."""
    world = World()
    first, second, third = world.park("a"), world.park("b"), world.park("b", "a")
    jobs = [world.new_job(name) for name in ("a", "a", "b")]

    world.do(Enqueue(jobs))

    a1, a2, b = (job.job_id for job in jobs)
    assert world.woken() == [(first, [a1]), (second, [b]), (third, [a2])]


def test_waiter_served_through_one_queue_does_not_hold_up_the_other() -> None:
    world = World()
    both, later = world.park("a", "b"), world.park("b")
    jobs = [world.new_job("a"), world.new_job("b")]

    world.do(Enqueue(jobs))

    assert world.woken() == [(both, [jobs[0].job_id]), (later, [jobs[1].job_id])]


def test_wait_on_a_queue_listed_twice_ends_like_any_other() -> None:
    world = World()
    waiter = world.park("q", "q", wait_ms=100)
    world.pass_ms(100)
    world.sweep()

    assert world.woken() == [(waiter, [])]


def test_end_of_a_wait_is_a_deadline_of_the_steady_clock() -> None:
    world = World()
    world.park(wait_ms=700)

    wall_ms, steady_ms = world.machine.next_deadline()

    assert (wall_ms, steady_ms) == (None, world.steady_ms + 700)


def test_ended_wait_is_counted_once_for_each_listed_queue() -> None:
    world = World()
    world.park("a", "b", "a", wait_ms=1)
    world.pass_ms(1)
    world.sweep()

    for name in "ab":
        statistics = world.machine.queue_statistics(name)
        assert statistics is not None
        assert statistics.reserve_empty == 1


def test_job_made_ready_by_a_sweep_goes_to_the_waiter_whose_time_is_up_in_it() -> None:
    world = World()
    [job] = world.enqueue(delay_ms=100)
    waiter = world.park(wait_ms=100)
    world.pass_ms(100)

    assert world.sweep().waits_ended == 0
    assert world.woken() == [(waiter, [job])]


def test_dropped_waiter_is_leased_nothing() -> None:
    world = World()
    gone, other = world.park("a", "q"), world.park("q")

    assert world.machine.drop_waiter(gone)

    [job] = world.enqueue()
    assert world.woken() == [(other, [job])]
    assert world.attempt(job) == 1
    assert not world.machine.drop_waiter(gone)


def test_dropping_a_served_waiter_says_so_and_changes_nothing() -> None:
    world = World()
    waiter = world.park()
    [job] = world.enqueue()

    assert not world.machine.drop_waiter(waiter)

    assert world.woken() == [(waiter, [job])]


def test_shutdown_ends_every_wait_empty_and_uncounted() -> None:
    world = World()
    waiters = [world.park("a", "b") for _ in range(50)]

    world.machine.end_waits()

    woken = world.woken()
    assert {id(waiter) for waiter, _ in woken} == {id(waiter) for waiter in waiters}
    assert {len(jobs) for _, jobs in woken} == {0}
    statistics = world.machine.queue_statistics("a")
    assert statistics is not None
    assert (statistics.waiters, statistics.reserve_empty) == (0, 0)
    world.machine.check()


def test_closing_queue_still_serves_who_waits() -> None:
    world = World()
    [job] = world.enqueue()
    world.reserve()
    waiter = world.park()
    world.do(Close("q", world.wall_ms + 1000))

    world.nack(job)

    assert world.woken() == [(waiter, [job])]


def test_waits_ended_in_one_sweep_keep_to_the_budget() -> None:
    world = World()
    for _ in range(5):
        world.park(wait_ms=1)
    world.pass_ms(1)

    swept = world.sweep(count_max=3)

    assert (swept.waits_ended, swept.has_more) == (3, True)
    swept = world.sweep(count_max=3)
    assert (swept.waits_ended, swept.has_more) == (2, False)


def test_waiter_leaves_no_trace_on_disk() -> None:
    world = World()
    world.park("never-used", wait_ms=1)
    world.pass_ms(1)
    world.sweep()

    assert not world.has_writes()


def calls_to_serve_one_of(waiter_count: int) -> int:
    """Return how many function calls ten enqueues of a job take while so many wait."""
    world = World()
    for _ in range(waiter_count):
        reserve = Reserve(("q",), 30_000, 60_000)
        assert isinstance(world.machine.handle(reserve, world.now()), Parked)
    commands = [Enqueue([world.new_job()]) for _ in range(10)]
    world.machine.handle(Enqueue([world.new_job()]), world.now())
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        if event in ("call", "c_call"):
            calls += 1

    now = world.now()
    sys.setprofile(count)
    try:
        for command in commands:
            world.machine.handle(command, now)
    finally:
        sys.setprofile(None)
    assert len(world.machine.take_woken()) == 11
    return calls


def test_two_thousand_waiters_and_one_job_are_the_work_of_twenty() -> None:
    # The sorted list of wait deadlines takes a call more or less by how full its parts are.
    assert abs(calls_to_serve_one_of(2000) - calls_to_serve_one_of(20)) <= 20


def test_two_thousand_waiters_and_one_job_touch_no_other_waiter() -> None:
    """Comparisons and hashes of waiters are counted, which the profile of calls does not see."""
    touched: list[int] = []

    class Watched(Reserve):
        def __hash__(self) -> int:
            touched.append(self.arrival)
            return id(self)

    world = World()
    waiters = [Watched(("q",), 30_000, 60_000) for _ in range(2000)]
    for waiter in waiters:
        assert isinstance(reserve(world.machine.table, waiter, world.now()), Parked)
    touched.clear()

    world.machine.handle(Enqueue([world.new_job()]), world.now())

    assert set(touched) == {waiters[0].arrival}
    assert len(touched) <= 4


def test_nack_that_ends_in_a_dead_letter_wakes_nobody() -> None:
    world = World()
    [job] = world.enqueue(max_attempts=1)
    world.reserve()
    world.park()

    world.do(Nack(job, 1))
    world.do(Sweep())

    assert world.woken() == []
    assert world.state(job) == FREE
