"""EnqueueBatch: the request as a whole, the checks of the commit, what is filled in."""

import re
import time
from typing import Any

import pytest
import trio
from google.protobuf.timestamp_pb2 import Timestamp
from purerpc import StatusCode

from sepp._generated import queue_pb2 as pb
from tests.conformance.client import SocketClient, in_ms, job, moment
from tests.e2e.server_process import ServerProcess

SETTINGS = {
    "limits": {
        "max_enqueue_batch": 4,
        "default_priority": 2,
        "default_max_attempts": 4,
        "max_attempts_ceiling": 6,
    },
    "queues": [
        {"name": "own", "default_priority": 7, "default_max_attempts": 2},
        {"name": "low", "max_attempts_ceiling": 5, "default_max_attempts": 5},
        {"name": "capped", "max_queue_depth": 2},
        {"name": "capped too", "max_queue_depth": 2},
        {"name": "shut", "max_queue_depth": 0},
    ],
}
BOTH = ["EnqueueBatch", "EnqueueAtomic"]


@pytest.mark.parametrize("method", BOTH)
async def test_an_empty_batch_is_an_invalid_argument(rpc: SocketClient, method: str) -> None:
    code, text = await rpc.fault(method, pb.EnqueueBatchRequest())
    assert code is StatusCode.INVALID_ARGUMENT
    assert "at least one job" in text


@pytest.mark.parametrize("method", BOTH)
async def test_a_batch_beyond_the_limit_is_an_invalid_argument(
    rpc: SocketClient, queue: str, method: str
) -> None:
    request = pb.EnqueueBatchRequest(jobs=[job(queue)] * 5)
    code, text = await rpc.fault(method, request)
    assert code is StatusCode.INVALID_ARGUMENT
    assert "max_enqueue_batch" in text
    assert "4" in text
    assert await rpc.reserve(queue, max_jobs=9) == []


@pytest.mark.parametrize("method", BOTH)
async def test_the_size_of_a_batch_is_asked_before_its_jobs(rpc: SocketClient, method: str) -> None:
    code, _ = await rpc.fault(method, pb.EnqueueBatchRequest(jobs=[job("")] * 5))
    assert code is StatusCode.INVALID_ARGUMENT


async def test_a_batch_of_exactly_the_limit_is_stored(rpc: SocketClient, queue: str) -> None:
    results = await rpc.batch(*[job(queue)] * 4)
    found = await rpc.reserve(queue, max_jobs=9)
    assert [each.id for each in found] == [result.success.job_id for result in results]


async def test_an_id_is_a_lower_case_hyphenated_version_4_uuid(
    rpc: SocketClient, queue: str
) -> None:
    pattern = r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
    ids = [result.success.job_id for result in await rpc.batch(*[job(queue)] * 4)]
    assert all(re.fullmatch(pattern, each) for each in ids)
    assert len(set(ids)) == 4


# Fact -> the queue, what the request says, priority and max_attempts of the job.
DEFAULTS: dict[str, tuple[str, dict[str, Any], tuple[int, int]]] = {
    "the request wins": ("q-a", {"priority": 0, "max_attempts": 1}, (0, 1)),
    "the global defaults fill in": ("q-b", {}, (2, 4)),
    "the queue's defaults come before the global ones": ("own", {}, (7, 2)),
    "the request wins over the queue's defaults": (
        "own",
        {"priority": 1, "max_attempts": 3},
        (1, 3),
    ),
    "the ceiling itself is allowed": ("q-c", {"max_attempts": 6}, (2, 6)),
    "more than the ceiling is cut to it": ("q-d", {"max_attempts": 7}, (2, 6)),
    "the queue's ceiling cuts": ("low", {"max_attempts": 6}, (2, 5)),
    "the queue's default is not cut by its own ceiling": ("low", {}, (2, 5)),
}


@pytest.mark.parametrize("fact", DEFAULTS)
async def test_what_a_job_is_given(rpc: SocketClient, fact: str) -> None:
    queue, fields, given = DEFAULTS[fact]
    await rpc.enqueue(queue, **fields)
    found = await rpc.take(queue)
    assert (found.priority, found.max_attempts) == given
    await rpc.ack(found)


async def test_enqueued_at_is_the_servers_clock_in_milliseconds(
    rpc: SocketClient, queue: str
) -> None:
    before = time.time_ns() // 1_000_000
    await rpc.enqueue(queue)
    after = time.time_ns() // 1_000_000
    at = (await rpc.take(queue)).enqueued_at
    assert before - 50 <= in_ms(at) <= after + 50
    assert at.nanos % 1_000_000 == 0


READY_AT_ONCE = {
    "now": lambda now: moment(now),
    "the past": lambda now: moment(now - 1),
    "the epoch": lambda now: moment(0),
    "before the epoch": lambda now: moment(-1),
    "the least there is": lambda now: Timestamp(seconds=-(2**63)),
    "a moment with nanos below zero": lambda now: Timestamp(seconds=5, nanos=-7),
}


@pytest.mark.parametrize("when", READY_AT_ONCE)
async def test_a_job_scheduled_at_this_time_is_ready_at_once(
    rpc: SocketClient, queue: str, when: str
) -> None:
    at = READY_AT_ONCE[when](time.time_ns() // 1_000_000)
    job_id = await rpc.enqueue(queue, scheduled_at=at)
    found = await rpc.take(queue)
    assert (found.id, found.scheduled_at) == (job_id, at)


async def test_a_job_scheduled_for_later_is_not_ready(rpc: SocketClient, queue: str) -> None:
    at = moment(time.time_ns() // 1_000_000 + 60_000)
    await rpc.enqueue(queue, scheduled_at=at)
    assert await rpc.reserve(queue) == []


async def test_a_known_key_is_a_success_with_the_first_id(rpc: SocketClient, queue: str) -> None:
    first = await rpc.enqueue(queue, idempotency_key="k")
    (again,) = await rpc.batch(job(queue, job_type="other", idempotency_key="k", priority=9))
    assert again.success == pb.EnqueueResponse(job_id=first, deduplicated=True)
    found = await rpc.reserve(queue, max_jobs=9)
    assert [(each.id, each.job_type, each.priority) for each in found] == [(first, "test", 2)]


async def test_a_job_that_breaks_a_limit_is_rejected_although_its_key_is_known(
    rpc: SocketClient, queue: str
) -> None:
    await rpc.enqueue(queue, idempotency_key="k")
    rejection = await rpc.rejection(queue, idempotency_key="k", priority=10)
    assert rejection.WhichOneof("reason") == "invalid_request"


async def test_the_cap_counts_jobs_of_the_same_batch(rpc: SocketClient) -> None:
    results = await rpc.batch(*[job("capped")] * 3)
    assert [each.WhichOneof("outcome") for each in results] == ["success", "success", "rejection"]
    assert results[2].rejection.queue_full == pb.QueueFull(queue="capped", limit=2)


async def test_a_known_key_is_a_success_in_a_full_queue(rpc: SocketClient) -> None:
    queue = "capped too"
    first = await rpc.enqueue(queue, idempotency_key="k")
    results = await rpc.batch(job(queue), job(queue, idempotency_key="k"), job(queue))
    assert [each.WhichOneof("outcome") for each in results] == ["success", "success", "rejection"]
    assert results[1].success == pb.EnqueueResponse(job_id=first, deduplicated=True)


async def test_a_cap_of_zero_refuses_every_job(rpc: SocketClient) -> None:
    rejection = await rpc.rejection("shut")
    assert rejection == pb.JobRejection(queue_full=pb.QueueFull(queue="shut", limit=0))


async def test_results_stand_in_the_order_of_the_jobs(rpc: SocketClient, queue: str) -> None:
    results = await rpc.batch(
        job(queue, priority=10), job(queue), job("shut"), job(queue, idempotency_key="")
    )
    told = [each.rejection.WhichOneof("reason") for each in results]
    assert told == ["invalid_request", None, "queue_full", "invalid_request"]


async def test_a_rejected_job_leaves_no_key_behind(rpc: SocketClient, queue: str) -> None:
    await rpc.rejection("shut", idempotency_key="k")
    await rpc.rejection(queue, idempotency_key="k", priority=10)
    await rpc.enqueue(queue, idempotency_key="k")


async def test_rejections_are_logged_with_queue_type_and_reason(
    rpc: SocketClient, queue: str, server: ServerProcess
) -> None:
    await rpc.rejection(queue, priority=10)
    await trio.to_thread.run_sync(server.wait_until_says, f"queue={queue}")
    (line,) = [line for line in server.output.splitlines() if f"queue={queue}" in line]
    assert "enqueue rejected" in line
    assert "reason=invalid_request" in line
