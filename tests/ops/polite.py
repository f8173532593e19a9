"""A well-behaved client in a process of its own: enqueue, reserve, ack, one after the other.

    python -m tests.ops.polite PORT

Works until its stdin ends, then prints what happened as one JSON object. Its times are not
disturbed by whatever the test does beside it.
"""

import json
import sys
from collections.abc import Awaitable
from time import perf_counter
from typing import TypeVar

import trio
from attrs import asdict, define, field

from sepp.rpc.grpc import RpcError
from tests.e2e.rpc_client import Client, connected

QUEUE = "polite"
ERRORS_MAX = 100
T = TypeVar("T")


@define
class Result:
    """What happened."""

    times_ms: list[float] = field(factory=list)
    errors: list[str] = field(factory=list)
    enqueued: int = 0
    acked: int = 0

    async def timed(self, call: Awaitable[T]) -> T:
        started = perf_counter()
        answer = await call
        self.times_ms.append((perf_counter() - started) * 1000)
        return answer


async def work(client: Client, result: Result, is_over: trio.Event) -> None:
    """Whole cycles only, so that nothing is left half done."""
    while not is_over.is_set():
        try:
            await result.timed(client.enqueue(QUEUE))
            result.enqueued += 1
            (job,) = await result.timed(client.reserve(QUEUE, wait_s=10))
            await result.timed(client.ack(job))
            result.acked += 1
        except RpcError as fault:
            result.errors.append(str(fault))
            if len(result.errors) >= ERRORS_MAX:
                return  # the server is gone for good; trying on would only burn the processor


async def main(port: int) -> None:
    result, is_over = Result(), trio.Event()
    async with connected(port) as client, trio.open_nursery() as nursery:
        nursery.start_soon(work, client, result, is_over)
        print("ready", flush=True)
        await trio.to_thread.run_sync(sys.stdin.read)
        is_over.set()
    print(json.dumps(asdict(result)))


if __name__ == "__main__":
    trio.run(main, int(sys.argv[1]))
