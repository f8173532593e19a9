"""What a call of our own channel gets from our own server."""

import purerpc
import pytest
import trio
from purerpc import StatusCode

from sepp.rpc.channel import RpcError
from tests.rpc.frames import RawPeer
from tests.rpc.support import ECHO, FAULTY, PARK, REFUSE, calling, serving


async def test_a_message_of_any_size_comes_back_whole():
    async with serving() as harness, calling(harness, receive_bytes_max=2**24) as channel:
        for size in (0, 1, 100, 16_378, 16_379, 16_380, 65_536, 3_000_000):
            message = bytes(range(256)) * (size // 256 + 1)

            assert await channel.unary(ECHO, message[:size]) == message[:size]


async def test_many_calls_share_a_connection_and_get_their_own_answers():
    async with serving() as harness, calling(harness) as channel:

        async def call(number: int) -> None:
            message = b"%d" % number
            assert await channel.unary(ECHO, message, timeout_s=10) == message

        async with trio.open_nursery() as nursery:
            for number in range(500):
                nursery.start_soon(call, number)

        assert harness.server.statistics().calls == 500
        assert harness.server.statistics().accepted == 1


async def test_a_parked_call_is_answered_by_flush():
    async with serving() as harness, calling(harness) as channel:
        answers = []

        async def call() -> None:
            answers.append(await channel.unary(PARK, b"later"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(call)
            await harness.methods.wait_until(lambda: len(harness.methods.parked) == 1)
            harness.methods.parked[0].respond(b"now")
            harness.server.flush()

        assert answers == [b"now"]
        assert harness.server.statistics().streams_open == 0


@pytest.mark.parametrize(
    ("path", "code", "text"),
    [
        ("/test.Test/Nothing", StatusCode.UNIMPLEMENTED, "/test.Test/Nothing is not implemented"),
        ("/no.Service/Echo", StatusCode.UNIMPLEMENTED, "/no.Service/Echo is not implemented"),
        (FAULTY, StatusCode.INTERNAL, "internal error"),
        (REFUSE, StatusCode.ABORTED, "by the method"),
    ],
)
async def test_what_cannot_be_served_is_a_status(path, code, text):
    async with serving() as harness, calling(harness) as channel:
        with pytest.raises(RpcError) as caught:
            await channel.unary(path, b"")

        assert (caught.value.code, caught.value.text) == (code, text)
        assert await channel.unary(ECHO, b"still here") == b"still here"


async def test_a_purerpc_service_may_be_added_by_context_manager():
    service = purerpc.Service("other.Other")
    signature = purerpc.RPCSignature(purerpc.Cardinality.UNARY_UNARY, bytes, bytes)
    service.add_method("Hello", lambda call: call.respond(b"hello"), signature)

    class Other(purerpc.Servicer):
        @property
        def service(self):
            return service

    async with serving(Other()) as harness, calling(harness) as channel:
        assert await channel.unary("/other.Other/Hello", b"") == b"hello"


async def test_statistics_count_what_the_sockets_saw():
    async with serving() as harness:
        peer = await RawPeer.greeted(harness.port)
        await peer.call(1, ECHO, b"x" * 1000)
        now = harness.server.statistics()

        assert (now.connections, now.accepted, now.refused, now.calls) == (1, 1, 0, 1)
        assert now.bytes_in == peer.sent_bytes
        assert now.bytes_out == peer.received_bytes
        await peer.close()
        await harness.until(lambda: harness.server.statistics().connections == 0)
        now = harness.server.statistics()
        assert (now.bytes_in, now.bytes_out) == (peer.sent_bytes, peer.received_bytes)
        assert dict(now.closed) == {"peer": 1}
