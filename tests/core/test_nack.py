"""Nack: directives, the retry delay, and what is kept of the reason."""

from random import Random

import pytest

from sepp.core.commands import Directive, Nack
from sepp.core.limits import QueueLimits
from sepp.core.outcomes import Nacked
from sepp.core.retry import policy_delay_ms, retry_delay_ms
from sepp.core.slots import (
    DEAD,
    FREE,
    HAS_REASON,
    JOBS,
    READY,
    REASON_IS_FINAL,
    REASONS,
    SCHEDULED,
)
from tests.core.world import World, job_id


def leased_world(
    *, limits: QueueLimits | None = None, max_attempts: int = 3, retention_ms: int = 60_000
) -> tuple[World, bytes]:
    world = World(default=limits, retention_ms=retention_ms)
    [job] = world.enqueue(max_attempts=max_attempts)
    world.reserve()
    world.commit()
    return world, job


def cause_of(world: World, job: bytes) -> int:
    return world.slots.cause[world.slots.find(JOBS, job)]


def test_default_policy_retries_at_once_with_the_next_attempt() -> None:
    world, job = leased_world()

    assert world.nack(job) == Nacked("q", False, 0)

    assert (world.state(job), world.attempt(job)) == (READY, 2)


def test_delay_schedules_the_next_attempt() -> None:
    world, job = leased_world()

    assert world.nack(job, directive=1, delay_ms=700) == Nacked("q", False, world.wall_ms + 700)

    assert (world.state(job), world.attempt(job)) == (SCHEDULED, 2)
    world.pass_ms(699)
    assert world.sweep().promoted == 0
    world.pass_ms(1)
    assert world.sweep().promoted == 1


def test_delay_0_retries_at_once_whatever_the_policy() -> None:
    world, job = leased_world(limits=QueueLimits(retry_delay_ms=5000))

    assert world.nack(job, directive=1, delay_ms=0) == Nacked("q", False, 0)


def test_delay_is_capped_by_the_schedule_horizon_of_the_queue() -> None:
    world, job = leased_world(limits=QueueLimits(max_schedule_horizon_ms=300))

    assert world.nack(job, directive=1, delay_ms=1 << 63) == Nacked("q", False, world.wall_ms + 300)


def test_delay_longer_than_time_itself_ends_with_year_9999() -> None:
    world, job = leased_world(limits=QueueLimits(max_schedule_horizon_ms=(1 << 64) - 1))

    outcome = world.nack(job, directive=1, delay_ms=(1 << 64) - 1)

    assert outcome == Nacked("q", False, 253_402_300_799_999)
    world.restart()


def test_dead_letter_directive_buries_whatever_attempts_are_left() -> None:
    world, job = leased_world()

    assert world.nack(job, directive=2) == Nacked("q", True)

    assert (world.state(job), cause_of(world, job), world.attempt(job)) == (DEAD, 2, 1)


@pytest.mark.parametrize("directive", [Directive.POLICY, Directive.DELAY])
def test_last_attempt_is_buried_whatever_the_directive(directive: Directive) -> None:
    world, job = leased_world(max_attempts=1)

    assert world.nack(job, directive=directive, delay_ms=500) == Nacked("q", True)

    assert (world.state(job), cause_of(world, job)) == (DEAD, 1)


def test_dead_letter_directive_on_the_last_attempt_says_rejected() -> None:
    world, job = leased_world(max_attempts=1)
    world.nack(job, directive=2)

    assert cause_of(world, job) == 2


@pytest.mark.parametrize("directive", [Directive.POLICY, Directive.DEAD_LETTER])
def test_without_retention_a_dead_job_is_gone_but_told_and_counted_as_dead(
    directive: Directive,
) -> None:
    world, job = leased_world(max_attempts=1, retention_ms=0)

    assert world.nack(job, directive=directive, reason=b"no") == Nacked("q", True)

    assert world.state(job) == FREE
    assert list(world.machine.deletes) == [world.slots.find(JOBS, job)]
    assert not world.machine.puts
    statistics = world.machine.queue_statistics("q")
    assert statistics is not None
    assert (statistics.dead, sum(statistics.dead_lettered), statistics.nacked) == (0, 1, 1)


def test_job_is_delivered_exactly_max_attempts_times() -> None:
    for max_attempts in (1, 3):
        world = World(retention_ms=1000)
        [job] = world.enqueue(max_attempts=max_attempts)
        attempts = []
        while leased := world.reserve():
            attempts.append(leased[0].attempt)
            world.nack(job, leased[0].attempt)

        assert attempts == list(range(1, max_attempts + 1))
        assert (world.state(job), world.attempt(job)) == (DEAD, max_attempts)


def test_reason_of_a_retry_is_kept_in_the_batch_of_the_nack() -> None:
    world, job = leased_world()

    world.nack(job, reason=b"timeout")

    slot = world.slots.find(REASONS, job)
    assert world.machine.puts == {slot: b"timeout"}
    assert world.slots.body_length[slot] == 7
    assert world.slots.at_ms[slot] == world.wall_ms
    assert world.slots.flags[world.slots.find(JOBS, job)] == HAS_REASON


def test_next_reason_replaces_the_last_and_silence_keeps_it() -> None:
    world, job = leased_world(max_attempts=9)
    for attempt, (reason, kept) in enumerate(
        [(b"one", b"one"), (b"two", b"two"), (None, b"two"), (b"", b"")], start=1
    ):
        world.nack(job, attempt, reason=reason)
        world.reserve()
        world.commit()
        assert world.slots.body(world.slots.find(REASONS, job)) == kept


@pytest.mark.parametrize(
    ("reason", "kept_bytes"),
    [
        (b"a" * 1024, 1024),
        (b"a" * 1025, 1024),
        ("ä".encode() * 600, 1024),
        (b"a" + "ä".encode() * 600, 1023),
        ("€".encode() * 400, 1023),
        ("🦊".encode() * 300, 1024),
        (b"aaa" + "🦊".encode() * 300, 1023),
    ],
)
def test_reason_of_a_retry_is_cut_to_1_kib_between_characters(
    reason: bytes, kept_bytes: int
) -> None:
    world, job = leased_world()

    world.nack(job, reason=reason)

    kept = world.machine.puts[world.slots.find(REASONS, job)]
    assert len(kept) == kept_bytes
    assert kept.decode() == reason.decode()[: len(kept.decode())]


def test_reason_of_a_dead_letter_is_kept_whole() -> None:
    world, job = leased_world()
    reason = b"x" * 5000

    world.nack(job, directive=2, reason=reason)

    assert world.machine.puts[world.slots.find(REASONS, job)] == reason
    assert world.slots.flags[world.slots.find(JOBS, job)] == HAS_REASON | REASON_IS_FINAL


def test_final_reason_replaces_the_one_of_a_retry() -> None:
    world, job = leased_world()
    world.nack(job, reason=b"first")
    world.reserve()
    world.commit()

    world.nack(job, 2, directive=2, reason=b"last")

    assert list(world.machine.puts.values()) == [b"last"]


def test_last_nack_of_a_queue_is_remembered() -> None:
    world, job = leased_world()
    world.pass_ms(50)
    world.nack(job, reason=b"y" * 2000)

    statistics = world.machine.queue_statistics("q")
    assert statistics is not None
    assert statistics.last_nack_ms == world.wall_ms
    assert statistics.last_nack_reason == b"y" * 1024


# The retry delay itself


def exponential(base_ms: int, ceiling_ms: int = 3_600_000) -> QueueLimits:
    return QueueLimits(
        retry_delay_ms=base_ms, retry_is_exponential=True, retry_delay_max_ms=ceiling_ms
    )


def test_base_0_is_at_once_with_either_backoff() -> None:
    for limits in (QueueLimits(), exponential(0)):
        assert policy_delay_ms(job_id(1), 5, limits) == 0


def test_constant_delay_does_not_grow() -> None:
    limits = QueueLimits(retry_delay_ms=1000)

    delays = [policy_delay_ms(job_id(1), attempt, limits) for attempt in range(1, 100)]

    assert all(750 <= delay <= 1000 for delay in delays)


def test_exponential_delay_doubles_from_the_first_failure_on() -> None:
    for attempt in range(1, 11):
        full = 1000 << (attempt - 1)
        delay = policy_delay_ms(job_id(1), attempt, exponential(1000))
        assert full - full // 4 <= delay <= full


def test_delay_stops_at_the_smaller_of_ceiling_and_horizon() -> None:
    limits = QueueLimits(
        retry_delay_ms=1000,
        retry_is_exponential=True,
        retry_delay_max_ms=8000,
        max_schedule_horizon_ms=4000,
    )

    assert 3000 <= policy_delay_ms(job_id(1), 50, limits) <= 4000
    assert 6000 <= policy_delay_ms(job_id(1), 50, exponential(1000, 8000)) <= 8000


def test_doubling_saturates_for_any_attempt() -> None:
    limits = exponential(1, (1 << 64) - 1)

    assert policy_delay_ms(job_id(1), (1 << 32) - 1, limits) <= limits.max_schedule_horizon_ms


def test_same_job_and_attempt_always_wait_equally_long() -> None:
    limits = exponential(1_000_000)

    assert policy_delay_ms(job_id(7), 3, limits) == policy_delay_ms(job_id(7), 3, limits)
    assert policy_delay_ms(job_id(7), 3, limits) != policy_delay_ms(job_id(8), 3, limits)
    assert policy_delay_ms(job_id(7), 1, limits) != policy_delay_ms(job_id(7), 2, limits) // 2


def test_jitter_is_spread_over_the_last_quarter() -> None:
    seed = 4711
    print(f"seed {seed}")
    random = Random(seed)
    limits = QueueLimits(retry_delay_ms=4000)

    delays = [policy_delay_ms(random.randbytes(16), 1, limits) for _ in range(10_000)]

    assert (min(delays), max(delays)) == (3000, 4000)
    assert len(set(delays)) > 990


@pytest.mark.parametrize(("base_ms", "delay_ms"), [(1, 1), (2, 2), (3, 3)])
def test_delays_below_4_ms_have_no_jitter(base_ms: int, delay_ms: int) -> None:
    assert policy_delay_ms(job_id(3), 1, QueueLimits(retry_delay_ms=base_ms)) == delay_ms


def test_given_delay_has_no_jitter() -> None:
    nack = Nack(job_id(1), 1, Directive.DELAY, 40_000)

    assert retry_delay_ms(nack, exponential(5)) == 40_000
