"""Drives a server of sepp.v1 through the official client `sepp-py`, as an application would.

Runs in an environment of its own. One channel for the producers and one for the workers, or as many
as asked for; each party is a task that makes one call at a time.
"""

import asyncio
import json
import sys
from datetime import timedelta
from importlib.metadata import version
from typing import Any

import grpc
from lines import Meter, say

from sepp import EnqueueAck, EnqueueRequest, Payload, ReserveOptions, SeppClient

LEASE = timedelta(seconds=120)
WAIT = timedelta(seconds=1)
# Channels to one address share a connection unless told not to.
CHANNEL_OPTIONS = [("grpc.use_local_subchannel_pool", 1)]


class Phase:
    """One order under way."""

    def __init__(self, order: dict[str, Any], payload: Payload) -> None:
        self.order = order
        self.payload = payload
        self.meter: Meter
        self.over = asyncio.Event()

    async def produce(self, client: SeppClient) -> None:
        meter, batch = self.meter, self.order["batch"]
        jobs = [EnqueueRequest(self.order["queue"], "bench", self.payload)] * batch
        while count := meter.take(batch):
            if count == 1:
                await client.enqueue(jobs[0])
            else:
                for result in await client.enqueue_batch(jobs[:count]):
                    if not isinstance(result, EnqueueAck):
                        raise RuntimeError(f"a job was rejected: {result}")
            meter.enqueued += count

    async def work(self, client: SeppClient) -> None:
        meter = self.meter
        options = ReserveOptions(
            [self.order["queue"]], LEASE, wait_timeout=WAIT, max_jobs=self.order["reserve"]
        )
        while not self.over.is_set():
            jobs = await client.reserve(options)
            if not jobs:
                continue
            if len(jobs) == 1:
                await client.ack(jobs[0].ctx)
            else:
                await asyncio.gather(*(client.ack(job.ctx) for job in jobs))
            meter.completed += len(jobs)
            if meter.is_drained():
                self.over.set()

    async def run(self, producers: list[SeppClient], workers: list[SeppClient]) -> dict[str, Any]:
        """The phase's result. Returns when every party has ended."""
        phase, count = self.order["phase"], self.order["parties"]
        self.meter = meter = Meter(self.order)
        working = []
        if phase != "enqueue":
            clients = [workers[i % len(workers)] for i in range(count)]
            working = [asyncio.create_task(self.work(client)) for client in clients]
        if phase != "drain":
            clients = [producers[i % len(producers)] for i in range(count)]
            await asyncio.gather(*(self.produce(client) for client in clients))
        if phase == "both":
            meter.goal = meter.enqueued
        if phase != "enqueue" and not meter.is_drained():
            left = meter.hard_end - meter.started
            failing = asyncio.gather(*working)
            ending = asyncio.create_task(self.over.wait())
            await asyncio.wait({failing, ending}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            ending.cancel()
        result = meter.result()
        self.over.set()
        await asyncio.gather(*working)
        return result


async def connect(port: int, count: int) -> list[SeppClient]:
    """Clients with a connection each."""
    clients = []
    for _ in range(count):
        channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=CHANNEL_OPTIONS)
        await asyncio.wait_for(channel.channel_ready(), 30)
        clients.append(SeppClient.from_channel(channel))
    return clients


async def main() -> None:
    """Connect, say what we are, then orders until the end of input."""
    options = json.loads(sys.argv[1])
    clients = await connect(options["port"], options["connections"])
    half = len(clients) // 2
    producers, workers = clients[:half] or clients, clients[half:]
    payload = Payload(b"x" * options["payload_bytes"], "raw")
    say({"client": f"sepp-py {version('sepp-py')}, grpcio {version('grpcio')}"})
    loop = asyncio.get_running_loop()
    order: dict[str, Any] | None = None
    # Read in a thread, so that connections stay alive between orders.
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        if order is None:
            order = json.loads(line)
            say({"prepared": True})
        else:
            say(await Phase(order, payload).run(producers, workers))
            order = None
    for client in clients:
        await client.close()


if __name__ == "__main__":
    asyncio.run(main())
