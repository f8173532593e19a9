"""Closing, emptying and forgetting queues, their numbers on disk, and the audit trail."""

from sepp.core.commands import AppendAudit, Close, Enqueue, Open, Purge
from sepp.core.limits import QueueLimits
from sepp.core.outcomes import (
    Accepted,
    Appended,
    Done,
    Enqueued,
    Purged,
    QueueClosing,
    Swept,
)
from sepp.core.slots import AUDIT, CLOSING, QUEUES
from sepp.core.timers import IDLE_MS
from tests.core.world import World

RETENTION_MS = 60_000


def refuses(world: World, queue: str = "q") -> bool:
    outcome = world.do(Enqueue([world.new_job(queue)]))
    assert isinstance(outcome, Enqueued)
    return type(outcome.results[0]) is QueueClosing


def row_key(number: int) -> bytes:
    return number.to_bytes(16, "big")


# Closing


def test_closing_refuses_jobs_and_nothing_else() -> None:
    world = World()
    acked, nacked, extended = world.enqueue(count=3)
    world.close("q", 30_000)

    assert refuses(world)
    assert world.reserve_ids(max_jobs=3) == [acked, nacked, extended]
    world.ack(acked)
    world.nack(nacked)
    world.extend(extended, 500)
    assert not refuses(world, "other")


def test_closing_again_moves_the_deadline_either_way() -> None:
    for first_ms, second_ms in ((10, 500), (500, 10)):
        world = World()
        world.close("q", first_ms)
        world.close("q", second_ms)
        assert world.machine.next_deadline()[0] == world.wall_ms + second_ms

        world.pass_ms(second_ms - 1)
        assert world.sweep() == Swept()
        assert refuses(world)
        world.pass_ms(1)
        assert not refuses(world)
        assert world.sweep() == Swept(closings_ended=1)


def test_opening_takes_the_tombstone_away_and_may_be_repeated() -> None:
    world = World()
    world.close("q", 30_000)

    for queue in ("q", "q", "never heard of"):
        assert world.do(Open(queue)) == Done()

    assert not refuses(world)
    world.commit()
    assert world.slots.find(CLOSING, row_key(1)) == -1


def test_closed_opened_and_closed_in_one_group_is_closed_after_a_restart() -> None:
    world = World()
    world.close("q", 30_000)
    world.do(Open("q"))
    world.close("q", 30_000)

    world.restart()

    assert refuses(world)


def test_closing_holds_across_a_restart_until_its_deadline() -> None:
    world = World()
    world.close("q", 30_000)
    world.restart()
    world.pass_ms(29_999)
    assert refuses(world)

    world.pass_ms(1)

    assert world.sweep().closings_ended == 1
    assert not refuses(world)


# Purge


def purge(world: World, count_max: int = 1000, *, spares_leased: bool = False) -> Purged:
    outcome = world.do(Purge("q", count_max, spares_leased))
    assert isinstance(outcome, Purged)
    return outcome


def full_world() -> World:
    """Return a world whose queue holds 2 ready, 2 scheduled, 2 dead and 2 dedup records."""
    world = World(retention_ms=RETENTION_MS)
    for job in world.enqueue(count=2):
        world.reserve()
        world.nack(job, directive=2, reason=b"why")
    world.enqueue(count=1, dedup_key="a")
    world.enqueue(count=1, dedup_key="b")
    world.enqueue(count=2, delay_ms=5000)
    world.enqueue("other", dedup_key="c")
    world.commit()
    return world


def held(world: World) -> tuple[int, int, int, int]:
    statistics = world.machine.queue_statistics("q")
    assert statistics is not None
    return statistics.ready, statistics.scheduled, statistics.dead, statistics.dedup_records


def test_purge_takes_ready_scheduled_dead_and_dedup_in_chunks() -> None:
    world = full_world()

    seen = []
    while (purged := purge(world, 3)).has_more:
        assert purged == Purged(3, True, 0)
        seen.append(held(world))

    assert seen == [(0, 1, 2, 2), (0, 0, 0, 2)]
    assert purged == Purged(2, False, 0)
    assert held(world) == (0, 0, 0, 0)
    world.commit()
    assert sorted(world.machine.queue_names()) == ["other", "q"]
    assert purge(world) == Purged(0, False, 0)


def test_purge_deletes_every_row_of_the_queue_but_its_name() -> None:
    world = full_world()
    purge(world)
    world.commit()

    left = [slot for slot in world.slots.live() if world.slots.queue[slot] == 1]

    assert [world.slots.table(slot) for slot in left] == [QUEUES]


def test_job_in_flight_stops_a_purge_before_anything_goes() -> None:
    world = full_world()
    world.reserve()

    assert purge(world) == Purged(0, True, 1)

    assert not world.machine.deletes
    assert held(world) == (1, 2, 2, 2)


def test_purge_beside_jobs_in_flight_leaves_them_alone() -> None:
    world = full_world()
    [job] = world.reserve_ids()

    assert purge(world, spares_leased=True) == Purged(7, False, 1)

    assert held(world) == (0, 0, 0, 0)
    world.ack(job)


def test_purge_of_an_unknown_queue_does_nothing() -> None:
    assert World().do(Purge("q")) == Purged(0, False, 0)


# Numbers and forgetting


def test_empty_queue_writes_nothing_and_the_first_job_writes_its_row() -> None:
    world = World()
    world.reserve("a")
    assert not world.has_writes()

    world.enqueue("a")
    world.enqueue("b")
    world.enqueue("a")

    rows = {
        body: slot for slot, body in world.machine.puts.items() if world.slots.table(slot) == QUEUES
    }
    assert {name: world.slots.key(slot) for name, slot in rows.items()} == {
        b"a": row_key(1),
        b"b": row_key(2),
    }


def test_queue_is_forgotten_after_15_minutes_without_anything() -> None:
    world = World()
    [job] = world.enqueue(dedup_key=None)
    world.reserve()
    world.pass_ms(5000)
    world.ack(job)
    world.commit()
    assert world.machine.next_deadline() == (None, world.steady_ms + IDLE_MS)

    world.pass_ms(IDLE_MS - 1)
    assert world.sweep() == Swept()
    world.pass_ms(1)
    assert world.sweep() == Swept(queues_freed=1)

    assert world.machine.queue_names() == []
    world.commit()
    assert list(world.slots.live()) == []


def test_queue_that_holds_anything_at_all_is_kept() -> None:
    limits = QueueLimits(max_lease_duration_ms=50 * IDLE_MS)
    world = World(retention_ms=100 * IDLE_MS, default=limits)
    world.enqueue("ready")
    world.enqueue("scheduled", delay_ms=50 * IDLE_MS)
    [dead] = world.enqueue("dead")
    world.reserve("dead")
    world.nack(dead, directive=2)
    [acked] = world.enqueue("dedup", dedup_key="k")
    world.reserve("dedup")
    world.ack(acked)
    world.enqueue("leased")
    world.reserve("leased", lease_ms=10 * IDLE_MS)
    world.close("closing", 50 * IDLE_MS)
    world.park("waited for", wait_ms=50 * IDLE_MS)

    world.pass_ms(2 * IDLE_MS)

    assert world.sweep() == Swept()
    assert len(world.machine.queue_names()) == 7


def test_use_within_15_minutes_starts_them_anew() -> None:
    world = World()
    world.reserve("polled")
    for _ in range(5):
        world.pass_ms(IDLE_MS - 1)
        assert world.sweep() == Swept()
        world.reserve("polled")


def test_queue_that_was_only_waited_on_is_forgotten_however_the_wait_ended() -> None:
    world = World()
    world.park("served", "a")
    world.enqueue("served")
    dropped = world.park("b")
    world.machine.drop_waiter(dropped)
    world.park("c", wait_ms=1)
    world.pass_ms(1)
    world.sweep()

    world.pass_ms(IDLE_MS)
    world.sweep()

    assert world.machine.queue_names() == ["served"]


def test_forgotten_queue_gets_a_number_no_other_holds() -> None:
    world = World()
    [job] = world.enqueue("a")
    world.enqueue("b")
    world.reserve("a")
    world.ack(job)
    world.pass_ms(IDLE_MS)
    world.sweep()

    world.enqueue("a")

    statistics = world.machine.queue_statistics("a")
    assert statistics is not None
    assert statistics.number == 3


def test_numbers_wrap_around_to_free_ones() -> None:
    world = World()
    world.enqueue("a")
    world.machine.table.number_last = 0xFFFF_FFFF

    world.enqueue("b")

    statistics = world.machine.queue_statistics("b")
    assert statistics is not None
    assert statistics.number == 2
    world.restart()


def test_totals_keep_what_forgotten_queues_counted() -> None:
    world = World()
    [job] = world.enqueue()
    world.reserve()
    world.ack(job)
    world.pass_ms(IDLE_MS)
    world.sweep()

    totals = world.machine.statistics()

    assert totals.queues == ()
    assert (totals.enqueued, totals.reserved, totals.acked) == (1, 1, 1)


# Audit


def test_audit_entries_are_numbered_on_also_after_a_restart() -> None:
    world = World()
    assert world.do(AppendAudit(b"one")) == Appended(1)
    assert world.do(AppendAudit(b"two")) == Appended(2)
    world.restart()

    assert world.do(AppendAudit(b"three")) == Appended(3)

    slots = [world.slots.find(AUDIT, row_key(n)) for n in (3, 2, 1)]
    assert world.machine.audit_page(before=None, limit=9) == [
        (n, world.wall_ms, slot) for n, slot in zip((3, 2, 1), slots, strict=True)
    ]
    assert [entry[0] for entry in world.machine.audit_page(before=3, limit=1)] == [2]
    assert world.machine.audit_page(before=1, limit=9) == []


def test_audit_entries_past_their_retention_go_but_never_the_newest() -> None:
    world = World(audit_retention_ms=1000)
    for body in (b"one", b"two", b"three"):
        world.do(AppendAudit(body))
        world.pass_ms(100)
    world.commit()
    assert world.machine.next_deadline()[0] == world.wall_ms + 700

    world.pass_ms(800)
    assert world.sweep() == Swept(audit_expired=2)

    world.pass_ms(10_000)
    assert world.sweep() == Swept()
    world.restart()
    assert world.do(AppendAudit(b"four")) == Appended(4)


def test_audit_retention_is_taken_over_at_a_reload() -> None:
    world = World()
    world.do(AppendAudit(b"one"))
    world.do(AppendAudit(b"two"))
    world.pass_ms(5000)
    assert world.sweep() == Swept()

    world.machine.reload(world.policy, audit_retention_ms=5000)

    assert world.sweep() == Swept(audit_expired=1)


def test_close_of_an_empty_queue_gives_it_a_number() -> None:
    world = World()
    world.do(Close("q", world.wall_ms + 5))
    world.pass_ms(5)
    world.sweep()
    outcome = world.do(Enqueue([world.new_job()]))

    assert isinstance(outcome, Enqueued)
    assert type(outcome.results[0]) is Accepted
    assert world.slots.find(QUEUES, row_key(1)) >= 0
