"""Long polls: what wakes them, who is woken, how they end."""

import signal
from collections.abc import Awaitable, Callable

import pytest
import trio
import trio.testing
from purerpc import StatusCode
from trio.testing import MockClock

from sepp._generated import queue_pb2 as pb
from sepp.core.commands import GiveBack, Release, Requeue
from sepp.rpc.channel import RpcError
from sepp.wire import id_bytes
from tests.conformance.client import DEAD_LETTER, SocketClient, connected, job, later, moment, span
from tests.conformance.conftest import Servers
from tests.conformance.local import local

SETTINGS = {"limits": {"max_wait_timeout_ms": 20_000}}
# Longer than any test waits: whoever is answered was woken, not timed out.
LONG_MS = 19_000
# How a job becomes ready; the last argument is the job if it was leased before.
Road = Callable[[SocketClient, str, pb.Job], Awaitable[object]]


async def by_schedule(rpc: SocketClient, queue: str, _: pb.Job) -> None:
    now = (await rpc.info()).server_time
    await rpc.enqueue(queue, scheduled_at=moment(now.ToMilliseconds() + 50))


NEW: dict[str, Road] = {
    "an enqueue": lambda rpc, queue, _: rpc.enqueue(queue),
    "an atomic enqueue": lambda rpc, queue, _: rpc.atomic(job(f"{queue} too"), job(queue)),
    "a schedule": by_schedule,
}
AGAIN: dict[str, Road] = {
    "a nack": lambda rpc, _, held: rpc.nack(held),
    "a nack with a delay": lambda rpc, _, held: rpc.nack(held, retry=later(30)),
    "the end of a lease": lambda rpc, _, held: rpc.extend(held, 30),
}


@pytest.mark.parametrize("what", [*NEW, *AGAIN])
async def test_a_waiter_is_woken_by(rpc: SocketClient, queue: str, what: str) -> None:
    held = pb.Job()
    if what in AGAIN:
        await rpc.enqueue(queue)
        held = await rpc.take(queue)
    found: list[pb.Job] = []

    async def wait() -> None:
        found.extend(await rpc.reserve("elsewhere", queue, wait_ms=LONG_MS))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await let_arrive(rpc)
        await (NEW | AGAIN)[what](rpc, queue, held)
    assert [each.attempt for each in found] == [2 if what in AGAIN else 1]


@pytest.mark.parametrize("what", ["a requeue", "a release", "a lease given back"])
async def test_an_operator_wakes_a_waiter_by(autojump_clock: MockClock, what: str) -> None:
    async with local(storage={"dead_letter_retention_ms": 60_000}) as rpc:
        await rpc.enqueue("q")
        held = await rpc.take("q")
        raw = id_bytes(held.id)
        assert raw is not None
        if what == "a requeue":
            await rpc.nack(held, retry=DEAD_LETTER)
        request = pb.ReserveRequest(
            queues=["q"], lease_duration=span(1000), wait_timeout=span(LONG_MS)
        )
        waiter = rpc.start("Reserve", request)
        commands = {
            "a requeue": Requeue("q", [raw]),
            "a release": Release(raw, 1),
            "a lease given back": GiveBack(raw, 1),
        }
        await rpc.run(commands[what])
        (found,) = (await waiter.result(pb.ReserveResponse)).jobs
        assert found.attempt == (2 if what == "a release" else 1)


async def let_arrive(rpc: SocketClient) -> None:
    """Return when the server has seen what was sent before on this connection."""
    await trio.testing.wait_all_tasks_blocked()
    await rpc.info()


async def test_of_two_waiters_one_gets_the_job_and_the_other_times_out_on_time(
    rpc: SocketClient, queue: str
) -> None:
    answers: list[tuple[float, int]] = []

    async def wait() -> None:
        started = trio.current_time()
        found = await rpc.reserve(queue, wait_ms=1000)
        answers.append((trio.current_time() - started, len(found)))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        nursery.start_soon(wait)
        await let_arrive(rpc)
        await rpc.enqueue(queue)
    (woken_s, one), (ended_s, none) = answers
    assert (one, none) == (1, 0)
    assert woken_s < ended_s
    assert 0.9 < ended_s < 10


async def test_waiters_are_served_in_order_of_arrival_one_a_job(
    rpc: SocketClient, queue: str
) -> None:
    order: list[tuple[int, str]] = []

    async def wait(number: int) -> None:
        (found,) = await rpc.reserve(queue, wait_ms=LONG_MS)
        order.append((number, found.id))

    async with trio.open_nursery() as nursery:
        for number in range(3):
            nursery.start_soon(wait, number)
            await let_arrive(rpc)
        ids = [await rpc.enqueue(queue) for _ in range(3)]
    assert order == list(enumerate(ids))


async def test_a_waiter_gets_as_many_as_one_commit_brought(rpc: SocketClient, queue: str) -> None:
    sizes: list[int] = []

    async def wait(most: int) -> None:
        sizes.append(len(await rpc.reserve(queue, wait_ms=LONG_MS, max_jobs=most)))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait, 10)
        await let_arrive(rpc)
        await rpc.atomic(job(queue), job(queue), job(queue))
    assert sizes == [3]


async def test_a_reserve_does_not_wait_to_fill_its_number(rpc: SocketClient, queue: str) -> None:
    await rpc.enqueue(queue)
    assert len(await rpc.reserve(queue, wait_ms=LONG_MS, max_jobs=10)) == 1


async def test_a_wait_longer_than_allowed_is_cut(autojump_clock: MockClock) -> None:
    async with local(limits={"max_wait_timeout_ms": 5_000}) as rpc:
        started = trio.current_time()
        assert await rpc.reserve("nothing", wait_ms=315_576_000_000_000) == []
        assert 5 <= trio.current_time() - started < 5.01


async def test_a_wait_ends_empty_when_nothing_came(rpc: SocketClient, queue: str) -> None:
    started = trio.current_time()
    assert await rpc.reserve(queue, queue, wait_ms=60) == []
    assert trio.current_time() - started >= 0.055


async def test_the_lease_of_a_waiter_begins_when_it_is_served(
    rpc: SocketClient, queue: str
) -> None:
    ends: list[int] = []

    async def wait() -> None:
        (found,) = await rpc.reserve(queue, wait_ms=LONG_MS, lease_ms=5_000)
        ends.append(found.lease_expires_at.ToMilliseconds())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await let_arrive(rpc)
        await trio.sleep(0.1)
        before = (await rpc.info()).server_time.ToMilliseconds()
        await rpc.enqueue(queue)
    assert ends[0] >= before + 5_000


async def test_at_shutdown_waiters_are_answered_empty_and_new_reserves_unavailable(
    servers: Servers,
) -> None:
    server = servers.new({})
    sizes: list[int] = []
    codes: list[StatusCode] = []
    request = pb.ReserveRequest(queues=["q"], lease_duration=span(1000), wait_timeout=span(LONG_MS))

    async with connected(server.port) as rpc, trio.open_nursery() as nursery:

        async def wait() -> None:
            sizes.append(len((await rpc.call("Reserve", request)).jobs))
            try:
                await rpc.call("Reserve", request)
            except RpcError as error:
                codes.append(error.code)

        for _ in range(50):
            nursery.start_soon(wait)
        await let_arrive(rpc)
        server.send(signal.SIGTERM)
    assert sizes == [0] * 50
    assert codes == [StatusCode.UNAVAILABLE] * 50
    assert await trio.to_thread.run_sync(server.wait) == 0
