"""Leaving in order: no new peers, GOAWAY, what is open is answered, and then the end."""

import pytest
import trio
from purerpc import StatusCode

from sepp.rpc.channel import RpcError
from tests.rpc import frames
from tests.rpc.frames import GOAWAY, PING, RawPeer, frame, message, request
from tests.rpc.support import ECHO, PARK, SIZED, calling, serving

ALL_STREAMS = 2**31 - 1


async def parked(harness, peer: RawPeer, stream_id: int) -> None:
    await peer.send(request(stream_id, PARK, message(b"")))
    await harness.methods.wait_until(lambda: len(harness.methods.parked) == 1)


async def test_stop_accepting_closes_the_port_and_keeps_connections():
    async with serving() as harness:
        peer = await RawPeer.greeted(harness.port)
        await peer.call(1, ECHO)
        harness.server.stop_accepting()
        harness.server.stop_accepting()

        with pytest.raises(OSError, match="all attempts to connect"):
            await trio.open_tcp_stream("127.0.0.1", harness.port)
        assert (await peer.call(3, ECHO)).status == 0
        await peer.close()


async def test_go_away_is_two_goaways_with_a_round_trip_between():
    async with serving() as harness:
        peer = await RawPeer.greeted(harness.port)
        await parked(harness, peer, 1)
        harness.server.go_away()
        harness.server.go_away()
        ping = await peer.until_frame(PING)
        assert peer.goaway == (ALL_STREAMS, frames.NO_ERROR)

        # A call that crossed the notice still reaches its handler.
        assert (await peer.call(3, ECHO, b"crossed")).body == message(b"crossed")
        await peer.send(frame(PING, frames.ACK, 0, ping.payload))
        await peer.until_frame(GOAWAY, 2)
        assert peer.goaway == (3, frames.NO_ERROR)

        # One begun after the last word is not seen: the peer may send it elsewhere.
        await peer.send(request(5, ECHO, message(b"")))
        harness.methods.parked[0].respond(b"to the end")
        harness.server.flush()
        assert (await peer.until_answered(1)).body == message(b"to the end")
        await peer.until_end()

        assert peer.answer(5).headers == {}
        assert len(harness.methods.seen) == 1
        assert dict(harness.server.statistics().closed) == {"left": 1}
        await peer.close()


async def test_an_idle_peer_that_heard_the_goaway_is_closed():
    async with serving() as harness:
        peer = await RawPeer.greeted(harness.port)
        await peer.call(1, ECHO)
        harness.server.go_away()
        ping = await peer.until_frame(PING)
        await peer.send(frame(PING, frames.ACK, 0, ping.payload))
        await peer.until_end()

        assert peer.goaway == (1, frames.NO_ERROR)
        await peer.close()


async def test_drained_waits_for_open_calls_and_unsent_bytes():
    async with serving() as harness:
        peer = await RawPeer.greeted(harness.port, frames.settings(id_4=2**30))
        await peer.send(frames.window_update(0, 2**30))
        await parked(harness, peer, 1)
        steps = []

        async def drain() -> None:
            await harness.server.drained()
            steps.append("drained")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(drain)
            await peer.call(3, ECHO)
            assert steps == []
            await peer.send(request(5, SIZED, message(b"30000000")))
            await harness.until(lambda: harness.server.statistics().calls == 3)
            harness.methods.parked[0].respond(b"")
            harness.server.flush()
            for _ in range(20):
                await trio.lowlevel.checkpoint()
            assert steps == []
            await peer.until_answered(1, 5)

        assert steps == ["drained"]
        await peer.close()


async def test_drained_waits_for_an_answer_whose_peer_opens_its_window_slowly():
    async with serving() as harness:
        peer = await RawPeer.greeted(harness.port, frames.settings(id_4=1))
        await peer.send(request(1, SIZED, message(b"100")))
        await peer.until_frame(frames.DATA)
        assert harness.server.statistics().streams_open == 1

        with trio.move_on_after(0.05) as scope:
            await harness.server.drained()
        assert scope.cancelled_caught
        async with trio.open_nursery() as nursery:
            nursery.start_soon(harness.server.drained)
            await peer.send(frames.window_update(1, 1000))
            await peer.until_answered(1)
        assert harness.server.statistics().streams_open == 0
        await peer.close()


async def test_drained_returns_at_once_when_nothing_is_open():
    async with serving() as harness, calling(harness) as channel:
        await channel.unary(ECHO, b"")
        with trio.fail_after(10):
            await harness.server.drained()


async def test_drained_does_not_wait_for_a_peer_that_hung_up():
    async with serving() as harness:
        peer = await RawPeer.greeted(harness.port)
        await parked(harness, peer, 1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(harness.server.drained)
            await trio.lowlevel.checkpoint()
            await peer.close()


async def test_the_channel_finishes_its_calls_and_begins_no_more_after_goaway():
    async with serving() as harness, calling(harness) as channel:
        answers = []

        async def call() -> None:
            answers.append(await channel.unary(PARK, b""))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(call)
            await harness.methods.wait_until(lambda: len(harness.methods.parked) == 1)
            harness.server.go_away()
            await harness.until(lambda: channel.is_leaving)
            with pytest.raises(RpcError) as caught:
                await channel.unary(ECHO, b"")
            harness.methods.parked[0].respond(b"finished")
            harness.server.flush()

        assert answers == [b"finished"]
        assert (caught.value.code, caught.value.is_unprocessed) == (StatusCode.UNAVAILABLE, True)
        await harness.until(lambda: channel.is_closed)


async def test_a_server_that_is_cancelled_says_goodbye():
    async with serving() as harness:
        peer = await RawPeer.greeted(harness.port)
        await peer.call(1, ECHO)
    await peer.until_end()

    assert peer.goaway == (1, frames.NO_ERROR)
    assert dict(harness.server.statistics().closed) == {"shutdown": 1}
    await peer.close()
