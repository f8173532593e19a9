"""The main road: a job goes in, is worked and is gone."""

from sepp.core.commands import Drain, Enqueue
from sepp.core.outcomes import Accepted, Acked, Drained, Enqueued, Extended, Nacked, NotFound
from sepp.core.slots import DEAD, FREE, JOBS, LEASED, QUEUES, READY
from tests.core.world import World, job_id


def test_enqueued_job_is_reserved_and_acked_once() -> None:
    world = World()
    [job] = world.enqueue()

    [leased] = world.reserve()

    assert (leased.job_id, leased.attempt, leased.enqueued_ms) == (job, 1, world.wall_ms)
    assert world.reserve() == []
    assert world.ack(job) == Acked()
    assert world.ack(job) == NotFound()


def test_writes_name_exactly_the_changed_slots() -> None:
    world = World()
    machine = world.machine

    [job] = world.enqueue(body=b"12345")
    slot = world.slots.find(JOBS, job)
    row = world.slots.find(QUEUES, (1).to_bytes(16, "big"))
    assert machine.puts == {row: b"q", slot: b"12345"}
    assert (machine.states, machine.deletes) == ({}, {})
    assert world.slots.body_length[slot] == 5
    world.commit()

    world.reserve()
    assert (machine.puts, machine.states, machine.deletes) == ({}, {slot: None}, {})
    world.commit()

    world.ack(job)
    assert (machine.puts, machine.states, machine.deletes) == ({}, {}, {slot: None})


def test_nacked_job_comes_again_until_its_attempts_are_used_up() -> None:
    world = World(retention_ms=1000)
    [job] = world.enqueue(max_attempts=2)

    world.reserve()
    assert world.nack(job) == Nacked("q", False, 0)
    [again] = world.reserve()
    assert again.attempt == 2
    assert world.nack(job, 2) == Nacked("q", True)

    assert world.state(job) == DEAD
    drained = world.do(Drain())
    assert isinstance(drained, Drained)
    assert [record.job_id for record in drained.records] == [job]
    assert world.state(job) == FREE


def test_extend_moves_the_lease_end() -> None:
    world = World()
    [job] = world.enqueue()
    world.reserve(lease_ms=1000)

    assert world.extend(job, 5000) == Extended(world.wall_ms + 5000)

    world.pass_ms(4999)
    assert world.sweep().redelivered == 0
    world.pass_ms(1)
    assert world.sweep().redelivered == 1
    assert (world.state(job), world.attempt(job)) == (READY, 2)


def test_everything_is_there_after_a_restart() -> None:
    world = World(retention_ms=60_000)
    ready, leased, dead = world.enqueue(count=3)
    assert world.reserve_ids(max_jobs=3) == [ready, leased, dead]
    world.nack(ready)
    world.nack(dead, directive=2, reason=b"broken")
    [later] = world.enqueue(delay_ms=5000)

    world.restart()

    assert world.state(leased) == LEASED
    assert world.ack(leased) == Acked()
    assert world.reserve_ids() == [ready]
    world.pass_ms(5000)
    assert world.sweep().promoted == 1
    assert world.reserve_ids() == [later]
    drained = world.do(Drain())
    assert isinstance(drained, Drained)
    [record] = drained.records
    assert world.slots.body(record.reason_slot) == b"broken"


def test_order_goes_on_after_a_restart() -> None:
    world = World()
    first, second = world.enqueue(count=2)
    world.restart()
    [third] = world.enqueue()

    assert world.reserve_ids(max_jobs=9) == [first, second, third]


def test_outcome_of_an_enqueue_follows_request_order() -> None:
    world = World()

    outcome = world.do(Enqueue([world.new_job("b"), world.new_job("a")]))

    assert isinstance(outcome, Enqueued)
    assert outcome.results == [Accepted(job_id(1)), Accepted(job_id(2))]
