"""A client that only pings is polite: it is answered each time and never sent away."""

import pytest
import trio

from tests.conformance.client import SERVICE
from tests.conformance.conftest import Servers
from tests.e2e.server_process import ServerProcess
from tests.rpc import frames
from tests.rpc.frames import RawPeer

# Keep-alive of the server's own, so short that the idle peer meets it several times.
SETTINGS = {"transport": {"keepalive_interval_ms": 500, "keepalive_timeout_ms": 1_000}}
INFO = SERVICE + "GetServerInfo"


async def ping_for(peer: RawPeer, seconds: float, interval_s: float) -> int:
    """PING at a steady rate and answer the server's own; return how many were answered."""
    count = 0
    deadline = trio.current_time() + seconds
    while trio.current_time() < deadline:
        data = count.to_bytes(8, "big")
        await peer.send(frames.frame(frames.PING, payload=data))
        count += 1
        with trio.move_on_after(interval_s):
            while await peer.read():
                for got in peer.of_kind(frames.PING, 0):
                    await peer.send(frames.frame(frames.PING, frames.ACK, 0, got.payload))
                    peer.frames.remove(got)
        assert peer.goaway is None
        assert not peer.is_ended
    answered = {frame.payload for frame in peer.of_kind(frames.PING, frames.ACK)}
    assert answered == {number.to_bytes(8, "big") for number in range(count)}
    return count


@pytest.mark.parametrize(
    ("seconds", "interval_s"),
    [(3, 0.05), pytest.param(60, 1, marks=pytest.mark.long)],
    ids=["3 s at a raised rate", "a minute"],
)
async def test_an_idle_client_that_only_pings_is_not_cut_off(
    server: ServerProcess, seconds: float, interval_s: float
) -> None:
    peer = await RawPeer.greeted(server.port)
    assert await ping_for(peer, seconds, interval_s) > 10
    assert (await peer.call(1, INFO)).status == 0
    await peer.close()


async def test_a_client_that_answers_no_ping_is_cut_off(server: ServerProcess) -> None:
    peer = await RawPeer.greeted(server.port)
    await peer.until_end()
    assert peer.of_kind(frames.PING, 0)
    await peer.close()


async def test_pings_before_any_call_and_between_calls_are_answered(servers: Servers) -> None:
    peer = await RawPeer.greeted(servers.get({}).port)
    for number in range(20):
        await peer.send(frames.frame(frames.PING, payload=b"%8d" % number))
        await peer.until_frame(frames.PING, number + 1, frames.ACK)
        assert (await peer.call(2 * number + 1, INFO)).status == 0
    assert peer.goaway is None
    await peer.close()
