"""Questions to a server whose answers tell which limit holds for a queue.

A probe uses one queue and leaves nothing ready in it.
"""

from typing import Any

import trio
from purerpc import StatusCode

from sepp._generated import queue_pb2 as pb
from sepp.rpc.grpc import RpcError
from tests.e2e.rpc_client import Client

HOUR_MS = 3_600_000
# Waits that are over by then were short, all others were not.
SHORT_S = 0.4


async def clear(client: Client, queue: str) -> list[pb.Job]:
    """Take and ack all that is ready; return it."""
    taken = []
    while jobs := await client.reserve(queue, max_jobs=100):
        taken += jobs
        for job in jobs:
            await client.ack(job)
    return taken


async def store(client: Client, queue: str, count: int = 1, **fields: Any) -> list[str]:
    """Enqueue alike jobs in one call; "ok" or the reason for each, or the status of the call."""
    jobs = []
    for _ in range(count):
        job = pb.EnqueueRequest(queue=queue, job_type=fields.get("job_type", "welcome"))
        job.payload.data = b"x" * fields.get("payload_bytes", 100)
        job.payload.encoding = "text"
        for name in ("priority", "max_attempts", "idempotency_key"):
            if name in fields:
                setattr(job, name, fields[name])
        for key, value in fields.get("custom", {}).items():
            job.custom[key].string_value = value
        if "ahead_s" in fields:
            job.scheduled_at.GetCurrentTime()
            job.scheduled_at.seconds += fields["ahead_s"]
        jobs.append(job)
    try:
        answer = await client.call(
            "EnqueueBatch", pb.EnqueueBatchRequest(jobs=jobs), pb.EnqueueBatchResponse()
        )
    except RpcError as fault:
        return [fault.code.name]
    return [
        result.rejection.WhichOneof("reason") if result.HasField("rejection") else "ok"
        for result in answer.results
    ]


class Stored:
    """Tries to store alike jobs and tells what became of each."""

    def __init__(self, count: int = 1, **fields: Any) -> None:
        self.count, self.fields = count, fields

    async def __call__(self, client: Client, queue: str) -> list[str]:
        results = await store(client, queue, self.count, **self.fields)
        if "ok" in results:
            await clear(client, queue)
        return results


class Field:
    """Stores a job and tells a field of it as a worker gets it."""

    def __init__(self, name: str, **fields: Any) -> None:
        self.name, self.fields = name, fields

    async def __call__(self, client: Client, queue: str) -> Any:
        await store(client, queue, **self.fields)
        (job,) = await clear(client, queue)
        return getattr(job, self.name)


async def lease_is_short(client: Client, queue: str) -> bool:
    """Whether a lease of an hour is cut to less than a minute."""
    await store(client, queue)
    (job,) = await client.reserve(queue, lease_s=HOUR_MS / 1000)
    info = await client.call("GetServerInfo", pb.GetServerInfoRequest(), pb.GetServerInfoResponse())
    await client.ack(job)
    return job.lease_expires_at.seconds - info.server_time.seconds < 60


async def redelivery_is_prompt(client: Client, queue: str, attempts: int = 1) -> bool:
    """Whether a job that failed so many times is there again at once."""
    await store(client, queue, max_attempts=50)
    for _ in range(attempts):
        jobs = await client.reserve(queue, wait_s=30)
        await client.nack(jobs[0])
    prompt = await client.reserve(queue, wait_s=SHORT_S)
    for job in prompt:
        await client.ack(job)
    return bool(prompt)


async def late_redelivery_is_prompt(client: Client, queue: str) -> bool:
    """The same at the twelfth failure, when 1 ms has doubled to 2 s, if delays grow."""
    return await redelivery_is_prompt(client, queue, 12)


async def reserved_at_once(client: Client, queue: str) -> int:
    """How many of three jobs one Reserve for three returns."""
    await store(client, queue, 3, payload_bytes=1000)
    jobs = await client.reserve(queue, max_jobs=3)
    for job in jobs:
        await client.ack(job)
    await clear(client, queue)
    return len(jobs)


async def two_queues(client: Client, queue: str) -> str:
    """What a Reserve over two queues says."""
    request = pb.ReserveRequest(queues=[queue, f"{queue}-2"])
    request.lease_duration.FromSeconds(60)
    try:
        await client.call("Reserve", request, pb.ReserveResponse())
    except RpcError as fault:
        return fault.code.name
    return "OK"


async def wait_is_short(client: Client, queue: str) -> bool:
    """Whether a wait of a minute ends at once."""
    with trio.move_on_after(SHORT_S) as scope:
        await client.reserve(queue, wait_s=60)
    return not scope.cancelled_caught


async def is_let_in(client: Client, queue: str) -> bool:
    """Whether a call without a key is served."""
    return await store(client, queue) != [StatusCode.UNAUTHENTICATED.name]
