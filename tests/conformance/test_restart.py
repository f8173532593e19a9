"""Every state a job can be in, across a restart by SIGKILL or SIGTERM: the same answers after."""

import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest
from purerpc import StatusCode

from sepp._generated import queue_pb2 as pb
from tests.conformance.client import (
    DEAD_LETTER,
    Client,
    SocketClient,
    connected,
    in_ms,
    job,
    later,
    moment,
    payload,
    text,
)
from tests.conformance.conftest import Servers
from tests.e2e.server_process import ServerProcess

BOTH = pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["kill", "term"])

FIELDS = {
    "payload": payload(b"\0body\xff"),
    "priority": 3,
    "custom": {"k": text("größe")},
    "trace_context": pb.TraceContext(traceparent="t", tracestate="s"),
}


class Restarts:
    """One server that is ended and started again; a client for each of its lives."""

    def __init__(self, server: ServerProcess, number: signal.Signals) -> None:
        self._server = server
        self._number = number

    def restart(self) -> None:
        """End it by the signal and start it on the same data."""
        self._server.send(self._number)
        self._server.wait()
        self._server.start()

    async def client(self) -> AsyncIterator[SocketClient]:
        """A client of the life that is on."""
        async with connected(self._server.port) as client:
            yield client


@pytest.fixture
def restarts(servers: Servers, number: signal.Signals) -> Iterator[Restarts]:
    """A server of the test's own."""
    server = servers.new({})
    yield Restarts(server, number)
    server.stop()


Step = Callable[[Client], Awaitable[None]]


async def live(restarts: Restarts, *steps: Step) -> None:
    """Do the steps with a restart between any two."""
    for number, step in enumerate(steps):
        if number:
            restarts.restart()
        async for client in restarts.client():
            await step(client)


@pytest.mark.parametrize(
    "number", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.long)]
)
async def test_a_whole_life_with_a_restart_between_any_two_steps(restarts: Restarts) -> None:
    seen: list[pb.Job] = []

    async def enqueue(rpc: Client) -> None:
        await rpc.enqueue("q", max_attempts=2, **FIELDS)

    async def lease(rpc: Client) -> None:
        seen.append(await rpc.take("q"))
        assert await rpc.reserve("q") == []

    async def extend(rpc: Client) -> None:
        assert await rpc.reserve("q") == []
        assert await rpc.extend(seen[-1], 90_000) > in_ms(seen[-1].lease_expires_at)

    async def nack(rpc: Client) -> None:
        assert await rpc.nack(seen[-1], reason="first") is False

    async def bury(rpc: Client) -> None:
        code, _ = await rpc.fault("Ack", pb.AckRequest(job_id=seen[0].id, attempt=1))
        assert code is StatusCode.FAILED_PRECONDITION
        assert await rpc.nack(seen[-1], reason="last") is True

    async def drain(rpc: Client) -> None:
        (record,) = await rpc.drain("q")
        assert (record.last_reason, record.final_attempt) == ("last", 2)
        assert record.cause == pb.DEAD_LETTER_CAUSE_ATTEMPTS_EXHAUSTED
        expected = pb.Job()
        expected.CopyFrom(seen[-1])
        expected.ClearField("lease_expires_at")
        expected.lease_expires_at.SetInParent()
        assert record.job == expected

    async def nothing(rpc: Client) -> None:
        assert await rpc.drain("q") == []
        assert await rpc.reserve("q") == []

    await live(restarts, enqueue, lease, extend, nack, lease, bury, drain, nothing)
    first, second = seen
    assert (first.attempt, second.attempt) == (1, 2)
    second.attempt = 1
    second.lease_expires_at.CopyFrom(first.lease_expires_at)
    assert first == second


@BOTH
async def test_every_state_is_as_it_was(restarts: Restarts) -> None:
    ids: dict[str, str] = {}
    held: dict[str, pb.Job] = {}

    async def before(rpc: Client) -> None:
        now = time.time_ns() // 1_000_000
        for name in ("acked", "dead", "leased", "expired", "retried", "delayed", "delayed long"):
            ids[name] = await rpc.enqueue(name)
            held[name] = await rpc.take(name, lease_ms=1 if name == "expired" else 60_000)
        await rpc.ack(held["acked"])
        await rpc.nack(held["dead"], retry=DEAD_LETTER, reason="why")
        await rpc.nack(held["retried"])
        await rpc.nack(held["delayed"], retry=later(1))
        await rpc.nack(held["delayed long"], retry=later(600_000))
        ids["scheduled"] = await rpc.enqueue("scheduled", scheduled_at=moment(now + 600_000))
        ids["past due"] = await rpc.enqueue("past due", scheduled_at=moment(now + 20))
        results = await rpc.batch(*[job("order", priority=number % 3) for number in range(9)])
        ids.update((f"order {i}", each.success.job_id) for i, each in enumerate(results))

    async def after(rpc: Client) -> None:
        for queue in ("acked", "leased", "scheduled", "delayed long", "dead"):
            assert await rpc.reserve(queue) == [], queue
        for queue, attempt in {"retried": 2, "delayed": 2, "past due": 1, "expired": 2}.items():
            (found,) = await rpc.reserve(queue, wait_ms=10_000)
            assert (found.id, found.attempt) == (ids[queue], attempt), queue
        order = [ids[f"order {number}"] for number in (2, 5, 8, 1, 4, 7, 0, 3, 6)]
        assert [each.id for each in await rpc.reserve("order", max_jobs=9)] == order
        await rpc.ack(held["leased"])
        (record,) = await rpc.drain()
        assert (record.job.id, record.last_reason) == (ids["dead"], "why")
        code, _ = await rpc.fault("Ack", pb.AckRequest(job_id=ids["acked"], attempt=1))
        assert code is StatusCode.NOT_FOUND

    await live(restarts, before, after)


@BOTH
async def test_a_last_attempt_that_ended_while_the_server_was_down_is_a_dead_letter(
    restarts: Restarts,
) -> None:
    async def before(rpc: Client) -> None:
        await rpc.enqueue("q", max_attempts=1)
        await rpc.take("q", lease_ms=20)

    async def after(rpc: Client) -> None:
        assert await rpc.reserve("q", wait_ms=50) == []
        (record,) = await rpc.drain("q")
        assert record.cause == pb.DEAD_LETTER_CAUSE_LEASE_EXPIRED

    await live(restarts, before, after)


@BOTH
async def test_the_depth_a_cap_counts_is_as_it_was(
    servers: Servers, number: signal.Signals
) -> None:
    server = servers.new({"limits": {"max_queue_depth": 3}})
    async with connected(server.port) as rpc:
        await rpc.batch(job("q"), job("q"))
        await rpc.take("q")
        now = in_ms((await rpc.info()).server_time)
        await rpc.enqueue("q", scheduled_at=moment(now + 600_000))
    restarts = Restarts(server, number)
    restarts.restart()
    async for client in restarts.client():
        assert (await client.rejection("q")).WhichOneof("reason") == "queue_full"


@BOTH
async def test_new_jobs_go_behind_the_old_ones(restarts: Restarts) -> None:
    ids: list[str] = []

    async def put(rpc: Client) -> None:
        ids.extend([await rpc.enqueue("q") for _ in range(3)])

    async def take(rpc: Client) -> None:
        assert [each.id for each in await rpc.reserve("q", max_jobs=99)] == ids

    await live(restarts, put, put, take)
