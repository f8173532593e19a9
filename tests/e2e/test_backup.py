"""Backups from outside, of a server that works meanwhile: nothing it had answered is missing."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import trio

from tests.e2e.rpc_client import connected
from tests.e2e.server_process import ROOT, ServerProcess, clean_environment

StartServer = Callable[..., ServerProcess]

SMALL = {"storage": {"segment_bytes": 65_536}}
BODY = b"x" * 700
BACKUPS = 4
SECONDS_MAX = 120


async def store_verb(*tokens: object) -> tuple[int, str]:
    """Run `sepp-trio store …`; return its exit code and what it printed."""
    shown = await trio.run_process(
        [sys.executable, "-m", "sepp", "store", *map(str, tokens)],
        cwd=ROOT,
        env=clean_environment(),
        capture_stdout=True,
        stderr=subprocess.STDOUT,
        check=False,
    )
    return shown.returncode, shown.stdout.decode()


class Load:
    """Enqueues, and acks all but every tenth job, so that segments die and are dropped."""

    def __init__(self) -> None:
        self.kept: list[str] = []  # answered, and never reserved
        self.acked: list[str] = []  # answered as done

    async def enqueue(self, port: int) -> None:
        async with connected(port) as client:
            while True:
                self.kept.append(await client.enqueue("kept", BODY[:100]))
                for _ in range(9):
                    await client.enqueue("worked", BODY)

    async def work(self, port: int) -> None:
        async with connected(port) as client:
            while True:
                for job in await client.reserve("worked", wait_s=1, max_jobs=32):
                    await client.ack(job)
                    self.acked.append(job.id)


async def jobs_in(directory: Path, *queues: str) -> list[set[str]]:
    """Start a server on a copy of a backup; return the ids of the jobs in each queue."""
    server = ServerProcess(directory.parent / f"{directory.name}-server", SMALL)
    code, out = await store_verb("restore", directory, server.data_path)
    assert code == 0, out
    found: list[set[str]] = []
    await trio.to_thread.run_sync(server.start)
    try:
        async with connected(server.port) as client:
            for queue in queues:
                ids: set[str] = set()
                while jobs := await client.reserve(queue, max_jobs=256):
                    ids |= {job.id for job in jobs}
                found.append(ids)
        await trio.to_thread.run_sync(server.stop)
    finally:
        if server.is_running:
            server.kill()
    return found


async def test_backups_under_load_hold_what_was_answered_before_each_began(
    start_server: StartServer, tmp_path: Path
) -> None:
    server = start_server(SMALL)
    load = Load()
    backups: list[tuple[Path, set[str], set[str], set[str]]] = []

    with trio.fail_after(SECONDS_MAX):
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(load.enqueue, server.port)
                nursery.start_soon(load.work, server.port)
            for number in range(BACKUPS):
                target = tmp_path / f"backup-{number}"
                before, acked = set(load.kept), set(load.acked)
                options = ["--copy"] if number % 2 else []
                code, out = await store_verb("backup", server.data_path, target, *options, "--json")
                assert code == 0, out
                assert json.loads(out)["damage"] == []
                backups.append((target, before, acked, set(load.kept)))
            nursery.cancel_scope.cancel()
    left = [int(each.name[4:24]) for each in server.data_path.glob("seg-*.seg")]
    server.stop()

    assert len(left) < max(left), "no segment was dropped beneath: nothing was tried"
    for target, before, acked, after in backups:
        code, out = await store_verb("verify", target)
        assert (code, out.count("note:")) == (0, 0), out
        kept, worked = await jobs_in(target, "kept", "worked")
        assert before <= kept
        assert len(kept - after) <= 3  # one a producer may have been on its way
        assert acked.isdisjoint(worked)
    # The server's own directory is as sound as its backups.
    code, out = await store_verb("verify", server.data_path)
    assert code == 0, out


async def test_a_backup_of_a_directory_that_was_killed_is_what_the_next_start_finds(
    start_server: StartServer, tmp_path: Path
) -> None:
    server = start_server(SMALL)
    async with connected(server.port) as client:
        ids = {await client.enqueue() for _ in range(50)}
    server.kill()

    code, out = await store_verb("backup", server.data_path, tmp_path / "copy")

    assert code == 0, out
    assert await jobs_in(tmp_path / "copy", "q") == [ids]
    server.start()
    server.stop()
