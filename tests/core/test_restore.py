"""Restart: every state as it was, and stores that cannot be."""

from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve

from sepp.core.commands import DeadLetter, Drain, GiveBack, Release, Requeue, Reserve
from sepp.core.limits import QueueLimits
from sepp.core.outcomes import Acked, AttemptMismatch, Extended
from sepp.core.queue import Counters
from sepp.core.restore import InconsistentStateError
from sepp.core.slots import DEAD, JOBS, LEASED, LIVE, QUEUES, READY, REASONS, SCHEDULED
from sepp.core.timers import IDLE_MS
from tests.core.rebuild import compare_with_rebuilt
from tests.core.world import World, job_id


def test_ready_jobs_keep_order_priority_and_attempt() -> None:
    world = World()
    retried, *rest = world.enqueue(count=5)
    world.reserve()
    world.nack(retried)
    urgent = world.enqueue(priority=9, count=2)
    before = world.machine.job_page("q", READY, cursor=None, limit=99)

    world.restart()

    assert world.machine.job_page("q", READY, cursor=None, limit=99) == before
    jobs = world.reserve(max_jobs=99)
    assert [job.job_id for job in jobs] == [*urgent, retried, *rest]
    assert [job.attempt for job in jobs] == [1, 1, 2, 1, 1, 1, 1]


def test_past_due_schedules_of_both_kinds_are_promoted_in_the_first_sweep() -> None:
    world = World()
    [nacked] = world.enqueue()
    world.reserve()
    world.nack(nacked, directive=1, delay_ms=1000)
    [scheduled] = world.enqueue(delay_ms=2000)
    [later] = world.enqueue(delay_ms=9000)
    world.pass_ms(5000)

    world.restart()

    assert world.machine.next_deadline()[0] == world.wall_ms - 4000
    assert world.sweep().promoted == 2
    assert [world.state(job) for job in (nacked, scheduled, later)] == [READY, READY, SCHEDULED]
    assert world.attempt(nacked) == 2


def test_past_due_leases_are_redelivered_or_buried_in_the_first_sweep() -> None:
    world = World(retention_ms=60_000)
    [retried] = world.enqueue(max_attempts=2)
    [buried] = world.enqueue(max_attempts=1)
    world.reserve(max_jobs=2, lease_ms=1000)
    world.pass_ms(5000)

    world.restart()
    swept = world.sweep()

    assert (swept.redelivered, swept.dead_lettered) == (1, 1)
    assert (world.state(retried), world.state(buried)) == (READY, DEAD)
    assert world.ack(retried) != Acked()


def test_lease_that_has_not_ended_belongs_to_its_worker() -> None:
    world = World()
    [job] = world.enqueue()
    world.reserve(lease_ms=5000)
    world.restart()

    assert world.reserve() == []
    assert world.ack(job, 2) == AttemptMismatch(1)
    assert world.extend(job, 100) == Extended(world.wall_ms + 100)
    assert world.ack(job) == Acked()


def test_a_thousand_leased_jobs_all_come_back() -> None:
    world = World()
    jobs = world.enqueue(count=1000)
    world.machine.handle(Reserve(("q",), 30_000, max_jobs=1000), world.now())

    world.restart()
    assert world.machine.count_leases_without_timer() == 0
    world.pass_ms(30_000)
    assert world.sweep().redelivered == 1000

    assert world.reserve_ids(max_jobs=1000) == jobs


def test_statistics_are_the_same_but_for_counters() -> None:
    world = World(retention_ms=60_000, default=QueueLimits(retry_delay_ms=500))
    dead, delayed, _ = world.enqueue(count=3, dedup_key=None)
    world.enqueue("other", delay_ms=70, dedup_key="k")
    world.reserve(max_jobs=3)
    world.nack(dead, directive=2, reason=b"x")
    world.nack(delayed, reason=b"y")
    world.enqueue(priority=3)
    world.close("closing", 500)
    before = world.machine.statistics()

    world.restart()
    after = world.machine.statistics()

    lost: dict[str, Any] = dict.fromkeys(("last_nack_ms", "last_nack_reason"))
    none = (0,) * 5
    for name in Counters.__slots__:
        lost[name] = none if name == "dead_lettered" else 0
    assert [evolve(queue, **lost) for queue in before.queues] == list(after.queues)


def test_second_restart_changes_nothing() -> None:
    world = World(retention_ms=60_000)
    world.enqueue(count=3, dedup_key=None)
    world.reserve()
    world.restart()
    first = world.machine.statistics()

    world.restart()

    assert world.machine.statistics() == first
    assert not world.has_writes()


def test_queue_numbers_go_on_behind_the_largest() -> None:
    world = World()
    [job] = world.enqueue("a")
    world.enqueue("b")
    world.reserve("a")
    world.ack(job)
    world.pass_ms(IDLE_MS)
    assert world.sweep().queues_freed == 1
    world.restart()

    world.enqueue("c")

    statistics = world.machine.queue_statistics("c")
    assert statistics is not None
    assert statistics.number == 3


def test_queue_empty_at_the_start_is_forgotten_15_minutes_later() -> None:
    world = World()
    [job] = world.enqueue()
    world.reserve()
    world.ack(job)
    world.restart()

    world.pass_ms(IDLE_MS)

    assert world.sweep().queues_freed == 1


def forget_the_name(world: World) -> None:
    row = world.slots.find(QUEUES, (1).to_bytes(16, "big"))
    world.slots.build({}, {}, {row: None})


def lose_a_reason(world: World) -> None:
    [slot] = [slot for slot in world.slots.live() if world.slots.table(slot) == REASONS]
    world.slots.build({}, {}, {slot: None})


def lose_a_job_with_a_reason(world: World) -> None:
    [slot] = [slot for slot in world.slots.live() if world.slots.table(slot) == JOBS]
    world.slots.build({}, {}, {slot: None})


def invent_a_state(world: World) -> None:
    [slot] = [slot for slot in world.slots.live() if world.slots.table(slot) == JOBS]
    world.slots.state[slot] = LIVE
    world.slots.build({}, {slot: None}, {})


def invent_a_priority(world: World) -> None:
    [slot] = [slot for slot in world.slots.live() if world.slots.table(slot) == JOBS]
    world.slots.priority[slot] = 10
    world.slots.build({}, {slot: None}, {})


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (forget_the_name, "queue number 1"),
        (lose_a_reason, "lost its reason"),
        (lose_a_job_with_a_reason, "1 reasons belong to no job"),
        (invent_a_state, "unknown state"),
        (invent_a_priority, "priority 10"),
    ],
)
def test_entries_that_contradict_each_other_refuse_to_start(
    damage: Callable[[World], None], message: str
) -> None:
    world = World()
    [job] = world.enqueue()
    world.reserve()
    world.nack(job, reason=b"why")
    world.commit()
    damage(world)

    with pytest.raises(InconsistentStateError, match=message):
        world.restart()


def test_lease_without_a_timer_is_noticed() -> None:
    world = World()
    world.enqueue()
    world.reserve()
    world.machine.table.queues["q"].leased.clear()

    assert world.machine.count_leases_without_timer() == 1
    with pytest.raises(AssertionError):
        world.machine.check()


def test_restored_lease_state_is_on_disk_already() -> None:
    world = World()
    [job] = world.enqueue()
    world.reserve()
    world.restart()

    assert world.state(job) == LEASED
    assert not world.has_writes()


def test_each_step_of_a_life_is_in_the_batch_after_it() -> None:
    world = World(retention_ms=60_000)
    life: list[Callable[[], object]] = [
        lambda: world.enqueue(delay_ms=100),
        lambda: world.pass_ms(100),
        world.sweep,
        world.reserve,
        lambda: world.extend(job_id(1), 50),
        lambda: world.do(GiveBack(job_id(1), 1)),
        world.reserve,
        lambda: world.nack(job_id(1), directive=1, delay_ms=5, reason=b"x"),
        lambda: world.pass_ms(5),
        world.sweep,
        lambda: world.reserve(lease_ms=5),
        lambda: world.pass_ms(5),
        world.sweep,
        world.reserve,
        lambda: world.do(Release(job_id(1), 3)),
        lambda: world.do(Requeue("q", [job_id(1)])),
        lambda: world.do(DeadLetter("q", [job_id(1)], b"y")),
        lambda: world.do(Drain()),
    ]
    for step in life:
        step()
        world.commit()
        compare_with_rebuilt(world)

    assert world.state(job_id(1)) == 0
    assert world.machine.statistics().dead_drained == 1
