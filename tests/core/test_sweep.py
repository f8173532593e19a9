"""The sweep: what is due, in which order, within which budget, and when the next one is."""

import pytest

from sepp.core.commands import Reserve, Sweep
from sepp.core.limits import QueueLimits
from sepp.core.outcomes import Swept
from sepp.core.slots import DEAD, FREE, READY
from sepp.core.sweep import TURN_MAX
from tests.core.world import START_MS, World


def test_nothing_due_does_nothing() -> None:
    world = World(retention_ms=1000)
    world.enqueue(delay_ms=1, dedup_key="k")
    world.enqueue("other")
    world.reserve("other")
    world.commit()

    assert world.sweep() == Swept()

    assert not world.has_writes()


def test_scheduled_job_is_promoted_at_its_due_time_with_attempt_and_age_kept() -> None:
    world = World()
    [job] = world.enqueue(delay_ms=100)
    world.pass_ms(99)
    assert world.sweep() == Swept()

    world.pass_ms(1)

    assert world.sweep() == Swept(promoted=1)
    row = world.machine.job_row(job)
    assert row is not None
    assert (row.state, row.attempt, row.enqueued_ms, row.at_ms) == (READY, 1, START_MS, 0)


def test_expired_lease_is_redelivered_at_once_whatever_the_retry_policy() -> None:
    world = World(default=QueueLimits(retry_delay_ms=60_000))
    [job] = world.enqueue()
    world.reserve(lease_ms=100)
    world.pass_ms(99)
    assert world.sweep() == Swept()

    world.pass_ms(1)

    assert world.sweep() == Swept(redelivered=1)
    assert (world.state(job), world.attempt(job)) == (READY, 2)


@pytest.mark.parametrize("max_attempts", [1, 3])
def test_worker_that_dies_each_time_gets_max_attempts_deliveries(max_attempts: int) -> None:
    world = World(retention_ms=60_000)
    [job] = world.enqueue(max_attempts=max_attempts)
    deliveries = 0
    while world.reserve(lease_ms=10):
        deliveries += 1
        world.pass_ms(10)
        world.sweep()

    assert deliveries == max_attempts
    row = world.machine.job_row(job)
    assert row is not None
    assert (row.state, row.cause, row.attempt, row.reason_slot) == (DEAD, 3, max_attempts, -1)


def test_last_lease_expired_without_retention_deletes_the_job() -> None:
    world = World()
    [job] = world.enqueue(max_attempts=1)
    world.reserve(lease_ms=10)
    world.pass_ms(10)

    swept = world.sweep()
    assert (swept.dead_lettered, [(each.kind, each.job_id) for each in swept.jobs]) == (
        1,
        [("dead_letter", job)],
    )
    assert world.state(job) == FREE


def test_each_kind_has_a_budget_of_its_own() -> None:
    world = World(retention_ms=10)
    dead = world.enqueue("d", 5)
    world.reserve("d", max_jobs=5)
    for job in dead:
        world.nack(job, directive=2)
    for number in range(5):
        world.enqueue("k", dedup_key=f"key {number}")
        world.close(f"closing {number}", 10)
        world.park("nothing", wait_ms=10)
    world.enqueue("s", 5, delay_ms=10)
    world.enqueue("l", 5)
    world.reserve("l", max_jobs=5, lease_ms=10)
    world.pass_ms(24 * 3_600_000)

    first, second, third = (world.sweep(count_max=3) for _ in range(3))

    assert first == Swept(3, 3, 0, 3, 3, 3, closings_ended=3, has_more=True)
    assert second == Swept(2, 2, 0, 2, 2, 2, closings_ended=2, has_more=False)
    assert third == Swept()


def test_large_backlog_does_not_keep_a_lease_of_another_queue_waiting() -> None:
    world = World()
    world.enqueue("many", 3 * TURN_MAX)
    world.machine.handle(Reserve(("many",), 5, max_jobs=TURN_MAX), world.now())
    world.machine.handle(Reserve(("many",), 20, max_jobs=2 * TURN_MAX), world.now())
    [job] = world.enqueue("rare")
    world.reserve("rare", lease_ms=10)
    world.pass_ms(20)

    swept = world.sweep(count_max=TURN_MAX + 1)

    assert (swept.redelivered, swept.has_more) == (TURN_MAX + 1, True)
    assert world.attempt(job) == 2


def test_earliest_deadline_over_all_queues_is_told() -> None:
    world = World(retention_ms=100_000)
    assert world.machine.next_deadline() == (None, None)

    world.enqueue("a", delay_ms=5000)
    world.enqueue("b", delay_ms=3000)
    world.enqueue("c", delay_ms=4000)
    assert world.machine.next_deadline() == (START_MS + 3000, None)

    world.enqueue("d")
    world.reserve("d", lease_ms=700)
    assert world.machine.next_deadline() == (START_MS + 3000, START_MS + 700)

    [job] = world.enqueue("e")
    world.reserve("e", lease_ms=400)
    assert world.machine.next_deadline() == (START_MS + 3000, START_MS + 400)
    world.ack(job)
    assert world.machine.next_deadline() == (START_MS + 3000, START_MS + 700)


def test_deadline_follows_an_extended_lease() -> None:
    world = World()
    [job] = world.enqueue()
    world.reserve(lease_ms=700)

    world.extend(job, 900)
    assert world.machine.next_deadline()[1] == START_MS + 900
    world.extend(job, 100)
    assert world.machine.next_deadline()[1] == START_MS + 100


def test_next_deadline_after_a_sweep_is_never_already_due() -> None:
    world = World(retention_ms=1)
    for number in range(30):
        world.enqueue(f"queue {number % 3}", delay_ms=1 + number % 7, dedup_key=str(number))
    world.pass_ms(4)
    world.sweep()

    wall_ms, _ = world.machine.next_deadline()

    assert wall_ms == world.wall_ms + 1


def test_timers_hold_one_entry_a_queue_however_many_jobs_come_and_go() -> None:
    world = World()
    for _ in range(300):
        [job] = world.enqueue(delay_ms=0)
        world.reserve(lease_ms=1000)
        world.pass_ms(1)
        world.ack(job)
        world.enqueue(delay_ms=500)

    timers = world.machine.table.timers

    assert [len(list(timer.entries())) <= 1 for timer in timers.all()] == [True] * 6


def test_sweep_is_idempotent_within_one_clock_reading() -> None:
    world = World()
    world.enqueue(delay_ms=5)
    world.pass_ms(5)
    assert world.sweep() == Swept(promoted=1)
    world.commit()

    assert world.sweep() == Swept()
    assert not world.has_writes()


def test_counters_of_the_sweep_are_kept_by_queue() -> None:
    world = World(default=QueueLimits(dedup_window_ms=5))
    world.enqueue("a", delay_ms=5, dedup_key="k")
    world.enqueue("b")
    world.reserve("b", lease_ms=5)
    world.pass_ms(5)
    world.sweep()

    a, b = (world.machine.queue_statistics(name) for name in "ab")
    assert a is not None
    assert b is not None
    assert (a.promotions, a.dedup_expirations, a.lease_redeliveries) == (1, 1, 0)
    assert (b.promotions, b.dedup_expirations, b.lease_redeliveries) == (0, 0, 1)


def test_a_traced_sweep_names_every_job_it_moved_as_it_was_before() -> None:
    world = World(retention_ms=1000)
    [scheduled] = world.enqueue("s", delay_ms=10)
    [retried] = world.enqueue("r")
    [spent] = world.enqueue("d", max_attempts=1)
    world.reserve("r", lease_ms=10)
    world.reserve("d", lease_ms=10)
    world.commit()
    world.pass_ms(10)

    swept = world.do(Sweep(is_traced=True))

    assert isinstance(swept, Swept)
    # Queues of one deadline have no order among them.
    assert sorted((job.kind, job.queue, job.job_id, job.attempt) for job in swept.jobs) == [
        ("dead_letter", "d", spent, 1),
        ("promote", "s", scheduled, 1),
        ("redeliver", "r", retried, 1),
    ]
    slots = world.machine.table.slots
    assert [slots.key(job.slot) for job in swept.jobs] == [job.job_id for job in swept.jobs]


def test_an_untraced_sweep_names_only_what_it_dead_lettered() -> None:
    world = World(retention_ms=1000)
    world.enqueue("s", delay_ms=10)
    [spent] = world.enqueue("d", max_attempts=1)
    world.reserve("d", lease_ms=10)
    world.commit()
    world.pass_ms(10)

    assert [job.job_id for job in world.sweep().jobs] == [spent]
