"""Nack: directives, the decision table, and what becomes of the job."""

import pytest
from purerpc import StatusCode

from sepp._generated import queue_pb2 as pb
from tests.conformance.client import DEAD_LETTER, DEFAULT, SocketClient, job, later

SOME_ID = "01234567-89ab-4def-8123-456789abcdef"
INVALID = StatusCode.INVALID_ARGUMENT

# Fact -> directive (None: absent), attempts allowed, dead-lettered, cause.
TABLE: dict[str, tuple[pb.NackRetry | None, int, bool, str]] = {
    "absent with attempts left retries": (None, 2, False, ""),
    "default with attempts left retries": (DEFAULT, 2, False, ""),
    "delay with attempts left retries": (later(0), 2, False, ""),
    "dead_letter buries although attempts are left": (DEAD_LETTER, 2, True, "REJECTED"),
    "dead_letter on the last attempt is rejected too": (DEAD_LETTER, 1, True, "REJECTED"),
    "absent on the last attempt exhausts": (None, 1, True, "ATTEMPTS_EXHAUSTED"),
    "default on the last attempt exhausts": (DEFAULT, 1, True, "ATTEMPTS_EXHAUSTED"),
    "delay on the last attempt exhausts": (later(60_000), 1, True, "ATTEMPTS_EXHAUSTED"),
}


def nack(retry: pb.NackRetry | None) -> dict[str, pb.NackRetry]:
    """The field as sent, or no field."""
    return {} if retry is None else {"retry": retry}


@pytest.mark.parametrize("fact", TABLE)
async def test_directive_and_attempts_decide(rpc: SocketClient, queue: str, fact: str) -> None:
    retry, attempts, is_dead, cause = TABLE[fact]
    job_id = await rpc.enqueue(queue, max_attempts=attempts)
    assert await rpc.nack(await rpc.take(queue), **nack(retry)) is is_dead
    records = await rpc.drain(queue)
    causes = [pb.DeadLetterCause.Name(record.cause) for record in records]
    assert causes == ([f"DEAD_LETTER_CAUSE_{cause}"] if is_dead else [])
    again = await rpc.reserve(queue)
    expected = [] if is_dead else [(job_id, 2)]
    assert [(each.id, each.attempt) for each in again] == expected


async def test_a_retry_without_strategy_is_an_invalid_argument(rpc: SocketClient) -> None:
    code, text = await rpc.fault("Nack", pb.NackRequest(job_id=SOME_ID, attempt=1, retry={}))
    assert code is INVALID
    assert "strategy" in text


@pytest.mark.parametrize("ms", [-0.000001, -1, -9_000_000_000])
async def test_a_negative_delay_is_an_invalid_argument(rpc: SocketClient, ms: float) -> None:
    request = pb.NackRequest(job_id=SOME_ID, attempt=1, retry=later(ms))
    code, text = await rpc.fault("Nack", request)
    assert code is INVALID
    assert "delay" in text


async def test_the_id_is_checked_before_the_directive(rpc: SocketClient) -> None:
    _, text = await rpc.fault("Nack", pb.NackRequest(job_id="", attempt=1, retry={}))
    assert "job_id" in text


async def test_a_job_is_delivered_as_often_as_it_has_attempts(
    rpc: SocketClient, queue: str
) -> None:
    await rpc.enqueue(queue, max_attempts=3)
    told = []
    while found := await rpc.reserve(queue):
        told.append((found[0].attempt, await rpc.nack(found[0])))
    assert told == [(1, False), (2, False), (3, True)]


async def test_a_delayed_job_is_not_ready(rpc: SocketClient, queue: str) -> None:
    await rpc.enqueue(queue)
    await rpc.nack(await rpc.take(queue), retry=later(60_000))
    assert await rpc.reserve(queue) == []


async def test_a_delay_below_a_millisecond_is_none(rpc: SocketClient, queue: str) -> None:
    await rpc.enqueue(queue)
    await rpc.nack(await rpc.take(queue), retry=later(0.9))
    assert (await rpc.take(queue)).attempt == 2


async def test_the_longest_delay_there_is_is_accepted(rpc: SocketClient, queue: str) -> None:
    await rpc.enqueue(queue)
    await rpc.nack(await rpc.take(queue), retry=later(315_576_000_000_000))
    assert await rpc.reserve(queue) == []


async def test_a_retried_job_goes_to_its_old_place(rpc: SocketClient, queue: str) -> None:
    results = await rpc.batch(job(queue), job(queue))
    first = await rpc.take(queue)
    await rpc.nack(first)
    again = await rpc.reserve(queue, max_jobs=9)
    assert [each.id for each in again] == [result.success.job_id for result in results]
    assert again[0].enqueued_at == first.enqueued_at


async def test_a_delay_does_not_touch_scheduled_at(rpc: SocketClient, queue: str) -> None:
    await rpc.enqueue(queue)
    await rpc.nack(await rpc.take(queue), retry=later(1))
    (found,) = await rpc.reserve(queue, wait_ms=10_000)
    assert not found.HasField("scheduled_at")


async def test_the_reason_of_a_retry_is_not_kept_in_the_record(
    rpc: SocketClient, queue: str
) -> None:
    await rpc.enqueue(queue, max_attempts=2)
    await rpc.nack(await rpc.take(queue), reason="the first")
    await rpc.nack(await rpc.take(queue))
    (record,) = await rpc.drain(queue)
    assert not record.HasField("last_reason")


@pytest.mark.parametrize("reason", ["", "why", "größer als " + "🚚" * 3000])
async def test_the_last_reason_is_kept_whole(rpc: SocketClient, queue: str, reason: str) -> None:
    await rpc.enqueue(queue, max_attempts=2)
    await rpc.nack(await rpc.take(queue), reason="the first")
    await rpc.nack(await rpc.take(queue), reason=reason, retry=DEFAULT)
    (record,) = await rpc.drain(queue)
    assert record.HasField("last_reason")
    assert record.last_reason == reason
