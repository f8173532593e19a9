"""Ack, Nack and Extend: what they share, and what ack and extend do."""

import time
from typing import Any

import pytest
from google.protobuf.message import Message
from purerpc import StatusCode

from sepp._generated import queue_pb2 as pb
from tests.conformance.client import (
    DEAD_LETTER,
    REQUESTS,
    SocketClient,
    in_ms,
    job,
    later,
    span,
)

SETTINGS = {
    "limits": {"max_lease_duration_ms": 100_000},
    "queues": [{"name": "short", "max_lease_duration_ms": 20_000}],
}
HOLDERS = ["Ack", "Nack", "Extend"]
INVALID = StatusCode.INVALID_ARGUMENT
SOME_ID = "01234567-89ab-4def-8123-456789abcdef"

IDS_REFUSED = {
    "empty": "",
    "no UUID": "job",
    "no hyphens": SOME_ID.replace("-", ""),
    "braces": "{" + SOME_ID[:-2] + "}",
    "hyphens elsewhere": "012345678-9ab-4def-8123-456789abcdef",
    "one digit short": SOME_ID[:-1],
    "one digit more": SOME_ID + "0",
    "no hex digit": SOME_ID[:-1] + "g",
    "a space": SOME_ID[:-1] + " ",
    "digits of another script": SOME_ID[:-1] + "٣",
    "a sign": "+" + SOME_ID[1:],
}


def request(method: str, job_id: str = SOME_ID, attempt: int = 1, **fields: Any) -> Message:
    """A request of a holder with nothing wrong."""
    if method == "Extend":
        fields.setdefault("lease_duration", span(60_000))
    return REQUESTS[method](job_id=job_id, attempt=attempt, **fields)


@pytest.mark.parametrize("method", HOLDERS)
@pytest.mark.parametrize("what", IDS_REFUSED)
async def test_an_id_must_be_a_hyphenated_uuid(rpc: SocketClient, method: str, what: str) -> None:
    code, text = await rpc.fault(method, request(method, IDS_REFUSED[what]))
    assert code is INVALID
    assert "job_id" in text


@pytest.mark.parametrize("method", HOLDERS)
async def test_checks_come_in_the_order_id_attempt_worker(rpc: SocketClient, method: str) -> None:
    wrong = request(method, "", 0, worker_id="")
    told = []
    for name, value in {"job_id": SOME_ID, "attempt": 1, "worker_id": "w"}.items():
        code, text = await rpc.fault(method, wrong)
        assert code is INVALID
        told.append(name in text)
        setattr(wrong, name, value)
    assert told == [True] * 3
    assert (await rpc.fault(method, wrong))[0] is StatusCode.NOT_FOUND


@pytest.mark.parametrize("method", HOLDERS)
async def test_an_unknown_id_is_not_found(rpc: SocketClient, method: str) -> None:
    code, text = await rpc.fault(method, request(method))
    assert code is StatusCode.NOT_FOUND
    assert "job not found" in text


@pytest.mark.parametrize("method", HOLDERS)
@pytest.mark.parametrize("state", ["ready", "scheduled", "dead", "acked"])
async def test_a_job_that_is_not_leased_is_not_found(
    rpc: SocketClient, queue: str, method: str, state: str
) -> None:
    job_id = await rpc.enqueue(queue)
    if state != "ready":
        found = await rpc.take(queue)
        if state == "acked":
            await rpc.ack(found)
        else:
            await rpc.nack(found, retry=DEAD_LETTER if state == "dead" else later(60_000))
    code, _ = await rpc.fault(method, request(method, job_id))
    assert code is StatusCode.NOT_FOUND


@pytest.mark.parametrize("method", HOLDERS)
@pytest.mark.parametrize("attempt", [1, 3, 2**32 - 1])
async def test_another_attempt_is_a_failed_precondition(
    rpc: SocketClient, queue: str, method: str, attempt: int
) -> None:
    job_id = await rpc.enqueue(queue)
    await rpc.nack(await rpc.take(queue))
    found = await rpc.take(queue)
    assert found.attempt == 2
    code, text = await rpc.fault(method, request(method, job_id, attempt))
    assert code is StatusCode.FAILED_PRECONDITION
    assert "attempt mismatch" in text
    await rpc.ack(found)


@pytest.mark.parametrize("method", HOLDERS)
async def test_an_id_in_upper_case_is_found_and_echoed_as_sent(
    rpc: SocketClient, queue: str, method: str
) -> None:
    job_id = (await rpc.enqueue(queue)).upper()
    await rpc.take(queue)
    answer = await rpc.call(method, request(method, job_id))
    assert answer.job_id == job_id


async def test_a_repeated_ack_is_not_found(rpc: SocketClient, queue: str) -> None:
    await rpc.enqueue(queue)
    found = await rpc.take(queue)
    await rpc.ack(found)
    code, _ = await rpc.fault("Ack", request("Ack", found.id))
    assert code is StatusCode.NOT_FOUND


async def test_an_acked_job_frees_its_place_under_the_cap_and_is_gone(
    rpc: SocketClient, queue: str
) -> None:
    await rpc.batch(job(queue), job(queue))
    first = await rpc.take(queue)
    await rpc.ack(first)
    (second,) = await rpc.reserve(queue, max_jobs=9)
    assert second.id != first.id


@pytest.mark.parametrize("ms", [0, -1])
async def test_an_extension_must_last(rpc: SocketClient, ms: float) -> None:
    code, text = await rpc.fault("Extend", request("Extend", lease_duration=span(ms)))
    assert code is INVALID
    assert "lease_duration" in text


async def test_an_extension_must_say_how_long(rpc: SocketClient) -> None:
    code, text = await rpc.fault("Extend", pb.ExtendRequest(job_id=SOME_ID, attempt=1))
    assert code is INVALID
    assert "lease_duration is required" in text


EXTENDS: dict[str, tuple[str, float, int]] = {
    "it replaces the end": ("a", 90_000, 90_000),
    "it may shorten": ("a", 2_000, 2_000),
    "the global ceiling cuts": ("a", 999_999, 100_000),
    "the queue's ceiling cuts": ("short", 999_999, 20_000),
    "below a millisecond is one": ("b", 0.0001, 1),
}


@pytest.mark.parametrize("fact", EXTENDS)
async def test_how_an_extension_counts(rpc: SocketClient, fact: str) -> None:
    queue, asked, given = EXTENDS[fact]
    await rpc.enqueue(queue)
    found = await rpc.take(queue, lease_ms=15_000)
    before = time.time_ns() // 1_000_000
    end = await rpc.extend(found, asked)
    assert before + given - 50 <= end <= time.time_ns() // 1_000_000 + given + 50
    if given > 1:
        await rpc.ack(found)


async def test_a_lease_may_be_extended_without_end_under_the_same_attempt(
    rpc: SocketClient, queue: str
) -> None:
    await rpc.enqueue(queue)
    found = await rpc.take(queue)
    ends = [await rpc.extend(found, 60_000 + 1000 * number) for number in range(20)]
    assert ends == sorted(set(ends))
    assert in_ms(found.lease_expires_at) < ends[-1]
    await rpc.ack(found)
