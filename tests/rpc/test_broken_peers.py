"""A thousand peers that break off leave the server serving, with descriptors and memory at base."""

import contextlib
import os
import random
import resource

import pytest
import trio

from tests.rpc import frames
from tests.rpc.frames import PREFACE, RawPeer, headers_frame, message, request, request_headers
from tests.rpc.support import ECHO, WAIT, calling, serving

GREETING = PREFACE + frames.settings()
HALF_CALL = headers_frame(1, request_headers(ECHO)) + frames.frame(
    frames.DATA, 0, 1, message(b"x" * 100)[:50]
)


def half_a_frame(rng: random.Random) -> bytes:
    whole = GREETING + request(1, WAIT, message(b"x" * 200)) + HALF_CALL
    return whole[: rng.randrange(len(whole))]


def random_bytes(rng: random.Random) -> bytes:
    return rng.randbytes(rng.randrange(1, 400))


def random_bytes_after_the_preface(rng: random.Random) -> bytes:
    return GREETING + rng.randbytes(rng.randrange(1, 400))


def random_frames(rng: random.Random) -> bytes:
    return GREETING + b"".join(
        frames.frame(
            rng.randrange(12),
            rng.randrange(256),
            rng.randrange(8),
            rng.randbytes(rng.randrange(40)),
        )
        for _ in range(rng.randrange(1, 20))
    )


def preface_only(rng: random.Random) -> bytes:
    return PREFACE


def waiting_calls(rng: random.Random) -> bytes:
    return GREETING + b"".join(request(n, WAIT, message(b"")) for n in range(1, 21, 2))


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize(
    "make",
    [
        half_a_frame,
        random_bytes,
        random_bytes_after_the_preface,
        random_frames,
        preface_only,
        waiting_calls,
    ],
)
async def test_a_thousand_broken_peers_leave_nothing_behind(make, caplog):
    seed = random.randrange(2**32)
    print("seed", seed)
    rng = random.Random(seed)
    async with serving() as harness, calling(harness) as channel:

        async def break_off(count: int) -> None:
            for _ in range(count):
                peer = await RawPeer.connect(harness.port)
                with contextlib.suppress(trio.BrokenResourceError):
                    await peer.send(make(rng))
                await (peer.break_off() if rng.random() < 0.7 else peer.close())

        def are_gone(count: int) -> bool:
            statistics = harness.server.statistics()
            return statistics.accepted == 1 + count and statistics.connections == 1

        await break_off(50)
        await harness.until(lambda: are_gone(50))
        base, memory = descriptors(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(break_off, 95)
        await harness.until(lambda: are_gone(1000))

        statistics = harness.server.statistics()
        assert await channel.unary(ECHO, b"still here") == b"still here"
        assert statistics.accepted == 1001
        assert sum(statistics.closed.values()) == 1000
        assert (statistics.streams_open, statistics.request_bytes) == (0, 0)
        assert harness.methods.waiting == 0
        assert descriptors() == base
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 10_000
        assert "bug" not in caplog.text
