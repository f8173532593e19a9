"""What is sent again and what is not; connections that break, leave or cannot be made."""

from datetime import timedelta
from functools import partial

import pytest
import trio
from purerpc import StatusCode

from sepp.client import (
    ConnectError,
    EnqueueAck,
    EnqueueRequest,
    InvalidApiKeyError,
    InvalidRequestError,
    OverloadedError,
    ReserveOptions,
    RetryPolicy,
    SeppClient,
    SeppError,
    ServerInternalError,
    TransportError,
    UnauthenticatedError,
    UnexpectedStatusError,
    UnknownQueuesError,
)
from sepp.rpc.grpc import RpcError
from tests.client.scripted import Scripted, empty, failing, scripted, stored

MS = timedelta(milliseconds=1)
TWICE = RetryPolicy(max_attempts=2, initial_backoff=MS)
KEYLESS = EnqueueRequest("q", "t")
KEYED = EnqueueRequest("q", "t", idempotency_key="k")
SAFE = [StatusCode.UNAVAILABLE, StatusCode.RESOURCE_EXHAUSTED]
UNSURE = [StatusCode.ABORTED, StatusCode.DEADLINE_EXCEEDED]
GUARD_S = 30


class Stoppable:
    """A scripted server that a test may stop."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._told, self._over = trio.Event(), trio.Event()

    async def serve(self, script: Scripted, *, task_status: trio.TaskStatus[None]) -> None:
        """Serve until stopped."""
        async with scripted(script, self.port) as harness:
            self.port = harness.port
            task_status.started()
            await self._told.wait()
        self._over.set()

    async def stop(self) -> None:
        """End it, its connections too."""
        self._told.set()
        await self._over.wait()


async def start(nursery: trio.Nursery, script: Scripted, port: int = 0) -> Stoppable:
    """Start a server in a nursery."""
    server = Stoppable(port)
    await nursery.start(partial(server.serve, script))
    return server


@pytest.mark.parametrize("code", SAFE)
async def test_what_the_server_did_not_take_is_sent_again(code: StatusCode) -> None:
    script = Scripted(failing(code), stored)
    async with (
        scripted(script) as harness,
        SeppClient.connect(f"127.0.0.1:{harness.port}", retry_policy=TWICE) as client,
    ):
        assert await client.enqueue(KEYLESS) == EnqueueAck("the-job", deduplicated=False)

    assert len(script.calls) == 2


@pytest.mark.parametrize("code", UNSURE)
async def test_what_may_be_stored_is_sent_again_only_with_keys(code: StatusCode) -> None:
    script = Scripted(failing(code), failing(code), stored)
    async with (
        scripted(script) as harness,
        SeppClient.connect(f"127.0.0.1:{harness.port}", retry_policy=TWICE) as client,
    ):
        with pytest.raises(TransportError):
            await client.enqueue(KEYLESS)
        assert len(script.calls) == 1
        await client.enqueue(KEYED)

    assert len(script.calls) == 3


async def test_without_a_policy_nothing_is_sent_again() -> None:
    script = Scripted(failing(StatusCode.UNAVAILABLE))
    async with (
        scripted(script) as harness,
        SeppClient.connect(f"127.0.0.1:{harness.port}") as client,
    ):
        with pytest.raises(TransportError):
            await client.enqueue(KEYED)

    assert len(script.calls) == 1


async def test_reserve_and_drain_are_never_sent_again() -> None:
    script = Scripted(failing(StatusCode.UNAVAILABLE))
    async with (
        scripted(script) as harness,
        SeppClient.connect(f"127.0.0.1:{harness.port}", retry_policy=TWICE) as client,
    ):
        with pytest.raises(TransportError):
            await client.reserve(ReserveOptions(["q"], MS))
        with pytest.raises(TransportError):
            await client.drain_dead_letters()

    assert len(script.calls) == 2


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (StatusCode.INVALID_ARGUMENT, InvalidRequestError),
        (StatusCode.UNAUTHENTICATED, UnauthenticatedError),
        (StatusCode.PERMISSION_DENIED, UnauthenticatedError),
        (StatusCode.RESOURCE_EXHAUSTED, OverloadedError),
        (StatusCode.INTERNAL, ServerInternalError),
        (StatusCode.CANCELLED, TransportError),
        (StatusCode.UNIMPLEMENTED, UnexpectedStatusError),
    ],
)
async def test_a_status_is_told_by_its_error(code: StatusCode, kind: type[SeppError]) -> None:
    script = Scripted(failing(code))
    async with (
        scripted(script) as harness,
        SeppClient.connect(f"127.0.0.1:{harness.port}") as client,
    ):
        with pytest.raises(kind, match="scripted"):
            await client.get_server_info()


async def test_undeclared_queues_are_an_error_of_reserve() -> None:
    script = Scripted(failing(StatusCode.FAILED_PRECONDITION))
    async with (
        scripted(script) as harness,
        SeppClient.connect(f"127.0.0.1:{harness.port}") as client,
    ):
        with pytest.raises(UnknownQueuesError, match="scripted"):
            await client.reserve(ReserveOptions(["q"], MS))


async def test_a_broken_connection_leaves_a_keyless_enqueue_to_its_caller() -> None:
    script = Scripted(stored)
    script.steps = [script.park]
    with trio.fail_after(GUARD_S):
        async with trio.open_nursery() as nursery:
            server = await start(nursery, script)

            async def stop() -> None:
                await script.called()
                await server.stop()

            addr = f"127.0.0.1:{server.port}"
            async with SeppClient.connect(addr, retry_policy=TWICE) as client:
                nursery.start_soon(stop)
                with pytest.raises(TransportError) as caught:
                    await client.enqueue(KEYLESS)

    assert not caught.value.is_unprocessed
    assert len(script.calls) == 1


async def test_a_keyed_enqueue_outlives_its_server() -> None:
    script = Scripted(lambda call: script.park(call), stored)
    policy = RetryPolicy(max_attempts=100, initial_backoff=MS, max_backoff=10 * MS)
    with trio.fail_after(GUARD_S):
        async with trio.open_nursery() as nursery:
            server = await start(nursery, script)

            async def restart() -> None:
                await script.called()
                await server.stop()
                second = await start(nursery, script, server.port)
                await script.called(2)
                await second.stop()

            addr = f"127.0.0.1:{server.port}"
            async with SeppClient.connect(addr, retry_policy=policy) as client:
                nursery.start_soon(restart)
                ack = await client.enqueue(KEYED)

    assert ack == EnqueueAck("the-job", deduplicated=False)
    assert len(script.calls) == 2


async def test_a_goaway_neither_loses_nor_doubles_a_call() -> None:
    script = Scripted(lambda call: script.park(call), stored)
    async with (
        scripted(script) as harness,
        SeppClient.connect(f"127.0.0.1:{harness.port}") as client,
    ):
        acks: list[EnqueueAck] = []

        async def enqueue() -> None:
            acks.append(await client.enqueue(KEYLESS))

        with trio.fail_after(GUARD_S):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(enqueue)
                await script.called()
                harness.server.go_away()
                # New calls are still made while the news is under way, on either connection.
                while harness.server.statistics().accepted < 2:
                    await client.enqueue(KEYLESS)
                    acks.clear()
                made = len(script.calls)
                async with trio.open_nursery() as more:
                    for _ in range(10):
                        more.start_soon(enqueue)
                stored(script.calls[0])
                harness.server.flush()

    assert len(acks) == 11
    assert len(script.calls) == made + 10


class Refusing:
    """A channel whose server takes no more calls: what a refused stream looks like."""

    def __init__(self) -> None:
        self.is_leaving = self.is_closed = False
        self.calls = 0

    async def unary(self, path: str, message: bytes, **options: object) -> bytes:
        await trio.lowlevel.checkpoint()
        self.calls += 1
        self.is_leaving = True
        raise RpcError(StatusCode.UNAVAILABLE, "refused", is_unprocessed=True)

    def close(self, reason: str, text: str) -> None:
        self.is_closed = True


async def test_a_refused_stream_goes_over_the_next_connection() -> None:
    script = Scripted(stored)
    refusing = Refusing()
    async with (
        scripted(script) as harness,
        SeppClient.connect(f"127.0.0.1:{harness.port}") as client,
    ):
        client._link._channel.close()
        client._link._channel = refusing
        await client.enqueue(KEYLESS)

    assert (refusing.calls, refusing.is_closed, len(script.calls)) == (1, True, 1)


async def test_what_never_reached_a_server_is_sent_again_without_keys() -> None:
    script = Scripted(stored)
    policy = RetryPolicy(max_attempts=100, initial_backoff=MS)
    with trio.fail_after(GUARD_S):
        async with trio.open_nursery() as nursery:
            server = await start(nursery, script)
            addr = f"127.0.0.1:{server.port}"
            async with SeppClient.connect(addr, retry_policy=policy) as client:
                await server.stop()

                async def restart() -> None:
                    while not client._link._failures:
                        await trio.lowlevel.checkpoint()
                    second = await start(nursery, script, server.port)
                    await script.called()
                    await second.stop()

                nursery.start_soon(restart)
                await client.enqueue(KEYLESS)

    assert len(script.calls) == 1


async def test_no_server_is_an_error_that_names_the_address() -> None:
    async with scripted(Scripted(empty)) as harness:
        port = harness.port

    with pytest.raises(ConnectError, match=f"127.0.0.1:{port}"):
        async with SeppClient.connect(f"127.0.0.1:{port}"):
            pytest.fail("there is no server")


async def test_calls_without_a_connection_share_the_attempts() -> None:
    script = Scripted(stored)
    failures: list[TransportError] = []

    async def enqueue() -> None:
        with pytest.raises(TransportError) as caught:
            await client.enqueue(KEYLESS)
        failures.append(caught.value)

    with trio.fail_after(GUARD_S):
        async with trio.open_nursery() as nursery:
            server = await start(nursery, script)
            async with SeppClient.connect(f"127.0.0.1:{server.port}") as client:
                await server.stop()
                while not client._link._channel.is_closed:
                    await trio.lowlevel.checkpoint()
                async with trio.open_nursery() as callers:
                    for _ in range(20):
                        callers.start_soon(enqueue)
                assert client._link._failures == 1
                second = await start(nursery, script, server.port)
                await client.enqueue(KEYLESS)
            await second.stop()

    assert [error.is_unprocessed for error in failures] == [True] * 20
    with pytest.raises(TransportError, match="closed"):
        await client.enqueue(KEYLESS)


async def test_a_key_that_is_no_header_is_refused_before_connecting() -> None:
    for key in ("a\nb", "ä", "", "a b"):
        with pytest.raises(InvalidApiKeyError):
            async with SeppClient.connect("127.0.0.1:1", api_key=key):
                pytest.fail("such a key cannot be sent")


@pytest.mark.parametrize("addr", ["", ":1", "host:", "host:x", "host:70000", "[::1]:0"])
async def test_what_is_no_address_is_refused(addr: str) -> None:
    with pytest.raises(ValueError, match="address"):
        async with SeppClient.connect(addr):
            pytest.fail("there is no such address")


async def test_the_error_of_the_block_comes_out_as_it_is() -> None:
    async with scripted(Scripted(empty)) as harness:
        with pytest.raises(KeyError):
            async with SeppClient.connect(f"http://127.0.0.1:{harness.port}/"):
                raise KeyError


def test_waits_grow_to_their_limit_and_shrink_by_half_at_most() -> None:
    plain = RetryPolicy(initial_backoff=MS, max_backoff=6 * MS, multiplier=2, jitter=False)
    spread = RetryPolicy(initial_backoff=MS, max_backoff=6 * MS, multiplier=2)

    assert [round(plain.wait_s(n) * 1000) for n in range(1, 6)] == [1, 2, 4, 6, 6]
    assert plain.wait_s(10**6) == 0.006
    assert all(0.002 <= spread.wait_s(3) <= 0.004 for _ in range(1000))
    assert RetryPolicy(max_attempts=0, multiplier=0).max_attempts == 1
