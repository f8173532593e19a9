"""The retry policy of a queue: how long a failed job waits, and that it is the same each time."""

import uuid

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from tests.conformance.local import LocalClient, Place, local


async def delays(rpc: LocalClient, queue: str, attempts: int) -> list[int]:
    """The delays after attempts 1, 2, ... of one job, in ms; each is waited for, too."""
    await rpc.enqueue(queue, max_attempts=attempts + 1)
    found = await rpc.take(queue)
    spans = []
    for _ in range(attempts):
        nacked_ms = await now_ms(rpc)
        await rpc.nack(found)
        statistics = rpc.machine.queue_statistics(queue)
        assert statistics is not None
        due_ms = statistics.next_due_ms or nacked_ms
        while not (jobs := await rpc.reserve(queue, wait_ms=200_000, lease_ms=300_000)):
            pass
        (found,) = jobs
        assert due_ms <= await now_ms(rpc) <= due_ms + 1
        spans.append(due_ms - nacked_ms)
    return spans


async def now_ms(rpc: LocalClient) -> int:
    """The server's clock."""
    return (await rpc.info()).server_time.ToMilliseconds()


# Fact -> limits, and the delay before up to a quarter is taken off, for each attempt.
POLICIES: dict[str, tuple[dict[str, object], list[int]]] = {
    "0 is no delay": ({"retry_delay_ms": 0}, [0, 0, 0]),
    "0 stays 0 when it doubles": ({"retry_delay_ms": 0, "retry_backoff": "exponential"}, [0, 0, 0]),
    "none stays the same": ({"retry_delay_ms": 8_000}, [8_000] * 4),
    "exponential doubles from the first failure on": (
        {"retry_delay_ms": 1_000, "retry_backoff": "exponential"},
        [1_000, 2_000, 4_000, 8_000, 16_000],
    ),
    "retry_delay_max_ms cuts": (
        {"retry_delay_ms": 1_000, "retry_backoff": "exponential", "retry_delay_max_ms": 3_000},
        [1_000, 2_000, 3_000, 3_000],
    ),
    "the horizon cuts": (
        {"retry_delay_ms": 9_000, "max_schedule_horizon_ms": 4_000},
        [4_000, 4_000],
    ),
    "one millisecond has no jitter": ({"retry_delay_ms": 1}, [1, 1, 1]),
}


@pytest.mark.parametrize("fact", POLICIES)
async def test_the_delay_by_policy(autojump_clock: MockClock, fact: str) -> None:
    limits, ceilings = POLICIES[fact]
    async with local(limits=limits) as rpc:
        found = await delays(rpc, "q", len(ceilings))
    for delay, ceiling in zip(found, ceilings, strict=True):
        assert ceiling - ceiling // 4 <= delay <= ceiling


async def test_doubling_saturates_far_along(autojump_clock: MockClock) -> None:
    limits = {
        "retry_delay_ms": 1,
        "retry_backoff": "exponential",
        "retry_delay_max_ms": 1_000,
        "max_attempts_ceiling": 200,
    }
    async with local(limits=limits) as rpc:
        found = await delays(rpc, "q", 150)
    assert all(750 <= delay <= 1_000 for delay in found[20:])


async def test_jitter_spreads_jobs_over_the_last_quarter(autojump_clock: MockClock) -> None:
    async with local(limits={"retry_delay_ms": 4_000}) as rpc:
        found = [(await delays(rpc, f"q{number}", 1))[0] for number in range(40)]
    assert len(set(found)) > 20
    assert min(found) < 3_400
    assert max(found) > 3_600


async def test_a_queue_has_a_policy_of_its_own(autojump_clock: MockClock) -> None:
    queues = [{"name": "own", "retry_delay_ms": 2_000, "retry_backoff": "exponential"}]
    async with local(queues=queues) as rpc:
        assert await delays(rpc, "other", 2) == [0, 0]
        first, second = await delays(rpc, "own", 2)
    assert 1_500 <= first <= 2_000
    assert 3_000 <= second <= 4_000


async def test_the_policy_at_the_time_of_the_nack_holds(autojump_clock: MockClock) -> None:
    place = Place()
    async with place.serving() as rpc:
        await rpc.enqueue("q")
    place.settings = {"limits": {"retry_delay_ms": 4_000}}
    async with place.serving() as rpc:
        await rpc.nack(await rpc.take("q"))
        assert await rpc.reserve("q") == []
        await trio.sleep(4.1)
        assert (await rpc.take("q")).attempt == 2


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_the_same_job_and_attempt_always_wait_equally_long(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    job_id = uuid.UUID(int=seed << 64, version=4).bytes
    monkeypatch.setattr("sepp.wire.new_job_id", lambda: job_id)
    limits = {"retry_delay_ms": 10_000, "retry_backoff": "exponential"}
    runs = []
    for _ in range(2):
        async with local(limits=limits) as rpc:
            runs.append(await delays(rpc, "q", 4))
    assert runs[0] == runs[1]
    assert len(set(runs[0])) == 4
