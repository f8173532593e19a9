"""Enqueue, steps 2 to 12: each limit at the limit and one beyond, in order, names in many bytes."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from attrs import frozen

from sepp._generated import queue_pb2 as pb
from tests.conformance.client import SocketClient, connected, in_ms, job, moment, payload, text
from tests.conformance.conftest import Servers

HORIZON_MS = 60_000
SETTINGS = {
    "server": {"strict_queues": True},
    "limits": {
        "max_queue_name_bytes": 24,
        "max_job_type_bytes": 12,
        "max_idempotency_key_bytes": 10,
        "max_payload_bytes": 20,
        "allowed_encodings": ["raw", "größe"],
        "max_custom_entries": 3,
        "max_custom_key_bytes": 9,
        "max_custom_total_bytes": 40,
        "max_schedule_horizon_ms": HORIZON_MS,
    },
    "queues": [
        {"name": "größe"},
        {"name": "bare"},
        {"name": "ü" * 12},
        {"name": "typed", "allowed_job_types": ["mail", "größe"]},
        {
            "name": "own",
            "max_payload_bytes": 5,
            "allowed_encodings": [],
            "max_custom_entries": 1,
            "max_custom_key_bytes": 3,
            "max_custom_total_bytes": 8,
            "max_schedule_horizon_ms": 1000,
        },
    ],
}


@frozen
class Limit:
    """A limit: a job just within it, one just beyond, and what the latter is told."""

    within: dict[str, Any]
    beyond: dict[str, Any]
    told: dict[str, Any]
    queue: str = "größe"


def ints(count: int) -> dict[str, pb.PrimitiveValue]:
    """Custom values of 8 bytes under keys of one."""
    return {chr(97 + number): pb.PrimitiveValue(int_value=number) for number in range(count)}


def one_of_each(last: str) -> dict[str, pb.PrimitiveValue]:
    """Keys of 1 + 1 + 3 bytes, values of 8 and 1 and those of `last`."""
    return {
        "d": pb.PrimitiveValue(double_value=1.5),
        "b": pb.PrimitiveValue(bool_value=True),
        "äx": text(last),
    }


ENCODINGS = ["raw", "größe"]
# Reason as told -> the limit. In the order the checks are made.
LIMITS: dict[str, Limit] = {
    "queue_name_too_long": Limit({}, {}, {"limit": 24, "actual": 25}, "ü" * 12),
    "job_type_name_too_long": Limit(
        {"job_type": "ü" * 6}, {"job_type": "ü" * 6 + "x"}, {"limit": 12, "actual": 13}
    ),
    "job_type_not_allowed": Limit(
        {"job_type": "größe"},
        {"job_type": "Größe"},
        {"job_type": "Größe", "allowed": ["mail", "größe"]},
        "typed",
    ),
    "idempotency_key_too_long": Limit(
        {"idempotency_key": "ß" * 5},
        {"idempotency_key": "ß" * 5 + "s"},
        {"limit": 10, "actual": 11},
    ),
    "payload_too_large": Limit(
        {"payload": payload(bytes(20))},
        {"payload": payload(bytes(21))},
        {"limit": 20, "actual": 21},
    ),
    "encoding_not_allowed": Limit(
        {"payload": payload(encoding="größe")},
        {"payload": payload(encoding="gross")},
        {"encoding": "gross", "allowed": ENCODINGS},
    ),
    "custom_entries_too_many": Limit(
        {"custom": ints(3)}, {"custom": ints(4)}, {"limit": 3, "actual": 4}
    ),
    "custom_key_too_long": Limit(
        {"custom": {"üüüüx": text("")}},
        {"custom": {"ü" * 5: text("")}},
        {"key": "ü" * 5, "limit": 9, "actual": 10},
    ),
    "custom_map_too_large": Limit(
        {"custom": one_of_each("ü" * 13)},
        {"custom": one_of_each("ü" * 13 + "x")},
        {"limit": 40, "actual": 41},
    ),
}
assert len("äx".encode()) + 2 + 8 + 1 + 26 == 40


async def test_an_undeclared_queue_is_unknown_in_strict_mode(rpc: SocketClient) -> None:
    rejection = await rpc.rejection("nowhere")
    assert rejection == pb.JobRejection(unknown_queue=pb.UnknownQueue(queue="nowhere"))


@pytest.mark.parametrize(("name", "actual"), [("ü" * 12 + "x", 25), ("🚚" * 7, 28)])
async def test_a_queue_name_one_beyond_is_rejected(
    servers: Servers, name: str, actual: int
) -> None:
    settings = {"limits": {"max_queue_name_bytes": 24}}
    async with connected(servers.get(settings).port) as client:
        await client.enqueue("🚚" * 6)
        rejection = await client.rejection(name, job_type="x" * 999)
    assert rejection.queue_name_too_long == pb.QueueNameTooLong(limit=24, actual=actual)


async def test_unknown_queue_comes_before_the_length_of_its_name(rpc: SocketClient) -> None:
    assert (await rpc.rejection("ü" * 13)).WhichOneof("reason") == "unknown_queue"


@pytest.mark.parametrize("reason", [name for name in LIMITS if name != "queue_name_too_long"])
async def test_one_beyond_is_rejected_with_limit_and_actual(rpc: SocketClient, reason: str) -> None:
    limit = LIMITS[reason]
    rejection = await rpc.rejection(limit.queue, **limit.beyond)
    assert rejection.WhichOneof("reason") == reason
    told = getattr(rejection, reason)
    for name, value in limit.told.items():
        found = getattr(told, name)
        assert (list(found) if isinstance(value, list) else found) == value
    assert {field.name for field, _ in told.ListFields()} == set(limit.told)


@pytest.mark.parametrize("reason", LIMITS)
async def test_exactly_the_limit_is_accepted(rpc: SocketClient, reason: str) -> None:
    limit = LIMITS[reason]
    await rpc.enqueue(limit.queue, **limit.within)


BEYOND_ALL = {
    "job_type": "ü" * 7,
    "idempotency_key": "ß" * 6,
    "payload": payload(bytes(99), "gross"),
    "custom": {"ü" * 50: text("ü" * 50), **ints(3)},
    "scheduled_at": moment(9_999_999_999_999),
}
# What each step fails on, taken away once it has been told.
FIXES: list[tuple[str, Callable[[dict[str, Any]], None]]] = [
    ("job_type_name_too_long", lambda job: job.update(job_type="other")),
    ("job_type_not_allowed", lambda job: job.update(job_type="mail")),
    ("idempotency_key_too_long", lambda job: job.pop("idempotency_key")),
    ("payload_too_large", lambda job: job.update(payload=payload(encoding="gross"))),
    ("encoding_not_allowed", lambda job: job.pop("payload")),
    ("custom_entries_too_many", lambda job: job["custom"].pop("a")),
    ("custom_key_too_long", lambda job: job.update(custom={"k": text("ü" * 50)})),
    ("custom_map_too_large", lambda job: job.pop("custom")),
    ("scheduled_too_far", lambda job: job.pop("scheduled_at")),
]


async def test_of_several_faults_the_first_in_order_is_told(rpc: SocketClient) -> None:
    fields = dict(BEYOND_ALL)
    told = []
    for _, fix in FIXES:
        told.append((await rpc.rejection("typed", **fields)).WhichOneof("reason"))
        fix(fields)
    assert told == [reason for reason, _ in FIXES]
    await rpc.enqueue("typed", **fields)


OWN: dict[str, dict[str, Any]] = {
    "encoding_not_allowed": {"payload": payload(b"x", "raw")},
    "payload_too_large": {"payload": payload(bytes(6))},
    "custom_entries_too_many": {"custom": ints(2)},
    "custom_key_too_long": {"custom": {"abcd": text("")}},
    "custom_map_too_large": {"custom": ints(1)},
    "scheduled_too_far": {"scheduled_at": moment(time.time_ns() // 1_000_000 + 3_600_000)},
}


@pytest.mark.parametrize("reason", OWN)
async def test_a_queue_may_have_a_limit_of_its_own(rpc: SocketClient, reason: str) -> None:
    assert (await rpc.rejection("own", **OWN[reason])).WhichOneof("reason") == reason


async def test_an_empty_list_of_encodings_refuses_every_payload(rpc: SocketClient) -> None:
    rejection = await rpc.rejection("own", payload=payload(b"x", "raw"))
    assert rejection == pb.JobRejection(
        encoding_not_allowed=pb.EncodingNotAllowed(encoding="raw", allowed=[])
    )


async def test_a_job_without_payload_passes_an_empty_list_of_encodings(rpc: SocketClient) -> None:
    await rpc.enqueue("own")


async def test_too_far_tells_the_horizon_and_the_time_as_it_was_sent(rpc: SocketClient) -> None:
    at = moment(time.time_ns() // 1_000_000 + HORIZON_MS + 60_000)
    at.nanos += 123_457
    told = (await rpc.rejection("größe", scheduled_at=at)).scheduled_too_far
    assert (in_ms(told.horizon), told.actual) == (HORIZON_MS, at)


async def test_a_schedule_within_the_horizon_is_accepted(rpc: SocketClient) -> None:
    at = moment(time.time_ns() // 1_000_000 + HORIZON_MS - 20_000)
    await rpc.enqueue("größe", scheduled_at=at)


FAR = {
    "the year 10000": {"seconds": 253_402_300_800},
    "the end of time": {"seconds": 2**63 - 1, "nanos": 2**31 - 1},
}


@pytest.mark.parametrize("what", FAR)
async def test_a_time_out_of_range_is_too_far(rpc: SocketClient, what: str) -> None:
    rejection = await rpc.rejection("größe", scheduled_at=FAR[what])
    assert rejection.WhichOneof("reason") == "scheduled_too_far"


async def test_a_rejected_job_does_not_stop_the_others(rpc: SocketClient) -> None:
    results = await rpc.batch(
        job("größe"), job("nowhere"), job("größe", job_type="ü" * 7), job("größe")
    )
    assert [result.WhichOneof("outcome") for result in results] == [
        "success",
        "rejection",
        "rejection",
        "success",
    ]
    reasons = [result.rejection.WhichOneof("reason") for result in results[1:3]]
    assert reasons == ["unknown_queue", "job_type_name_too_long"]


async def test_an_atomic_batch_lists_every_failing_job(rpc: SocketClient) -> None:
    answer = await rpc.atomic(
        job("bare"),
        job("nowhere"),
        job(""),
        job("größe", custom=ints(4)),
        job("bare"),
    )
    found = [
        (error.index, error.rejection.WhichOneof("reason")) for error in answer.rejection.errors
    ]
    assert found == [
        (1, "unknown_queue"),
        (2, "invalid_request"),
        (3, "custom_entries_too_many"),
    ]
    assert await rpc.reserve("bare", max_jobs=9) == []
