"""Which job is next: priority, then age; and where a job goes that comes back."""

import pytest
import trio
import trio.testing

from sepp.core.commands import DeadLetter, Requeue
from sepp.core.outcomes import Moved
from sepp.wire import id_bytes
from tests.conformance.client import DEAD_LETTER, Client, SocketClient, job, later, moment
from tests.conformance.local import local


async def all_ids(rpc: Client, queue: str) -> list[str]:
    """The jobs of a queue in the order of delivery."""
    return [found.id for found in await rpc.reserve(queue, max_jobs=100)]


async def test_a_higher_priority_goes_first(rpc: SocketClient, queue: str) -> None:
    order = [3, 0, 9, 5, 1, 8, 2, 7, 4, 6]
    results = await rpc.batch(*[job(queue, priority=priority) for priority in order])
    by_priority = dict(zip(order, (each.success.job_id for each in results), strict=True))
    assert await all_ids(rpc, queue) == [by_priority[priority] for priority in range(9, -1, -1)]


async def test_within_a_priority_the_older_goes_first(rpc: SocketClient, queue: str) -> None:
    ids = [await rpc.enqueue(queue, priority=5) for _ in range(20)]
    assert await all_ids(rpc, queue) == ids


async def test_jobs_of_one_millisecond_keep_the_order_of_their_batch(
    rpc: SocketClient, queue: str
) -> None:
    results = await rpc.batch(*[job(queue)] * 100)
    assert await all_ids(rpc, queue) == [each.success.job_id for each in results]


async def test_an_atomic_batch_keeps_its_order_too(rpc: SocketClient, queue: str) -> None:
    answer = await rpc.atomic(*[job(queue)] * 100)
    assert await all_ids(rpc, queue) == [each.job_id for each in answer.success.responses]


async def test_a_lower_priority_waits_for_ever(rpc: SocketClient, queue: str) -> None:
    low = await rpc.enqueue(queue, priority=0)
    for _ in range(10):
        await rpc.enqueue(queue, priority=1)
        assert (await rpc.take(queue)).id != low


async def test_an_extended_lease_does_not_move_the_job(rpc: SocketClient, queue: str) -> None:
    ids = [await rpc.enqueue(queue) for _ in range(3)]
    first = await rpc.take(queue)
    await rpc.extend(first, 90_000)
    await rpc.nack(first)
    assert await all_ids(rpc, queue) == ids


async def test_jobs_whose_leases_end_go_back_to_their_places(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with local() as rpc:
        ids = [await rpc.enqueue("q", priority=number % 2) for number in range(6)]
        expected = [ids[1], ids[3], ids[5], ids[0], ids[2], ids[4]]
        for lease_ms in (5000, 3000, 4000):
            await rpc.take("q", lease_ms=lease_ms)
        await trio.sleep(6)
        found = await rpc.reserve("q", max_jobs=9)
        assert [each.id for each in found] == expected
        assert [each.attempt for each in found] == [2, 2, 2, 1, 1, 1]


async def test_a_promoted_job_takes_its_place_by_the_time_it_was_enqueued(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with local() as rpc:
        now_ms = (await rpc.info()).server_time.ToMilliseconds()
        late = await rpc.enqueue("q", scheduled_at=moment(now_ms + 9000))
        early = await rpc.enqueue("q", scheduled_at=moment(now_ms + 5000))
        await trio.sleep(1)
        ready = await rpc.enqueue("q")
        await trio.sleep(9)
        assert await all_ids(rpc, "q") == [late, early, ready]


async def test_a_delayed_retry_overtakes_what_was_enqueued_meanwhile(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with local() as rpc:
        first = await rpc.enqueue("q")
        await rpc.nack(await rpc.take("q"), retry=later(5000))
        second = await rpc.enqueue("q")
        await trio.sleep(6)
        assert await all_ids(rpc, "q") == [first, second]


@pytest.mark.parametrize("road", ["nack", "operator"])
async def test_a_requeued_dead_letter_goes_to_the_back_as_a_new_job(
    autojump_clock: trio.testing.MockClock, road: str
) -> None:
    async with local(storage={"dead_letter_retention_ms": 60_000}) as rpc:
        at = moment(1)
        dead = await rpc.enqueue("q", scheduled_at=at, idempotency_key="k")
        raw = id_bytes(dead)
        assert raw is not None
        if road == "nack":
            await rpc.nack(await rpc.take("q"))
            await rpc.nack(await rpc.take("q"), retry=DEAD_LETTER, reason="why")
        else:
            assert await rpc.run(DeadLetter("q", [raw], b"why")) == Moved([raw], 0)
        await trio.sleep(3)
        younger = await rpc.enqueue("q")
        await trio.sleep(3)
        before_ms = (await rpc.info()).server_time.ToMilliseconds()
        assert await rpc.run(Requeue("q", [raw])) == Moved([raw], 0)

        found = await rpc.reserve("q", max_jobs=9)

        assert [each.id for each in found] == [younger, dead]
        assert found[1].attempt == 1
        assert found[1].enqueued_at.ToMilliseconds() == before_ms
        assert not found[1].HasField("scheduled_at")
        (known,) = await rpc.batch(job("q", idempotency_key="k"))
        assert (known.success.job_id, known.success.deduplicated) == (dead, True)


async def test_there_is_no_order_across_queues_but_the_callers(
    rpc: SocketClient, queue: str
) -> None:
    low = await rpc.enqueue(f"{queue}-a", priority=0)
    high = await rpc.enqueue(f"{queue}-b", priority=9)
    found = await rpc.reserve(f"{queue}-a", f"{queue}-b", max_jobs=2)
    assert [each.id for each in found] == [low, high]
