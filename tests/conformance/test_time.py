"""Timers: leases, schedules, waits and retention end when they should, to the millisecond."""

import pytest
import trio
import trio.testing
from purerpc import StatusCode
from trio.testing import MockClock

from sepp._generated import queue_pb2 as pb
from tests.conformance.client import DEAD_LETTER, REQUESTS, Client, job, later, moment, span
from tests.conformance.local import Place, local

RETENTION_MS = 10_000
STORAGE = {"dead_letter_retention_ms": RETENTION_MS}
WAIT_MS = 250_000


async def now_ms(rpc: Client) -> int:
    """The server's wall clock."""
    return (await rpc.info()).server_time.ToMilliseconds()


async def test_a_lease_ends_on_its_millisecond_and_the_next_attempt_follows_at_once(
    autojump_clock: MockClock,
) -> None:
    async with local() as rpc:
        await rpc.enqueue("q")
        first = await rpc.take("q", lease_ms=5_000)
        (second,) = await rpc.reserve("q", wait_ms=WAIT_MS)
        assert second.attempt == 2
        assert first.lease_expires_at.ToMilliseconds() == await now_ms(rpc)


async def test_until_its_end_a_lease_holds(autojump_clock: MockClock) -> None:
    async with local() as rpc:
        await rpc.enqueue("q")
        await rpc.take("q", lease_ms=5_000)
        await trio.sleep(4.998)
        assert await rpc.reserve("q") == []


async def test_the_end_of_a_lease_ignores_the_retry_policy(autojump_clock: MockClock) -> None:
    async with local(limits={"retry_delay_ms": 60_000}) as rpc:
        await rpc.enqueue("q")
        await rpc.take("q", lease_ms=1_000)
        await trio.sleep(1.1)
        assert (await rpc.take("q")).attempt == 2


async def test_an_extension_moves_the_end_both_ways(autojump_clock: MockClock) -> None:
    async with local() as rpc:
        await rpc.batch(job("a"), job("b"))
        longer, shorter = await rpc.take("a", lease_ms=5_000), await rpc.take("b", lease_ms=90_000)
        await rpc.extend(longer, 10_000)
        await rpc.extend(shorter, 1_000)
        await trio.sleep(9.9)
        assert await rpc.reserve("a") == []
        assert (await rpc.take("b")).attempt == 2
        await trio.sleep(0.2)
        assert (await rpc.take("a")).attempt == 2


@pytest.mark.parametrize("attempts", [1, 3])
async def test_a_job_nobody_finishes_is_delivered_so_often_and_then_dead(
    autojump_clock: MockClock, attempts: int
) -> None:
    async with local(storage=STORAGE) as rpc:
        await rpc.enqueue("q", max_attempts=attempts)
        told = []
        while found := await rpc.reserve("q", lease_ms=1_000, wait_ms=2_000):
            told.append(found[0].attempt)
        assert told == list(range(1, attempts + 1))
        (record,) = await rpc.drain("q")
        assert record.cause == pb.DEAD_LETTER_CAUSE_LEASE_EXPIRED
        assert record.final_attempt == attempts


@pytest.mark.parametrize("at_ms", [2, 500, 3_600_000])
async def test_a_scheduled_job_is_ready_at_its_millisecond_and_not_before(
    autojump_clock: MockClock, at_ms: int
) -> None:
    async with local() as rpc:
        due_ms = await now_ms(rpc) + at_ms
        await rpc.enqueue("q", scheduled_at=moment(due_ms))
        await trio.sleep((at_ms - 1) / 1000)
        assert await rpc.reserve("q") == []
        (found,) = await rpc.reserve("q", wait_ms=WAIT_MS)
        assert found.attempt == 1
        assert due_ms <= await now_ms(rpc) <= due_ms + 1


async def test_a_retry_delay_is_kept_and_cut_to_the_horizon(autojump_clock: MockClock) -> None:
    async with local(limits={"max_schedule_horizon_ms": 60_000}) as rpc:
        await rpc.batch(job("a"), job("b"))
        await rpc.nack(await rpc.take("a"), retry=later(5_000))
        await rpc.nack(await rpc.take("b"), retry=later(999_999_999))
        start_ms = await now_ms(rpc)
        assert [each.queue for each in await rpc.reserve("a", "b", wait_ms=WAIT_MS)] == ["a"]
        assert await now_ms(rpc) == start_ms + 5_000
        assert [each.queue for each in await rpc.reserve("a", "b", wait_ms=WAIT_MS)] == ["b"]
        assert await now_ms(rpc) == start_ms + 60_000


@pytest.mark.parametrize("method", ["Ack", "Nack", "Extend"])
async def test_a_late_holder_is_believed_until_the_sweep_has_run(
    autojump_clock: MockClock, method: str
) -> None:
    """The lease clock is not consulted: whoever is still the owner may finish."""
    async with Place(is_sweeping=False).serving() as rpc:
        await rpc.enqueue("q")
        found = await rpc.take("q", lease_ms=1_000)
        await trio.sleep(60)
        request = REQUESTS[method](job_id=found.id, attempt=1)
        if isinstance(request, pb.ExtendRequest):
            request.lease_duration.seconds = 5
        await rpc.call(method, request)


async def test_after_the_sweep_the_old_holder_is_not_found_then_fenced_off(
    autojump_clock: MockClock,
) -> None:
    async with local() as rpc:
        await rpc.enqueue("q")
        old = await rpc.take("q", lease_ms=1_000)
        await trio.sleep(1.1)
        requests = {
            "Ack": pb.AckRequest(job_id=old.id, attempt=1),
            "Nack": pb.NackRequest(job_id=old.id, attempt=1),
            "Extend": pb.ExtendRequest(job_id=old.id, attempt=1, lease_duration=span(9)),
        }
        for method, request in requests.items():
            assert (await rpc.fault(method, request))[0] is StatusCode.NOT_FOUND
        new = await rpc.take("q")
        for method, request in requests.items():
            assert (await rpc.fault(method, request))[0] is StatusCode.FAILED_PRECONDITION
        await rpc.ack(new)


async def test_dead_letters_go_when_their_retention_is_over(autojump_clock: MockClock) -> None:
    async with local(storage=STORAGE) as rpc:
        for queue in ("a", "b"):
            await rpc.enqueue(queue)
            await rpc.nack(await rpc.take(queue), retry=DEAD_LETTER)
            await trio.sleep(1)
        await trio.sleep(RETENTION_MS / 1000 - 2.01)
        assert rpc.machine.statistics().dead == 2
        await trio.sleep(0.02)
        assert [record.job.queue for record in await rpc.drain()] == ["b"]


@pytest.mark.parametrize("retention_ms", [2_000, 60_000])
async def test_after_a_restart_the_new_retention_holds_for_old_records(
    autojump_clock: MockClock, retention_ms: int
) -> None:
    place = Place({"storage": STORAGE})
    async with place.serving() as rpc:
        await rpc.enqueue("q")
        await rpc.nack(await rpc.take("q"), retry=DEAD_LETTER)
    place.settings = {"storage": {"dead_letter_retention_ms": retention_ms}}
    await trio.sleep(5)
    async with place.serving() as rpc:
        await trio.sleep(1)
        assert len(await rpc.drain()) == (1 if retention_ms > 6_000 else 0)


async def test_a_restart_without_retention_keeps_old_records_and_drains_them(
    autojump_clock: MockClock,
) -> None:
    place = Place({"storage": STORAGE})
    async with place.serving() as rpc:
        await rpc.enqueue("q")
        await rpc.nack(await rpc.take("q"), retry=DEAD_LETTER)
    place.settings = {}
    async with place.serving() as rpc:
        await trio.sleep(100 * RETENTION_MS / 1000)
        assert (await rpc.info()).dead_letter_retention_enabled is False
        assert len(await rpc.drain()) == 1


async def test_two_thousand_waiters_and_one_job_wake_one(autojump_clock: MockClock) -> None:
    async with local() as rpc:
        request = pb.ReserveRequest(
            queues=["q"], lease_duration=span(60_000), wait_timeout=span(200_000)
        )
        calls = [rpc.start("Reserve", request) for _ in range(2_000)]
        await rpc.enqueue("q")
        await trio.testing.wait_all_tasks_blocked()
        assert [call.is_answered.is_set() for call in calls] == [True] + [False] * 1_999
        await trio.sleep(200.1)
        assert all(call.is_answered.is_set() for call in calls)
        assert rpc.machine.statistics().waiters == 0


async def test_the_budget_of_a_sweep_is_for_each_kind_and_the_rest_follows_at_once(
    autojump_clock: MockClock,
) -> None:
    async with local(storage={"sweep_limit": 10}) as rpc:
        due = moment(await now_ms(rpc) + 1_000)
        await rpc.batch(*[job("scheduled", scheduled_at=due)] * 100)
        await rpc.enqueue("leased")
        await rpc.take("leased", lease_ms=1_000)
        start_ms = await now_ms(rpc)
        (found,) = await rpc.reserve("leased", wait_ms=WAIT_MS)
        assert found.attempt == 2
        assert rpc.machine.statistics().ready < 100  # the backlog did not come first
        await trio.testing.wait_all_tasks_blocked()
        assert rpc.machine.statistics().ready == 100
        assert await now_ms(rpc) <= start_ms + 1_001
