"""A server with a few telling methods, and ways to reach it, for all tests of sepp.rpc."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import purerpc
import trio

from sepp.rpc.call import Call
from sepp.rpc.channel import Channel, open_channel
from sepp.rpc.server import Server

ECHO = "/test.Test/Echo"
PARK = "/test.Test/Park"
WAIT = "/test.Test/Wait"
FAULTY = "/test.Test/Faulty"
REFUSE = "/test.Test/Refuse"
SIZED = "/test.Test/Sized"


class Methods:
    """Handlers, and what became of their calls."""

    def __init__(self) -> None:
        self.parked: list[Call] = []
        self.gone: list[Call] = []
        self.seen: list[Call] = []
        self.undelivered = 0
        self.waiting = 0
        self.changed = trio.Event()

    def Echo(self, call: Call) -> None:
        self.seen.append(call)
        call.respond(call.message)

    def Park(self, call: Call) -> None:
        """Leave the call unanswered; a test answers, or looks at `gone`."""
        call.on_gone = self._leave
        self.parked.append(call)
        self._change()

    def _leave(self, call: Call) -> None:
        self.gone.append(call)
        self._change()

    def Wait(self, call: Call) -> None:
        """Leave the call unanswered and keep nothing of it but a count."""
        self.waiting += 1
        call.on_gone = self._leave_uncounted

    def _leave_uncounted(self, call: Call) -> None:
        self.waiting -= 1

    def Faulty(self, call: Call) -> None:
        raise ValueError("a bug of the method")

    def Refuse(self, call: Call) -> None:
        raise purerpc.RpcFailedError(purerpc.Status(purerpc.StatusCode.ABORTED, "by the method"))

    def Sized(self, call: Call) -> None:
        """Answer with as many bytes as the request names."""
        call.respond(bytes(int(call.message)), self.count_undelivered)

    def count_undelivered(self) -> None:
        self.undelivered += 1
        self._change()

    def _change(self) -> None:
        self.changed.set()
        self.changed = trio.Event()

    async def wait_until(self, holds: Callable[[], bool]) -> None:
        """Wait for a state, looked at after each change of this object."""
        while not holds():
            await self.changed.wait()


class TestService(purerpc.Servicer):
    __test__ = False

    def __init__(self, methods: Methods) -> None:
        self._methods = methods

    @property
    def service(self) -> purerpc.Service:
        service = purerpc.Service("test.Test")
        signature = purerpc.RPCSignature(purerpc.Cardinality.UNARY_UNARY, bytes, bytes)
        for name in ("Echo", "Park", "Wait", "Faulty", "Refuse", "Sized"):
            service.add_method(name, getattr(self._methods, name), signature)
        return service


class Harness:
    """A running server."""

    def __init__(self, server: Server, methods: Methods) -> None:
        self.server = server
        self.methods = methods

    @property
    def port(self) -> int:
        return self.server.port

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait for a state of the server that no event announces; a hang guard in real time fails.

        Works under a frozen clock, too: sockets are served while the test only passes checkpoints.
        """
        give_up_at = time.monotonic() + 10
        while not holds():
            assert time.monotonic() < give_up_at, "the state was not reached"
            await trio.lowlevel.checkpoint()


@asynccontextmanager
async def serving(*more: purerpc.Servicer, **options: Any) -> AsyncIterator[Harness]:
    """A server on a free port of the loopback address; options as for `Server`."""
    methods = Methods()
    server = Server(**options)
    for servicer in (TestService(methods), *more):
        server.add_service(servicer.service)
    async with trio.open_nursery() as nursery:
        await nursery.start(lambda task_status: server.serve_async(task_status=task_status))
        yield Harness(server, methods)
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def calling(harness: Harness, **options: Any) -> AsyncIterator[Channel]:
    """A channel to the server."""
    async with open_channel("127.0.0.1", harness.port, **options) as channel:
        yield channel


def purerpc_channel(harness: Harness) -> Any:
    """A channel of purerpc, an independent peer; needs the fixture `purerpc_leftovers`."""
    return purerpc.insecure_channel("127.0.0.1", harness.port)
