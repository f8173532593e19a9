"""Steps of the wall clock: leases and waits do not care, schedules and windows go by the wall."""

import pytest

from sepp.core.commands import Reserve
from sepp.core.limits import QueueLimits
from sepp.core.outcomes import Extended, Leased
from sepp.core.slots import JOBS, LEASED, READY, SCHEDULED
from tests.core.world import World

HOUR_MS = 3_600_000


@pytest.mark.parametrize("step_ms", [-HOUR_MS, HOUR_MS])
def test_lease_taken_before_a_step_ends_neither_early_nor_late(step_ms: int) -> None:
    world = World()
    [job] = world.enqueue()
    world.reserve(lease_ms=1000)
    world.step_wall(step_ms)

    world.pass_ms(999)
    assert world.sweep().redelivered == 0
    world.pass_ms(1)
    assert world.sweep().redelivered == 1
    assert world.state(job) == READY


@pytest.mark.parametrize("step_ms", [-HOUR_MS, HOUR_MS])
def test_lease_taken_after_a_step_is_told_and_stored_in_wall_time(step_ms: int) -> None:
    world = World()
    [job] = world.enqueue()
    world.step_wall(step_ms)

    outcome = world.do(Reserve(("q",), 1000))

    assert isinstance(outcome, Leased)
    assert outcome.expires_ms == world.wall_ms + 1000
    assert world.slots.at_ms[world.slots.find(JOBS, job)] == world.wall_ms + 1000
    assert world.machine.next_deadline()[1] == world.steady_ms + 1000
    world.pass_ms(999)
    assert world.sweep().redelivered == 0
    world.pass_ms(1)
    assert world.sweep().redelivered == 1
    assert world.machine.table.skews == {}


@pytest.mark.parametrize("step_ms", [-HOUR_MS, HOUR_MS])
def test_extend_after_a_step_is_in_wall_time_too(step_ms: int) -> None:
    world = World()
    [job] = world.enqueue()
    world.reserve(lease_ms=1000)
    world.step_wall(step_ms)
    assert world.extend(job, 500) == Extended(world.wall_ms + 500)
    assert world.slots.at_ms[world.slots.find(JOBS, job)] == world.wall_ms + 500

    world.step_wall(-step_ms)
    world.pass_ms(499)
    assert world.sweep().redelivered == 0
    world.pass_ms(1)
    assert world.sweep().redelivered == 1


def test_lease_taken_after_a_step_ends_on_time_over_a_restart() -> None:
    world = World()
    [job] = world.enqueue()
    world.step_wall(HOUR_MS)
    world.reserve(lease_ms=1000)
    world.pass_ms(400)

    world.restart()

    world.pass_ms(599)
    assert world.sweep().redelivered == 0
    assert world.state(job) == LEASED
    world.pass_ms(1)
    assert world.sweep().redelivered == 1


@pytest.mark.parametrize("step_ms", [-500, 500])
def test_wall_stepped_while_the_store_opens_leaves_what_the_wall_says_of_a_lease(
    step_ms: int,
) -> None:
    world = World()
    [job] = world.enqueue()
    world.reserve(lease_ms=1000)

    world.restart(skew_ms=step_ms)

    world.pass_ms(1000 - step_ms - 1)
    assert world.sweep().redelivered == 0
    world.pass_ms(1)
    assert world.sweep().redelivered == 1
    assert (world.attempt(job), world.machine.table.skews) == (2, {})


def test_every_way_out_of_a_skewed_lease_forgets_the_skew() -> None:
    world = World(retention_ms=1000)
    acked, retried, delayed, dead = world.enqueue(count=4)
    world.step_wall(HOUR_MS)
    world.reserve(max_jobs=4)
    assert len(world.machine.table.skews) == 4

    world.ack(acked)
    world.nack(retried)
    world.nack(delayed, directive=1, delay_ms=5)
    world.nack(dead, directive=2)

    assert world.machine.table.skews == {}


def test_forward_step_promotes_what_the_wall_says_is_due() -> None:
    world = World()
    [job] = world.enqueue(delay_ms=HOUR_MS)

    world.step_wall(HOUR_MS)

    assert world.sweep().promoted == 1
    assert world.state(job) == READY


def test_backward_step_makes_schedules_wait_for_the_wall() -> None:
    world = World()
    [job] = world.enqueue(delay_ms=10_000)
    world.step_wall(-HOUR_MS)

    world.pass_ms(10_000)
    assert world.sweep().promoted == 0
    assert world.state(job) == SCHEDULED
    world.pass_ms(HOUR_MS)
    assert world.sweep().promoted == 1


@pytest.mark.parametrize("step_ms", [-HOUR_MS, HOUR_MS])
def test_wait_ends_on_time_whatever_the_wall_does(step_ms: int) -> None:
    world = World()
    waiter = world.park(wait_ms=1000)
    world.step_wall(step_ms)

    world.pass_ms(999)
    assert world.sweep().waits_ended == 0
    world.pass_ms(1)
    assert world.sweep().waits_ended == 1
    assert world.woken() == [(waiter, [])]


def test_dedup_window_and_retention_go_by_the_wall() -> None:
    world = World(retention_ms=HOUR_MS, default=QueueLimits(dedup_window_ms=HOUR_MS))
    [job] = world.enqueue(dedup_key="k")
    world.reserve()
    world.nack(job, directive=2)

    world.step_wall(HOUR_MS)

    swept = world.sweep()
    assert (swept.dedup_expired, swept.dead_expired) == (1, 1)
    assert swept.queues_freed == 0, "forgetting goes by the steady clock"


def test_enqueued_ms_never_runs_backwards() -> None:
    world = World()
    [first] = world.enqueue()
    world.step_wall(-HOUR_MS)
    [second] = world.enqueue()

    times = [world.slots.enqueued_ms[world.slots.find(JOBS, job)] for job in (first, second)]

    assert times == sorted(times)
