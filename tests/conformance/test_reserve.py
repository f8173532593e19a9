"""Reserve without waiting: structure, order of checks, clamps, and which jobs are taken."""

import time
from collections.abc import Callable

import pytest
from purerpc import StatusCode

from sepp._generated import queue_pb2 as pb
from tests.conformance.client import SocketClient, connected, in_ms, job, span
from tests.conformance.conftest import Servers

SETTINGS = {
    "limits": {
        "max_reserve_batch": 3,
        "max_reserve_queues": 4,
        "max_queue_name_bytes": 24,
        "max_lease_duration_ms": 100_000,
    },
    "queues": [
        {"name": "short", "max_lease_duration_ms": 20_000},
        {"name": "shorter", "max_lease_duration_ms": 10_000},
        {"name": "long", "max_lease_duration_ms": 200_000},
    ],
}
INVALID = StatusCode.INVALID_ARGUMENT


def good(*queues: str) -> pb.ReserveRequest:
    """A request with nothing wrong."""
    return pb.ReserveRequest(queues=queues or ("queue",), lease_duration=span(1000))


# Fact -> how to spoil a request, a piece of the message. In the order the checks are made.
Spoil = Callable[[pb.ReserveRequest], object]
FAULTS: dict[str, tuple[Spoil, str]] = {
    "no queue": (lambda r: r.ClearField("queues"), "at least one queue"),
    "an invalid name": (lambda r: r.queues.append(".."), "queue name"),
    "a negative wait": (lambda r: r.wait_timeout.CopyFrom(span(-0.001)), "wait_timeout"),
    "no lease": (lambda r: r.ClearField("lease_duration"), "lease_duration is required"),
    "an empty worker_id": (lambda r: setattr(r, "worker_id", ""), "worker_id"),
    "max_jobs 0": (lambda r: setattr(r, "max_jobs", 0), "max_jobs"),
    "too many queues": (lambda r: r.queues.extend(["q"] * 4), "max_reserve_queues"),
    "a name too long": (lambda r: r.queues.append("ü" * 12 + "x"), "max_queue_name_bytes"),
}


@pytest.mark.parametrize("fact", FAULTS)
async def test_it_is_an_invalid_argument_to_give(rpc: SocketClient, fact: str) -> None:
    spoil, piece = FAULTS[fact]
    request = good()
    spoil(request)
    code, text = await rpc.fault("Reserve", request)
    assert code is INVALID
    assert piece in text


@pytest.mark.parametrize("first", range(1, len(FAULTS) - 1))
async def test_the_first_failing_check_is_told(rpc: SocketClient, first: int) -> None:
    request = good()
    for spoil, _ in list(FAULTS.values())[first:]:
        spoil(request)
    code, text = await rpc.fault("Reserve", request)
    assert code is INVALID
    assert list(FAULTS.values())[first][1] in text


@pytest.mark.parametrize("ms", [0, -0.000001, -1, -5000])
async def test_a_lease_must_last(rpc: SocketClient, ms: float) -> None:
    request = good()
    request.lease_duration.CopyFrom(span(ms))
    code, text = await rpc.fault("Reserve", request)
    assert code is INVALID
    assert "lease_duration must be more than 0" in text


async def test_duplicates_count_as_queues(rpc: SocketClient) -> None:
    code, text = await rpc.fault("Reserve", good(*["q"] * 5))
    assert code is INVALID
    assert "4" in text


async def test_as_many_queues_as_allowed_of_the_longest_names(
    rpc: SocketClient, queue: str
) -> None:
    job_id = await rpc.enqueue(queue)
    assert (await rpc.take("ü" * 12, "🚚" * 6, queue, queue)).id == job_id


async def test_name_length_is_asked_after_the_number_of_queues(rpc: SocketClient) -> None:
    _, text = await rpc.fault("Reserve", good(*["ü" * 13] * 5))
    assert "max_reserve_queues" in text


# Fact -> queues listed, lease asked for, lease given, in ms.
LEASES: dict[str, tuple[list[str], float, int]] = {
    "a lease below every ceiling is given whole": (["a", "long"], 90_000, 90_000),
    "the global ceiling cuts": (["a"], 100_001, 100_000),
    "a queue's own ceiling may be above the global one": (["long"], 150_000, 150_000),
    "a queue's own ceiling cuts": (["short"], 20_001, 20_000),
    "the smallest ceiling of all listed queues cuts": (["a", "long", "shorter"], 99_999, 10_000),
    "also that of a queue without jobs": (["shorter", "short"], 99_999, 10_000),
    "the longest there is": (["a"], 315_576_000_000_000, 100_000),
}


@pytest.mark.parametrize("fact", LEASES)
async def test_how_long_a_lease_is(rpc: SocketClient, fact: str) -> None:
    queues, asked, given = LEASES[fact]
    await rpc.enqueue(queues[-1] if "without jobs" in fact else queues[0])
    before = time.time_ns() // 1_000_000
    found = await rpc.take(*queues, lease_ms=asked)
    after = time.time_ns() // 1_000_000
    assert before + given - 50 <= in_ms(found.lease_expires_at) <= after + given + 50
    await rpc.ack(found)


async def test_a_lease_below_a_millisecond_is_one_millisecond(
    rpc: SocketClient, queue: str
) -> None:
    await rpc.enqueue(queue)
    before = time.time_ns() // 1_000_000
    found = await rpc.take(queue, lease_ms=0.000001)
    assert before - 50 <= in_ms(found.lease_expires_at) <= time.time_ns() // 1_000_000 + 51


async def test_unset_max_jobs_is_one(rpc: SocketClient, queue: str) -> None:
    await rpc.batch(*[job(queue)] * 3)
    assert len(await rpc.reserve(queue)) == 1


async def test_max_jobs_is_cut_to_the_largest_batch(rpc: SocketClient, queue: str) -> None:
    await rpc.batch(*[job(queue)] * 4)
    assert len(await rpc.reserve(queue, max_jobs=4)) == 3


async def test_unset_wait_is_one_immediate_attempt(rpc: SocketClient, queue: str) -> None:
    assert await rpc.reserve(queue) == []


@pytest.mark.parametrize("ms", [0, 0.5])
async def test_a_wait_below_a_millisecond_is_none(rpc: SocketClient, queue: str, ms: float) -> None:
    assert await rpc.reserve(queue, wait_ms=ms) == []


async def test_queues_are_drained_in_listed_order_and_fill_the_rest(
    rpc: SocketClient, queue: str
) -> None:
    first, second, third = (f"{queue}-{each}" for each in "abc")
    results = await rpc.batch(job(third), job(second), job(first), job(second, priority=9))
    ids = [result.success.job_id for result in results]
    found = await rpc.reserve(first, second, third, max_jobs=3)
    assert [each.id for each in found] == [ids[2], ids[3], ids[1]]
    assert [each.id for each in await rpc.reserve(first, second, third)] == [ids[0]]


async def test_duplicates_among_the_queues_are_harmless(rpc: SocketClient, queue: str) -> None:
    results = await rpc.batch(*[job(queue)] * 2)
    found = await rpc.reserve(queue, queue, max_jobs=3)
    assert [each.id for each in found] == [result.success.job_id for result in results]


async def test_all_jobs_of_an_answer_share_one_lease_end(rpc: SocketClient, queue: str) -> None:
    await rpc.batch(*[job(queue)] * 3)
    found = await rpc.reserve(queue, max_jobs=3)
    assert len({in_ms(each.lease_expires_at) for each in found}) == 1


async def test_a_leased_job_is_leased_once(rpc: SocketClient, queue: str) -> None:
    await rpc.enqueue(queue)
    await rpc.take(queue)
    assert await rpc.reserve(queue, max_jobs=3) == []


async def test_worker_id_is_neither_stored_nor_compared(rpc: SocketClient, queue: str) -> None:
    await rpc.enqueue(queue)
    request = good(queue)
    request.worker_id = "one"
    (found,) = (await rpc.call("Reserve", request)).jobs
    await rpc.call("Ack", pb.AckRequest(job_id=found.id, attempt=1, worker_id="two"))


STRICT = {"server": {"strict_queues": True}, "queues": [{"name": "known"}]}


async def test_strict_mode_names_every_undeclared_queue(servers: Servers) -> None:
    async with connected(servers.get(STRICT).port) as client:
        code, text = await client.fault("Reserve", good("one", "known", "two"))
        assert code is StatusCode.FAILED_PRECONDITION
        assert "one" in text
        assert "two" in text
        assert "known" not in text.replace("unknown", "")
        assert await client.reserve("known") == []


async def test_strict_mode_is_asked_last(servers: Servers) -> None:
    async with connected(servers.get(STRICT).port) as client:
        code, text = await client.fault("Reserve", good("one", "x" * 513))
        assert code is INVALID
        assert "max_queue_name_bytes" in text
