"""The server process: signals, restarts, a directory in use, and what its exit code says."""

import resource
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
import trio.testing
from purerpc import StatusCode

from sepp._generated import queue_pb2 as pb
from sepp.rpc.grpc import RpcError
from tests.e2e.rpc_client import connected
from tests.e2e.server_process import ServerProcess
from tests.rpc.frames import HEADERS, RawPeer, message, request, settings

StartServer = Callable[..., ServerProcess]


async def test_sigterm_answers_waiters_empty_and_enqueues_and_exits_0(
    server: ServerProcess,
) -> None:
    waits: list[list[object]] = []
    stored: list[str] = []
    refused: list[StatusCode] = []

    async with connected(server.port) as waiters, connected(server.port) as producer:

        async def wait_for_job() -> None:
            waits.append(await waiters.reserve("empty", wait_s=60))

        async def enqueue() -> None:
            try:
                stored.append(await producer.enqueue())
            except RpcError as error:
                refused.append(error.code)

        async with trio.open_nursery() as nursery:
            for _ in range(50):
                nursery.start_soon(wait_for_job)
            # One that is answered says that the reserves before it on its connection have arrived.
            await waiters.reserve("other")
            for _ in range(20):
                nursery.start_soon(enqueue)
            # The calls are sent in this turn of the loop, before the signal.
            await trio.testing.wait_all_tasks_blocked()
            server.send(signal.SIGTERM)

    assert waits == [[]] * 50
    # A call that reached the server after the signal may be told so; none is left without answer.
    assert len(stored) + len(refused) == 20
    assert set(refused) <= {StatusCode.UNAVAILABLE}
    assert await trio.to_thread.run_sync(server.wait) == 0

    server.start()
    async with connected(server.port) as client:
        jobs = await client.reserve(max_jobs=256)
        assert {job.id for job in jobs} >= set(stored)
    server.stop()


async def test_a_lease_survives_the_restart_and_its_worker_can_still_ack(
    server: ServerProcess,
) -> None:
    async with connected(server.port) as client:
        await client.enqueue()
        (job,) = await client.reserve()
    server.stop()

    server.start()

    async with connected(server.port) as client:
        assert await client.reserve() == []
        await client.ack(job)
        with pytest.raises(RpcError) as again:
            await client.ack(job)
        assert again.value.code is StatusCode.NOT_FOUND


async def test_a_killed_server_starts_unattended_with_all_it_acknowledged(
    server: ServerProcess,
) -> None:
    async with connected(server.port) as client:
        ids = [await client.enqueue(data=b"%d" % number) for number in range(20)]
        (first,) = await client.reserve()
        await client.ack(first)
    server.kill()

    server.start()

    async with connected(server.port) as client:
        jobs = await client.reserve(max_jobs=100)
        assert [job.id for job in jobs] == ids[1:]
        assert [job.payload.data for job in jobs] == [b"%d" % number for number in range(1, 20)]


def test_a_second_server_on_the_same_directory_exits_1_and_says_why(
    server: ServerProcess, tmp_path: Path
) -> None:
    settings = {"server": {"db_path": str(server.data_path)}}
    second = ServerProcess(tmp_path / "second", settings)

    second.start_nowait()

    assert second.wait() == 1
    assert str(server.data_path) in second.output
    assert "in use" in second.output
    assert "Traceback" not in second.output


def test_a_port_in_use_exits_1_and_names_the_key(server: ServerProcess, tmp_path: Path) -> None:
    second = ServerProcess(tmp_path / "second", {"server": {"listen_addr": server.address}})

    second.start_nowait()

    assert second.wait() == 1
    assert "server.listen_addr" in second.output
    assert "Traceback" not in second.output


async def test_a_second_signal_ends_the_process_at_once(server: ServerProcess) -> None:
    reserve = pb.ReserveRequest(queues=["q"])
    reserve.lease_duration.FromSeconds(60)
    path = "/sepp.v1.QueueService/Reserve"
    async with connected(server.port) as client:
        await client.enqueue(data=b"x" * 100_000)
        # A peer whose window holds one byte never takes the answer: a call stays in flight.
        stalled = await RawPeer.greeted(server.port, settings(id_4=1))
        await stalled.send(request(1, path, message(reserve.SerializeToString())))
        await stalled.until_frame(HEADERS)
        server.send(signal.SIGTERM)
        await trio.to_thread.run_sync(server.wait_until_says, "shutdown signal received")

        server.send(signal.SIGTERM)

        assert await trio.to_thread.run_sync(server.wait) == 128 + signal.SIGTERM
        await stalled.close()


async def test_calls_still_in_flight_at_the_end_of_the_grace_time_are_cut(
    start_server: StartServer,
) -> None:
    server = start_server({"server": {"shutdown_grace_ms": 300}})
    reserve = pb.ReserveRequest(queues=["q"])
    reserve.lease_duration.FromSeconds(60)
    path = "/sepp.v1.QueueService/Reserve"
    async with connected(server.port) as client:
        await client.enqueue(data=b"x" * 100_000)
        stalled = await RawPeer.greeted(server.port, settings(id_4=1))
        await stalled.send(request(1, path, message(reserve.SerializeToString())))
        await stalled.until_frame(HEADERS)

        server.send(signal.SIGTERM)

        assert await trio.to_thread.run_sync(server.wait) == 0
        assert "calls were still in flight" in server.output
        await stalled.close()


async def test_a_broken_disk_ends_the_process_with_74_and_tells_nobody_ok(
    server: ServerProcess,
) -> None:
    async with connected(server.port) as client:
        await client.enqueue()
        # A limit on the size of files that the kernel enforces: the next write is short or fails.
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (1, 1))

        with pytest.raises(RpcError) as caught:
            await client.enqueue(data=b"never stored")

        assert caught.value.code in (StatusCode.ABORTED, StatusCode.UNAVAILABLE)
        assert await trio.to_thread.run_sync(server.wait) == 74
    assert "not acknowledging" in server.output or "storage persist failed" in server.output

    server.start()
    async with connected(server.port) as client:
        jobs = await client.reserve(max_jobs=10)
        assert [job.payload.data for job in jobs] == [b"data"]
