"""The dedup window: scope, hits, expiry, and what outlives what."""

from sepp.core.commands import Drain, Enqueue, Purge, Requeue
from sepp.core.limits import QueueLimits
from sepp.core.outcomes import Accepted, Enqueued, JobResult, QueueFull
from sepp.core.slots import DEDUP
from tests.core.world import FixedPolicy, World, key

WINDOW_MS = 1000
LIMITS = QueueLimits(dedup_window_ms=WINDOW_MS)


def keyed_world() -> tuple[World, bytes]:
    """Return a world and the id of the job that holds key k."""
    world = World(default=LIMITS, retention_ms=60_000)
    [job] = world.enqueue(dedup_key="k", max_attempts=1)
    return world, job


def result_of(world: World, **fields: object) -> JobResult:
    job = world.new_job(dedup_key="k", **fields)  # type: ignore[arg-type] # names are checked at the call
    outcome = world.do(Enqueue([job]))
    assert isinstance(outcome, Enqueued)
    return outcome.results[0]


def test_hit_returns_the_first_id_and_stores_nothing() -> None:
    world, job = keyed_world()
    world.commit()

    assert result_of(world, priority=9, delay_ms=500) == Accepted(job, True)

    assert not world.has_writes()
    statistics = world.machine.queue_statistics("q")
    assert statistics is not None
    assert (statistics.enqueued, statistics.deduplicated) == (1, 1)


def test_record_says_every_byte_of_the_id() -> None:
    world = World(default=LIMITS)
    job = world.new_job(dedup_key="k")
    job.job_id = bytes(range(240, 256))
    world.do(Enqueue([job]))
    world.restart()

    assert result_of(world) == Accepted(job.job_id, True)


def test_hit_until_just_before_the_deadline_and_free_at_it_unswept() -> None:
    world, job = keyed_world()
    world.pass_ms(WINDOW_MS - 1)
    assert result_of(world) == Accepted(job, True)

    world.pass_ms(1)

    result = result_of(world)
    assert isinstance(result, Accepted)
    assert (result.job_id != job, result.is_duplicate) == (True, False)


def test_hit_does_not_extend_the_window() -> None:
    world, job = keyed_world()
    world.pass_ms(WINDOW_MS - 1)
    assert result_of(world) == Accepted(job, True)
    world.pass_ms(1)

    assert world.sweep().dedup_expired == 1


def test_new_insert_replaces_the_expired_record_and_its_timer() -> None:
    world, _ = keyed_world()
    world.pass_ms(WINDOW_MS)
    new = result_of(world)
    assert isinstance(new, Accepted)

    assert world.sweep().dedup_expired == 0
    world.pass_ms(WINDOW_MS - 1)
    assert result_of(world) == Accepted(new.job_id, True)
    world.pass_ms(1)
    assert world.sweep().dedup_expired == 1
    assert world.slots.find(DEDUP, key("k")) in world.machine.deletes


def test_swept_key_can_be_used_again_in_the_same_group() -> None:
    world, _ = keyed_world()
    world.commit()
    world.pass_ms(WINDOW_MS)
    world.sweep()

    new = result_of(world)

    assert isinstance(new, Accepted)
    slot = world.slots.find(DEDUP, key("k"))
    assert slot not in world.machine.deletes
    assert world.machine.puts[slot] == b""
    world.restart()
    assert result_of(world) == Accepted(new.job_id, True)


def test_same_key_twice_in_one_batch_is_a_hit_on_the_first() -> None:
    for is_atomic in (False, True):
        world = World()
        jobs = [world.new_job(dedup_key="k") for _ in range(2)]

        outcome = world.do(Enqueue(jobs, is_atomic))

        first = jobs[0].job_id
        assert outcome == Enqueued([Accepted(first), Accepted(first, True)])


def test_still_a_hit_after_ack_death_and_drain() -> None:
    world, job = keyed_world()
    world.reserve()
    world.ack(job)
    assert result_of(world) == Accepted(job, True)

    [other] = world.enqueue(dedup_key="other")
    world.reserve()
    world.nack(other, directive=2)
    world.do(Drain())
    outcome = world.do(Enqueue([world.new_job(dedup_key="other")]))
    assert outcome == Enqueued([Accepted(other, True)])


def test_records_keep_their_pinned_deadline_over_a_restart_with_another_window() -> None:
    for window_ms in (1, 100 * WINDOW_MS):
        world, job = keyed_world()
        world.policy = FixedPolicy(QueueLimits(dedup_window_ms=window_ms))
        world.restart()

        world.pass_ms(WINDOW_MS - 1)
        assert result_of(world) == Accepted(job, True)
        world.pass_ms(1)
        assert result_of(world) != Accepted(job, True)


def test_window_of_the_queue_counts() -> None:
    world = World(default=LIMITS, queues={"long": QueueLimits(dedup_window_ms=5000)})
    world.enqueue("long", dedup_key="a")
    world.enqueue("short", dedup_key="b")

    world.pass_ms(WINDOW_MS)

    assert world.sweep().dedup_expired == 1
    statistics = world.machine.queue_statistics("long")
    assert statistics is not None
    assert (statistics.dedup_records, statistics.dedup_expirations) == (1, 0)


def test_refused_job_leaves_no_record() -> None:
    world = World(queues={"q": QueueLimits(max_queue_depth=0)})

    assert result_of(world) == QueueFull("q", 0)

    assert world.slots.find(DEDUP, key("k")) == -1


def test_best_effort_hit_bypasses_the_depth_cap() -> None:
    world = World(queues={"q": QueueLimits(max_queue_depth=1)})
    [job] = world.enqueue(dedup_key="k")

    assert result_of(world) == Accepted(job, True)


def test_requeue_neither_creates_nor_refreshes_a_record() -> None:
    world, job = keyed_world()
    world.reserve()
    world.nack(job)
    world.pass_ms(WINDOW_MS - 1)
    world.do(Requeue("q", [job]))
    world.pass_ms(1)

    assert world.sweep().dedup_expired == 1
    assert result_of(world) != Accepted(job, True)


def test_purge_removes_the_records_of_the_queue_only() -> None:
    world, _ = keyed_world()
    [other] = world.enqueue("other", dedup_key="o")

    world.do(Purge("q"))

    assert result_of(world).__class__ is Accepted
    statistics = world.machine.queue_statistics("q")
    assert statistics is not None
    assert statistics.enqueued == 2
    outcome = world.do(Enqueue([world.new_job("other", dedup_key="o")]))
    assert outcome == Enqueued([Accepted(other, True)])


def test_key_lives_the_same_life_with_a_restart_between_any_two_steps() -> None:
    lives = []
    for restarts in (False, True):
        world = World(default=LIMITS)
        told: list[bool] = []

        def step(world: World = world, told: list[bool] = told, restarts: bool = restarts) -> None:
            result = result_of(world)
            assert isinstance(result, Accepted)
            told.append(result.is_duplicate)
            if restarts:
                world.restart()

        step()
        [leased] = world.reserve()
        world.ack(leased.job_id)
        step()
        world.pass_ms(WINDOW_MS)
        step()
        world.do(Purge("q"))
        step()
        lives.append(told)

    assert lives == [[False, True, False, False]] * 2
