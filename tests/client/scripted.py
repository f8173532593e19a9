"""A queue service that does what a test says, to see what the client makes of it."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import purerpc
import trio
from purerpc import StatusCode

from sepp._generated import queue_pb2 as pb
from sepp._generated.queue_purerpc import QueueServiceServicer
from sepp.rpc.call import Call
from tests.rpc.support import Harness, serving

Step = Callable[[Call], None]


def stored(call: Call) -> None:
    """Answer an EnqueueBatch of one job."""
    answer = pb.EnqueueBatchResponse()
    answer.results.add().success.job_id = "the-job"
    call.respond(answer.SerializeToString())


def empty(call: Call) -> None:
    """Answer with a message that sets nothing."""
    call.respond(b"")


def failing(code: StatusCode) -> Step:
    """Answer with a status."""
    return lambda call: call.fail(code, "scripted")


class Scripted:
    """What the service does with its calls, one step a call; the last step goes on for ever."""

    def __init__(self, *steps: Step) -> None:
        self.steps = list(steps)
        self.calls: list[Call] = []
        self.changed = trio.Event()

    def park(self, call: Call) -> None:
        """Leave the call unanswered."""

    def handle(self, call: Call) -> None:
        """Take the next step."""
        self.calls.append(call)
        self.changed.set()
        self.changed = trio.Event()
        step = self.steps.pop(0) if len(self.steps) > 1 else self.steps[0]
        step(call)

    async def called(self, count: int = 1) -> None:
        """Wait until that many calls have come."""
        while len(self.calls) < count:
            await self.changed.wait()


class ScriptedService(QueueServiceServicer):
    """The service of a script, whatever the method."""

    def __init__(self, script: Scripted) -> None:
        for name in QueueServiceServicer.__dict__:
            if name[0].isupper():
                setattr(self, name, script.handle)


@asynccontextmanager
async def scripted(script: Scripted, port: int = 0) -> AsyncIterator[Harness]:
    """Serve a script."""
    servicer: purerpc.Servicer = ScriptedService(script)
    async with serving(servicer, port=port) as harness:
        yield harness
