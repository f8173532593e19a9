"""A disk that fills up, and one that fails: who is told what, and what is there afterwards.

On a small file system of its own where one may be mounted, else on a directory with a quota.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
import trio
from purerpc import StatusCode

from sepp._generated import queue_pb2 as pb
from sepp.rpc.grpc import RpcError
from tests.e2e.rpc_client import Client, connected
from tests.e2e.server_process import ServerProcess
from tests.fakes.odd_disk import TRIGGER, used_bytes

MIB = 1 << 20
DISK_BYTES = 24 * MIB
SECONDS_MAX = 120
SETTINGS = {
    "storage": {"segment_bytes": MIB},
    "limits": {"max_message_bytes": 65_536, "max_payload_bytes": 32_768},
}
PAYLOAD = b"x" * 16_000


class Disk:
    """The directory that fills up."""

    def __init__(self, root: Path, quota_bytes: int) -> None:
        self.root = root
        self.quota_bytes = quota_bytes  # 0: it is a file system of its own
        self.hog = root / "hog"

    def free_bytes(self) -> int:
        if self.quota_bytes:
            return max(0, self.quota_bytes - used_bytes(self.root))
        found = os.statvfs(self.root)
        return found.f_bavail * found.f_frsize

    def fill(self) -> None:
        """Take the last byte."""
        fd = os.open(self.hog, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        try:
            while self.free_bytes():
                os.write(fd, bytes(min(MIB, self.free_bytes())))
        except OSError:
            pass  # a last page that was counted as free and is not
        finally:
            os.close(fd)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """A disk of 24 MiB."""
    root = tmp_path / "disk"
    root.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "none", str(root)]
    is_mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    print("mounted" if is_mounted else "may not mount: a quota stands in")
    try:
        yield Disk(root, 0 if is_mounted else DISK_BYTES)
    finally:
        if is_mounted:
            subprocess.run(["umount", str(root)], check=True)


@pytest.fixture
def server(disk: Disk, tmp_path: Path) -> Iterator[ServerProcess]:
    """A server whose data is on that disk, running."""
    command = (sys.executable, "-m", "tests.fakes.odd_disk", str(disk.root), str(disk.quota_bytes))
    settings = {**SETTINGS, "server": {"db_path": str(disk.root / "data")}}
    server = ServerProcess(tmp_path / "server", settings, command=(*command, "serve"))
    server.start()
    try:
        yield server
    finally:
        if server.is_running:
            server.kill()
        print(server.output[-4000:])


async def enqueue_until_refused(client: Client) -> list[str]:
    """Store jobs until the server says that its disk is nearly full; return those it took."""
    stored: list[str] = []

    async def enqueue() -> None:
        while True:
            stored.append(await client.enqueue("q", PAYLOAD, max_attempts=100))

    await expect_full(enqueue)
    return stored


async def reserve_once_it_may(client: Client) -> list[pb.Job]:
    """Reserve ten jobs; until the server has looked where its last space is, it may say no."""
    with trio.fail_after(SECONDS_MAX):
        while True:
            try:
                return await client.reserve("q", max_jobs=10)
            except RpcError as refusal:
                if refusal.code is not StatusCode.RESOURCE_EXHAUSTED:
                    raise
                await trio.sleep(0.1)


async def nack_until_refused(client: Client, disk: Disk) -> int:
    """Reserve and nack until the server has no room for that either; return how often it had.

    Others take what it gives back meanwhile, or it could go on for ever.
    """
    count = 0
    refusals: list[RpcError] = []

    async def nack(job: pb.Job) -> None:
        nonlocal count
        try:
            await client.nack(job)
            count += 1
        except RpcError as refusal:
            refusals.append(refusal)

    async def nack_all() -> None:
        while not refusals:
            disk.fill()
            jobs = await client.reserve("q", max_jobs=64)
            async with trio.open_nursery() as nursery:
                for job in jobs:
                    nursery.start_soon(nack, job)
        raise refusals[0]

    await expect_full(nack_all)
    return count


async def expect_full(act: Callable[[], Awaitable[None]]) -> None:
    """Act until the answer is that the disk is nearly full."""
    with (
        trio.fail_after(SECONDS_MAX),
        pytest.raises(RpcError, match="disk is nearly full; nothing was stored") as refused,
    ):
        await act()
    assert refused.value.code is StatusCode.RESOURCE_EXHAUSTED


async def ack_all(client: Client) -> set[str]:
    """Work off everything that is ready; return the ids."""
    done: set[str] = set()
    while jobs := await client.reserve("q", max_jobs=64):
        for job in jobs:
            await client.ack(job)
            done.add(job.id)
    return done


async def is_taken_again(client: Client) -> str:
    """Wait until a job is taken; return its id."""
    with trio.fail_after(SECONDS_MAX):
        while True:
            try:
                return await client.enqueue("again", PAYLOAD)
            except RpcError as refusal:
                if refusal.code is not StatusCode.RESOURCE_EXHAUSTED:
                    raise
                await trio.sleep(0.05)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
async def test_a_full_disk_refuses_jobs_and_lets_all_else_go_on_also_after_a_restart(
    server: ServerProcess, disk: Disk, how: signal.Signals
) -> None:
    async with connected(server.port) as client:
        stored = await enqueue_until_refused(client)
        assert len(stored) > 500

        first, second, third = await client.reserve("q", max_jobs=3)
        await client.ack(first)
        await client.nack(second, reason="not now")
        await client.extend(third)
        await client.ack(third)
        with pytest.raises(RpcError):
            await client.enqueue("q", PAYLOAD)

    server.send(how)
    assert await trio.to_thread.run_sync(server.wait) == (0 if how is signal.SIGTERM else -how)
    server.start()

    async with connected(server.port) as client:
        # The space that was set aside before is free again, so that a few more may find room.
        more = await enqueue_until_refused(client)
        assert len(more) < 150
        stored += more
        done = await ack_all(client)
        assert done == set(stored) - {first.id, third.id}
        again = await is_taken_again(client)
        assert await client.reserve("q") == []
        (job,) = await client.reserve("again")
        assert job.id == again
    assert server.is_running
    assert disk.free_bytes() > DISK_BYTES / 3
    server.stop()


async def test_a_disk_that_others_fill_to_the_last_byte_costs_no_answer_and_no_crash(
    server: ServerProcess, disk: Disk
) -> None:
    async with connected(server.port) as client:
        stored = [await client.enqueue("q", b"x", max_attempts=100) for _ in range(300)]
        set_aside = disk.root / "data" / f"seg-{2:020d}.seg"
        with trio.fail_after(SECONDS_MAX):
            while not set_aside.exists():
                stored.append(await client.enqueue("q", b"x", max_attempts=100))
        disk.fill()
        assert disk.free_bytes() == 0
        # It looks once a second; a commit in between would have ended it with 74.
        await trio.to_thread.run_sync(server.wait_until_says, "room=acks_only")
        assert await enqueue_until_refused(client) == []
        # The segment that was kept for this takes acks and nacks by the thousand.
        jobs = await reserve_once_it_may(client)
        for job in jobs[:5]:
            await client.ack(job)
        done = {job.id for job in jobs[:5]}
        nack_count = await nack_until_refused(client, disk)
        assert nack_count > 1000
        assert server.is_running

    server.kill()
    disk.fill()
    assert disk.free_bytes() == 0
    await trio.to_thread.run_sync(server.start)  # without a byte, it starts

    disk.hog.unlink()
    async with connected(server.port) as client:
        await is_taken_again(client)
        left = {*await ack_all(client)}
        assert left.isdisjoint(done)
        assert left <= set(stored)
    server.stop()


async def test_a_failed_sync_ends_the_process_and_nobody_was_told_ok(
    server: ServerProcess, disk: Disk
) -> None:
    told: list[str] = []
    refused: list[StatusCode] = []
    async with connected(server.port) as client:
        stored = [await client.enqueue("q", b"before") for _ in range(20)]

        async def enqueue() -> None:
            try:
                told.append(await client.enqueue("q", b"in doubt"))
            except RpcError as refusal:
                refused.append(refusal.code)

        (disk.root / TRIGGER).touch()
        async with trio.open_nursery() as nursery:
            for _ in range(30):
                nursery.start_soon(enqueue)
        assert not (disk.root / TRIGGER).exists()
        assert await trio.to_thread.run_sync(server.wait) == 74

    assert told == []
    assert len(refused) == 30
    assert set(refused) <= {StatusCode.ABORTED, StatusCode.UNAVAILABLE}
    assert "storage failed; stopping" in server.output

    server.start()
    async with connected(server.port) as client:
        found = {job.id: job.payload.data for job in await client.reserve("q", max_jobs=256)}
    assert set(stored) <= set(found)
    assert {found[each] for each in stored} == {b"before"}
    server.stop()
