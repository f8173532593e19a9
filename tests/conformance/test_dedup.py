"""Idempotency keys: scope, window, what counts as a hit, and restarts between any two steps."""

import signal

import pytest
import trio
import trio.testing

from sepp.core.commands import Purge
from tests.conformance.client import DEAD_LETTER, Client, SocketClient, connected, job, payload
from tests.conformance.conftest import Servers
from tests.conformance.local import Place, local

WINDOW_MS = 60_000
STORAGE = {"dedup_window_ms": WINDOW_MS, "dead_letter_retention_ms": 3_600_000}


async def put(rpc: Client, queue: str = "q", key: str = "k", **fields: object) -> tuple[str, bool]:
    """Enqueue under a key; return the id and whether the key was known."""
    (result,) = await rpc.batch(job(queue, idempotency_key=key, **fields))
    return result.success.job_id, result.success.deduplicated


async def test_a_hit_compares_nothing_but_queue_and_key(rpc: SocketClient, queue: str) -> None:
    first = await rpc.enqueue(queue, idempotency_key="k", payload=payload(b"1"), priority=1)
    assert await put(rpc, queue, payload=payload(b"2"), priority=2, job_type="x") == (first, True)
    found = await rpc.take(queue)
    assert (found.payload.data, found.priority, found.job_type) == (b"1", 1, "test")


async def test_queues_never_share_a_key(rpc: SocketClient, queue: str) -> None:
    ids = [await rpc.enqueue(f"{queue}{each}", idempotency_key="k") for each in ("", "k", "kk")]
    ids.append(await rpc.enqueue(f"{queue}k", idempotency_key="kk"))
    assert len(set(ids)) == 4


KEYS = ["k", "K", "k ", " k", "ключ", "é", "e\u0301", "k\0", "k\n", "x" * 256]


async def test_keys_differ_by_every_byte(rpc: SocketClient, queue: str) -> None:
    ids = [await rpc.enqueue(queue, idempotency_key=key) for key in KEYS]
    assert [await put(rpc, queue, key) for key in KEYS] == [(each, True) for each in ids]


@pytest.mark.parametrize("end", ["acked", "dead", "drained", "leased"])
async def test_a_key_stays_taken_whatever_became_of_its_job(
    rpc: SocketClient, queue: str, end: str
) -> None:
    first = await rpc.enqueue(queue, idempotency_key="k")
    found = await rpc.take(queue)
    if end == "acked":
        await rpc.ack(found)
    elif end != "leased":
        await rpc.nack(found, retry=DEAD_LETTER)
        if end == "drained":
            await rpc.drain(queue)
    assert await put(rpc, queue) == (first, True)


async def test_the_window_ends_on_the_millisecond_and_a_hit_does_not_prolong_it(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with local(storage=STORAGE) as rpc:
        first, _ = await put(rpc)
        await trio.sleep(WINDOW_MS / 1000 - 0.0015)
        assert await put(rpc) == (first, True)
        await trio.sleep(0.002)
        second, is_known = await put(rpc)
        assert (second != first, is_known) == (True, False)
        await trio.sleep(WINDOW_MS / 1000 - 1)
        assert await put(rpc) == (second, True)


async def test_a_queue_may_have_a_window_of_its_own(
    autojump_clock: trio.testing.MockClock,
) -> None:
    queues = [{"name": "own", "dedup_window_ms": 5000}]
    async with local(storage=STORAGE, queues=queues) as rpc:
        own, _ = await put(rpc, "own")
        other, _ = await put(rpc, "other")
        await trio.sleep(6)
        assert (await put(rpc, "own"))[1] is False
        assert await put(rpc, "other") == (other, True)
        assert own != other


async def test_a_purge_of_the_queue_frees_its_keys(autojump_clock: trio.testing.MockClock) -> None:
    async with local(storage=STORAGE) as rpc:
        first, _ = await put(rpc)
        kept, _ = await put(rpc, "other")
        await rpc.run(Purge("q"))
        assert (await put(rpc))[0] != first
        assert await put(rpc, "other") == (kept, True)


@pytest.mark.parametrize("window_ms", [1000, 10 * WINDOW_MS])
async def test_a_window_is_pinned_when_the_job_is_stored_not_when_the_server_starts(
    autojump_clock: trio.testing.MockClock, window_ms: int
) -> None:
    place = Place({"storage": STORAGE})
    async with place.serving() as rpc:
        first, _ = await put(rpc)
    place.settings = {"storage": STORAGE | {"dedup_window_ms": window_ms}}
    await trio.sleep(WINDOW_MS / 1000 - 1)
    async with place.serving() as rpc:
        assert await put(rpc) == (first, True)
    await trio.sleep(2)
    async with place.serving() as rpc:
        assert (await put(rpc))[1] is False


@pytest.mark.parametrize(
    "number", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.long)]
)
async def test_keys_survive_restarts_between_all_steps(
    servers: Servers, number: signal.Signals
) -> None:
    server = servers.new({})

    def restart() -> None:
        server.send(number)
        server.wait()
        server.start()

    async with connected(server.port) as rpc:
        first = await rpc.enqueue("q", idempotency_key="k")
    restart()
    async with connected(server.port) as rpc:
        assert await put(rpc) == (first, True)
        found = await rpc.take("q")
    restart()
    async with connected(server.port) as rpc:
        assert await put(rpc) == (first, True)
        await rpc.ack(found)
    restart()
    async with connected(server.port) as rpc:
        assert await put(rpc) == (first, True)
        assert (await put(rpc, key="other"))[1] is False
