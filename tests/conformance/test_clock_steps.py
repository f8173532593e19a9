"""The wall clock is set by an hour, forwards or backwards: what follows it, and what does not."""

import pytest
import trio
from trio.testing import MockClock

from sepp._generated import queue_pb2 as pb
from tests.conformance.client import DEAD_LETTER, Client, in_ms, job, later, moment, span
from tests.conformance.local import HOUR_MS, LocalClient, Place

FORWARD, BACKWARD = HOUR_MS, -HOUR_MS
BOTH = pytest.mark.parametrize("step_ms", [FORWARD, BACKWARD], ids=["forward", "backward"])
STORAGE = {"dead_letter_retention_ms": 600_000, "dedup_window_ms": 600_000}


async def step(place: Place, span_ms: int) -> None:
    """Set the wall clock, and let the process live through it for a moment."""
    place.wall.step(span_ms)
    await trio.sleep(0.01)


async def now_ms(rpc: Client) -> int:
    """The server's wall clock."""
    return (await rpc.info()).server_time.ToMilliseconds()


@BOTH
async def test_a_lease_ends_neither_early_nor_late(autojump_clock: MockClock, step_ms: int) -> None:
    place = Place()
    async with place.serving() as rpc:
        await rpc.enqueue("q")
        await rpc.take("q", lease_ms=60_000)
        started = trio.current_time()
        await step(place, step_ms)
        (again,) = await rpc.reserve("q", wait_ms=200_000)
        assert again.attempt == 2
        assert 60 <= trio.current_time() - started <= 60.01


@BOTH
async def test_a_lease_taken_after_the_step_ends_on_time_and_is_told_by_the_wall(
    autojump_clock: MockClock, step_ms: int
) -> None:
    place = Place()
    async with place.serving() as rpc:
        await step(place, step_ms)
        await rpc.enqueue("q")
        found = await rpc.take("q", lease_ms=60_000)
        started = trio.current_time()
        assert in_ms(found.lease_expires_at) == place.wall.now_ms + 60_000
        assert await rpc.extend(found, 90_000) == place.wall.now_ms + 90_000
        (again,) = await rpc.reserve("q", wait_ms=200_000)
        assert again.attempt == 2
        assert 90 <= trio.current_time() - started <= 90.01


@BOTH
async def test_a_wait_lasts_as_long_as_asked(autojump_clock: MockClock, step_ms: int) -> None:
    place = Place()
    async with place.serving() as rpc:
        request = pb.ReserveRequest(
            queues=["q"], lease_duration=span(1000), wait_timeout=span(30_000)
        )
        call = rpc.start("Reserve", request)
        started = trio.current_time()
        await step(place, step_ms)
        assert len((await call.result(pb.ReserveResponse)).jobs) == 0
        assert 30 <= trio.current_time() - started <= 30.01


async def test_a_schedule_fires_by_the_wall_clock_set_forward(autojump_clock: MockClock) -> None:
    place = Place()
    async with place.serving() as rpc:
        await rpc.enqueue("q", scheduled_at=moment(place.wall.now_ms + HOUR_MS // 2))
        started = trio.current_time()
        place.wall.step(FORWARD)
        assert len(await rpc.reserve("q", wait_ms=200_000)) == 1
        # Nothing tells of a step: at the latest the sweep interval later it is seen.
        assert trio.current_time() - started <= 1.01


async def test_a_schedule_waits_for_the_wall_clock_set_backward(autojump_clock: MockClock) -> None:
    place = Place()
    async with place.serving() as rpc:
        due_ms = place.wall.now_ms + 10_000
        await rpc.enqueue("q", scheduled_at=moment(due_ms))
        await step(place, BACKWARD)
        await trio.sleep(11)
        assert await rpc.reserve("q") == []
        while not (found := await rpc.reserve("q", wait_ms=200_000)):
            pass
        assert due_ms <= place.wall.now_ms <= due_ms + 10
        assert found[0].attempt == 1


async def test_a_clock_set_back_and_forth_changes_nothing(autojump_clock: MockClock) -> None:
    place = Place()
    async with place.serving() as rpc:
        await rpc.enqueue("q")
        await rpc.take("q", lease_ms=60_000)
        started = trio.current_time()
        for span_ms in (BACKWARD, FORWARD, FORWARD, BACKWARD):
            await step(place, span_ms)
        (again,) = await rpc.reserve("q", wait_ms=200_000)
        assert again.attempt == 2
        assert 60 <= trio.current_time() - started <= 60.01


@BOTH
async def test_every_holder_may_finish_across_the_step(
    autojump_clock: MockClock, step_ms: int
) -> None:
    place = Place()
    async with place.serving() as rpc:
        await rpc.batch(*[job("q")] * 3)
        acked, nacked, extended = await rpc.reserve("q", max_jobs=3)
        await step(place, step_ms)
        await rpc.ack(acked)
        await rpc.nack(nacked, retry=later(5_000))
        await rpc.extend(extended, 5_000)
        started = trio.current_time()
        attempts = []
        while len(attempts) < 2:
            attempts += [each.attempt for each in await rpc.reserve("q", wait_ms=100_000)]
        assert attempts == [2, 2]
        assert 5 <= trio.current_time() - started <= 5.01


@BOTH
async def test_enqueued_at_never_runs_backwards(autojump_clock: MockClock, step_ms: int) -> None:
    place = Place()
    async with place.serving() as rpc:
        ids = [await rpc.enqueue("q")]
        await step(place, step_ms)
        ids.append(await rpc.enqueue("q"))
        found = await rpc.reserve("q", max_jobs=9)
        times = [in_ms(each.enqueued_at) for each in found]
        assert [each.id for each in found] == ids
        assert times == sorted(times)


async def test_keys_and_dead_letters_go_by_the_wall_clock(autojump_clock: MockClock) -> None:
    place = Place({"storage": STORAGE})
    async with place.serving() as rpc:
        await rpc.enqueue("q", idempotency_key="k")
        await rpc.nack(await rpc.take("q"), retry=DEAD_LETTER)
        await step(place, BACKWARD)
        await trio.sleep(1_000)
        (known,) = await rpc.batch(job("q", idempotency_key="k"))
        assert known.success.deduplicated
        assert rpc.machine.statistics().dead == 1
        await step(place, 2 * FORWARD)
        (new,) = await rpc.batch(job("q", idempotency_key="k"))
        assert not new.success.deduplicated
        await trio.sleep(1.1)
        assert await rpc.drain("q") == []


@BOTH
async def test_the_horizon_is_asked_against_the_wall_clock(
    autojump_clock: MockClock, step_ms: int
) -> None:
    place = Place({"limits": {"max_schedule_horizon_ms": 60_000}})
    async with place.serving() as rpc:
        await step(place, step_ms)
        await rpc.enqueue("q", scheduled_at=moment(await now_ms(rpc) + 60_000))
        rejection = await rpc.rejection("q", scheduled_at=moment(await now_ms(rpc) + 60_002))
        assert rejection.WhichOneof("reason") == "scheduled_too_far"


@BOTH
async def test_a_lease_taken_after_a_step_ends_on_time_after_a_restart_too(
    autojump_clock: MockClock, step_ms: int
) -> None:
    place = Place()
    async with place.serving() as rpc:
        await step(place, step_ms)
        await rpc.enqueue("q")
        await rpc.take("q", lease_ms=60_000)
        started = trio.current_time()
    async with place.serving() as rpc:
        assert await sound(rpc)
        (again,) = await rpc.reserve("q", wait_ms=200_000)
        assert again.attempt == 2
        assert 60 <= trio.current_time() - started <= 60.01


async def sound(rpc: LocalClient) -> bool:
    """Check core against its columns."""
    rpc.machine.check()
    return rpc.machine.count_leases_without_timer() == 0


@BOTH
async def test_nothing_hangs(autojump_clock: MockClock, step_ms: int) -> None:
    place = Place({"storage": {"sweep_interval_ms": 1000}})
    async with place.serving() as rpc:
        for number in range(20):
            await step(place, step_ms if number % 2 else -step_ms)
            await rpc.enqueue("q", max_attempts=2)
            await rpc.take("q", lease_ms=500)
            (again,) = await rpc.reserve("q", wait_ms=10_000, lease_ms=500)
            assert again.attempt == 2
            await rpc.ack(again)
        assert await sound(rpc)
