"""Ack, extend, give-back, release: the fence is the attempt, the sweep says when it is over."""

from collections.abc import Callable
from random import Random

import pytest

from sepp.core.commands import (
    Ack,
    Command,
    Enqueue,
    Extend,
    GiveBack,
    Nack,
    Release,
    Reserve,
    SetAside,
    Sweep,
)
from sepp.core.limits import QueueLimits
from sepp.core.outcomes import (
    Acked,
    AttemptMismatch,
    Extended,
    GivenBack,
    Leased,
    Nacked,
    NotFound,
)
from sepp.core.slots import DEAD, FREE, HAS_REASON, JOBS, LEASED, READY, REASONS
from tests.core.world import World, job_id


def leased_world(*, max_attempts: int = 3, retention_ms: int = 0) -> tuple[World, bytes]:
    """Return a world and the id of its one job, leased for a second."""
    world = World(retention_ms=retention_ms)
    [job] = world.enqueue(max_attempts=max_attempts)
    world.reserve(lease_ms=1000)
    world.commit()
    return world, job


Fenced = Callable[[bytes, int], Command]

FENCED: list[Fenced] = [
    lambda job, attempt: Ack(job, attempt),
    lambda job, attempt: Nack(job, attempt),
    lambda job, attempt: Extend(job, attempt, 500),
    lambda job, attempt: GiveBack(job, attempt),
    lambda job, attempt: Release(job, attempt),
    lambda job, attempt: SetAside(job, attempt),
]


@pytest.mark.parametrize(
    "command", FENCED, ids=["ack", "nack", "extend", "give_back", "release", "aside"]
)
class TestFence:
    def test_other_attempt_is_a_mismatch_that_changes_nothing(self, command: Fenced) -> None:
        world, job = leased_world()

        for attempt in (2, 3, 1 << 31):
            assert world.do(command(job, attempt)) == AttemptMismatch(1)

        assert world.state(job) == LEASED
        assert not world.has_writes()

    def test_unknown_id_is_not_found(self, command: Fenced) -> None:
        world, _ = leased_world()

        assert world.do(command(job_id(99), 1)) == NotFound()

    def test_job_that_is_not_leased_is_not_found(self, command: Fenced) -> None:
        world = World(retention_ms=1000)
        [ready] = world.enqueue()
        [scheduled] = world.enqueue(delay_ms=500)
        [dead] = world.enqueue("other")
        world.reserve("other")
        world.nack(dead, directive=2)
        world.commit()

        for job in (ready, scheduled, dead):
            assert world.do(command(job, 1)) == NotFound()
        assert not world.has_writes()

    def test_after_an_ack_it_is_not_found_in_the_same_group_and_later(
        self, command: Fenced
    ) -> None:
        world, job = leased_world()
        world.ack(job)

        assert world.do(command(job, 1)) == NotFound()
        world.commit()
        assert world.do(command(job, 1)) == NotFound()

    def test_past_its_end_the_owner_is_believed_until_the_sweep(self, command: Fenced) -> None:
        world, job = leased_world()
        world.pass_ms(5000)

        assert type(world.do(command(job, 1))) not in (NotFound, AttemptMismatch)

    def test_after_the_sweep_not_found_and_after_the_next_lease_a_mismatch(
        self, command: Fenced
    ) -> None:
        world, job = leased_world()
        world.pass_ms(1000)
        world.sweep()
        assert world.do(command(job, 1)) == NotFound()

        world.reserve()

        assert world.do(command(job, 1)) == AttemptMismatch(2)
        assert world.ack(job, 2) == Acked()

    def test_old_worker_may_go_on_after_a_restart(self, command: Fenced) -> None:
        world, job = leased_world()
        world.restart()

        assert type(world.do(command(job, 1))) not in (NotFound, AttemptMismatch)


def test_ack_deletes_job_and_reason_and_is_counted() -> None:
    world, job = leased_world()
    world.nack(job, reason=b"first try failed")
    world.reserve()
    world.commit()
    slots = {world.slots.find(JOBS, job), world.slots.find(REASONS, job)}

    world.ack(job, 2)

    assert set(world.machine.deletes) == slots
    statistics = world.machine.queue_statistics("q")
    assert statistics is not None
    assert (statistics.acked, statistics.live) == (1, 0)


def test_extend_replaces_the_end_and_may_shorten_it() -> None:
    world, job = leased_world()

    assert world.extend(job, 10) == Extended(world.wall_ms + 10)

    world.pass_ms(10)
    assert world.sweep().redelivered == 1


def test_extend_is_capped_by_the_ceiling_of_its_own_queue_and_at_least_1_ms() -> None:
    world = World(queues={"q": QueueLimits(max_lease_duration_ms=400)})
    [job] = world.enqueue()
    world.reserve()

    assert world.extend(job, 60_000) == Extended(world.wall_ms + 400)
    assert world.extend(job, 0) == Extended(world.wall_ms + 1)


def test_extend_any_number_of_times_keeps_the_attempt() -> None:
    world, job = leased_world()
    for _ in range(50):
        world.pass_ms(900)
        world.extend(job, 1000)
        assert world.sweep().redelivered == 0

    assert (world.state(job), world.attempt(job)) == (LEASED, 1)


def test_given_back_job_is_ready_under_the_same_attempt() -> None:
    world, job = leased_world()

    assert world.do(GiveBack(job, 1)) == GivenBack()

    assert (world.state(job), world.attempt(job)) == (READY, 1)
    [again] = world.reserve()
    assert (again.job_id, again.attempt) == (job, 1)


def test_given_back_last_attempt_is_delivered_again() -> None:
    world, job = leased_world(max_attempts=1)

    world.do(GiveBack(job, 1))

    assert world.reserve_ids() == [job]


def test_second_give_back_does_not_end_the_lease_of_the_next_worker() -> None:
    world = World()
    [job] = world.enqueue()
    first = world.do(Reserve(("q",), 1000))
    assert isinstance(first, Leased)
    give_back = GiveBack(job, 1, first.expires_ms)
    assert world.do(give_back) == GivenBack()
    world.pass_ms(1)
    world.reserve(lease_ms=1000)

    assert world.do(give_back) == NotFound()

    assert world.state(job) == LEASED


def test_released_job_is_ready_with_the_next_attempt_and_keeps_the_reason() -> None:
    world, job = leased_world()

    assert world.do(Release(job, 1, b"stuck")) == Nacked("q", False, 0)

    assert (world.state(job), world.attempt(job)) == (READY, 2)
    slot = world.slots.find(JOBS, job)
    assert world.slots.flags[slot] == HAS_REASON
    assert world.machine.puts[world.slots.find(REASONS, job)] == b"stuck"


def test_released_last_attempt_is_a_dead_letter_of_cause_admin() -> None:
    world, job = leased_world(max_attempts=1, retention_ms=1000)

    assert world.do(Release(job, 1)) == Nacked("q", True)

    row = world.machine.job_row(job)
    assert row is not None
    assert (row.state, row.cause, row.attempt) == (DEAD, 4, 1)


def test_release_does_not_count_as_a_nack() -> None:
    world, job = leased_world()
    world.do(Release(job, 1))

    statistics = world.machine.queue_statistics("q")
    assert statistics is not None
    assert statistics.nacked == 0


def test_ack_in_the_very_tick_of_the_lease_end_leaves_each_job_in_exactly_one_state() -> None:
    """Sweep and ack fall into the same clock reading, in either order, 10,000 times."""
    seed = 20_000
    print(f"seed {seed}")
    random = Random(seed)
    world = World()
    handle = world.machine.handle
    tally = {"acked": 0, "redelivered": 0}
    for _ in range(10_000):
        job = world.new_job()
        handle(Enqueue([job]), world.now())
        handle(Reserve(("q",), 5), world.now())
        world.pass_ms(5)
        commands: list[Command] = [Ack(job.job_id, 1), Sweep()]
        random.shuffle(commands)
        outcomes = {type(command): handle(command, world.now()) for command in commands}

        if outcomes[Ack] == Acked():
            tally["acked"] += 1
            assert world.state(job.job_id) == FREE
            assert world.reserve() == []
        else:
            tally["redelivered"] += 1
            assert outcomes[Ack] == NotFound()
            [again] = world.reserve()
            assert (again.job_id, again.attempt) == (job.job_id, 2)
            assert handle(Ack(job.job_id, 1), world.now()) == AttemptMismatch(2)
            assert handle(Ack(job.job_id, 2), world.now()) == Acked()
        world.commit()

    assert sum(tally.values()) == 10_000
    assert min(tally.values()) > 4000
    statistics = world.machine.queue_statistics("q")
    assert statistics is not None
    assert (statistics.live, statistics.acked) == (0, 10_000)
