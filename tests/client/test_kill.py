"""SIGKILL and restart of the server in the middle of a worker's jobs.

All jobs get done and none is lost. A job is done again only where at-least-once allows it: under a
later attempt, because the worker could not report the one before. How many is printed.
"""

import socket
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest
import trio

from sepp.client import EnqueueRequest, JobCtx, Payload, RetryPolicy, SeppClient, Worker
from tests.cli.verbs import Verbs
from tests.e2e.conftest import StartServer
from tests.e2e.server_process import ServerProcess

GUARD_S = 120
LEASE = timedelta(seconds=4)
BATCH = 250
PATIENT = RetryPolicy(
    max_attempts=50,
    initial_backoff=timedelta(milliseconds=20),
    max_backoff=timedelta(milliseconds=500),
)


def free_port() -> int:
    """Return a port for a server that is to come back on it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def kill_and_restart(server: ServerProcess) -> None:
    """Kill the server and start it on the same data and port."""
    await trio.to_thread.run_sync(server.kill)
    await trio.to_thread.run_sync(server.start)


@pytest.mark.parametrize(
    ("job_count", "kill_count"),
    [(2_000, 3), pytest.param(10_000, 10, marks=pytest.mark.long)],
)
async def test_a_worker_outlives_its_server(
    start_server: StartServer, job_count: int, kill_count: int
) -> None:
    limits = {"default_max_attempts": 1000, "max_attempts_ceiling": 1000}
    server = start_server({"server": {"listen_addr": f"127.0.0.1:{free_port()}"}, "limits": limits})
    done: Counter[bytes] = Counter()
    attempts: set[tuple[str, int]] = set()
    acks: set[str] = set()
    progress = trio.Event()

    async with SeppClient.connect(server.address, retry_policy=PATIENT) as client:
        for first in range(0, job_count, BATCH):
            jobs = [
                EnqueueRequest(
                    "q", "t", Payload(b"%d" % number, "text"), idempotency_key=f"{number}"
                )
                for number in range(first, first + BATCH)
            ]
            acks |= {ack.job_id for ack in await client.enqueue_atomic(jobs)}
        worker = Worker(
            client, ["q"], LEASE, max_in_flight=32, reserve_error_backoff=timedelta(seconds=0.05)
        )

        @worker.handler("t")
        async def do(payload: Payload | None, ctx: JobCtx) -> None:
            nonlocal progress
            assert payload is not None
            assert (ctx.id, ctx.attempt) not in attempts
            attempts.add((ctx.id, ctx.attempt))
            done[payload.data] += 1
            progress.set()
            progress = trio.Event()

        async def kill() -> None:
            for number in range(1, kill_count + 1):
                while len(done) < job_count * number // (kill_count + 1):
                    await progress.wait()
                await kill_and_restart(server)
            while len(done) < job_count:
                await progress.wait()
            worker.shutdown_handle().shutdown()

        with trio.fail_after(GUARD_S * kill_count):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(kill)
                await worker.run()

    print(f"{job_count} jobs, {kill_count} kills, {done.total() - job_count} repeats")
    assert {job_id for job_id, _ in attempts} == acks
    assert set(done) == {b"%d" % number for number in range(job_count)}


@pytest.mark.parametrize(
    ("job_count", "kill_count"),
    [(200, 2), pytest.param(10_000, 10, marks=pytest.mark.long)],
)
def test_work_exec_outlives_its_server(
    start_server: StartServer, tmp_path: Path, job_count: int, kill_count: int
) -> None:
    limits = {"default_max_attempts": 1000, "max_attempts_ceiling": 1000}
    server = start_server({"server": {"listen_addr": f"127.0.0.1:{free_port()}"}, "limits": limits})
    log = tmp_path / "log"
    log.touch()
    with SeppClient.sync(server.address) as client:
        for _ in range(0, job_count, 100):
            client.enqueue_atomic([EnqueueRequest("q", "t")] * 100)
    # One short line a job, appended in one write: the shells do not mix theirs.
    verbs = Verbs(tmp_path, "--addr", server.address)
    program = "sh -c 'echo $SEPP_JOB_ID $SEPP_ATTEMPT >> log; echo'"
    worker = verbs.start("work", "q", "--exec", program, "--concurrency", "4", "--lease", "4s")
    try:
        assert worker.stdout is not None
        done: set[str] = set()
        kills = 0
        for _ in worker.stdout:
            done = {line.split()[0] for line in log.read_text().splitlines()}
            if kills < kill_count and len(done) >= job_count * (kills + 1) // (kill_count + 1):
                kills += 1
                server.kill()
                server.start()
            if len(done) == job_count:
                break
        worker.terminate()
        _, err = worker.communicate(timeout=GUARD_S)
    finally:
        worker.kill()

    assert worker.returncode == 0, err
    lines = log.read_text().splitlines()
    print(f"{job_count} jobs, {kills} kills, {len(lines) - job_count} repeats")
    assert (len(done), kills) == (job_count, kill_count)
    assert len(set(lines)) == len(lines), "an attempt was delivered twice"
