"""max_queue_depth: what counts, what is refused, and what may exceed it."""

import pytest
import trio
import trio.testing

from sepp.core.commands import Requeue
from sepp.wire import id_bytes
from tests.conformance.client import DEAD_LETTER, Client, SocketClient, job, later, moment
from tests.conformance.local import local

SETTINGS = {
    "limits": {"max_queue_depth": 2},
    "queues": [
        {"name": "wide", "max_queue_depth": 4},
        {"name": "free", "max_queue_depth": -1},
        {"name": "shut", "max_queue_depth": 0},
    ],
}


async def is_full(rpc: Client, queue: str) -> bool:
    """Whether the next job is refused; one that is not stays."""
    (result,) = await rpc.batch(job(queue))
    if result.WhichOneof("outcome") == "success":
        return False
    assert result.rejection.WhichOneof("reason") == "queue_full"
    return True


async def fill(rpc: Client, queue: str, count: int) -> None:
    """Enqueue so many jobs."""
    for _ in range(count):
        await rpc.enqueue(queue)


async def test_the_global_cap_holds_for_every_queue(rpc: SocketClient, queue: str) -> None:
    await fill(rpc, queue, 2)
    assert await is_full(rpc, queue)
    assert not await is_full(rpc, f"{queue} too")


async def test_a_queues_own_cap_replaces_the_global_one(rpc: SocketClient) -> None:
    await fill(rpc, "wide", 4)
    assert await is_full(rpc, "wide")


async def test_minus_one_lifts_the_global_cap(rpc: SocketClient) -> None:
    await fill(rpc, "free", 20)
    assert not await is_full(rpc, "free")


async def test_zero_refuses_every_job(rpc: SocketClient) -> None:
    assert await is_full(rpc, "shut")


async def test_leased_and_scheduled_jobs_count(rpc: SocketClient, queue: str) -> None:
    await rpc.enqueue(queue)
    await rpc.take(queue)
    now_ms = (await rpc.info()).server_time.ToMilliseconds()
    await rpc.enqueue(queue, scheduled_at=moment(now_ms + 600_000))
    assert await is_full(rpc, queue)


async def test_delayed_retries_count(rpc: SocketClient, queue: str) -> None:
    await fill(rpc, queue, 2)
    await rpc.nack(await rpc.take(queue), retry=later(60_000))
    assert await is_full(rpc, queue)


@pytest.mark.parametrize("end", ["ack", "dead letter"])
async def test_what_is_done_or_dead_does_not_count(rpc: SocketClient, queue: str, end: str) -> None:
    await fill(rpc, queue, 2)
    found = await rpc.take(queue)
    if end == "ack":
        await rpc.ack(found)
    else:
        await rpc.nack(found, retry=DEAD_LETTER)
    assert not await is_full(rpc, queue)


async def test_a_requeue_is_never_refused_and_may_exceed_the_cap(
    autojump_clock: trio.testing.MockClock,
) -> None:
    storage = {"dead_letter_retention_ms": 60_000}
    async with local(limits={"max_queue_depth": 2}, storage=storage) as rpc:
        await fill(rpc, "q", 2)
        dead = await rpc.take("q")
        await rpc.nack(dead, retry=DEAD_LETTER)
        await rpc.enqueue("q")
        raw = id_bytes(dead.id)
        assert raw is not None
        await rpc.run(Requeue("q", [raw]))
        assert len(await rpc.reserve("q", max_jobs=9)) == 3
        assert await is_full(rpc, "q")


async def test_redeliveries_and_promotions_are_never_refused(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with local(limits={"max_queue_depth": 2}) as rpc:
        now_ms = (await rpc.info()).server_time.ToMilliseconds()
        await rpc.enqueue("q", scheduled_at=moment(now_ms + 1000))
        await rpc.enqueue("q")
        await rpc.take("q", lease_ms=500)
        await trio.sleep(2)
        assert [each.attempt for each in await rpc.reserve("q", max_jobs=9)] == [1, 2]
