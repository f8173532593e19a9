"""What a channel promises whoever calls, when nothing else is going on."""

import pytest
import trio
import trio.testing
from purerpc import StatusCode

from sepp.rpc.channel import RpcError
from tests.rpc.support import ECHO, PARK, calling, serving


async def settle() -> None:
    """Let both sides say all they have to say."""
    await trio.testing.wait_all_tasks_blocked(0.02)


async def test_a_call_is_not_held_up_by_one_that_waits() -> None:
    async with serving() as harness, calling(harness) as channel, trio.open_nursery() as nursery:
        await settle()
        nursery.start_soon(channel.unary, PARK, b"")
        await settle()
        with trio.fail_after(10):
            assert await channel.unary(ECHO, b"now") == b"now"
        harness.methods.parked[0].respond(b"")
        harness.server.flush()


async def test_the_deadline_of_a_lone_call_is_kept() -> None:
    async with serving() as harness, calling(harness) as channel:
        await settle()
        with trio.fail_after(10), pytest.raises(RpcError) as caught:
            await channel.unary(PARK, b"", timeout_s=0.05)
        assert caught.value.code is StatusCode.DEADLINE_EXCEEDED
