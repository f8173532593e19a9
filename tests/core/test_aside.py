"""A job whose body is damaged: out of delivery, out of the live depth, never gone by itself."""

import pytest

from sepp.core.commands import DeadLetter, DeleteDead, Drain, Purge, Requeue, SetAside, Sweep
from sepp.core.limits import QueueLimits
from sepp.core.outcomes import Done, Drained, Moved, NotFound, Purged
from sepp.core.slots import ASIDE, FREE, READY
from tests.core.world import World

DAY_MS = 86_400_000


def aside_world(**options: object) -> tuple[World, bytes]:
    """Return a world and the id of its one job, set aside."""
    world = World(**options)  # type: ignore[arg-type]  # names are checked at the call
    [job] = world.enqueue()
    world.reserve(lease_ms=1000)
    world.commit()
    assert world.do(SetAside(job, 1)) == Done()
    return world, job


def counts(world: World) -> tuple[int, int, int]:
    """Return live, dead and set-aside jobs of the queue."""
    found = world.machine.queue_statistics("q")
    assert found is not None
    return found.live, found.dead, found.aside


def test_it_is_counted_apart_from_live_and_dead_jobs() -> None:
    world, job = aside_world()

    assert world.state(job) == ASIDE
    assert counts(world) == (0, 0, 1)
    assert world.machine.statistics().aside == 1


def test_it_is_never_delivered_however_long_one_waits() -> None:
    world, job = aside_world(retention_ms=1000)
    waiting = world.park()

    world.pass_ms(10 * DAY_MS)
    world.sweep()

    assert world.woken() == [(waiting, [])]
    assert world.reserve() == []
    assert world.state(job) == ASIDE


def test_its_place_under_the_cap_is_free() -> None:
    world, _ = aside_world(default=QueueLimits(max_queue_depth=1))

    world.enqueue()

    assert counts(world) == (1, 0, 1)


def test_the_old_holder_finds_nothing() -> None:
    world, job = aside_world()

    assert world.ack(job) == NotFound()
    assert world.nack(job) == NotFound()
    assert world.extend(job, 1000) == NotFound()
    assert world.do(SetAside(job, 1)) == NotFound()


@pytest.mark.parametrize("command", [DeadLetter, Requeue, DeleteDead])
def test_no_action_on_ready_or_dead_jobs_reaches_it(command: type) -> None:
    world, job = aside_world(retention_ms=1000)

    assert world.do(command("q", [job])) == Moved([], 1)
    assert world.do(Drain()) == Drained([])
    assert counts(world) == (0, 0, 1)


def test_a_sweep_leaves_it_and_its_queue_alone() -> None:
    world, job = aside_world()

    world.pass_ms(DAY_MS)
    while world.sweep().has_more:
        pass

    assert world.state(job) == ASIDE
    assert world.machine.queue_names() == ["q"]


def test_it_writes_one_state_and_no_body() -> None:
    world = World()
    [job] = world.enqueue()
    world.reserve()
    world.commit()

    world.do(SetAside(job, 1))

    assert (list(world.machine.puts), len(world.machine.states)) == ([], 1)


def test_it_is_still_there_after_a_restart() -> None:
    world, job = aside_world()
    at_ms = world.wall_ms

    world.pass_ms(5000)
    world.restart()

    assert counts(world) == (0, 0, 1)
    page = world.machine.job_page("q", ASIDE, cursor=None, limit=10)
    assert [(row.job_id, row.state, row.at_ms) for row in page.jobs] == [(job, ASIDE, at_ms)]
    world.do(Sweep())
    assert world.reserve() == []


def test_a_purge_deletes_it() -> None:
    world, job = aside_world()

    assert world.do(Purge("q", count_max=1)) == Purged(1, False, 0)

    assert world.state(job) == FREE
    assert counts(world) == (0, 0, 0)


def test_its_key_stays_taken() -> None:
    world = World()
    [job] = world.enqueue(dedup_key="k")
    world.reserve()
    world.do(SetAside(job, 1))

    assert world.enqueue(dedup_key="k") == [job]


def test_a_reason_of_an_earlier_attempt_stays_with_it_over_a_restart_and_goes_with_it() -> None:
    world = World()
    [job] = world.enqueue()
    world.reserve()
    world.nack(job, reason=b"why")
    assert world.state(job) == READY
    world.reserve()
    world.do(SetAside(job, 2))

    world.restart()
    world.do(Purge("q"))
    world.commit()

    world.restart()
    assert counts(world) == (0, 0, 0)
