"""strict_queues: who is refused, who is not, and what toggling does to jobs that are stored."""

import pytest
from purerpc import StatusCode
from trio.testing import MockClock

from sepp._generated import queue_pb2 as pb
from tests.conformance.client import DEAD_LETTER, Client, SocketClient, connected, job, span
from tests.conformance.conftest import Servers
from tests.conformance.local import Place
from tests.e2e.server_process import ServerProcess

SETTINGS = {"server": {"strict_queues": True}, "queues": [{"name": "known"}, {"name": "größe"}]}
OPEN = {"storage": {"dead_letter_retention_ms": 60_000}}
STRICT = OPEN | {"server": {"strict_queues": True}, "queues": [{"name": "known"}]}


async def test_a_declared_queue_works(rpc: SocketClient) -> None:
    job_id = await rpc.enqueue("größe")
    found = await rpc.take("known", "größe")
    assert found.id == job_id
    await rpc.ack(found)


@pytest.mark.parametrize("name", ["other", "Known", "known ", "knowns"])
async def test_any_other_name_is_unknown(rpc: SocketClient, name: str) -> None:
    rejection = await rpc.rejection(name)
    assert rejection == pb.JobRejection(unknown_queue=pb.UnknownQueue(queue=name))


async def test_reserve_lists_every_unknown_queue_once(rpc: SocketClient) -> None:
    request = pb.ReserveRequest(queues=["b", "known", "a", "b"], lease_duration=span(1000))
    code, text = await rpc.fault("Reserve", request)
    assert code is StatusCode.FAILED_PRECONDITION
    assert text == "unknown queues: b, a"


async def test_a_wait_is_refused_at_once(rpc: SocketClient) -> None:
    request = pb.ReserveRequest(
        queues=["other"], lease_duration=span(1000), wait_timeout=span(20_000)
    )
    assert (await rpc.fault("Reserve", request))[0] is StatusCode.FAILED_PRECONDITION


async def test_drain_does_not_ask(rpc: SocketClient) -> None:
    assert await rpc.drain("other") == []


async def test_holders_and_drain_go_on_in_a_queue_that_is_no_longer_declared(
    autojump_clock: MockClock,
) -> None:
    place = Place(OPEN)
    async with place.serving() as rpc:
        await rpc.batch(*[job("gone")] * 4)
        acked, nacked, extended, dead = await rpc.reserve("gone", max_jobs=4)
    place.settings = STRICT
    async with place.serving() as rpc:
        await rpc.ack(acked)
        await rpc.nack(nacked)
        await rpc.extend(extended, 1_000)
        await rpc.nack(dead, retry=DEAD_LETTER)
        assert len(await rpc.drain("gone")) == 1
        assert await is_refused(rpc, "gone")
    place.settings = OPEN
    async with place.serving() as rpc:
        assert {each.attempt for each in await rpc.reserve("gone", max_jobs=9)} <= {2}


async def is_refused(rpc: Client, queue: str) -> bool:
    """Whether Reserve does not know the queue."""
    request = pb.ReserveRequest(queues=[queue], lease_duration=span(1000))
    return (await rpc.fault("Reserve", request))[0] is StatusCode.FAILED_PRECONDITION


async def test_jobs_of_undeclared_queues_are_told_of_at_the_start(
    servers: Servers,
) -> None:
    server = servers.new({})
    async with connected(server.port) as rpc:
        await rpc.enqueue("orphan")
    server.stop()
    strict = ServerProcess(server.directory, {"server": {"strict_queues": True}})
    strict.start()
    warning = [line for line in strict.output.splitlines() if "orphan" in line]
    strict.stop()
    assert len(warning) == 1
    assert "WARN" in warning[0].upper()
