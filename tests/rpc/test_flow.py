"""Flow control both ways: windows that must not starve, peers that do not take their answers."""

import pytest
import trio
import trio.testing
from purerpc import StatusCode

from sepp.rpc.limits import TransportLimits
from tests.rpc import frames
from tests.rpc.frames import (
    RawPeer,
    data_frames,
    headers_frame,
    message,
    request,
    request_headers,
    reset,
    window_update,
)
from tests.rpc.support import ECHO, PARK, SIZED, serving

MIB = 1_048_576
WIDE = window_update(0, 2**30)

FRAME_BYTES = 16_384  # data is handed over a frame at a time


def window(size: int) -> bytes:
    """SETTINGS with a window for each stream."""
    return frames.settings(id_4=size)


async def test_bytes_of_reset_streams_do_not_starve_the_connection():
    async with serving() as harness:
        peer = await RawPeer.greeted(harness.port)
        half = message(b"x" * (MIB // 2), size=MIB)
        for number in range(200):
            stream_id = 2 * number + 1
            await peer.send(headers_frame(stream_id, request_headers(ECHO)))
            await peer.send(data_frames(stream_id, half, is_end=False))
            await peer.send(reset(stream_id))

        assert (await peer.call(401, ECHO, b"a normal call")).body == message(b"a normal call")
        assert harness.server.statistics().request_bytes == 0
        assert harness.server.statistics().streams_open == 0
        # What was given back makes up for what was sent, the initial window aside.
        given = sum(
            int.from_bytes(f.payload, "big")
            for f in peer.of_kind(frames.WINDOW_UPDATE)
            if f.stream_id == 0
        )
        assert given >= 100 * MIB - 16 * MIB
        await peer.close()


async def test_bodies_that_can_never_be_finished_are_refused_not_kept():
    limits = TransportLimits(max_connection_request_bytes=4 * MIB)
    async with serving(limits=limits, message_bytes_max=MIB) as harness:
        peer = await RawPeer.greeted(harness.port)
        for stream_id in (1, 3, 5, 7, 9):
            body = message(b"x" * (MIB - 100), size=MIB)
            await peer.send(headers_frame(stream_id, request_headers(ECHO)))
            await peer.send(data_frames(stream_id, body, is_end=False))
        answer = await peer.until_answered(9)

        assert StatusCode(answer.status) is StatusCode.RESOURCE_EXHAUSTED
        assert harness.server.statistics().request_bytes <= 4 * MIB
        await peer.send(frames.frame(frames.DATA, frames.END_STREAM, 1, b"x" * 100) + WIDE)
        await peer.send(window_update(1, 2 * MIB))
        assert (await peer.until_answered(1)).status == 0
        await peer.close()


async def test_all_connections_together_hold_a_bounded_number_of_request_bytes():
    limits = TransportLimits(max_request_bytes_in_flight=4 * MIB, max_connection_request_bytes=MIB)
    async with serving(limits=limits, message_bytes_max=MIB) as harness:
        peers = [await RawPeer.greeted(harness.port) for _ in range(5)]
        body = data_frames(1, message(b"x" * (MIB - 100), size=MIB), is_end=False)
        for peer in peers:
            await peer.send(headers_frame(1, request_headers(ECHO)) + body)
            await peer.send(frames.frame(frames.PING, payload=b"heard it"))
            await peer.until_frame(frames.PING)

        answer = await peers[-1].until_answered(1)
        assert StatusCode(answer.status) is StatusCode.RESOURCE_EXHAUSTED
        for peer in peers:
            await peer.close()
        await harness.until(lambda: harness.server.statistics().connections == 0)
        assert harness.server.statistics().request_bytes == 0


async def test_a_peer_with_many_request_bytes_unanswered_is_not_read_until_answers_leave():
    limits = TransportLimits(max_connection_request_bytes=4 * MIB)
    async with serving(limits=limits, message_bytes_max=MIB) as harness:
        peer = await RawPeer.greeted(harness.port)
        body = message(b"x" * (MIB - 5))
        calls = b"".join(request(stream_id, PARK, body) for stream_id in range(1, 33, 2))

        parked = harness.methods.parked

        def held() -> int:
            return harness.server.statistics().request_bytes

        async with trio.open_nursery() as nursery:
            nursery.start_soon(peer.send, calls + request(33, ECHO, message(b"behind")))
            await harness.until(lambda: held() > 4 * MIB)
            seen = harness.server.statistics().bytes_in
            for _ in range(100):
                await trio.lowlevel.checkpoint()
            assert harness.server.statistics().bytes_in == seen
            assert held() <= 4 * MIB + FRAME_BYTES
            assert len(parked) == 4

            answered = 0
            while answered < 16:
                await harness.methods.wait_until(lambda: any(c.is_open for c in parked))
                for call in parked[answered:]:
                    call.respond(b"")
                    answered += 1
                harness.server.flush()
        await peer.until_answered(*range(1, 35, 2))
        assert held() == 0
        await peer.close()


async def test_many_small_requests_unanswered_pause_reading_as_well():
    limits = TransportLimits(max_connection_request_bytes=MIB)
    async with serving(limits=limits, message_bytes_max=MIB) as harness:
        peer = await RawPeer.greeted(harness.port)
        calls = b"".join(request(n, PARK, message(bytes(10_000))) for n in range(1, 401, 2))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(peer.send, calls)
            await harness.until(lambda: harness.server.statistics().request_bytes > MIB)
            await trio.testing.wait_all_tasks_blocked()
            assert len(harness.methods.parked) < 200
            await harness.until(lambda: answer_all(harness) == 200)
        await peer.until_answered(*range(1, 401, 2))

        assert {peer.answer(n).status for n in range(1, 401, 2)} == {0}
        await peer.close()


def answer_all(harness) -> int:
    """Answer whatever has come; return how many calls came so far."""
    for call in harness.methods.parked:
        call.respond(b"")
    harness.server.flush()
    return len(harness.methods.parked)


async def test_a_hang_up_is_heard_while_the_peer_is_not_read():
    limits = TransportLimits(max_connection_request_bytes=MIB)
    async with serving(limits=limits, message_bytes_max=MIB) as harness:
        peer = await RawPeer.greeted(harness.port)
        body = message(b"x" * (MIB - 5))
        await peer.send(request(1, PARK, body) + request(3, PARK, message(b"x" * 3000)))
        await harness.until(lambda: harness.server.statistics().request_bytes > MIB)
        await peer.send(request(5, PARK, message(b"not read")))
        async with trio.open_nursery() as nursery:
            # All is read, so that closing sends FIN and no RST.
            nursery.start_soon(peer.until_end_or_broken)
            await trio.testing.wait_all_tasks_blocked()
            assert len(harness.methods.parked) == 2
            await peer.stream.send_eof()
            await harness.methods.wait_until(lambda: len(harness.methods.gone) >= 2)

        assert harness.server.statistics().request_bytes == 0
        await peer.close()


async def test_reading_goes_on_after_a_while_even_if_no_answer_leaves(mock_clock):
    limits = TransportLimits(max_connection_request_bytes=MIB)
    async with serving(limits=limits, message_bytes_max=MIB) as harness:
        peer = await RawPeer.greeted(harness.port)
        body = message(b"x" * (MIB - 5))
        async with trio.open_nursery() as nursery:
            calls = b"".join(request(n, PARK, body) for n in range(1, 21, 2))
            nursery.start_soon(peer.send, calls + frames.frame(frames.PING, payload=b"are you?"))
            await harness.until(lambda: harness.server.statistics().request_bytes > MIB)
            await trio.testing.wait_all_tasks_blocked()
            seen = harness.server.statistics().bytes_in
            mock_clock.jump(14)
            await trio.testing.wait_all_tasks_blocked()
            assert harness.server.statistics().bytes_in == seen

            mock_clock.jump(1.1)
            await peer.until_frame(frames.PING, flags=frames.ACK)
            await peer.until_answered(5, 7, 19)
        assert {peer.answer(n).status for n in (5, 7, 19)} == {StatusCode.RESOURCE_EXHAUSTED.value}
        assert harness.methods.parked[0].is_open
        assert harness.server.statistics().request_bytes <= MIB + FRAME_BYTES

        for call in harness.methods.parked:
            call.respond(b"")
        harness.server.flush()
        await peer.call(21, ECHO, b"x" * 50_000)
        assert peer.answer(21).status == 0
        await peer.close()


@pytest.mark.parametrize("size", [1, 2, 100])
async def test_an_answer_goes_through_the_smallest_windows(size):
    async with serving() as harness:
        peer = await RawPeer.greeted(harness.port, window(size))
        await peer.send(request(1, SIZED, message(b"300")))
        while not peer.answer(1).is_ended:
            await peer.until_frame(frames.DATA, len(peer.of_kind(frames.DATA)) + 1)
            assert len(peer.of_kind(frames.DATA)[-1].payload) <= size
            await peer.send(window_update(1, size))
            if len(peer.answer(1).body) == 305:
                await peer.until_answered(1)

        assert peer.answer(1).body == message(bytes(300))
        assert harness.methods.undelivered == 0
        await peer.close()


async def test_nothing_of_an_answer_is_sent_while_the_window_is_shut():
    async with serving() as harness:
        peer = await RawPeer.greeted(harness.port, window(0))
        await peer.send(request(1, SIZED, message(b"300")))
        # A status has no body: it passes.
        assert (await peer.call(3, "/test.Test/None")).status == StatusCode.UNIMPLEMENTED.value
        assert peer.answer(1).headers == {}

        await peer.send(window_update(1, 100))
        await peer.until_frame(frames.DATA)
        await peer.send(window_update(1, 1000))

        assert (await peer.until_answered(1)).body == message(bytes(300))
        assert harness.methods.undelivered == 0
        await peer.close()


async def test_a_settings_change_opens_the_window_as_well():
    async with serving() as harness:
        peer = await RawPeer.greeted(harness.port, window(0))
        await peer.send(request(1, SIZED, message(b"300")))
        await peer.call(3, "/test.Test/None")
        await peer.send(window(1000))

        assert (await peer.until_answered(1)).body == message(bytes(300))
        await peer.close()


async def test_a_shut_window_of_the_connection_holds_answers_back_in_order():
    async with serving() as harness:
        peer = await RawPeer.greeted(harness.port, window(2**20))
        await peer.send(request(1, SIZED, message(b"65530")))  # all the connection's window
        for stream_id in (3, 5, 7):
            await peer.send(request(stream_id, SIZED, message(b"10")))
        await peer.until_answered(1)
        await peer.call(9, "/test.Test/None")
        assert [peer.answer(n).headers for n in (3, 5, 7)] == [{}, {}, {}]

        # One more call comes with the window: those that wait are before it.
        await peer.send(request(11, SIZED, message(b"10")) + window_update(0, 15))
        await peer.until_answered(3)
        await peer.call(13, "/test.Test/None")
        assert [peer.answer(n).headers for n in (5, 7, 11)] == [{}, {}, {}]

        await peer.send(WIDE)
        await peer.until_answered(5, 7, 11)
        assert harness.methods.undelivered == 0
        await peer.close()


async def test_a_window_that_stays_shut_costs_the_stream_and_the_answer_comes_back(mock_clock):
    async with serving() as harness:
        peer = await RawPeer.greeted(harness.port, window(0))
        other = await RawPeer.greeted(harness.port)
        await peer.send(request(1, SIZED, message(b"1000000")))
        await peer.call(3, "/test.Test/None")

        mock_clock.jump(29)
        await peer.send(frames.frame(frames.PING, frames.ACK, 0, b"sepplive"))
        await other.call(1, ECHO)
        assert harness.methods.undelivered == 0
        mock_clock.jump(2)
        answer = await peer.until_answered(1)

        assert (answer.reset_code, answer.headers) == (frames.CANCEL, {})
        assert harness.methods.undelivered == 1
        assert (await other.call(3, ECHO)).status == 0
        await peer.close()
        await other.close()


async def test_small_movements_of_a_shut_window_do_not_gain_time(mock_clock):
    limits = TransportLimits(keepalive_interval_ms=1_000_000)
    async with serving(limits=limits) as harness:
        peer = await RawPeer.greeted(harness.port, window(0))
        await peer.send(request(1, SIZED, message(b"100")))
        for number in range(7):
            await peer.call(2 * number + 3, "/test.Test/None")
            mock_clock.jump(5)
            await peer.send(window_update(0, 1) + frames.settings(id_4=0))
        answer = await peer.until_answered(1)

        assert (answer.reset_code, answer.headers) == (frames.CANCEL, {})
        assert harness.methods.undelivered == 1
        await peer.close()


@pytest.mark.parametrize("how", ["reset", "time"])
async def test_few_answers_begin_while_streams_wait_for_their_windows(mock_clock, how):
    limits = TransportLimits(keepalive_interval_ms=1_000_000)
    async with serving(limits=limits) as harness:
        peer = await RawPeer.greeted(harness.port, window(1) + WIDE)
        for stream_id in (1, 3):
            await peer.send(request(stream_id, SIZED, message(b"%d" % MIB)))
        await peer.until_frame(frames.DATA, 1)
        mock_clock.jump(20)
        for stream_id in (5, 7):
            await peer.send(request(stream_id, SIZED, message(b"%d" % MIB)))
        await peer.call(9, "/test.Test/None")
        begun = [n for n in (1, 3, 5, 7) if peer.answer(n).headers]
        assert begun == [1]

        if how == "reset":
            await peer.send(reset(1))
        else:
            mock_clock.jump(11)
        await peer.until_frame(frames.DATA, 2)

        assert peer.of_kind(frames.DATA)[-1].stream_id == (3 if how == "reset" else 5)
        await peer.close()


async def test_a_window_that_dribbles_costs_the_stream_but_the_answer_stands(mock_clock):
    limits = TransportLimits(keepalive_interval_ms=1_000_000)
    async with serving(limits=limits) as harness:
        peer = await RawPeer.greeted(harness.port, window(10))
        await peer.send(request(1, SIZED, message(b"1000000")))
        for count in range(1, 11):
            await peer.until_frame(frames.DATA, count)
            mock_clock.jump(3.1)
            if peer.answer(1).is_ended:
                break
            await peer.send(window_update(1, 1))
        await peer.until_answered(1)

        assert peer.answer(1).reset_code == frames.CANCEL
        assert harness.methods.undelivered == 0
        await peer.close()


async def test_answers_nobody_takes_are_bounded_by_resetting_the_newest():
    limits = TransportLimits(max_outbound_bytes=4 * MIB)
    async with serving(limits=limits) as harness:
        peer = await RawPeer.greeted(harness.port, window(0))
        for stream_id in (1, 3, 5, 7, 9, 11):
            await peer.send(request(stream_id, SIZED, message(b"%d" % MIB)))
        await harness.methods.wait_until(lambda: harness.methods.undelivered == 2)
        await peer.until_answered(9, 11)

        assert peer.answer(9).reset_code == peer.answer(11).reset_code == frames.ENHANCE_YOUR_CALM
        await peer.send(WIDE + b"".join(window_update(n, 2 * MIB) for n in (1, 3, 5, 7)))
        await peer.until_answered(1, 3, 5, 7)
        assert harness.methods.undelivered == 2
        assert harness.server.statistics().closed == {}
        await peer.close()


async def test_a_peer_that_does_not_read_is_read_no_more_and_then_cut_off(mock_clock):
    limits = TransportLimits(outbound_buffer_bytes=MIB)
    async with serving(limits=limits) as harness:
        peer = await RawPeer.greeted(harness.port, window(2**30) + WIDE)
        other = await RawPeer.greeted(harness.port)
        for stream_id in range(1, 41, 2):
            await peer.send(request(stream_id, SIZED, message(b"%d" % MIB)))
        await other.call(1, ECHO)
        await harness.until(lambda: harness.server._front.connections)
        await other.call(3, ECHO)
        seen = harness.server.statistics().bytes_in
        await peer.send(request(41, ECHO, message(b"not read any more")))
        await other.call(5, ECHO)
        assert harness.server.statistics().bytes_in < seen + 200
        assert harness.methods.undelivered == 0
        mock_clock.jump(31)
        await harness.until(lambda: "write_stall" in harness.server.statistics().closed)

        # Some answers were in the socket, at most one was cut, the rest come back.
        assert 1 <= harness.methods.undelivered < 20
        await peer.until_end()
        whole = sum(answer.is_ended for answer in peer.answers.values())
        begun = sum(bool(answer.headers) for answer in peer.answers.values())
        assert whole <= begun <= 20 - harness.methods.undelivered
        await peer.close()
        await other.close()
