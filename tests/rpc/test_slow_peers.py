"""What is begun must end in time; what waits may wait for ever."""

import pytest
from purerpc import StatusCode

from sepp.rpc.limits import TransportLimits
from tests.rpc import frames
from tests.rpc.frames import (
    DATA,
    HEADERS,
    PING,
    PREFACE,
    RawPeer,
    frame,
    header_block,
    headers_frame,
    message,
    request,
    request_headers,
    settings,
)
from tests.rpc.support import ECHO, PARK, serving

PONG = frame(PING, frames.ACK, payload=b"sepplive")


def closed(harness) -> dict[str, int]:
    return dict(harness.server.statistics().closed)


@pytest.mark.parametrize(
    "begun", [b"", PREFACE[:1], PREFACE[:-1], PREFACE, PREFACE + settings()[:-1]]
)
async def test_a_preface_must_come_in_time(mock_clock, begun):
    async with serving() as harness:
        peer = await RawPeer.connect(harness.port)
        await peer.send(begun)
        await harness.until(lambda: harness.server.statistics().bytes_in == len(begun))
        mock_clock.jump(4.9)
        await harness.until(lambda: harness.server.statistics().connections == 1)
        mock_clock.jump(0.2)
        await peer.until_end()

        assert closed(harness) == {"preface_timeout": 1}
        await peer.close()


async def test_a_dribbled_preface_does_not_gain_time(mock_clock):
    async with serving() as harness:
        peer = await RawPeer.connect(harness.port)
        sent = 0
        while not closed(harness):
            await peer.send(PREFACE[sent : sent + 1])
            sent += 1
            await harness.until(
                lambda n=sent: harness.server.statistics().bytes_in == n or closed(harness)
            )
            mock_clock.jump(1)

        assert closed(harness) == {"preface_timeout": 1}
        assert sent <= 7
        await peer.close()


@pytest.mark.parametrize(
    "begun",
    [
        frame(HEADERS, 0, 1, header_block(request_headers(ECHO))),
        headers_frame(1, request_headers(ECHO))[:20],
    ],
)
async def test_a_header_block_must_end_in_time_however_it_drips(mock_clock, begun):
    async with serving() as harness:
        peer = await RawPeer.greeted(harness.port)
        await peer.call(3, ECHO)
        await peer.send(begun[:-4])
        await peer.send(begun[-4:-3])
        received = harness.server.statistics().bytes_in
        for more in range(3):
            await peer.send(begun[len(begun) - 3 + more : len(begun) - 2 + more])
            await harness.until(
                lambda n=received: harness.server.statistics().bytes_in > n or closed(harness)
            )
            mock_clock.jump(5)
        await peer.until_end()

        assert closed(harness) == {"header_timeout": 1}
        await peer.close()


async def test_a_frame_begun_behind_a_whole_one_ends_by_the_ping_it_keeps_unanswered(mock_clock):
    async with serving() as harness:
        peer = await RawPeer.greeted(harness.port)
        begun = headers_frame(3, request_headers(ECHO))[:-3]
        await peer.send(request(1, ECHO, message(b"")) + begun)
        await peer.until_answered(1)
        mock_clock.jump(30.1)
        await peer.until_frame(PING)
        mock_clock.jump(10.1)
        await peer.until_end()

        assert closed(harness) == {"keepalive": 1}
        await peer.close()


@pytest.mark.parametrize("kind", [frames.PRIORITY, 0x42])
async def test_a_frame_that_means_nothing_here_is_not_taken_for_one_that_does_not_end(
    mock_clock, kind
):
    async with serving() as harness:
        peer = await RawPeer.greeted(harness.port)
        await peer.call(1, ECHO)
        before = harness.server.statistics()
        await peer.send(frame(kind, 0, 1, bytes(5)))
        await harness.until(lambda: harness.server.statistics().bytes_in > before.bytes_in)
        mock_clock.jump(5.1)
        await harness.until(lambda: harness.server.statistics().bytes_out > before.bytes_out)
        await peer.until_frame(PING)
        await peer.send(PONG)
        await harness.until(lambda: harness.server.statistics().bytes_in == peer.sent_bytes)
        mock_clock.jump(20)

        assert (await peer.call(3, ECHO)).status == 0
        assert closed(harness) == {}
        await peer.close()


@pytest.mark.parametrize("sent", [0, 3, 100])
async def test_a_body_must_go_on(mock_clock, sent):
    async with serving() as harness:
        peer = await RawPeer.greeted(harness.port)
        await peer.send(request(1, PARK, message(b"")))
        await peer.send(headers_frame(3, request_headers(ECHO)))
        await peer.send(frame(DATA, 0, 3, message(b"x" * sent, size=1000)[:sent]))
        await peer.call(5, ECHO)

        mock_clock.jump(15.1)
        answer = await peer.until_answered(3)

        assert StatusCode(answer.status) is StatusCode.CANCELLED
        assert harness.methods.parked[0].is_open
        assert harness.methods.gone == []
        assert closed(harness) == {}
        await peer.close()


async def test_a_slow_body_that_goes_on_is_left_in_peace(mock_clock):
    async with serving() as harness:
        peer = await RawPeer.greeted(harness.port)
        body = message(bytes(160_000))
        await peer.send(headers_frame(1, request_headers(PARK)))
        for number, at in enumerate(range(0, len(body), 16_384)):
            await peer.send(frame(DATA, 0, 1, body[at : at + 16_384]))
            await peer.call(2 * number + 3, ECHO)
            mock_clock.jump(14)
        await peer.send(frame(DATA, frames.END_STREAM, 1))
        await harness.methods.wait_until(lambda: len(harness.methods.parked) == 1)

        assert harness.methods.parked[0].message == bytes(160_000)
        await peer.close()


async def test_a_body_dripped_below_the_pace_is_cut_off_within_two_spans(mock_clock):
    async with serving() as harness:
        peer = await RawPeer.greeted(harness.port)
        await peer.send(headers_frame(1, request_headers(ECHO)))
        drips = 0
        while not peer.answer(1).is_ended and drips < 100:
            await peer.send(frame(DATA, 0, 1, message(bytes(drips + 1), size=1000)[:1]))
            await peer.call(2 * drips + 3, ECHO)
            drips += 1
            mock_clock.jump(1)

        assert drips <= 31
        await peer.close()


async def test_a_waiting_call_is_never_touched_while_its_peer_lives(mock_clock):
    async with serving() as harness:
        peer = await RawPeer.greeted(harness.port)
        await peer.send(request(1, PARK, message(b"")))
        await harness.methods.wait_until(lambda: len(harness.methods.parked) == 1)
        for minute in range(1, 61):
            mock_clock.jump(31)
            await peer.until_frame(PING, minute, 0)
            await peer.send(PONG)
            await peer.call(2 * minute + 1, "/test.Test/None")

        harness.methods.parked[0].respond(b"at last")
        harness.server.flush()
        assert (await peer.until_answered(1)).body == message(b"at last")
        assert closed(harness) == {}
        await peer.close()


async def test_a_peer_that_answers_no_ping_is_closed_and_its_calls_are_gone(mock_clock):
    async with serving() as harness:
        peer = await RawPeer.greeted(harness.port)
        await peer.send(request(1, PARK, message(b"")))
        await harness.methods.wait_until(lambda: len(harness.methods.parked) == 1)
        mock_clock.jump(30.1)
        await peer.until_frame(PING)
        assert closed(harness) == {}
        mock_clock.jump(10.1)
        await peer.until_end()

        assert closed(harness) == {"keepalive": 1}
        assert harness.methods.gone == harness.methods.parked
        await peer.close()


async def test_a_peer_heard_of_lately_is_not_pinged(mock_clock):
    async with serving(limits=TransportLimits(keepalive_interval_ms=10_000)) as harness:
        peer = await RawPeer.greeted(harness.port)
        for number in range(20):
            await peer.call(2 * number + 1, ECHO)
            mock_clock.jump(9)

        assert peer.of_kind(PING) == []
        await peer.close()


async def test_an_idle_client_that_only_pings_is_not_cut_off(mock_clock):
    async with serving() as harness:
        peer = await RawPeer.greeted(harness.port)
        for count in range(1, 41):  # twenty minutes
            await peer.send(frame(PING, payload=b"from sdk"))
            await peer.until_frame(PING, count, frames.ACK)
            mock_clock.jump(29.9)

        assert (await peer.call(1, ECHO)).status == 0
        assert (peer.goaway, closed(harness)) == (None, {})
        await peer.close()
