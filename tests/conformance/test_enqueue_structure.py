"""Enqueue, step 1: what a job must look like before any limit is asked; and names of queues."""

from typing import Any

import pytest

from sepp._generated import queue_pb2 as pb
from tests.conformance.client import SocketClient, job, payload, span, text

# Fact -> the fault as fields of a job, a piece of the message. In the order the checks are made.
FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "queue must not be empty": ({"queue": ""}, "queue"),
    "job_type must not be empty": ({"job_type": ""}, "job_type"),
    "payload.data must not be empty": ({"payload": pb.Payload(encoding="raw")}, "payload.data"),
    "payload.encoding must not be empty": ({"payload": pb.Payload(data=b"x")}, "payload.encoding"),
    "idempotency_key must not be empty": ({"idempotency_key": ""}, "idempotency_key"),
    "priority must not be above 9": ({"priority": 10}, "priority"),
    "max_attempts must not be 0": ({"max_attempts": 0}, "max_attempts"),
    "traceparent must not be empty": ({"trace_context": pb.TraceContext()}, "traceparent"),
    "custom keys must not be empty": ({"custom": {"": text("v")}}, "custom"),
}
NAMES_REFUSED = {
    "empty": "",
    "a dot": ".",
    "two dots": "..",
    "a slash": "a/b",
    "a slash alone": "/",
    "a zero byte": "a\0b",
    "a line feed": "a\nb",
    "delete": "a\x7fb",
    "a C1 control": "a\x85b",
}
NAMES_ALLOWED = {
    "three dots": "...",
    "dots inside": "a.b..c",
    "a leading dot": ".hidden",
    "spaces": " a b ",
    "underscores": "__meta",
    "a backslash": "..\\x",
    "quotes": "'\"`",
    "markup": "<img src=x>",
    "an emoji": "🚚",
    "right to left": "\u200fעברית",
    "a zero-width joiner": "a\u200db",
    "a combining character alone": "\u0301",
}


async def told(rpc: SocketClient, request: pb.EnqueueRequest) -> str:
    """The message of a job that must be an invalid request, by both RPCs alike."""
    (result,) = await rpc.batch(request)
    assert result.rejection.WhichOneof("reason") == "invalid_request", result
    (error,) = (await rpc.atomic(request)).rejection.errors
    assert (error.index, error.rejection) == (0, result.rejection)
    return result.rejection.invalid_request.message


@pytest.mark.parametrize("fact", FAULTS)
async def test_a_malformed_job_is_an_invalid_request(
    rpc: SocketClient, queue: str, fact: str
) -> None:
    fields, piece = FAULTS[fact]
    assert piece in await told(rpc, job(**{"queue": queue, **fields}))


async def test_a_custom_value_must_be_set(rpc: SocketClient, queue: str) -> None:
    assert "custom" in await told(rpc, job(queue, custom={"key": pb.PrimitiveValue()}))


@pytest.mark.parametrize("first", range(len(FAULTS) - 1))
async def test_the_first_failing_check_wins(rpc: SocketClient, queue: str, first: int) -> None:
    facts = list(FAULTS.values())[first:]
    fields: dict[str, Any] = {"queue": queue}
    # The later faults first, so that the earlier one replaces what they share.
    for fault, _ in reversed(facts):
        fields |= fault
    if first == 2:  # both faults of one payload
        fields["payload"] = pb.Payload()
    assert facts[0][1] in await told(rpc, job(**fields))


@pytest.mark.parametrize("what", NAMES_REFUSED)
async def test_a_queue_cannot_be_called_by(rpc: SocketClient, what: str) -> None:
    name = NAMES_REFUSED[what]
    assert "queue" in await told(rpc, job(name))
    request = pb.ReserveRequest(queues=["fine", name], lease_duration=span(1000))
    code, _ = await rpc.fault("Reserve", request)
    assert code.name == "INVALID_ARGUMENT"


@pytest.mark.parametrize("what", NAMES_ALLOWED)
async def test_a_queue_may_be_called_by_anything_else(rpc: SocketClient, what: str) -> None:
    name = NAMES_ALLOWED[what]
    job_id = await rpc.enqueue(name)
    found = await rpc.take(name)
    assert (found.id, found.queue) == (job_id, name)
    await rpc.ack(found)


ALLOWED: dict[str, dict[str, Any]] = {
    "no payload": {},
    "a payload of one byte": {"payload": payload(b"\0")},
    "priority 0": {"priority": 0},
    "priority 9": {"priority": 9},
    "one attempt": {"max_attempts": 1},
    "attempts without end": {"max_attempts": 2**32 - 1},
    "a malformed traceparent": {"trace_context": pb.TraceContext(traceparent="nonsense")},
    "an empty tracestate": {"trace_context": pb.TraceContext(traceparent="x", tracestate="")},
    "an empty custom string": {"custom": {"k": text("")}},
    "a custom zero": {"custom": {"k": pb.PrimitiveValue(int_value=0)}},
    "a custom false": {"custom": {"k": pb.PrimitiveValue(bool_value=False)}},
    "job_type with a slash": {"job_type": "a/b\n"},
}


@pytest.mark.parametrize("what", ALLOWED)
async def test_nothing_is_wrong_with(rpc: SocketClient, queue: str, what: str) -> None:
    await rpc.enqueue(queue, **ALLOWED[what])
