"""The transition table, pair by pair, and that a move obeys it."""

from itertools import product

import pytest

from sepp.core.commands import Cause, SetAside
from sepp.core.lifecycle import TRANSITIONS, Event, IllegalTransitionError
from sepp.core.slots import ASIDE, DEAD, FREE, JOBS, LEASED, READY, SCHEDULED
from tests.core.world import World

STATES = (FREE, READY, SCHEDULED, LEASED, DEAD, ASIDE)

# What may happen in each state, written out a second time: the table must say exactly this.
ALLOWED = {
    FREE: {"ENQUEUE": READY, "SCHEDULE": SCHEDULED},
    READY: {"LEASE": LEASED, "BURY": DEAD, "DISCARD": FREE, "PURGE": FREE},
    SCHEDULED: {"PROMOTE": READY, "BURY": DEAD, "DISCARD": FREE, "PURGE": FREE},
    LEASED: {
        "EXTEND": LEASED,
        "ACK": FREE,
        "RETRY": READY,
        "RETRY_LATER": SCHEDULED,
        "GIVE_BACK": READY,
        "BURY": DEAD,
        "DISCARD": FREE,
        "SET_ASIDE": ASIDE,
    },
    DEAD: {"REQUEUE": READY, "REMOVE": FREE, "PURGE": FREE},
    ASIDE: {"PURGE": FREE},
}


def world_with_job_in(state: int) -> tuple[World, int]:
    """Return a world that holds one job in `state`, and its slot."""
    world = World(retention_ms=1000)
    [job] = world.enqueue(delay_ms=500 if state == SCHEDULED else 0)
    if state in (LEASED, DEAD, ASIDE):
        world.reserve()
    if state == DEAD:
        world.nack(job, directive=2)
    if state == ASIDE:
        world.do(SetAside(job, 1))
    slot = world.slots.find(JOBS, job)
    assert world.slots.state[slot] == state
    world.commit()
    return world, slot


@pytest.mark.parametrize(("state", "event"), list(product(STATES, Event)))
def test_table_allows_exactly_the_written_pairs(state: int, event: Event) -> None:
    after = ALLOWED[state].get(event.name)

    if after is None:
        with pytest.raises(IllegalTransitionError, match=event.name):
            TRANSITIONS[state, event]
    else:
        assert TRANSITIONS[state, event] == after


@pytest.mark.parametrize(("state", "event"), list(product(STATES[1:], Event)))
def test_move_follows_the_table_or_raises_and_changes_nothing(state: int, event: Event) -> None:
    world, slot = world_with_job_in(state)
    table = world.machine.table
    queue = table.queues["q"]
    before = {name: getattr(world.slots, name)[slot] for name in ("state", "at_ms", "attempt")}
    depths = world.machine.queue_statistics("q")

    after = ALLOWED[state].get(event.name)
    if after is None:
        with pytest.raises(IllegalTransitionError):
            table.move(queue, slot, event, at_ms=world.wall_ms + 7)
        assert before == {name: getattr(world.slots, name)[slot] for name in before}
        assert world.machine.queue_statistics("q") == depths
        assert not world.has_writes()
    else:
        if after == DEAD:
            world.slots.cause[slot] = Cause.ADMIN
        table.move(queue, slot, event, at_ms=world.wall_ms + 7 if after in (3, 2, 4) else 0)
        assert world.slots.state[slot] == after
    world.machine.check()


@pytest.mark.parametrize("state", [FREE, DEAD])
def test_burial_of_what_cannot_be_buried_changes_nothing(state: int) -> None:
    world, slot = world_with_job_in(DEAD)
    world.slots.state[slot] = state
    queue = world.machine.table.queues["q"]
    counted = list(queue.dead_lettered)

    with pytest.raises(IllegalTransitionError):
        world.machine.table.bury(queue, slot, Cause.ADMIN, b"why", world.now())

    assert queue.dead_lettered == counted
    assert world.slots.cause[slot] == Cause.REJECTED
    assert not world.machine.puts


def test_requeue_of_a_job_that_is_not_dead_changes_nothing() -> None:
    world, slot = world_with_job_in(LEASED)
    table = world.machine.table

    with pytest.raises(IllegalTransitionError):
        table.requeue(table.queues["q"], slot, world.now())

    assert world.slots.flags[slot] == 0
    world.machine.check()
