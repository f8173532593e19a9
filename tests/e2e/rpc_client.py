"""Short words for calls to a real server, over our own channel."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from sepp._generated import queue_pb2 as pb
from sepp.rpc.channel import Channel, open_channel


class Client:
    """One connection to the queue service."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel

    async def call(self, method: str, request: Any, answer: Any, timeout_s: float = 60) -> Any:
        path = f"/sepp.v1.QueueService/{method}"
        message = request.SerializeToString()
        answer.ParseFromString(await self.channel.unary(path, message, timeout_s=timeout_s))
        return answer

    async def enqueue(self, queue: str = "q", data: bytes = b"data", **fields: Any) -> str:
        """Store one job and return its id."""
        job = pb.EnqueueRequest(queue=queue, job_type="t", **fields)
        job.payload.data = data
        job.payload.encoding = "text"
        request = pb.EnqueueBatchRequest(jobs=[job])
        answer = await self.call("EnqueueBatch", request, pb.EnqueueBatchResponse())
        job_id: str = answer.results[0].success.job_id
        assert job_id, answer
        return job_id

    async def reserve(
        self, queue: str = "q", *, wait_s: float = 0, lease_s: float = 60, max_jobs: int = 1
    ) -> list[pb.Job]:
        """Lease jobs."""
        request = pb.ReserveRequest(queues=[queue], max_jobs=max_jobs)
        request.lease_duration.FromMilliseconds(round(lease_s * 1000))
        request.wait_timeout.FromMilliseconds(round(wait_s * 1000))
        answer = await self.call("Reserve", request, pb.ReserveResponse())
        return list(answer.jobs)

    async def ack(self, job: pb.Job) -> None:
        """Finish a job."""
        request = pb.AckRequest(job_id=job.id, attempt=job.attempt)
        await self.call("Ack", request, pb.AckResponse())

    async def extend(self, job: pb.Job, lease_s: float = 60) -> None:
        """Hold a job longer."""
        request = pb.ExtendRequest(job_id=job.id, attempt=job.attempt)
        request.lease_duration.FromMilliseconds(round(lease_s * 1000))
        await self.call("Extend", request, pb.ExtendResponse())

    async def nack(self, job: pb.Job, **fields: Any) -> None:
        """Give a job up."""
        request = pb.NackRequest(job_id=job.id, attempt=job.attempt, **fields)
        await self.call("Nack", request, pb.NackResponse())


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[Client]:
    """A client of the server on that port."""
    async with open_channel("127.0.0.1", port) as channel:
        yield Client(channel)
