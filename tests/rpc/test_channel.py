"""The channel against a server made of hand-written frames."""

from contextlib import asynccontextmanager

import pytest
import trio
from purerpc import StatusCode

from sepp.rpc.channel import RpcError, open_channel
from sepp.rpc.limits import TransportLimits
from tests.rpc import frames
from tests.rpc.frames import (
    DATA,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PING,
    PREFACE,
    RST_STREAM,
    RawPeer,
    data_frames,
    frame,
    headers_frame,
    message,
    reset,
    settings,
)

METHOD = "/some.Service/Method"
OK_HEADERS = [(b":status", b"200"), (b"content-type", b"application/grpc")]
OK_TRAILERS = [(b"grpc-status", b"0")]


def goaway(last: int, code: int = 0) -> bytes:
    return frame(GOAWAY, 0, 0, last.to_bytes(4, "big") + code.to_bytes(4, "big"))


def answer(stream_id: int, body: bytes, trailers=OK_TRAILERS) -> bytes:
    return (
        headers_frame(stream_id, OK_HEADERS)
        + data_frames(stream_id, body, is_end=False)
        + headers_frame(stream_id, trailers, END_STREAM)
    )


@asynccontextmanager
async def connected(first: bytes | None = None, **options):
    """A channel, and the server's end of its connection in our hands."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener:
        port = listener.socket.getsockname()[1]
        ends: list[RawPeer] = []

        async def accept() -> None:
            server = RawPeer(await listener.accept())
            ends.append(server)
            got = b""
            while len(got) < len(PREFACE):
                got += await server.stream.receive_some(len(PREFACE) - len(got))
            assert got == PREFACE
            await server.send(settings() if first is None else first)

        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(accept)
                async with open_channel("127.0.0.1", port, **options) as channel:
                    yield channel, ends[0]
        finally:
            await trio.aclose_forcefully(ends[0].stream)


class Outcome:
    """What a call came to."""

    message: bytes | None = None
    error: RpcError | None = None

    @property
    def code(self) -> StatusCode | None:
        return self.error.code if self.error else None


@asynccontextmanager
async def calling(channel, count: int = 1, **options):
    """So many calls under way; their outcomes are there at the end of the block."""
    outcomes = [Outcome() for _ in range(count)]

    async def call(outcome: Outcome) -> None:
        try:
            outcome.message = await channel.unary(METHOD, b"question", **options)
        except RpcError as error:
            outcome.error = error

    async with trio.open_nursery() as nursery:
        for outcome in outcomes:
            nursery.start_soon(call, outcome)
        yield outcomes


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (answer(1, message(b"answer")), b"answer"),
        (answer(1, message(b"")), b""),
        (answer(1, message(b"x" * 1000)), b"x" * 1000),
        (answer(1, message(b"x" * 1001)), StatusCode.RESOURCE_EXHAUSTED),
        (answer(1, message(b"", size=0xFFFFFFFF)), StatusCode.RESOURCE_EXHAUSTED),
        (answer(1, message(b"packed", 1)), StatusCode.INTERNAL),
        (answer(1, message(b"short", size=9)), StatusCode.INTERNAL),
        (answer(1, message(b"a") + b"more"), StatusCode.INTERNAL),
        (answer(1, b""), StatusCode.INTERNAL),
        (answer(1, message(b"a"), [(b"grpc-status", b"10")]), StatusCode.ABORTED),
        (answer(1, message(b"a"), [(b"other", b"x")]), StatusCode.INTERNAL),
        (headers_frame(1, OK_HEADERS, END_STREAM), StatusCode.UNKNOWN),
        (
            headers_frame(1, [*OK_HEADERS, (b"grpc-status", b"5")], END_STREAM),
            StatusCode.NOT_FOUND,
        ),
        (
            headers_frame(1, OK_HEADERS) + data_frames(1, message(b"no trailers")),
            StatusCode.INTERNAL,
        ),
        (headers_frame(1, [(b":status", b"404")], END_STREAM), StatusCode.UNIMPLEMENTED),
        (
            headers_frame(1, [(b":status", b"503")]) + data_frames(1, b"html"),
            StatusCode.UNAVAILABLE,
        ),
        (headers_frame(1, [(b":status", b"415")], END_STREAM), StatusCode.UNKNOWN),
        (reset(1, frames.CANCEL), StatusCode.CANCELLED),
        (reset(1, frames.ENHANCE_YOUR_CALM), StatusCode.RESOURCE_EXHAUSTED),
        (reset(1, frames.PROTOCOL_ERROR), StatusCode.INTERNAL),
        (reset(1, 7), StatusCode.UNAVAILABLE),
    ],
)
@pytest.mark.parametrize("piece", [1, 10_000])
async def test_an_answer_of_any_kind_ends_its_call(data, expected, piece):
    async with connected(receive_bytes_max=1000) as (channel, server):
        async with calling(channel) as (outcome,):
            await server.until_frame(DATA)
            for at in range(0, len(data), piece):
                await server.send(data[at : at + piece])

        assert (outcome.message if outcome.error is None else outcome.code) == expected
        if outcome.error is not None:
            assert outcome.error.is_unprocessed == (data == reset(1, 7))
        async with calling(channel) as (outcome,):
            await server.until_frame(DATA, 2)
            await server.send(answer(3, message(b"next")))
        assert outcome.message == b"next"
        assert channel._calls == {}


async def test_the_request_is_what_grpc_asks_for():
    metadata = [(b"authorization", b"Bearer key")]
    async with connected(metadata=metadata) as (channel, server):
        async with calling(channel, timeout_s=1.5, metadata=[(b"more", b"of it")]) as (outcome,):
            await server.until_frame(DATA)
            await server.send(answer(1, message(b"")))

        request = server.answer(1)
        assert request.body == message(b"question")
        assert request.is_ended
        assert request.headers == {
            b":method": b"POST",
            b":scheme": b"http",
            b":authority": request.headers[b":authority"],
            b":path": METHOD.encode(),
            b"te": b"trailers",
            b"content-type": b"application/grpc",
            b"user-agent": b"sepp-trio",
            b"authorization": b"Bearer key",
            b"grpc-timeout": b"1500m",
            b"more": b"of it",
        }
        assert outcome.message == b""


async def test_goaway_tells_which_calls_were_never_seen():
    async with connected() as (channel, server):
        async with calling(channel, 3) as outcomes:
            await server.until_frame(DATA, 3)
            await server.send(goaway(1))
            await server.send(answer(1, message(b"seen")))

        seen = [o for o in outcomes if o.message == b"seen"]
        unseen = [o.error for o in outcomes if o.error]
        assert (len(seen), len(unseen)) == (1, 2)
        assert all(e.code is StatusCode.UNAVAILABLE and e.is_unprocessed for e in unseen)
        with pytest.raises(RpcError) as caught:
            await channel.unary(METHOD, b"")
        assert caught.value.is_unprocessed


@pytest.mark.parametrize("end", [b"", b"not a frame", b"\0\0\4\0\0\0\0\0\1head"])
async def test_a_lost_connection_fails_its_calls_as_perhaps_seen(end):
    async with connected() as (channel, server):
        async with calling(channel, 5) as outcomes:
            await server.until_frame(DATA, 5)
            await server.send(end)
            await server.close()

        assert [o.code for o in outcomes] == [StatusCode.UNAVAILABLE] * 5
        assert not any(o.error.is_unprocessed for o in outcomes)
        assert channel.is_closed
        with pytest.raises(RpcError) as caught:
            await channel.unary(METHOD, b"")
        assert (caught.value.code, caught.value.is_unprocessed) == (StatusCode.UNAVAILABLE, True)


async def test_a_deadline_passes_here_even_if_the_server_says_nothing(mock_clock):
    async with connected() as (channel, server):
        async with calling(channel, timeout_s=2) as (outcome,):
            await server.until_frame(DATA)
            mock_clock.jump(1.9)
            await trio.testing.wait_all_tasks_blocked()
            assert outcome.error is None
            mock_clock.jump(0.2)
        await server.until_frame(RST_STREAM)

        assert outcome.code is StatusCode.DEADLINE_EXCEEDED
        assert server.answer(1).reset_code == frames.CANCEL
        await server.send(answer(1, message(b"late")))
        async with calling(channel) as (outcome,):
            await server.until_frame(DATA, 2)
            await server.send(answer(3, message(b"in time")))
        assert outcome.message == b"in time"


async def test_calls_beyond_what_the_server_allows_wait_their_turn():
    async with connected(settings(id_3=1)) as (channel, server):
        async with calling(channel, 3) as outcomes:
            for number in range(3):
                await server.until_frame(DATA, number + 1)
                assert len(server.of_kind(HEADERS)) == number + 1
                await server.send(answer(2 * number + 1, message(b"%d" % number)))

        assert sorted(o.message for o in outcomes) == [b"0", b"1", b"2"]


async def test_a_started_call_reports_to_its_callback_unless_cancelled():
    async with connected() as (channel, server):
        results: list[object] = []
        done = trio.Event()

        def take(result: object) -> None:
            results.append(result)
            done.set()

        cancelled = channel.start(METHOD, b"one", results.append)
        channel.start(METHOD, b"two", take)
        await server.until_frame(DATA, 2)
        cancelled.cancel()
        cancelled.cancel()
        await server.until_frame(RST_STREAM)
        await server.send(answer(1, message(b"1")) + answer(3, message(b"2")))
        await done.wait()

        assert results == [b"2"]


async def test_large_requests_wait_for_the_servers_window():
    async with connected() as (channel, server):
        outcome = Outcome()

        async def call() -> None:
            outcome.message = await channel.unary(METHOD, b"x" * 200_000)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(call)
            granted = 0
            while not server.answer(1).is_ended:
                assert await server.read()
                more = len(server.answer(1).body) - granted
                if more >= 30_000:
                    granted += more
                    await server.send(frames.window_update(1, more) + frames.window_update(0, more))
            await server.until_answered(1)
            await server.send(answer(1, message(b"whole")))

        assert server.answer(1).body == message(b"x" * 200_000)
        assert outcome.message == b"whole"


async def test_a_server_that_answers_no_ping_is_given_up(mock_clock):
    async with connected() as (channel, server):
        async with calling(channel) as (outcome,):
            await server.until_frame(DATA)
            mock_clock.jump(30.1)
            await server.until_frame(PING)
            mock_clock.jump(10.1)

        assert outcome.error.text == "keepalive: no answer to PING"
        assert channel.is_closed


async def test_a_server_that_does_not_greet_is_unavailable(mock_clock):
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener:
        errors = []

        async def connect() -> None:
            limits = TransportLimits(preface_timeout_ms=1000)
            port = listener.socket.getsockname()[1]
            try:
                await open_channel("127.0.0.1", port, limits=limits).__aenter__()
            except RpcError as error:
                errors.append(error)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(connect)
            stream = await listener.accept()
            await trio.testing.wait_all_tasks_blocked()
            mock_clock.jump(1.1)
        await stream.aclose()

    assert [e.code for e in errors] == [StatusCode.UNAVAILABLE]
    assert errors[0].is_unprocessed


async def test_closing_the_channel_fails_what_is_open():
    async with connected() as (channel, server):
        async with calling(channel, 2) as outcomes:
            await server.until_frame(DATA, 2)
            channel.close()
            channel.close()

        assert [o.error.text for o in outcomes] == ["closed: the channel was closed"] * 2
        await server.until_end()


async def test_errors_of_the_body_leave_open_channel_as_they_are():
    async def use() -> None:
        async with connected() as (channel, _):
            await fail(channel)

    async def fail(channel) -> None:
        assert not channel.is_closed
        raise KeyError("of the body")

    with pytest.RaisesGroup(KeyError):  # the group is of our own nursery in `connected`
        await use()
