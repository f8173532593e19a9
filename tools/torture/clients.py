"""Clients that keep working whatever the server does, and tell the oracle."""

import random
import time

import trio
from google.protobuf.message import Message

from sepp._generated import queue_pb2 as pb
from sepp.rpc.channel import Channel
from sepp.rpc.grpc import RpcError
from sepp.rpc.poller import Poller
from tools.torture.oracle import Oracle
from tools.torture.server import call

QUEUES = ("mail", "image", "report")
LEASE_S = 2
WAIT_MS = 200
QUIET = 2 * LEASE_S * 1000 // WAIT_MS  # empty answers in a row: nothing comes any more
PATIENCE = 5 * QUIET  # the same while something is missing


class Client:
    """One connection's worth of mixed work, reconnecting for as long as it is not cancelled."""

    def __init__(self, number: int, port: int, oracle: Oracle, rng: random.Random) -> None:
        self.number = number
        self.port = port
        self.oracle = oracle
        self.rng = rng
        self.sent = 0

    async def run(self, poller: Poller) -> None:
        """Work until cancelled; a dead server only means to try again."""
        while True:
            try:
                channel = await Channel.connect(poller, "127.0.0.1", self.port)
            except RpcError:
                await trio.sleep(0.01)
                continue
            try:
                while True:
                    await self.step(channel)
            except RpcError:
                await trio.sleep(0.01)
            finally:
                channel.close()

    async def step(self, channel: Channel) -> None:
        """A few enqueues or one round of work."""
        if self.rng.random() < 0.5:
            await self.enqueue(channel)
        else:
            await self.work(channel)
        self.oracle.operations += 1

    async def enqueue(self, channel: Channel) -> None:
        """One batch; its jobs count as acknowledged only when the answer came."""
        rng, jobs, tags = self.rng, [], []
        for _ in range(rng.choice((1, 1, 1, 5, 20))):
            self.sent += 1
            tag = f"{self.number}-{self.sent}"
            size = rng.choice((16, 256, 256, 4096, 60_000))
            job = pb.EnqueueRequest(queue=rng.choice(QUEUES), job_type=tag)
            job.payload.data = tag.encode().ljust(size, b".")
            job.payload.encoding = "text"
            if rng.random() < 0.1:
                job.scheduled_at.FromMilliseconds(int(time.time() * 1000) + rng.randrange(1500))
            if rng.random() < 0.2:
                job.idempotency_key = tag
            jobs.append(job)
            tags.append(tag)
        method = rng.choice(("EnqueueBatch", "EnqueueAtomic"))
        era = self.oracle.era
        answer = await call(channel, method, pb.EnqueueBatchRequest(jobs=jobs))
        if method == "EnqueueBatch":
            results = [r.success for r in pb.EnqueueBatchResponse.FromString(answer).results]
        else:
            results = list(pb.EnqueueAtomicResponse.FromString(answer).success.responses)
        for tag, result in zip(tags, results, strict=True):
            assert result.job_id, f"job {tag} was rejected"
            if era == self.oracle.era:
                self.oracle.enqueued[result.job_id] = tag

    async def work(self, channel: Channel) -> None:
        """Reserve some jobs; ack most, nack some, let a few leases run out."""
        for job in await reserve(channel, self.oracle, max_jobs=self.rng.choice((1, 4, 16))):
            fate = self.rng.random()
            if fate < 0.8:
                await ack(channel, self.oracle, job)
            elif fate < 0.9:
                request = pb.NackRequest(job_id=job.id, attempt=job.attempt, reason="not today")
                if self.rng.random() < 0.5:
                    request.retry.delay.FromMilliseconds(self.rng.randrange(500))
                await holder_call(channel, "Nack", request)


async def reserve(channel: Channel, oracle: Oracle, *, max_jobs: int) -> list[pb.Job]:
    """Reserve from all queues and show the oracle what came."""
    request = pb.ReserveRequest(queues=QUEUES, max_jobs=max_jobs)
    request.lease_duration.FromSeconds(LEASE_S)
    request.wait_timeout.FromMilliseconds(WAIT_MS)
    era = oracle.era
    answer = await call(channel, "Reserve", request)
    if era != oracle.era:
        return []
    jobs = list(pb.ReserveResponse.FromString(answer).jobs)
    for job in jobs:
        assert job.payload.data.startswith(job.job_type.encode()), f"payload of {job.id} is wrong"
        oracle.delivered(job.id, job.attempt)
    return jobs


async def ack(channel: Channel, oracle: Oracle, job: pb.Job) -> None:
    """Ack one job; from the moment it is sent until it is answered, either outcome is right."""
    era = oracle.era
    oracle.acking.add(job.id)
    is_acked = await holder_call(channel, "Ack", pb.AckRequest(job_id=job.id, attempt=job.attempt))
    if era == oracle.era:
        oracle.acking.discard(job.id)
        if is_acked:
            oracle.acked.add(job.id)


async def holder_call(channel: Channel, method: str, request: Message) -> bool:
    """Ack or nack; False when the lease was lost to time."""
    try:
        await call(channel, method, request)
    except RpcError as error:
        if error.code.name in ("NOT_FOUND", "FAILED_PRECONDITION"):
            return False
        raise
    return True


async def drain(poller: Poller, port: int, oracle: Oracle) -> None:
    """Work off all that is left, so that what never comes is lost.

    Patience is counted in empty answers, not in time: a machine may be busy.
    """
    channel = await Channel.connect(poller, "127.0.0.1", port)
    empty_count = 0
    while empty_count < (PATIENCE if oracle.missing() else QUIET):
        jobs = await reserve(channel, oracle, max_jobs=64)
        for job in jobs:
            await ack(channel, oracle, job)
        empty_count = 0 if jobs else empty_count + 1
    channel.close()
    oracle.settle()
