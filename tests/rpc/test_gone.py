"""Callers that leave before their answer, and answers that come after their callers left."""

import gc
import weakref

import pytest
import trio
from purerpc import StatusCode

from tests.rpc import frames
from tests.rpc.frames import RawPeer, message, request
from tests.rpc.support import ECHO, PARK, calling, serving


@pytest.fixture
async def harness():
    async with serving() as harness:
        yield harness


@pytest.fixture
async def peer(harness):
    """A peer with two calls waiting, on streams 1 and 3."""
    peer = await RawPeer.greeted(harness.port)
    await peer.send(request(1, PARK, message(b"one")) + request(3, PARK, message(b"three")))
    await harness.methods.wait_until(lambda: len(harness.methods.parked) == 2)
    yield peer
    await peer.close()


async def test_a_reset_tells_that_call_alone(harness, peer):
    await peer.send(frames.reset(1))
    await harness.methods.wait_until(lambda: len(harness.methods.gone) == 1)

    (gone,) = harness.methods.gone
    assert (gone.message, gone.is_open) == (b"one", False)
    assert harness.methods.parked[1].is_open
    assert (await peer.call(5, ECHO, b"x")).status == 0
    assert harness.server.statistics().streams_open == 1


@pytest.mark.parametrize("how", ["close", "break_off"])
async def test_a_hang_up_tells_every_call_once(harness, peer, how):
    await getattr(peer, how)()
    await harness.methods.wait_until(lambda: len(harness.methods.gone) == 2)

    assert {call.message for call in harness.methods.gone} == {b"one", b"three"}
    assert harness.server.statistics().connections == 0
    assert harness.server.statistics().closed == {"peer": 1}


async def test_the_end_of_the_server_tells_every_call():
    async with serving() as harness:
        peer = await RawPeer.greeted(harness.port)
        await peer.send(request(1, PARK, message(b"")))
        await harness.methods.wait_until(lambda: len(harness.methods.parked) == 1)
        gone = harness.methods.gone

    assert len(gone) == 1
    await peer.until_end()
    await peer.close()


async def test_an_answer_to_a_caller_that_left_comes_back(harness, peer):
    await peer.send(frames.reset(1))
    await harness.methods.wait_until(lambda: len(harness.methods.gone) == 1)
    call = harness.methods.gone[0]

    call.respond(b"too late", harness.methods.count_undelivered)

    assert harness.methods.undelivered == 1
    call.fail(StatusCode.ABORTED, "no more")
    call.respond(b"again")
    harness.server.flush()
    assert (await peer.call(5, ECHO, b"x")).status == 0
    assert peer.answer(1).headers == {}


async def test_an_answer_overtaken_by_a_reset_before_the_flush_comes_back(harness, peer):
    harness.methods.parked[0].respond(b"queued", harness.methods.count_undelivered)
    await peer.send(frames.reset(1) + request(5, ECHO, message(b"")))
    await peer.until_answered(5)

    assert (harness.methods.undelivered, peer.answer(1).headers) == (1, {})
    assert harness.methods.gone == []


async def test_an_answer_that_was_sent_is_never_reported_undelivered(harness, peer):
    harness.methods.parked[0].respond(b"sent", harness.methods.count_undelivered)
    harness.server.flush()
    await peer.send(frames.reset(1))
    await peer.close()
    await harness.until(lambda: harness.server.statistics().connections == 0)

    assert harness.methods.undelivered == 0


async def test_a_deadline_answers_and_tells_the_call_once(harness, mock_clock):
    peer = await RawPeer.greeted(harness.port)
    await peer.send(request(1, PARK, message(b""), (b"grpc-timeout", b"1S")))
    await harness.methods.wait_until(lambda: len(harness.methods.parked) == 1)
    (call,) = harness.methods.parked

    mock_clock.jump(0.99)
    assert (await peer.call(3, ECHO, b"in time")).status == 0
    assert call.is_open
    mock_clock.jump(0.1)
    answer = await peer.until_answered(1)

    assert StatusCode(answer.status) is StatusCode.DEADLINE_EXCEEDED
    assert harness.methods.gone == [call]
    call.respond(b"late", harness.methods.count_undelivered)
    assert harness.methods.undelivered == 1
    assert len(harness.methods.gone) == 1
    await peer.close()


async def test_a_call_answered_in_time_is_not_bothered_by_its_deadline(harness, mock_clock):
    peer = await RawPeer.greeted(harness.port)
    await peer.send(request(1, PARK, message(b""), (b"grpc-timeout", b"1S")))
    await harness.methods.wait_until(lambda: len(harness.methods.parked) == 1)
    harness.methods.parked[0].respond(b"in time")
    harness.server.flush()
    assert (await peer.until_answered(1)).status == 0

    mock_clock.jump(5)
    assert (await peer.call(3, ECHO, b"x")).status == 0

    assert harness.methods.gone == []
    assert peer.answer(1).reset_code is None
    await peer.close()


async def test_a_cancelled_task_of_the_channel_resets_its_stream(harness):
    async with calling(harness) as channel:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(channel.unary, PARK, b"")
                await harness.methods.wait_until(lambda: len(harness.methods.parked) == 1)
                scope.cancel()
        await harness.methods.wait_until(lambda: len(harness.methods.gone) == 1)

        assert await channel.unary(ECHO, b"still here") == b"still here"


async def test_callbacks_that_raise_do_not_keep_the_other_calls_from_hearing(harness, peer, caplog):
    def faulty(call):
        raise ValueError("a bug of the service")

    harness.methods.parked[0].on_gone = faulty
    await peer.close()
    await harness.methods.wait_until(lambda: len(harness.methods.gone) == 1)

    assert harness.methods.gone == [harness.methods.parked[1]]
    assert "a bug of the service" in caplog.text
    assert harness.server.statistics().closed == {"peer": 1}


async def test_an_answered_call_refers_to_nothing_of_the_service_any_more():
    async with serving() as harness, calling(harness) as channel:

        class Pending:
            """As a service keeps a call: each refers to the other."""

            def __init__(self, call) -> None:
                self.call = call
                call.on_gone = self.leave

            def leave(self, call) -> None:
                raise AssertionError("it was answered")

        async def call(answer) -> weakref.ref:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(channel.unary, PARK, b"")
                await harness.methods.wait_until(lambda: harness.methods.parked != [])
                pending = Pending(harness.methods.parked.pop())
                answer(pending)
                harness.server.flush()
            return weakref.ref(pending)

        gc.collect()
        gc.disable()
        try:
            kept = await call(lambda p: p.call.respond(b"", lambda: p.leave(p.call)))
            assert kept() is None
        finally:
            gc.enable()
