"""A queue that is being deleted: what is refused meanwhile, and how that ends."""

import trio
from trio.testing import MockClock

from sepp._generated import queue_pb2 as pb
from sepp.core.commands import Close, Open, Purge
from sepp.core.outcomes import Purged
from tests.conformance.client import DEAD_LETTER, job, moment
from tests.conformance.local import LocalClient, Place, local

CLOSING = pb.JobRejection(queue_closing=pb.QueueClosing(queue="q"))
STORAGE = {"dead_letter_retention_ms": 60_000}


async def close(rpc: LocalClient, span_ms: int = 30_000) -> None:
    """Write the tombstone."""
    deadline_ms = (await rpc.info()).server_time.ToMilliseconds() + span_ms
    await rpc.run(Close("q", deadline_ms))


async def test_enqueues_are_refused_and_other_queues_are_not(autojump_clock: MockClock) -> None:
    async with local() as rpc:
        await close(rpc)
        results = await rpc.batch(job("q"), job("other"), job("q"))
        assert [each.WhichOneof("outcome") for each in results] == [
            "rejection",
            "success",
            "rejection",
        ]
        assert results[0].rejection == CLOSING


async def test_closing_is_asked_before_the_key(autojump_clock: MockClock) -> None:
    async with local() as rpc:
        first = await rpc.enqueue("q", idempotency_key="k")
        await close(rpc)
        assert await rpc.rejection("q", idempotency_key="k") == CLOSING
        await rpc.run(Open("q"))
        (known,) = await rpc.batch(job("q", idempotency_key="k"))
        assert known.success == pb.EnqueueResponse(job_id=first, deduplicated=True)


async def test_closing_is_asked_before_the_cap(autojump_clock: MockClock) -> None:
    async with local(limits={"max_queue_depth": 0}) as rpc:
        await close(rpc)
        assert await rpc.rejection("q") == CLOSING


async def test_an_atomic_batch_lists_just_the_jobs_of_closing_queues(
    autojump_clock: MockClock,
) -> None:
    queues = [{"name": "full", "max_queue_depth": 0}]
    async with local(queues=queues) as rpc:
        await close(rpc)
        answer = await rpc.atomic(job("q"), job("full"), job("other"), job("q"))
        errors = answer.rejection.errors
        assert [(each.index, each.rejection) for each in errors] == [(0, CLOSING), (3, CLOSING)]
        assert await rpc.reserve("other") == []


async def test_a_fault_of_a_job_is_told_rather_than_closing(autojump_clock: MockClock) -> None:
    async with local() as rpc:
        await close(rpc)
        answer = await rpc.atomic(job("q"), job("q", priority=10))
        assert [each.index for each in answer.rejection.errors] == [1]


async def test_who_holds_jobs_goes_on(autojump_clock: MockClock) -> None:
    async with local(storage=STORAGE) as rpc:
        await rpc.batch(*[job("q")] * 4)
        first, second, third = await rpc.reserve("q", max_jobs=3)
        await close(rpc)
        await rpc.ack(first)
        await rpc.extend(second, 90_000)
        assert await rpc.nack(third, retry=DEAD_LETTER)
        assert len(await rpc.reserve("q")) == 1
        assert len(await rpc.drain("q")) == 1


async def test_a_tombstone_lapses_at_its_deadline(autojump_clock: MockClock) -> None:
    async with local() as rpc:
        await close(rpc, 30_000)
        await trio.sleep(29.9)
        assert await rpc.rejection("q") == CLOSING
        await trio.sleep(0.2)
        await rpc.enqueue("q")


async def test_a_tombstone_lapses_on_time_without_a_sweep(autojump_clock: MockClock) -> None:
    async with Place(is_sweeping=False).serving() as rpc:
        await close(rpc, 30_000)
        await trio.sleep(30.001)
        await rpc.enqueue("q")


async def test_a_tombstone_can_be_renewed(autojump_clock: MockClock) -> None:
    async with local() as rpc:
        await close(rpc, 30_000)
        await trio.sleep(20)
        await close(rpc, 30_000)
        await trio.sleep(20)
        assert await rpc.rejection("q") == CLOSING
        await trio.sleep(11)
        await rpc.enqueue("q")


async def test_a_tombstone_outlives_a_restart_with_its_deadline(autojump_clock: MockClock) -> None:
    place = Place()
    async with place.serving() as rpc:
        await close(rpc, 30_000)
    await trio.sleep(20)
    async with place.serving() as rpc:
        assert await rpc.rejection("q") == CLOSING
    await trio.sleep(11)
    async with place.serving() as rpc:
        await rpc.enqueue("q")


async def test_a_purge_empties_the_queue_in_chunks_and_a_lease_stops_it(
    autojump_clock: MockClock,
) -> None:
    async with local(storage=STORAGE) as rpc:
        later_ = moment((await rpc.info()).server_time.ToMilliseconds() + 60_000)
        await rpc.batch(job("q", idempotency_key="k"), job("q", scheduled_at=later_), job("q"))
        dead = await rpc.take("q")
        await rpc.nack(dead, retry=DEAD_LETTER)
        held = await rpc.take("q")
        assert await rpc.run(Purge("q")) == Purged(0, True, 1)
        await rpc.nack(held)
        told = []
        while not told or told[-1].has_more:
            outcome = await rpc.run(Purge("q", count_max=1))
            assert isinstance(outcome, Purged)
            told.append(outcome)
        assert [each.count for each in told] == [1, 1, 1, 1]  # ready, scheduled, dead, key
        assert await rpc.reserve("q") == []
        assert await rpc.drain("q") == []
        assert (await rpc.enqueue("q", idempotency_key="k")) != dead.id
