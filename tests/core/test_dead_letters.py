"""Dead letters: what is recorded, draining, requeue, deletion and burial by hand, retention."""

from sepp.core.commands import DeadLetter, DeleteDead, Drain, Purge, Requeue
from sepp.core.outcomes import DeadJob, Drained, Moved
from sepp.core.reserve import ANSWER_OVERHEAD_BYTES
from sepp.core.slots import (
    DEAD,
    FREE,
    HAS_REASON,
    JOBS,
    LEASED,
    READY,
    REASONS,
    SCHEDULED,
    WAS_REQUEUED,
)
from tests.core.world import World, job_id

RETENTION_MS = 60_000


def bury(world: World, queue: str = "q", *, reason: bytes | None = None, size: int = 4) -> bytes:
    """Enqueue a job and nack it to death, one millisecond after the last; return its id."""
    world.pass_ms(1)
    [job] = world.enqueue(queue, priority=9, body=bytes(size))
    world.reserve(queue)
    world.nack(job, directive=2, reason=reason)
    return job


def drain(
    world: World, queue: str | None = None, count: int = 1, bytes_max: int = 0
) -> list[DeadJob]:
    outcome = world.do(Drain(queue, count, bytes_max))
    assert isinstance(outcome, Drained)
    return outcome.records


def drain_ids(world: World, queue: str | None = None, count: int = 1) -> list[bytes]:
    return [record.job_id for record in drain(world, queue, count)]


def test_record_says_queue_cause_times_and_final_attempt() -> None:
    world = World(retention_ms=RETENTION_MS)
    enqueued_ms = world.wall_ms
    [job] = world.enqueue(max_attempts=2)
    world.reserve()
    world.nack(job)
    world.reserve()
    world.pass_ms(500)
    world.nack(job, 2, reason=b"broken")
    world.commit()

    [record] = drain(world)

    assert record == DeadJob(
        slot=record.slot,
        reason_slot=record.reason_slot,
        job_id=job,
        queue="q",
        cause=1,
        failed_ms=world.wall_ms,
        attempt=2,
        enqueued_ms=enqueued_ms,
        flags=3,
    )
    assert world.slots.body(record.slot) == b"body"
    assert world.slots.body(record.reason_slot) == b"broken"


def test_drained_records_are_deleted_in_the_same_batch() -> None:
    world = World(retention_ms=RETENTION_MS)
    job = bury(world, reason=b"why")
    world.commit()
    slots = {world.slots.find(JOBS, job), world.slots.find(REASONS, job)}

    drain(world)

    assert set(world.machine.deletes) == slots
    assert drain(world) == []


def test_lease_expiry_gives_no_reason_though_an_earlier_nack_did() -> None:
    world = World(retention_ms=RETENTION_MS)
    [job] = world.enqueue(max_attempts=2)
    world.reserve()
    world.nack(job, reason=b"from the first attempt")
    world.reserve(lease_ms=10)
    world.pass_ms(10)
    assert world.sweep().dead_lettered == 1
    row = world.machine.job_row(job)
    assert row is not None
    assert row.reason_slot >= 0, "the operator still sees it"

    [record] = drain(world)

    assert (record.cause, record.reason_slot) == (3, -1)
    world.commit()
    assert world.slots.find(REASONS, job) == -1


def test_nack_without_reason_gives_none_though_an_earlier_nack_did() -> None:
    world = World(retention_ms=RETENTION_MS)
    [job] = world.enqueue(max_attempts=2)
    world.reserve()
    world.nack(job, reason=b"from the first attempt")
    world.reserve()
    world.nack(job, 2)

    assert [record.reason_slot for record in drain(world)] == [-1]


def test_oldest_first_over_all_queues() -> None:
    world = World(retention_ms=RETENTION_MS)
    jobs = [bury(world, name) for name in ("b", "a", "c", "a", "b")]

    assert drain_ids(world, None, 3) == jobs[:3]
    assert drain_ids(world, None, 9) == jobs[3:]


def test_one_queue_only_oldest_first() -> None:
    world = World(retention_ms=RETENTION_MS)
    jobs = [bury(world, name) for name in ("b", "a", "c", "a", "b")]

    assert drain_ids(world, "a", 9) == [jobs[1], jobs[3]]
    assert drain_ids(world, None, 9) == [jobs[0], jobs[2], jobs[4]]


def test_dead_in_the_same_millisecond_are_drained_by_queue_name() -> None:
    world = World(retention_ms=RETENTION_MS)
    jobs = {name: world.enqueue(name, max_attempts=1)[0] for name in ("z", "a", "m")}
    world.reserve("z", "a", "m", max_jobs=3)
    for job in jobs.values():
        world.nack(job)

    assert drain_ids(world, None, 9) == [jobs["a"], jobs["m"], jobs["z"]]


def test_matches_far_behind_are_found_at_once() -> None:
    world = World(retention_ms=RETENTION_MS)
    for _ in range(20):
        bury(world, "many")
    last = bury(world, "rare")

    assert drain_ids(world, "rare") == [last]


def test_unknown_queue_and_no_records_drain_empty() -> None:
    world = World(retention_ms=RETENTION_MS)

    assert drain(world, "nowhere") == []
    assert drain(world) == []
    assert world.machine.queue_names() == []
    assert not world.has_writes()


def test_stored_records_are_drained_though_none_are_kept_any_more() -> None:
    world = World(retention_ms=RETENTION_MS)
    job = bury(world)
    world.retention_ms = 0
    world.restart()
    world.pass_ms(10 * RETENTION_MS)
    world.sweep()

    assert world.machine.next_deadline()[0] is None
    assert drain_ids(world) == [job]


def test_drain_stops_at_its_byte_budget_reasons_included_but_gives_one() -> None:
    world = World(retention_ms=RETENTION_MS)
    for _ in range(5):
        bury(world, size=500, reason=b"r" * 400)
    each = 900 + ANSWER_OVERHEAD_BYTES

    assert len(drain(world, None, 9, 2 * each)) == 2
    assert len(drain(world, None, 9, 2 * each - 1)) == 1
    assert len(drain(world, None, 9, 1)) == 1


def test_expired_when_failed_at_plus_retention_is_reached() -> None:
    world = World(retention_ms=RETENTION_MS)
    job = bury(world, reason=b"why")
    assert world.machine.next_deadline()[0] == world.wall_ms + RETENTION_MS

    world.pass_ms(RETENTION_MS - 1)
    assert world.sweep().dead_expired == 0
    world.pass_ms(1)
    assert world.sweep().dead_expired == 1

    assert world.state(job) == FREE
    world.commit()
    assert world.slots.find(REASONS, job) == -1


def test_new_retention_applies_to_old_records() -> None:
    world = World(retention_ms=RETENTION_MS)
    bury(world)
    world.retention_ms = 100
    world.restart()
    world.pass_ms(100)

    assert world.sweep().dead_expired == 1


def test_dead_letters_are_not_part_of_the_depth() -> None:
    world = World(retention_ms=RETENTION_MS)
    bury(world)

    statistics = world.machine.queue_statistics("q")
    assert statistics is not None
    assert (statistics.live, statistics.dead) == (0, 1)
    assert statistics.dead_by_cause == (0, 0, 1, 0, 0)


def test_requeue_starts_anew_under_the_same_id() -> None:
    world = World(retention_ms=RETENTION_MS)
    job = bury(world)
    world.pass_ms(5000)

    assert world.do(Requeue("q", [job])) == Moved([job], 0)

    row = world.machine.job_row(job)
    assert row is not None
    assert (row.state, row.attempt, row.max_attempts, row.priority) == (READY, 1, 3, 9)
    assert (row.enqueued_ms, row.at_ms, row.cause) == (world.wall_ms, 0, 0)
    assert row.flags == WAS_REQUEUED
    statistics = world.machine.queue_statistics("q")
    assert statistics is not None
    assert (statistics.enqueued, statistics.dead_by_cause) == (1, (0, 0, 0, 0, 0))


def test_reason_of_a_past_life_is_not_given_with_the_next_death() -> None:
    world = World(retention_ms=RETENTION_MS)
    job = bury(world, reason=b"old")
    world.do(Requeue("q", [job]))
    assert world.slots.flags[world.slots.find(JOBS, job)] == HAS_REASON | WAS_REQUEUED
    world.reserve()
    world.nack(job, directive=2)

    assert [record.reason_slot for record in drain(world)] == [-1]


def test_actions_on_dead_letters_count_what_is_not_there_as_missing() -> None:
    world = World(retention_ms=RETENTION_MS)
    dead, other = bury(world), bury(world, "other")
    [ready] = world.enqueue()
    ids = [dead, other, ready, job_id(99), dead]

    assert world.do(DeleteDead("q", ids)) == Moved([dead], 4)
    assert world.do(Requeue("q", ids)) == Moved([], 5)
    assert world.do(Requeue("other", ids)) == Moved([other], 4)


def test_burial_by_hand_takes_ready_and_scheduled_jobs_of_the_queue() -> None:
    world = World(retention_ms=RETENTION_MS)
    leased, ready = world.enqueue(count=2)
    [scheduled] = world.enqueue(delay_ms=5000)
    [elsewhere] = world.enqueue("other")
    world.reserve()
    states = {leased: LEASED, ready: READY, scheduled: SCHEDULED, elsewhere: READY}
    assert {job: world.state(job) for job in states} == states

    outcome = world.do(DeadLetter("q", [leased, ready, scheduled, elsewhere], b"by hand"))

    assert outcome == Moved([ready, scheduled], 2)
    for record in drain(world, None, 9):
        assert (record.cause, record.attempt) == (4, 1)
        assert world.machine.puts[record.reason_slot] == b"by hand"
    statistics = world.machine.queue_statistics("q")
    assert statistics is not None
    assert statistics.dead_lettered == (0, 0, 0, 0, 2)


def test_burial_by_hand_without_retention_deletes() -> None:
    world = World()
    [job] = world.enqueue()

    assert world.do(DeadLetter("q", [job], b"x")) == Moved([job], 0)

    assert world.state(job) == FREE
    assert world.machine.next_deadline()[0] is None


def test_burial_by_hand_without_a_reason_gives_none() -> None:
    world = World(retention_ms=RETENTION_MS)
    [job] = world.enqueue()
    world.do(DeadLetter("q", [job]))

    assert [record.reason_slot for record in drain(world)] == [-1]
    assert world.do(DeadLetter("q", [job])) == Moved([], 1)


def test_dead_letters_survive_a_restart_with_cause_and_reason() -> None:
    world = World(retention_ms=RETENTION_MS)
    job = bury(world, reason=b"why")
    world.restart()
    assert world.state(job) == DEAD

    [record] = drain(world)

    assert (record.cause, world.slots.body(record.reason_slot)) == (2, b"why")
    world.do(Purge("q"))
    assert world.machine.statistics().dead_drained == 1
