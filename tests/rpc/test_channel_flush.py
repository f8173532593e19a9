"""When a channel sends: what was begun in one go leaves together, and nothing is left behind."""

import trio
from trio.testing import wait_all_tasks_blocked

from sepp.rpc.channel import Channel, ClientCall
from sepp.rpc.client_call import Result
from sepp.rpc.limits import TransportLimits
from tests.rpc.support import ECHO, PARK, calling, serving

# Ten times what any of this may take, in real seconds: a hang fails instead of blocking the run.
HANG_SECONDS = 10
# No timer of the channel's own may wake it meanwhile.
QUIET = TransportLimits(preface_timeout_ms=600_000, keepalive_interval_ms=600_000)


async def settle(channel: Channel) -> None:
    """Let what the handshake still sends come and go: it would wake the channel by chance."""
    await channel.unary(ECHO, b"")
    await wait_all_tasks_blocked()


async def test_calls_begun_behind_a_first_one_do_not_wait_for_its_answer():
    async with serving() as harness, calling(harness, limits=QUIET) as channel:
        answers: list[Result] = []
        answered = trio.Event()

        def when_done(answer: Result) -> None:
            answers.append(answer)
            answered.set()

        await settle(channel)
        # No checkpoint between the two: the first is sent at once, being alone, the second after.
        parked: ClientCall = channel.start(PARK, b"", None)
        channel.start(ECHO, b"behind it", when_done)
        with trio.fail_after(HANG_SECONDS):
            await answered.wait()
        parked.cancel()

        assert answers == [b"behind it"]


async def test_the_deadline_of_a_call_that_is_alone_is_kept():
    async with serving() as harness, calling(harness, limits=QUIET) as channel:
        ended = trio.Event()

        await settle(channel)
        channel.start(PARK, b"", lambda answer: ended.set(), timeout_s=0.05)

        with trio.fail_after(HANG_SECONDS):
            await ended.wait()
