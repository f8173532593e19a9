"""Many calls: nothing grows, nothing is lost, and one peer does not hold up another."""

import resource

import pytest
import trio

from sepp.rpc.transport import Transport
from tests.rpc import frames
from tests.rpc.frames import RawPeer, message, request
from tests.rpc.support import ECHO, PARK, calling, serving


def memory_kib() -> int:
    """Resident memory of now."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() // 1024


async def call_many(harness, count: int) -> int:
    """Make so many calls on one connection, 50 at a time; return how memory grew meanwhile."""
    left = count
    async with calling(harness) as channel:

        async def work() -> None:
            nonlocal left
            while left > 0:
                left -= 1
                assert await channel.unary(ECHO, b"x" * 256, timeout_s=60) == b"x" * 256

        async def work_at_once() -> None:
            async with trio.open_nursery() as nursery:
                for _ in range(50):
                    nursery.start_soon(work)

        left = count // 10
        await work_at_once()
        harness.methods.seen.clear()
        base = memory_kib()
        left = count - count // 10
        await work_at_once()
        return memory_kib() - base


class Forgetful(list):
    """Keeps nothing: the calls of a long run must not stay in memory by the test's doing."""

    def append(self, item: object) -> None:
        pass


@pytest.mark.parametrize("count", [50_000, pytest.param(1_000_000, marks=pytest.mark.long)])
async def test_calls_on_one_connection_take_no_memory(count):
    async with serving() as harness:
        harness.methods.seen = Forgetful()

        grown_kib = await call_many(harness, count)

        assert harness.server.statistics().calls >= count
        assert harness.server.statistics().accepted == 1
        assert grown_kib < 3_000


async def test_a_peer_that_sends_without_pause_does_not_hold_up_another():
    async with serving(message_bytes_max=2**26) as harness:
        greedy = await RawPeer.greeted(harness.port)
        polite = await RawPeer.greeted(harness.port)
        await polite.call(1, ECHO)
        body = frames.data_frames(1, message(b"x" * 20_000_000), is_end=False)
        async with trio.open_nursery() as nursery:
            await greedy.send(frames.headers_frame(1, frames.request_headers(ECHO)))
            nursery.start_soon(greedy.send, body)
            await harness.until(lambda: harness.server.statistics().request_bytes > 0)

            await polite.call(3, ECHO)
            # Answered while most of the greedy peer's body was still to come.
            assert harness.server.statistics().request_bytes < 20_000_000
        await greedy.close()
        await polite.close()


async def test_a_bug_met_by_one_connection_closes_that_one_alone(caplog):
    async with serving() as harness:
        unlucky = await RawPeer.greeted(harness.port)
        await unlucky.call(1, ECHO)
        (connection,) = harness.server._front.connections.values()
        other = await RawPeer.greeted(harness.port)
        await other.send(request(1, PARK, message(b"")))
        await harness.methods.wait_until(lambda: len(harness.methods.parked) == 1)

        def raise_bug(events: object) -> None:
            raise KeyError("a bug in the connection")

        type(connection)._handle, handle = (
            lambda self, events: raise_bug(events) if self is connection else handle(self, events),
            type(connection)._handle,
        )
        try:
            await unlucky.send(request(3, ECHO, message(b"")))
            await unlucky.until_end()
            assert (await other.call(3, ECHO, b"x")).status == 0
        finally:
            type(connection)._handle = handle

        assert dict(harness.server.statistics().closed) == {"bug": 1}
        assert "a bug in the connection" in caplog.text
        assert harness.methods.parked[0].is_open
        await unlucky.close()
        await other.close()


async def test_one_flush_writes_once_to_each_connection_touched(monkeypatch):
    writes: list[Transport] = []

    def count(transport: Transport, data: bytes) -> None:
        writes.append(transport)
        send(transport, data)

    async with serving() as harness:
        peers = [await RawPeer.greeted(harness.port) for _ in range(50)]
        for peer in peers:
            await peer.send(b"".join(request(n, PARK, message(b"")) for n in (1, 3, 5)))
        await harness.methods.wait_until(lambda: len(harness.methods.parked) == 150)
        send = Transport.send
        monkeypatch.setattr(Transport, "send", count)
        for call in harness.methods.parked[:-3]:
            call.respond(b"together")
        harness.server.flush()
        harness.server.flush()

        assert (len(writes), len(set(writes))) == (49, 49)
        for peer in peers[:-1]:
            await peer.until_answered(1, 3, 5)
        for peer in peers:
            await peer.close()
