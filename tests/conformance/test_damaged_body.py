"""A byte of a stored body flips: its job is kept out of delivery, and every other is delivered."""

import os
import time
from pathlib import Path

import pytest
import trio
import trio.testing
from purerpc import StatusCode
from trio.testing import MockClock

from sepp._generated import queue_pb2 as pb
from sepp.core.commands import Purge
from sepp.core.slots import ASIDE
from sepp.wire import id_bytes
from tests.conformance.client import DEAD_LETTER, Client, SocketClient, connected, job, payload
from tests.conformance.conftest import Servers
from tests.conformance.local import LocalClient, Place
from tests.e2e.server_process import ServerProcess

MARK = b"the body that will be damaged"
# Nothing is served from RAM: each delivery reads the disk.
UNCACHED = {"storage": {"cache_size_bytes": 1, "dead_letter_retention_ms": 3_600_000}}
LINE = "job body damaged; kept out of delivery"


def flip(directory: Path) -> None:
    """Change one byte of the marked body in its segment file."""
    for path in directory.rglob("*.seg"):
        at = path.read_bytes().find(MARK)
        if at >= 0:
            with path.open("r+b", buffering=0) as file:
                file.seek(at)
                file.write(b"T")
                os.fsync(file.fileno())
            return
    raise AssertionError("no segment holds the body")


async def put_three(rpc: Client, queue: str) -> list[str]:
    """Enqueue three jobs; the second holds the mark."""
    bodies = (b"first", MARK, b"third")
    results = await rpc.batch(*[job(queue, payload=payload(body)) for body in bodies])
    return [result.success.job_id for result in results]


@pytest.fixture
def damaged(servers: Servers) -> ServerProcess:
    """A server of the test's own that keeps no body in RAM."""
    return servers.new(UNCACHED)


async def test_the_others_are_delivered_and_it_is_logged_once(damaged: ServerProcess) -> None:
    async with connected(damaged.port) as rpc:
        ids = await put_three(rpc, "q")
        flip(damaged.data_path)
        found = await rpc.reserve("q", max_jobs=3)
        assert [each.id for each in found] == [ids[0], ids[2]]
        assert await rpc.reserve("q", max_jobs=3) == []
        code, _ = await rpc.fault("Ack", pb.AckRequest(job_id=ids[1], attempt=1))
        assert code is StatusCode.NOT_FOUND
    lines = [line for line in damaged.output.splitlines() if LINE in line]
    assert len(lines) == 1
    assert ids[1] in lines[0]
    assert ".seg" in lines[0]


async def test_it_does_not_come_back_when_a_lease_would_have_ended(damaged: ServerProcess) -> None:
    async with connected(damaged.port) as rpc:
        await put_three(rpc, "q")
        flip(damaged.data_path)
        for each in await rpc.reserve("q", max_jobs=3, lease_ms=30):
            await rpc.ack(each)
        assert await rpc.reserve("q", wait_ms=300) == []
    assert damaged.output.count(LINE) == 1


async def test_it_is_still_kept_out_after_a_kill_and_told_of_at_the_start(
    damaged: ServerProcess,
) -> None:
    async with connected(damaged.port) as rpc:
        ids = await put_three(rpc, "q")
        flip(damaged.data_path)
        await rpc.reserve("q", max_jobs=2)
        await rpc.info()
        # The state that keeps it out is a write of its own: any later commit carries it.
        await rpc.enqueue("other")
    damaged.kill()
    damaged.start()
    async with connected(damaged.port) as rpc:
        assert [each.id for each in await rpc.reserve("q", max_jobs=9)] == [ids[2]]
    assert "jobs with damaged bodies are kept out of delivery" in damaged.output
    assert "aside=1" in damaged.output


async def test_damage_done_while_the_server_was_down_is_found_too(damaged: ServerProcess) -> None:
    async with connected(damaged.port) as rpc:
        ids = await put_three(rpc, "q")
    damaged.stop()
    flip(damaged.data_path)
    damaged.start()
    async with connected(damaged.port) as rpc:
        found = await rpc.reserve("q", max_jobs=9)
    assert [each.id for each in found] == [ids[0], ids[2]]


async def test_a_damaged_dead_letter_is_drained_with_what_is_known_of_it(
    damaged: ServerProcess,
) -> None:
    async with connected(damaged.port) as rpc:
        job_id = await rpc.enqueue("q", payload=payload(MARK))
        await rpc.nack(await rpc.take("q"), retry=DEAD_LETTER, reason="why")
        flip(damaged.data_path)
        (record,) = await rpc.drain("q")
    assert (record.job.id, record.job.queue, record.last_reason) == (job_id, "q", "why")
    assert record.job.job_type  # clients demand one
    assert record.cause == pb.DEAD_LETTER_CAUSE_REJECTED


def aside(rpc: LocalClient) -> int:
    """How many jobs are set aside."""
    return rpc.machine.statistics().aside


def flip_in_ram(place: Place) -> None:
    """Change the marked body on the simulated disk."""
    for path, content in place.disk.visible_files().items():
        at = content.find(MARK)
        if at >= 0:
            file = place.disk.open(path)
            file.pwritev([b"T"], at)
            file.fsync()
            return
    raise AssertionError("no segment holds the body")


async def test_it_is_counted_listed_and_purged_and_its_place_under_the_cap_is_free(
    autojump_clock: MockClock,
) -> None:
    place = Place(UNCACHED | {"limits": {"max_queue_depth": 3}})
    async with place.serving() as rpc:
        ids = await put_three(rpc, "q")
        await rpc.enqueue("other")  # damage in the very last batch would look like a torn write
    flip_in_ram(place)
    async with place.serving() as rpc:
        assert aside(rpc) == 0
        await rpc.reserve("q", max_jobs=3)
        await trio.testing.wait_all_tasks_blocked()
        assert aside(rpc) == 1
        row = rpc.machine.job_row(id_bytes(ids[1]) or b"")
        assert row is not None
        assert row.state == ASIDE
        await rpc.enqueue("q")
        assert (await rpc.rejection("q")).WhichOneof("reason") == "queue_full"
    async with place.serving() as rpc:
        assert aside(rpc) == 1
        await trio.sleep(3_600)
        await rpc.run(Purge("q", spares_leased=True))
        assert aside(rpc) == 0


async def test_a_waiter_that_is_given_only_a_damaged_job_is_answered_empty(
    autojump_clock: MockClock,
) -> None:
    place = Place(UNCACHED)
    async with place.serving() as rpc:
        await rpc.enqueue("q", payload=payload(MARK))
        await rpc.nack(await rpc.take("q"), retry=pb.NackRetry(delay={"seconds": 60}))
    flip_in_ram(place)
    async with place.serving() as rpc:
        assert await rpc.reserve("q", wait_ms=200_000) == []
        await trio.testing.wait_all_tasks_blocked()
        assert aside(rpc) == 1


async def test_an_undamaged_server_logs_no_damage(rpc: SocketClient, server: ServerProcess) -> None:
    await put_three(rpc, f"q{time.monotonic_ns()}")
    assert LINE not in server.output
