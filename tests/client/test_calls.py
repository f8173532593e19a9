"""Every call of the client against a real server: what the official client's own tests check."""

from datetime import UTC, datetime, timedelta

import pytest

from sepp import __version__
from sepp.client import (
    AttemptMismatchError,
    BatchValidationError,
    DeadLetterCause,
    EmptyBatchError,
    EnqueueAck,
    EnqueueRequest,
    InvalidRequest,
    Job,
    JobNotFoundError,
    JobRejectedError,
    Payload,
    PayloadTooLarge,
    Priority,
    ReserveOptions,
    RetryDirective,
    SeppClient,
    TraceContext,
)

SECOND = timedelta(seconds=1)


async def lease(client: SeppClient, queue: str, wait: timedelta = 5 * SECOND) -> Job:
    """Reserve one job that must be there."""
    jobs = await client.reserve(ReserveOptions([queue], 30 * SECOND, wait))
    assert jobs is not None
    assert len(jobs) == 1
    return jobs[0]


async def test_server_info_tells_version_and_limits(client: SeppClient) -> None:
    info = await client.get_server_info()

    assert info.version == __version__
    assert info.supported_protocol_versions == ["v1"]
    assert info.max_enqueue_batch > 0
    assert info.max_reserve_batch > 0
    assert info.max_lease_duration > SECOND
    assert info.dead_letter_retention_enabled


async def test_a_job_without_payload_is_stored(client: SeppClient, queue: str) -> None:
    ack = await client.enqueue(EnqueueRequest(queue, "test"))

    assert len(ack.job_id) == 36
    assert not ack.deduplicated
    assert (await lease(client, queue)).payload is None


async def test_a_batch_is_answered_in_order(client: SeppClient, queue: str) -> None:
    results = await client.enqueue_batch([EnqueueRequest(queue, "test")] * 3)

    assert [type(result) for result in results] == [EnqueueAck] * 3


async def test_an_atomic_batch_is_stored_as_a_whole(client: SeppClient, queue: str) -> None:
    acks = await client.enqueue_atomic([EnqueueRequest(queue, "test")] * 2)

    assert len({ack.job_id for ack in acks}) == 2


async def test_an_empty_batch_is_not_sent(client: SeppClient) -> None:
    with pytest.raises(EmptyBatchError):
        await client.enqueue_batch([])
    with pytest.raises(EmptyBatchError):
        await client.enqueue_atomic([])


async def test_the_same_key_gives_the_same_job(client: SeppClient, queue: str) -> None:
    first = await client.enqueue(EnqueueRequest(queue, "test", idempotency_key="42"))
    second = await client.enqueue(EnqueueRequest(queue, "test", idempotency_key="42"))

    assert second == EnqueueAck(first.job_id, deduplicated=True)


async def test_nothing_to_reserve_is_none(client: SeppClient, queue: str) -> None:
    assert await client.reserve(ReserveOptions([queue], SECOND, SECOND / 10)) is None


async def test_a_job_arrives_as_it_was_sent_and_is_acked(client: SeppClient, queue: str) -> None:
    before = datetime.now(UTC) - SECOND
    trace = TraceContext("00-0123456789abcdef0123456789abcdef-0123456789abcdef-01", "a=b")
    custom = {"text": "ä", "number": -7, "double": 1.5, "truth": True}
    request = EnqueueRequest(
        queue,
        "greet",
        Payload(b"{}", "application/json"),
        priority=7,
        max_attempts=3,
        custom=custom,
        trace_context=trace,
    )
    ack = await client.enqueue(request)

    job = await lease(client, queue)

    assert job.payload == Payload(b"{}", "application/json")
    ctx = job.ctx
    assert (ctx.id, ctx.queue, ctx.job_type) == (ack.job_id, queue, "greet")
    assert (ctx.attempt, ctx.max_attempts, ctx.priority) == (1, 3, Priority.P7)
    assert ctx.custom == custom
    assert type(ctx.custom["truth"]) is bool
    assert ctx.trace_context == trace
    assert before < ctx.enqueued_at < ctx.lease_expires_at
    assert ctx.scheduled_at is None
    await client.ack(ctx)
    with pytest.raises(JobNotFoundError):
        await client.ack(ctx)


async def test_a_nacked_job_comes_again_under_the_next_attempt(
    client: SeppClient, queue: str
) -> None:
    await client.enqueue(EnqueueRequest(queue, "retry-me"))
    first = (await lease(client, queue)).ctx

    assert not await client.nack(first, RetryDirective.DEFAULT, "passing")

    second = (await lease(client, queue)).ctx
    assert (second.id, second.attempt) == (first.id, 2)
    with pytest.raises(AttemptMismatchError):
        await client.ack(first)
    await client.ack(second)


async def test_a_nack_may_ask_for_a_delay(client: SeppClient, queue: str) -> None:
    await client.enqueue(EnqueueRequest(queue, "later"))
    ctx = (await lease(client, queue)).ctx

    assert not await client.nack(ctx, RetryDirective.after(3600 * SECOND))

    assert await client.reserve(ReserveOptions([queue], SECOND, timedelta(0))) is None


async def test_a_dead_letter_can_be_drained_and_sent_again(client: SeppClient, queue: str) -> None:
    request = EnqueueRequest(queue, "dl", Payload(b"x", "text"), max_attempts=4, custom={"a": 1})
    ack = await client.enqueue(request)
    ctx = (await lease(client, queue)).ctx

    assert await client.nack(ctx, RetryDirective.DEAD_LETTER, "no use")

    assert await client.reserve(ReserveOptions([queue], SECOND, timedelta(0))) is None
    (record,) = await client.drain_dead_letters(queue, 10)
    assert (record.job_id, record.cause) == (ack.job_id, DeadLetterCause.REJECTED)
    assert (record.final_attempt, record.last_reason) == (1, "no use")
    assert record.failed_at >= record.enqueued_at
    assert await client.drain_dead_letters(queue, 10) == []
    request.priority = record.priority
    assert record.to_enqueue_request() == request


async def test_the_last_attempt_dies_of_any_nack(client: SeppClient, queue: str) -> None:
    await client.enqueue(EnqueueRequest(queue, "dl", max_attempts=1))

    assert await client.nack((await lease(client, queue)).ctx)

    (record,) = await client.drain_dead_letters(queue)
    assert (record.cause, record.last_reason) == (DeadLetterCause.ATTEMPTS_EXHAUSTED, None)


async def test_a_lease_can_be_extended_from_client_and_job(client: SeppClient, queue: str) -> None:
    await client.enqueue(EnqueueRequest(queue, "long"))
    jobs = await client.reserve(ReserveOptions([queue], 2 * SECOND, 5 * SECOND))
    assert jobs is not None
    ctx = jobs[0].ctx

    first = await client.extend(ctx, 30 * SECOND)
    second = await ctx.extend(90 * SECOND)

    assert datetime.now(UTC) + 25 * SECOND < first < second - 50 * SECOND
    assert ctx.lease_expires_at == second
    await client.ack(ctx)


async def test_a_scheduled_job_waits(client: SeppClient, queue: str) -> None:
    at = datetime.now(UTC) + 3600 * SECOND
    await client.enqueue(EnqueueRequest(queue, "later", scheduled_at=at))
    past = datetime(1969, 1, 1, tzinfo=UTC)
    ack = await client.enqueue(EnqueueRequest(queue, "at once", scheduled_at=past))

    assert (await lease(client, queue)).ctx.id == ack.job_id
    assert await client.reserve(ReserveOptions([queue], SECOND, timedelta(0))) is None


async def test_a_refused_job_says_why(client: SeppClient, queue: str) -> None:
    size = (await client.get_server_info()).max_payload_bytes + 1
    large = EnqueueRequest(queue, "t", Payload(b"x" * size, "text"))
    empty = EnqueueRequest(queue, "t", Payload(b"", "text"))
    good = EnqueueRequest(queue, "t")

    results = await client.enqueue_batch([large, good, empty])

    assert results[0] == PayloadTooLarge(limit=size - 1, actual=size)
    assert isinstance(results[1], EnqueueAck)
    assert isinstance(results[2], InvalidRequest)
    with pytest.raises(JobRejectedError, match=str(size)) as one:
        await client.enqueue(large)
    assert one.value.rejection == results[0]
    with pytest.raises(BatchValidationError) as all_or_none:
        await client.enqueue_atomic([good, large])
    assert [(e.index, e.rejection) for e in all_or_none.value.errors] == [(1, results[0])]


async def test_limits_can_be_held_on_this_side(shared: object, queue: str) -> None:
    address = shared.address  # type: ignore[attr-defined]  a ServerProcess
    async with SeppClient.connect(address, check_limits=True) as checking:
        info = await checking.get_server_info()
        too_long = EnqueueRequest(queue, "t" * (info.max_job_type_bytes + 1))
        good = EnqueueRequest(queue, "t")

        here = await checking.enqueue_batch([too_long, good])
        with pytest.raises(BatchValidationError) as refused:
            await checking.enqueue_atomic([good, too_long])

    async with SeppClient.connect(address) as client:
        there = await client.enqueue_batch([too_long])
    assert here[0] == there[0]
    assert isinstance(here[1], EnqueueAck)
    assert [error.index for error in refused.value.errors] == [1]
