"""EnqueueAtomic: all or nothing, and who stood in the way."""

from sepp._generated import queue_pb2 as pb
from tests.conformance.client import SocketClient, job

SETTINGS = {
    "queues": [
        {"name": name, "max_queue_depth": 3} for name in ("cap-a", "cap-b", "cap-c", "cap-d")
    ]
}


def refused(answer: pb.EnqueueAtomicResponse) -> list[tuple[int, str]]:
    """Index and reason of each failing job."""
    assert answer.WhichOneof("outcome") == "rejection", answer
    return [(e.index, e.rejection.WhichOneof("reason") or "") for e in answer.rejection.errors]


def accepted(answer: pb.EnqueueAtomicResponse) -> list[tuple[str, bool]]:
    """Id of each job, and whether it was known."""
    assert answer.WhichOneof("outcome") == "success", answer
    return [(each.job_id, each.deduplicated) for each in answer.success.responses]


async def test_a_batch_is_stored_in_order_and_may_span_queues(
    rpc: SocketClient, queue: str
) -> None:
    other = f"{queue} too"
    answer = accepted(await rpc.atomic(job(queue), job(other), job(queue)))
    found = await rpc.reserve(other, queue, max_jobs=9)
    assert [each.id for each in found] == [answer[1][0], answer[0][0], answer[2][0]]
    assert [is_known for _, is_known in answer] == [False] * 3


async def test_one_invalid_job_keeps_all_others_out(rpc: SocketClient, queue: str) -> None:
    answer = await rpc.atomic(job(queue), job(queue, priority=10), job(queue), job("a/b"))
    assert refused(answer) == [(1, "invalid_request"), (3, "invalid_request")]
    assert await rpc.reserve(queue, max_jobs=9) == []


async def test_capacity_is_not_asked_when_a_job_is_invalid(rpc: SocketClient) -> None:
    jobs = [job("cap-a")] * 4
    assert refused(await rpc.atomic(*jobs, job("cap-a", priority=10))) == [(4, "invalid_request")]


async def test_a_full_queue_lists_all_its_jobs_even_those_that_would_fit(
    rpc: SocketClient, queue: str
) -> None:
    await rpc.enqueue("cap-b")
    answer = await rpc.atomic(
        job("cap-b"), job(queue), job("cap-b"), job("cap-c"), job("cap-b"), job("cap-c")
    )
    assert refused(answer) == [(0, "queue_full"), (2, "queue_full"), (4, "queue_full")]
    assert answer.rejection.errors[0].rejection.queue_full == pb.QueueFull(queue="cap-b", limit=3)
    assert await rpc.reserve(queue, "cap-c", max_jobs=9) == []


async def test_a_batch_that_fills_a_queue_to_its_cap_is_stored(rpc: SocketClient) -> None:
    assert len(accepted(await rpc.atomic(*[job("cap-c")] * 3))) == 3
    assert refused(await rpc.atomic(job("cap-c"))) == [(0, "queue_full")]


async def test_a_known_key_counts_against_the_cap(rpc: SocketClient) -> None:
    first = await rpc.enqueue("cap-d", idempotency_key="k")
    known = job("cap-d", idempotency_key="k")
    assert refused(await rpc.atomic(known, job("cap-d"), job("cap-d"))) == [
        (0, "queue_full"),
        (1, "queue_full"),
        (2, "queue_full"),
    ]
    answer = accepted(await rpc.atomic(known, job("cap-d")))
    assert answer[0] == (first, True)
    assert len(await rpc.reserve("cap-d", max_jobs=9)) == 2


async def test_a_known_key_is_a_success_with_the_first_id(rpc: SocketClient, queue: str) -> None:
    first = await rpc.enqueue(queue, idempotency_key="k")
    answer = accepted(await rpc.atomic(job(queue, idempotency_key="k"), job(queue)))
    assert answer[0] == (first, True)
    assert answer[1][1] is False


async def test_the_same_key_twice_in_one_batch_is_one_job(rpc: SocketClient, queue: str) -> None:
    twice = [job(queue, idempotency_key="k")] * 2
    atomic = accepted(await rpc.atomic(*twice))
    assert atomic == [(atomic[0][0], False), (atomic[0][0], True)]
    batch = [each.success for each in await rpc.batch(*[job(queue, idempotency_key="j")] * 2)]
    assert batch[1] == pb.EnqueueResponse(job_id=batch[0].job_id, deduplicated=True)
    assert len(await rpc.reserve(queue, max_jobs=9)) == 2


async def test_a_refused_batch_leaves_no_key_behind(rpc: SocketClient, queue: str) -> None:
    await rpc.atomic(job(queue, idempotency_key="k"), job(queue, priority=10))
    await rpc.enqueue(queue, idempotency_key="k")
