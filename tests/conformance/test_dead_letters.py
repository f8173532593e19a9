"""DrainDeadLetters: what it checks, what it takes and in which order, what a record holds."""

import time

import pytest
import trio
from purerpc import StatusCode

from sepp._generated import queue_pb2 as pb
from tests.conformance.client import (
    DEAD_LETTER,
    SocketClient,
    connected,
    in_ms,
    job,
    moment,
    payload,
    text,
)
from tests.conformance.conftest import Servers
from tests.e2e.server_process import ServerProcess

SETTINGS = {"limits": {"max_reserve_batch": 3}}
CAUSE = "DEAD_LETTER_CAUSE_"


async def bury(rpc: SocketClient, queue: str, count: int = 1) -> list[str]:
    """Make dead letters, one after the other; return their ids."""
    ids = []
    for _ in range(count):
        ids.append(await rpc.enqueue(queue))
        await rpc.nack(await rpc.take(queue), retry=DEAD_LETTER)
    return ids


@pytest.mark.parametrize(
    ("request_", "piece"),
    [
        (pb.DrainDeadLettersRequest(queue=""), "queue"),
        (pb.DrainDeadLettersRequest(max=0), "max"),
        (pb.DrainDeadLettersRequest(queue="", max=0), "queue"),
    ],
    ids=["queue is empty", "max is 0", "queue comes before max"],
)
async def test_it_is_an_invalid_argument_when(
    rpc: SocketClient, request_: pb.DrainDeadLettersRequest, piece: str
) -> None:
    code, told = await rpc.fault("DrainDeadLetters", request_)
    assert code is StatusCode.INVALID_ARGUMENT
    assert piece in told.split(";")[0]


async def test_records_are_gone_once_drained(rpc: SocketClient, queue: str) -> None:
    (job_id,) = await bury(rpc, queue)
    assert [record.job.id for record in await rpc.drain(queue)] == [job_id]
    assert await rpc.drain(queue) == []


async def test_unset_max_is_one(rpc: SocketClient, queue: str) -> None:
    await bury(rpc, queue, 2)
    assert len(await rpc.drain(queue, None)) == 1


async def test_max_is_cut_to_the_largest_batch(rpc: SocketClient, queue: str) -> None:
    ids = await bury(rpc, queue, 4)
    assert [record.job.id for record in await rpc.drain(queue, 4)] == ids[:3]
    assert [record.job.id for record in await rpc.drain(queue, 4)] == ids[3:]


async def test_the_oldest_failure_comes_first_whatever_the_priority(
    rpc: SocketClient, queue: str
) -> None:
    results = await rpc.batch(job(queue), job(queue, priority=9), job(queue, priority=5))
    found = {each.id: each for each in await rpc.reserve(queue, max_jobs=3)}
    ids = [result.success.job_id for result in results]
    for job_id in ids:
        await rpc.nack(found[job_id], retry=DEAD_LETTER)
        await wait_a_millisecond(rpc)
    assert [record.job.id for record in await rpc.drain(queue, 3)] == ids


async def wait_a_millisecond(rpc: SocketClient) -> None:
    """Let the server's clock move on."""
    start = in_ms((await rpc.info()).server_time)
    while in_ms((await rpc.info()).server_time) == start:
        pass


@pytest.mark.parametrize("name", ["never used", "a/b", ".", "x" * 9999])
async def test_a_queue_that_holds_nothing_is_an_empty_answer(rpc: SocketClient, name: str) -> None:
    assert await rpc.drain(name) == []


async def test_another_queue_is_left_alone(rpc: SocketClient, queue: str) -> None:
    await bury(rpc, f"{queue} too")
    assert await rpc.drain(queue) == []
    assert len(await rpc.drain(f"{queue} too")) == 1


async def test_without_a_queue_all_are_drained_oldest_first(servers: Servers) -> None:
    async with connected(servers.new({}).port) as rpc:
        ids = []
        for queue in ("b", "c", "a"):
            ids += await bury(rpc, queue)
            await wait_a_millisecond(rpc)
        assert [record.job.id for record in await rpc.drain()] == ids
        assert await rpc.drain() == []


async def test_a_record_holds_the_job_as_it_was_enqueued(rpc: SocketClient, queue: str) -> None:
    at = moment(1234)
    at.nanos += 7
    fields = {
        "payload": payload(b"\0\xff", "raw"),
        "priority": 4,
        "max_attempts": 2,
        "custom": {"k": text("größe"), "n": pb.PrimitiveValue(int_value=-1)},
        "trace_context": pb.TraceContext(traceparent="00-a-b-01", tracestate="s=1"),
        "scheduled_at": at,
    }
    job_id = await rpc.enqueue(queue, **fields)
    await rpc.nack(await rpc.take(queue), reason="one")
    found = await rpc.take(queue)
    before = time.time_ns() // 1_000_000
    await rpc.nack(found, reason="two")
    after = time.time_ns() // 1_000_000
    (record,) = await rpc.drain(queue)
    expected = pb.Job(
        id=job_id, job_type="test", queue=queue, attempt=2, enqueued_at=found.enqueued_at, **fields
    )
    expected.lease_expires_at.SetInParent()
    assert record.job == expected
    assert record.job.HasField("lease_expires_at")
    assert record.cause == pb.DEAD_LETTER_CAUSE_ATTEMPTS_EXHAUSTED
    assert record.final_attempt == 2
    assert before - 50 <= in_ms(record.failed_at) <= after + 50
    assert record.failed_at.nanos % 1_000_000 == 0
    assert record.last_reason == "two"


async def test_a_record_leaves_out_what_was_never_set(rpc: SocketClient, queue: str) -> None:
    await bury(rpc, queue)
    (record,) = await rpc.drain(queue)
    absent = ("payload", "trace_context", "scheduled_at")
    assert [name for name in absent if record.job.HasField(name)] == []
    assert len(record.job.custom) == 0
    assert not record.HasField("last_reason")


async def test_a_lease_that_ends_on_the_last_attempt_is_a_dead_letter_without_reason(
    rpc: SocketClient, queue: str
) -> None:
    job_id = await rpc.enqueue(queue, max_attempts=2)
    await rpc.nack(await rpc.take(queue), reason="earlier")
    await rpc.take(queue, lease_ms=1)
    (record,) = await until_drained(rpc, queue)
    assert record.job.id == job_id
    assert pb.DeadLetterCause.Name(record.cause) == CAUSE + "LEASE_EXPIRED"
    assert record.final_attempt == 2
    assert not record.HasField("last_reason")


async def until_drained(rpc: SocketClient, queue: str) -> list[pb.DeadLetterRecord]:
    """Drain until there is something; a test run's hang guard bounds it."""
    while not (records := await rpc.drain(queue)):
        await rpc.reserve(queue, wait_ms=5)
    return list(records)


async def test_without_retention_nothing_is_kept_but_the_answer_is_the_same(
    servers: Servers, queue: str
) -> None:
    settings = {"limits": {"allowed_encodings": []}, "storage": {"dead_letter_retention_ms": 0}}
    async with connected(servers.get(settings).port) as rpc:
        job_id = await rpc.enqueue(queue)
        found = await rpc.take(queue)
        assert await rpc.nack(found, retry=DEAD_LETTER) is True
        assert await rpc.drain(queue) == []
        code, _ = await rpc.fault("Ack", pb.AckRequest(job_id=job_id, attempt=1))
        assert code is StatusCode.NOT_FOUND


async def test_a_drain_is_logged_as_a_warning_with_queue_and_count(
    rpc: SocketClient, queue: str, server: ServerProcess
) -> None:
    await bury(rpc, queue, 2)
    await rpc.drain(queue)
    await trio.to_thread.run_sync(server.wait_until_says, f"queue={queue}")
    lines = [line for line in server.output.splitlines() if "drained" in line and queue in line]
    assert len(lines) == 1
    assert "count=2" in lines[0]
    assert "WARN" in lines[0].upper()


async def test_a_drain_that_finds_nothing_is_logged_too(
    rpc: SocketClient, queue: str, server: ServerProcess
) -> None:
    await rpc.drain(queue)
    await trio.to_thread.run_sync(server.wait_until_says, f"queue={queue}")
    lines = [line for line in server.output.splitlines() if "drained" in line and queue in line]
    assert [line.count("count=0") for line in lines] == [1]


async def test_a_drain_of_all_queues_is_logged_as_all(servers: Servers) -> None:
    server = servers.new({})
    async with connected(server.port) as rpc:
        await bury(rpc, "a")
        await rpc.drain()
    await trio.to_thread.run_sync(server.wait_until_says, "<all>")
    assert any("<all>" in line for line in server.output.splitlines() if "drained" in line)
