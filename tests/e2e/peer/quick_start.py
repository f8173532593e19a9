"""All that the official client's introduction shows, each as a test of its own.

Runs under the official client's Python, with SEPP_TEST_ADDR naming the server. Every test has a
queue of its own, so they share a server in any order.
"""

import asyncio
import os
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta

import pytest

from sepp import (
    AttemptMismatchError,
    BatchValidationError,
    DeadLetterCause,
    EnqueueAck,
    EnqueueRequest,
    HandlerError,
    Job,
    JobNotFoundError,
    JobRejectedError,
    Payload,
    PayloadTooLarge,
    ReserveOptions,
    RetryDirective,
    SeppClient,
    TraceContext,
    Worker,
)

LEASE = timedelta(seconds=30)
WAIT = timedelta(seconds=10)
NO_WAIT = timedelta(0)
TOO_LARGE = Payload(b"x" * (1024 * 1024 + 1), "text/plain")
TRACE = TraceContext("00-0123456789abcdef0123456789abcdef-0123456789abcdef-01")


@pytest.fixture
async def client() -> AsyncIterator[SeppClient]:
    connected = await SeppClient.connect(os.environ["SEPP_TEST_ADDR"])
    yield connected
    await connected.close()


@pytest.fixture
def queue() -> str:
    return f"quick-start-{uuid.uuid4()}"


async def reserve(
    client: SeppClient, queue: str, *, wait: timedelta = WAIT, max_jobs: int = 1
) -> list[Job]:
    options = ReserveOptions([queue], LEASE, wait_timeout=wait, max_jobs=max_jobs)
    return await client.reserve(options) or []


async def reserve_one(client: SeppClient, queue: str) -> Job:
    (job,) = await reserve(client, queue)
    return job


async def test_a_job_arrives_as_it_was_sent_and_is_gone_after_its_ack(
    client: SeppClient, queue: str
) -> None:
    before = datetime.now(UTC) - timedelta(seconds=1)
    custom = {"name": "Zoë", "count": -7, "share": 0.25, "is_new": True}
    request = EnqueueRequest(
        queue,
        "send",
        payload=Payload(b'{"user": 42}', "application/json"),
        priority=7,
        max_attempts=5,
        custom=custom,
        trace_context=TRACE,
    )
    ack = await client.enqueue(request)
    assert not ack.deduplicated

    job = await reserve_one(client, queue)
    assert job.payload == request.payload
    assert (job.ctx.id, job.ctx.queue, job.ctx.job_type) == (ack.job_id, queue, "send")
    assert (int(job.ctx.priority), job.ctx.attempt, job.ctx.max_attempts) == (7, 1, 5)
    assert job.ctx.custom == custom
    assert job.ctx.trace_context == TRACE
    assert job.ctx.scheduled_at is None
    assert before < job.ctx.enqueued_at < datetime.now(UTC) + timedelta(seconds=1)
    assert job.ctx.lease_expires_at > datetime.now(UTC) + LEASE / 2

    await client.ack(job.ctx)
    with pytest.raises(JobNotFoundError):
        await client.ack(job.ctx)
    assert await reserve(client, queue, wait=NO_WAIT) == []


async def test_a_batch_answers_for_each_of_its_jobs(client: SeppClient, queue: str) -> None:
    results = await client.enqueue_batch(
        [
            EnqueueRequest(queue, "a"),
            EnqueueRequest(queue, "b", payload=TOO_LARGE),
            EnqueueRequest(queue, "c"),
        ]
    )
    assert [type(result) for result in results] == [EnqueueAck, PayloadTooLarge, EnqueueAck]
    assert (results[1].limit, results[1].actual) == (1024 * 1024, 1024 * 1024 + 1)
    jobs = await reserve(client, queue, max_jobs=10)
    assert [job.ctx.job_type for job in jobs] == ["a", "c"]


async def test_a_single_refused_job_raises_why(client: SeppClient, queue: str) -> None:
    with pytest.raises(JobRejectedError) as caught:
        await client.enqueue(EnqueueRequest(queue, "big", payload=TOO_LARGE))
    assert isinstance(caught.value.rejection, PayloadTooLarge)


async def test_an_atomic_batch_is_stored_whole(client: SeppClient, queue: str) -> None:
    acks = await client.enqueue_atomic([EnqueueRequest(queue, str(n)) for n in range(5)])
    jobs = await reserve(client, queue, max_jobs=10)
    assert [job.ctx.id for job in jobs] == [ack.job_id for ack in acks]


async def test_an_atomic_batch_with_a_bad_job_is_not_stored_at_all(
    client: SeppClient, queue: str
) -> None:
    with pytest.raises(BatchValidationError) as caught:
        await client.enqueue_atomic(
            [EnqueueRequest(queue, "good"), EnqueueRequest(queue, "bad", payload=TOO_LARGE)]
        )
    assert [error.index for error in caught.value.errors] == [1]
    assert await reserve(client, queue, wait=NO_WAIT) == []


async def test_the_same_key_twice_is_one_job(client: SeppClient, queue: str) -> None:
    keyed = EnqueueRequest(queue, "once", idempotency_key="order-1")
    first = await client.enqueue(keyed)
    second = await client.enqueue(keyed)
    assert (first.deduplicated, second.deduplicated) == (False, True)
    assert second.job_id == first.job_id
    assert len(await reserve(client, queue, max_jobs=10)) == 1


async def test_a_scheduled_job_comes_when_it_is_due_and_not_before(
    client: SeppClient, queue: str
) -> None:
    due = datetime.now(UTC) + timedelta(seconds=1)
    await client.enqueue(EnqueueRequest(queue, "later", scheduled_at=due))
    assert await reserve(client, queue, wait=NO_WAIT) == []
    job = await reserve_one(client, queue)
    assert datetime.now(UTC) >= due - timedelta(milliseconds=1)
    assert job.ctx.scheduled_at == due


async def test_priority_goes_before_age_and_age_before_youth(
    client: SeppClient, queue: str
) -> None:
    for job_type, priority in [("old", 0), ("urgent", 9), ("young", 0), ("soon", 5)]:
        await client.enqueue(EnqueueRequest(queue, job_type, priority=priority))
    jobs = await reserve(client, queue, max_jobs=10)
    assert [job.ctx.job_type for job in jobs] == ["urgent", "soon", "old", "young"]


async def test_a_waiting_reserve_gets_the_job_that_comes(client: SeppClient, queue: str) -> None:
    waiting = asyncio.create_task(reserve_one(client, queue))
    ack = await client.enqueue(EnqueueRequest(queue, "awaited"))
    assert (await waiting).ctx.id == ack.job_id


async def test_a_default_nack_tries_again_at_once(client: SeppClient, queue: str) -> None:
    await client.enqueue(EnqueueRequest(queue, "flaky"))
    first = await reserve_one(client, queue)
    assert not await client.nack(first.ctx, RetryDirective.DEFAULT, "not yet")
    second = await reserve_one(client, queue)
    assert (second.ctx.id, second.ctx.attempt) == (first.ctx.id, 2)
    with pytest.raises(AttemptMismatchError):
        await client.ack(first.ctx)
    await client.ack(second.ctx)


async def test_a_nack_with_a_delay_tries_again_after_it(client: SeppClient, queue: str) -> None:
    await client.enqueue(EnqueueRequest(queue, "flaky"))
    first = await reserve_one(client, queue)
    due = datetime.now(UTC) + timedelta(milliseconds=700)
    assert not await client.nack(first.ctx, RetryDirective.after(timedelta(milliseconds=700)))
    assert await reserve(client, queue, wait=NO_WAIT) == []
    second = await reserve_one(client, queue)
    assert datetime.now(UTC) >= due - timedelta(milliseconds=1)
    assert second.ctx.attempt == 2


async def test_a_nack_to_dead_letter_is_drained_with_its_reason(
    client: SeppClient, queue: str
) -> None:
    request = EnqueueRequest(queue, "poison", payload=Payload(b"?", "x"), custom={"k": "v"})
    ack = await client.enqueue(request)
    job = await reserve_one(client, queue)
    assert await client.nack(job.ctx, RetryDirective.DEAD_LETTER, "cannot be done")

    (record,) = await client.drain_dead_letters(queue, max_records=10)
    assert (record.job_id, record.queue, record.job_type) == (ack.job_id, queue, "poison")
    assert (record.payload, record.custom) == (request.payload, request.custom)
    assert (record.cause, record.final_attempt) == (DeadLetterCause.REJECTED, 1)
    assert record.last_reason == "cannot be done"
    assert await client.drain_dead_letters(queue, max_records=10) == []


async def test_a_nack_of_the_last_attempt_buries_whatever_it_asks_for(
    client: SeppClient, queue: str
) -> None:
    await client.enqueue(EnqueueRequest(queue, "hopeless", max_attempts=2))
    first = await reserve_one(client, queue)
    assert not await client.nack(first.ctx)
    second = await reserve_one(client, queue)
    assert await client.nack(second.ctx, RetryDirective.after(timedelta(seconds=1)))
    (record,) = await client.drain_dead_letters(queue)
    assert (record.cause, record.final_attempt) == (DeadLetterCause.ATTEMPTS_EXHAUSTED, 2)
    assert record.last_reason is None


async def test_a_drained_job_can_be_sent_again(client: SeppClient, queue: str) -> None:
    await client.enqueue(EnqueueRequest(queue, "second chance", max_attempts=1))
    await client.nack((await reserve_one(client, queue)).ctx)
    (record,) = await client.drain_dead_letters(queue)
    ack = await client.enqueue(record.to_enqueue_request())
    job = await reserve_one(client, queue)
    assert (job.ctx.id, job.ctx.attempt) == (ack.job_id, 1)


async def test_extend_moves_the_end_of_the_lease(client: SeppClient, queue: str) -> None:
    await client.enqueue(EnqueueRequest(queue, "long"))
    job = await reserve_one(client, queue)
    extended = await job.ctx.extend(timedelta(seconds=120))
    assert extended > job.ctx.lease_expires_at + timedelta(seconds=60)
    await client.ack(job.ctx)
    with pytest.raises(JobNotFoundError):
        await job.ctx.extend(LEASE)


async def test_server_info_tells_version_clock_and_limits(client: SeppClient) -> None:
    info = await client.get_server_info()
    assert info.supported_protocol_versions == ["v1"]
    assert abs(info.server_time - datetime.now(UTC)) < timedelta(seconds=10)
    assert (info.restricts_encodings, info.allowed_encodings) == (False, [])
    assert info.max_payload_bytes == 1024 * 1024
    assert info.max_lease_duration == timedelta(minutes=5)
    assert (info.strict_queues, info.dead_letter_retention_enabled) == (False, True)


async def run_worker(
    client: SeppClient, queue: str, handlers: dict[str, Callable[[object, object], Awaitable]]
) -> tuple[Worker, asyncio.Task[None]]:
    worker = Worker(client, [queue], LEASE, wait_timeout=timedelta(seconds=1), max_in_flight=4)
    for job_type, handler in handlers.items():
        worker.handle(job_type, handler)
    return worker, asyncio.create_task(worker.run())


async def test_a_worker_works_everything_once(client: SeppClient, queue: str) -> None:
    acks = await client.enqueue_batch([EnqueueRequest(queue, "n") for _ in range(20)])
    seen: list[str] = []
    all_seen = asyncio.Event()

    async def handle(_payload: object, ctx: object) -> None:
        seen.append(ctx.id)
        if len(seen) == len(acks):
            all_seen.set()

    worker, running = await run_worker(client, queue, {"n": handle})
    await all_seen.wait()
    worker.shutdown_handle().shutdown()
    await running
    assert sorted(seen) == sorted(ack.job_id for ack in acks)
    assert await reserve(client, queue, wait=NO_WAIT) == []


async def test_a_worker_retries_what_fails_and_buries_what_is_hopeless(
    client: SeppClient, queue: str
) -> None:
    await client.enqueue(EnqueueRequest(queue, "flaky"))
    await client.enqueue(EnqueueRequest(queue, "hopeless"))
    attempts: list[int] = []
    worked = asyncio.Event()
    buried = asyncio.Event()

    async def flaky(_payload: object, ctx: object) -> None:
        attempts.append(ctx.attempt)
        if ctx.attempt < 3:
            raise HandlerError.retry("once more")
        worked.set()

    async def hopeless(_payload: object, _ctx: object) -> None:
        buried.set()
        raise HandlerError.permanent("no")

    worker, running = await run_worker(client, queue, {"flaky": flaky, "hopeless": hopeless})
    await worked.wait()
    await buried.wait()
    worker.shutdown_handle().shutdown()
    await running
    assert attempts == [1, 2, 3]
    (record,) = await client.drain_dead_letters(queue, max_records=10)
    assert (record.job_type, record.last_reason) == ("hopeless", "no")
