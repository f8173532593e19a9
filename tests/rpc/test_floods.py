"""Peers that make noise are cut off; those that work, wait or ping at their ease are not."""

import resource

import pytest
import trio

from sepp.rpc.limits import TransportLimits
from sepp.rpc.poller import Poller
from sepp.rpc.transport import Transport
from tests.rpc import frames
from tests.rpc.frames import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    HEADERS,
    PING,
    SETTINGS,
    RawPeer,
    frame,
    header_block,
    headers_frame,
    message,
    request,
    request_headers,
    reset,
)
from tests.rpc.support import ECHO, PARK, serving

PING_FRAME = frame(PING, payload=b"12345678")


def endless_headers(path: str) -> bytes:
    """A header block that goes on and on."""
    block = header_block([(b"x-%d" % n, b"v" * 1000) for n in range(15)])
    first = frame(HEADERS, 0, 1, header_block(request_headers(path)))
    return first + frame(CONTINUATION, 0, 1, block) * 1000


def remembered(name: bytes, value: bytes) -> bytes:
    """A header that enters the dynamic table, where one byte (0xBE) names it from then on."""
    return b"\x40" + header_block([(name, value)])[1:]


def rapid_resets(path: str) -> bytes:
    return b"".join(headers_frame(n, request_headers(path)) + reset(n) for n in range(1, 50_000, 2))


def floods(path: str, waiting: str) -> dict[str, bytes]:
    """What hostile peers send, aimed at a method, and one whose calls stay open."""
    begun = request_headers(path)
    return {
        "ping": PING_FRAME * 100_000,
        "empty settings": frame(SETTINGS) * 100_000,
        "long settings": frame(SETTINGS, payload=b"\x00\x04\x00\x00\xff\xff" * 2400) * 100,
        "empty data": headers_frame(1, begun) + frame(DATA, 0, 1) * 100_000,
        "rapid reset": rapid_resets(waiting),
        "empty continuation": frame(HEADERS, 0, 1, header_block(begun))
        + frame(CONTINUATION, 0, 1) * 100_000,
        "endless headers": endless_headers(path),
        "header bomb": headers_frame(1, [*begun, (b"x", b"v" * 100)])
        + frame(HEADERS, END_HEADERS, 3, b"\x82\x86\x84" + remembered(b"x", b"v" * 3800))
        + b"".join(frame(HEADERS, END_HEADERS, n, b"\xbe" * 16_000) for n in range(5, 100, 2)),
        "many headers": headers_frame(1, [*begun, *[(b"x", b"")] * 300]),
    }


FLOODS = floods(ECHO, PARK)


async def send_while_open(peer: RawPeer, data: bytes) -> None:
    """Send until the server will take no more."""
    try:
        for at in range(0, len(data), 65_536):
            await peer.send(data[at : at + 65_536])
    except trio.BrokenResourceError:
        pass


@pytest.mark.parametrize("flood", FLOODS)
async def test_a_flood_ends_its_connection_and_no_other(flood):
    async with serving() as harness:
        other = await RawPeer.greeted(harness.port)
        await other.send(request(1, PARK, message(b"")))
        peer = await RawPeer.greeted(harness.port)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send_while_open, peer, FLOODS[flood])
            await peer.until_end()

        assert peer.goaway is not None
        assert peer.goaway[1] == frames.ENHANCE_YOUR_CALM
        assert harness.server.statistics().closed == {"flood": 1}
        assert (await other.call(3, ECHO, b"x")).status == 0
        assert harness.methods.parked[0].is_open
        await peer.close()
        await other.close()


@pytest.mark.parametrize("flood", ["ping", "empty settings", "rapid reset"])
async def test_a_flood_whose_answers_are_not_read_takes_no_memory(flood):
    async with serving() as harness:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(5):
            peer = await RawPeer.greeted(harness.port)
            await send_while_open(peer, FLOODS[flood])
            await peer.close()
        await harness.until(lambda: harness.server.statistics().connections == 0)

        grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        assert grown_kib < 20_000


async def test_pings_at_any_sane_rate_are_all_answered(mock_clock):
    async with serving() as harness:
        peer = await RawPeer.greeted(harness.port)
        for second in range(200):
            await peer.send(PING_FRAME * 50)
            await peer.until_frame(PING, (second + 1) * 50, frames.ACK)
            mock_clock.jump(1)

        assert peer.goaway is None
        assert harness.server.statistics().closed == {}
        await peer.close()


async def test_pings_along_with_calls_are_not_counted(mock_clock):
    async with serving() as harness:
        peer = await RawPeer.greeted(harness.port)
        for number in range(2000):  # time stands still: only the calls earn them
            stream_id = 2 * number + 1
            await peer.send(PING_FRAME * 2 + request(stream_id, ECHO, message(b"")))
            await peer.until_answered(stream_id)

        assert len(peer.of_kind(PING, frames.ACK)) == 4000
        assert peer.goaway is None
        await peer.close()


async def test_only_peers_that_are_new_or_noisy_have_to_wait_for_the_others(monkeypatch):
    put_last = []
    monkeypatch.setattr(Poller, "serve_last", lambda self, fd: put_last.append(fd))
    async with serving() as harness:
        peer = await RawPeer.greeted(harness.port)
        await peer.call(1, ECHO)
        assert put_last.pop()  # when it came, and maybe between its greeting and its call
        put_last.clear()
        for stream_id in range(3, 101, 2):
            await peer.send(PING_FRAME * 2 + request(stream_id, ECHO, message(b"")))
            await peer.until_answered(stream_id)
        assert put_last == []

        await peer.send(PING_FRAME * 5)
        await peer.until_frame(PING, 98 + 5, frames.ACK)

        assert len(put_last) == 1
        await peer.close()


async def test_of_new_and_noisy_peers_little_is_read_at_once(monkeypatch):
    asked = []
    receive = Transport.receive

    def spy(transport, bytes_max):
        asked.append(bytes_max)
        return receive(transport, bytes_max)

    monkeypatch.setattr(Transport, "receive", spy)
    async with serving() as harness:
        peer = await RawPeer.greeted(harness.port)
        await peer.until_frame(SETTINGS, flags=frames.ACK)
        pings = 1
        await peer.send(PING_FRAME)
        await peer.until_frame(PING, pings, frames.ACK)
        await peer.call(1, ECHO)
        for count in (1, 5, 5, 1, 1):
            await peer.send(PING_FRAME * count)
            pings += count
            await peer.until_frame(PING, pings, frames.ACK)

        assert asked == [2048, 2048, 2048, 8192, 8192, 2048, 2048, 8192]
        await peer.close()


async def test_two_thousand_waiting_calls_may_be_reset_at_once():
    async with serving() as harness:
        peer = await RawPeer.greeted(harness.port)
        numbers = range(1, 4001, 2)
        await peer.send(b"".join(request(n, PARK, message(b"")) for n in numbers))
        await harness.methods.wait_until(lambda: len(harness.methods.parked) == 2000)
        assert harness.server.statistics().streams_open == 2000

        await peer.send(b"".join(reset(n) for n in numbers))
        await harness.methods.wait_until(lambda: len(harness.methods.gone) == 2000)

        assert (await peer.call(4001, ECHO, b"x")).status == 0
        assert harness.server.statistics().streams_open == 0
        await peer.close()


async def test_streams_beyond_the_limit_are_refused_and_leave_the_others_alone():
    async with serving(limits=TransportLimits(max_streams_per_connection=1000)) as harness:
        peer = await RawPeer.greeted(harness.port)
        await peer.until_frame(SETTINGS, flags=frames.ACK)
        offered = peer.of_kind(SETTINGS, 0)[0].payload
        assert b"\x00\x03" + (1000).to_bytes(4, "big") in offered
        numbers = range(1, 2001, 2)
        await peer.send(b"".join(request(n, PARK, message(b"")) for n in numbers))
        await harness.methods.wait_until(lambda: len(harness.methods.parked) == 1000)

        await peer.send(request(2001, PARK, message(b"x" * 5000)))
        assert (await peer.until_answered(2001)).reset_code == 7  # REFUSED_STREAM
        assert len(harness.methods.parked) == 1000
        harness.methods.parked[0].respond(b"done")
        harness.server.flush()
        assert (await peer.until_answered(1)).status == 0
        assert (await peer.call(2003, ECHO, b"x")).status == 0
        await peer.close()
