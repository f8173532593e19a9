"""What a delivered job holds: as it was sent, with what the server adds, and nothing else."""

import math
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from sepp._generated import queue_pb2 as pb
from tests.conformance.client import SocketClient, in_ms, payload, text

ADDED = {"id", "queue", "job_type", "attempt", "max_attempts", "enqueued_at", "lease_expires_at"}


async def through(rpc: SocketClient, queue: str, **fields: Any) -> pb.Job:
    """Enqueue, reserve and ack one job."""
    job_id = await rpc.enqueue(queue, **fields)
    found = await rpc.take(queue)
    await rpc.ack(found)
    assert found.id == job_id
    return found


async def test_a_bare_job_holds_what_the_server_adds_and_no_more(
    rpc: SocketClient, queue: str
) -> None:
    found = await through(rpc, queue)
    assert {field.name for field, _ in found.ListFields()} == ADDED
    assert (found.queue, found.job_type, found.attempt, found.max_attempts) == (queue, "test", 1, 3)
    assert in_ms(found.enqueued_at) < in_ms(found.lease_expires_at)


async def test_a_full_job_comes_back_as_it_was_sent(rpc: SocketClient, queue: str) -> None:
    fields = {
        "payload": payload(bytes(range(256)), "größe"),
        "priority": 3,
        "max_attempts": 17,
        "trace_context": pb.TraceContext(traceparent="00-aa-bb-01", tracestate="a=1,b=2"),
        "custom": {"ключ": text("značka"), "empty": text("")},
        "scheduled_at": Timestamp(seconds=1, nanos=1),
    }
    found = await through(rpc, queue, **fields)
    expected = pb.Job(
        id=found.id,
        queue=queue,
        job_type="test",
        attempt=1,
        enqueued_at=found.enqueued_at,
        lease_expires_at=found.lease_expires_at,
        **fields,
    )
    assert found == expected


TIMES = {
    "the epoch": Timestamp(),
    "a nanosecond": Timestamp(nanos=1),
    "odd nanos": Timestamp(seconds=1_600_000_000, nanos=123_456_789),
    "before the epoch": Timestamp(seconds=-62_135_596_800, nanos=999_999_999),
    "nanos out of range": Timestamp(seconds=7, nanos=2_000_000_000),
    "nanos below zero": Timestamp(seconds=7, nanos=-1),
}


@pytest.mark.parametrize("when", TIMES)
async def test_scheduled_at_is_echoed_unchanged(rpc: SocketClient, queue: str, when: str) -> None:
    found = await through(rpc, queue, scheduled_at=TIMES[when])
    assert found.HasField("scheduled_at")
    assert found.scheduled_at == TIMES[when]


async def test_scheduled_at_is_echoed_after_the_promotion(rpc: SocketClient, queue: str) -> None:
    now = (await rpc.info()).server_time
    at = Timestamp(seconds=now.seconds, nanos=now.nanos)
    at.FromNanoseconds(now.ToNanoseconds() + 50_000_001)
    await rpc.enqueue(queue, scheduled_at=at)
    (found,) = await rpc.reserve(queue, wait_ms=20_000)
    assert found.scheduled_at == at


VALUES = {
    "a string": text("x" * 1000),
    "an empty string": text(""),
    "the least integer": pb.PrimitiveValue(int_value=-(2**63)),
    "the largest integer": pb.PrimitiveValue(int_value=2**63 - 1),
    "zero": pb.PrimitiveValue(int_value=0),
    "minus zero": pb.PrimitiveValue(double_value=-0.0),
    "a double": pb.PrimitiveValue(double_value=0.1),
    "infinity": pb.PrimitiveValue(double_value=-math.inf),
    "no number": pb.PrimitiveValue(double_value=math.nan),
    "true": pb.PrimitiveValue(bool_value=True),
    "false": pb.PrimitiveValue(bool_value=False),
}


@pytest.mark.parametrize("what", VALUES)
async def test_a_custom_value_comes_back_bit_by_bit(
    rpc: SocketClient, queue: str, what: str
) -> None:
    value = VALUES[what]
    found = await through(rpc, queue, custom={"key": value})
    assert list(found.custom) == ["key"]
    assert found.custom["key"].SerializeToString() == value.SerializeToString()
    assert found.custom["key"].WhichOneof("value") == value.WhichOneof("value")


async def test_many_custom_entries_come_back(rpc: SocketClient, queue: str) -> None:
    custom = {f"key-{number}": pb.PrimitiveValue(int_value=number) for number in range(64)}
    found = await through(rpc, queue, custom=custom)
    assert {key: value.int_value for key, value in found.custom.items()} == {
        f"key-{number}": number for number in range(64)
    }


async def test_without_tracing_no_context_is_made_up(rpc: SocketClient, queue: str) -> None:
    header = (b"traceparent", b"00-0123456789abcdef0123456789abcdef-0123456789abcdef-01")
    request = pb.EnqueueBatchRequest(jobs=[pb.EnqueueRequest(queue=queue, job_type="test")])
    await rpc.call("EnqueueBatch", request, [header])
    assert not (await rpc.take(queue)).HasField("trace_context")


CONTEXTS = {
    "malformed": pb.TraceContext(traceparent="nonsense"),
    "with state": pb.TraceContext(traceparent="00-1-2-00", tracestate="a=b"),
    "with an empty state": pb.TraceContext(traceparent="x", tracestate=""),
}


@pytest.mark.parametrize("what", CONTEXTS)
async def test_the_trace_context_comes_back_as_sent(
    rpc: SocketClient, queue: str, what: str
) -> None:
    found = await through(rpc, queue, trace_context=CONTEXTS[what])
    assert found.trace_context == CONTEXTS[what]
    assert found.trace_context.HasField("tracestate") == CONTEXTS[what].HasField("tracestate")


async def test_a_second_delivery_differs_in_attempt_and_lease_alone(
    rpc: SocketClient, queue: str
) -> None:
    await rpc.enqueue(queue, payload=payload(), priority=1, scheduled_at=Timestamp())
    first = await rpc.take(queue, lease_ms=60_000)
    await rpc.nack(first)
    second = await rpc.take(queue, lease_ms=90_000)
    assert (first.attempt, second.attempt) == (1, 2)
    first.attempt = 2
    first.lease_expires_at.CopyFrom(second.lease_expires_at)
    assert first == second


async def test_each_field_is_sent_once(rpc: SocketClient, queue: str) -> None:
    """A message field sent twice would be merged, not replaced."""
    await rpc.enqueue(
        queue,
        payload=payload(),
        priority=1,
        trace_context=CONTEXTS["with state"],
        scheduled_at=Timestamp(seconds=5),
    )
    request = pb.ReserveRequest(queues=[queue])
    request.lease_duration.seconds = 60
    answer = await rpc.raw("Reserve", request.SerializeToString())
    tags = field_tags(answer)
    assert tags == [0x0A]
    assert sorted(field_tags(answer[2 if answer[1] < 128 else 3 :])) == sorted(
        [0x0A, 0x12, 0x1A, 0x20, 0x2A, 0x32, 0x38, 0x40, 0x4A, 0x5A, 0x62]
    )


def field_tags(data: bytes) -> list[int]:
    """The tags of an encoded message, in order; varints and length-delimited fields only."""
    tags = []
    at = 0
    while at < len(data):
        tags.append(data[at])
        length, at = varint(data, at + 1)
        if tags[-1] & 7 == 2:
            at += length
    return tags


def varint(data: bytes, at: int) -> tuple[int, int]:
    """The number at `at`, and where it ends."""
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            return value, at
        shift += 7
