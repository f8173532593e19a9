"""Answers stay within what official clients receive by default, and nobody loses a lease by it."""

import pytest

from tests.conformance.client import DEAD_LETTER, SocketClient, job, payload
from tests.conformance.local import local

BODY = bytes(900 * 1024)
MIB = 1024 * 1024


async def test_ten_jobs_of_900_kib_all_arrive_under_their_first_attempt(
    rpc: SocketClient, queue: str
) -> None:
    """The client's own cap is 4 MiB; it would fail the call, and the leases would be lost."""
    results = await rpc.batch(*[job(queue, payload=payload(BODY))] * 10)
    ids = [result.success.job_id for result in results]
    sizes, found = [], []
    while jobs := await rpc.reserve(queue, max_jobs=10):
        sizes.append(len(jobs))
        found += jobs
    assert [each.id for each in found] == ids
    assert sizes == [4, 4, 2]
    assert {each.attempt for each in found} == {1}
    for each in found:
        assert len(each.payload.data) == len(BODY)
        await rpc.ack(each)


async def test_a_waiting_reserve_is_capped_too(rpc: SocketClient, queue: str) -> None:
    ids = [await rpc.enqueue(queue, payload=payload(BODY)) for _ in range(6)]
    found = await rpc.reserve(queue, max_jobs=10, wait_ms=10_000)
    assert [each.id for each in found] == ids[:4]


async def test_an_answer_is_filled_in_order_a_small_job_does_not_overtake(
    rpc: SocketClient, queue: str
) -> None:
    big = job(queue, payload=payload(BODY))
    results = await rpc.batch(*[big] * 5, job(queue))
    ids = [result.success.job_id for result in results]
    assert [each.id for each in await rpc.reserve(queue, max_jobs=10)] == ids[:4]
    assert [each.id for each in await rpc.reserve(queue, max_jobs=10)] == ids[4:]


async def test_a_drain_is_capped_and_what_was_left_stays(rpc: SocketClient, queue: str) -> None:
    for _ in range(5):
        await rpc.enqueue(queue, payload=payload(BODY))
        await rpc.nack(await rpc.take(queue), retry=DEAD_LETTER, reason="r" * 1000)
    assert [len(await rpc.drain(queue)) for _ in range(3)] == [4, 1, 0]


async def test_one_job_always_fits() -> None:
    async with local(limits={"max_payload_bytes": 8 * MIB}) as rpc:
        big = payload(bytes(6 * MIB))
        await rpc.batch(job("q", payload=big), job("q", payload=big))
        assert [len(await rpc.reserve("q", max_jobs=9)) for _ in range(3)] == [1, 1, 0]


CAPS: dict[str, tuple[int, list[int]]] = {
    "0 is no cap": (0, [4, 0]),
    "1 lets one job through": (1, [1, 1, 1, 1, 0]),
    "the cap counts whole bodies": (3000, [2, 2, 0]),
}


@pytest.mark.parametrize("fact", CAPS)
async def test_of_a_cap_of_our_own(fact: str) -> None:
    cap, sizes = CAPS[fact]
    async with local(limits={"max_response_bytes": cap}) as rpc:
        await rpc.batch(*[job("q", payload=payload(bytes(1200)))] * 4)
        assert [len(await rpc.reserve("q", max_jobs=9)) for _ in sizes] == sizes
