"""A caller that is gone gets no job, and a job nobody heard of is nobody's."""

import pytest
import trio
import trio.testing

from sepp._generated import queue_pb2 as pb
from tests.conformance.client import SERVICE, SocketClient, connected, span
from tests.conformance.local import local
from tests.e2e.server_process import ServerProcess
from tests.rpc import frames
from tests.rpc.frames import RawPeer

RESERVE = SERVICE + "Reserve"
WAIT_MS = 20_000


def waiting(queue: str) -> pb.ReserveRequest:
    """A reserve that waits longer than a test."""
    return pb.ReserveRequest(
        queues=[queue], lease_duration=span(60_000), wait_timeout=span(WAIT_MS)
    )


@pytest.mark.parametrize("how", ["RST_STREAM", "TCP close", "TCP reset", "deadline"])
async def test_a_job_goes_past_a_waiter_that_left_by(
    server: ServerProcess, rpc: SocketClient, queue: str, how: str
) -> None:
    peer = await RawPeer.greeted(server.port)
    body = frames.message(waiting(queue).SerializeToString())
    more = [(b"grpc-timeout", b"50m")] if how == "deadline" else []
    await peer.send(frames.request(1, RESERVE, body, *more))
    await peer.call(3, SERVICE + "GetServerInfo")  # the server has seen the wait
    if how == "RST_STREAM":
        await peer.send(frames.reset(1))
        await peer.call(5, SERVICE + "GetServerInfo")
    elif how == "TCP close":
        await peer.close()
    elif how == "TCP reset":
        await peer.break_off()
    else:
        await peer.until_answered(1)
    # A connection's end is not acknowledged: a later one's greeting comes behind it.
    async with connected(server.port) as second:
        await second.info()
        job_id = await rpc.enqueue(queue)
        (found,) = await second.reserve(queue, wait_ms=WAIT_MS)
    assert (found.id, found.attempt) == (job_id, 1)
    await peer.close()


async def test_a_lease_whose_caller_left_during_the_commit_is_given_back(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with local() as rpc:
        call = rpc.start("Reserve", waiting("q"))
        await trio.testing.wait_all_tasks_blocked()
        enqueued = rpc.start("EnqueueBatch", pb.EnqueueBatchRequest(jobs=[BARE]))
        assert rpc.machine.statistics().leased == 1  # applied, not durable yet
        call.leave()
        await enqueued.result(pb.EnqueueBatchResponse)
        (found,) = await rpc.reserve("q", wait_ms=WAIT_MS)
        assert found.attempt == 1
        assert call.answer is None


async def test_a_lease_whose_answer_was_dropped_is_given_back_at_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with local() as rpc:
        job_id = await rpc.enqueue("q")
        rpc.start_undelivered("Reserve", waiting("q"))
        started = trio.current_time()
        (found,) = await rpc.reserve("q", wait_ms=WAIT_MS)
        assert (found.id, found.attempt) == (job_id, 1)
        assert trio.current_time() - started < 1


async def test_a_job_given_back_wakes_who_waits(autojump_clock: trio.testing.MockClock) -> None:
    async with local() as rpc:
        await rpc.enqueue("q")
        rpc.start_undelivered("Reserve", waiting("q"))
        second = rpc.start("Reserve", waiting("q"))
        (found,) = (await second.result(pb.ReserveResponse)).jobs
        assert found.attempt == 1


async def test_a_job_given_back_goes_to_its_old_place(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with local() as rpc:
        ids = [await rpc.enqueue("q") for _ in range(3)]
        rpc.start_undelivered("Reserve", waiting("q"))
        await trio.testing.wait_all_tasks_blocked()
        found = await rpc.reserve("q", max_jobs=9)
        assert [each.id for each in found] == ids
        assert {each.attempt for each in found} == {1}


async def test_giving_back_does_not_use_up_attempts(autojump_clock: trio.testing.MockClock) -> None:
    async with local() as rpc:
        await rpc.enqueue("q", max_attempts=1)
        for _ in range(5):
            rpc.start_undelivered("Reserve", waiting("q"))
            await trio.testing.wait_all_tasks_blocked()
        assert (await rpc.take("q")).attempt == 1


BARE = pb.EnqueueRequest(queue="q", job_type="test")
