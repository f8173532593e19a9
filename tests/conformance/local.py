"""The whole service in this process, on a simulated disk, with a wall clock that a test may set.

Everything behind the socket is the server's own: service, committer, sweeper, journal, core and
store. Time is Trio's; with `autojump_clock` hours pass at once. The wall clock can be stepped away
from it.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import tomlkit
import trio
from attrs import define, field
from google.protobuf.message import Message
from purerpc import StatusCode

from segstore import Options, Store, run_inline
from sepp.auth import ApiKeys
from sepp.clock import Clock
from sepp.committer import Committer
from sepp.config.load import parse
from sepp.config.policy import QueuePolicy
from sepp.core.commands import Command
from sepp.core.machine import Machine
from sepp.core.outcomes import Outcome
from sepp.core.slots import FIELDS
from sepp.journal import Journal
from sepp.rpc.channel import Metadata, RpcError
from sepp.service import QueueService
from sepp.sweeper import Sweeper
from tests.conformance.client import RESPONSES, Client, M
from tests.fakes.simvfs import SimVFS
from tests.spine.desk import START_MS, Gate, trio_clock_ns

HOUR_MS = 3_600_000


@define(eq=False)
class LocalCall:
    """What the service sees of a call, and what it said."""

    message: bytes
    path: str = ""
    deadline: float | None = None
    is_open: bool = True
    on_gone: Callable[[Any], None] | None = None
    answer: bytes | RpcError | None = None
    is_answered: trio.Event = field(factory=trio.Event)
    is_delivered: bool = True  # False: what is answered never reaches the caller

    def header(self, name: bytes) -> bytes | None:
        """No metadata comes along."""
        return None

    def respond(self, message: bytes, on_undelivered: Callable[[], None] | None = None) -> None:
        """As `Call.respond`."""
        if not (self.is_open and self.is_delivered):
            self.is_open = False
            if on_undelivered is not None:
                on_undelivered()
            return
        self._end(message)

    def fail(self, code: StatusCode, text: str) -> None:
        """As `Call.fail`."""
        if self.is_open:
            self._end(RpcError(code, text))

    def leave(self) -> None:
        """The caller goes: stream reset, connection closed, deadline passed."""
        if self.is_open:
            self.is_open = False
            if self.on_gone is not None:
                self.on_gone(self)

    def _end(self, answer: bytes | RpcError) -> None:
        self.is_open = False
        self.answer = answer
        self.is_answered.set()

    async def result(self, kind: type[M]) -> M:
        """Wait for the answer; raise RpcError if it is a status."""
        await self.is_answered.wait()
        if isinstance(self.answer, RpcError):
            raise self.answer
        assert self.answer is not None
        return kind.FromString(self.answer)


@define(eq=False)
class Wall:
    """A wall clock that runs with Trio's and can be set."""

    base_ns: int = field(factory=lambda: START_MS * 1_000_000 - trio_clock_ns())

    def __call__(self) -> int:
        return self.base_ns + trio_clock_ns()

    @property
    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return self() // 1_000_000

    def step(self, span_ms: int) -> None:
        """Set it forwards or backwards."""
        self.base_ns += span_ms * 1_000_000


class LocalClient(Client):
    """A running service and everything behind it."""

    def __init__(
        self, service: QueueService, committer: Committer, machine: Machine, store: Store
    ) -> None:
        self.store = store
        self.service = service
        self.committer = committer
        self.machine = machine

    def start(self, method: str, request: Message) -> LocalCall:
        """Begin a call and leave it be."""
        return self._start(method, request.SerializeToString())

    def _start(self, method: str, message: bytes, *, is_delivered: bool = True) -> LocalCall:
        call = LocalCall(message, is_delivered=is_delivered)
        getattr(self.service, method)(call)
        return call

    async def raw(self, method: str, message: bytes, metadata: Metadata = ()) -> bytes:
        """See `Client.raw`."""
        answer = await self._start(method, message).result(RESPONSES[method])
        return answer.SerializeToString()

    def start_undelivered(self, method: str, request: Message) -> LocalCall:
        """Begin a call whose answer never reaches the caller."""
        return self._start(method, request.SerializeToString(), is_delivered=False)

    async def run(self, command: Command) -> Outcome:
        """Do what only an operator may."""
        return await self.committer.run(command)


@define(eq=False)
class Place:
    """A disk and a wall clock: what outlives a restart. Without sweeps nothing is ever due."""

    settings: Mapping[str, Any] = field(factory=dict)
    disk: SimVFS = field(factory=SimVFS)
    wall: Wall = field(factory=Wall)
    is_sweeping: bool = True
    gate: Gate | None = None  # to hold commits back

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[LocalClient]:
        """Serve from this disk until the block ends, which is a crash: nothing is flushed."""
        config = parse(tomlkit.dumps(dict(self.settings)), "sepp.toml", {}).config
        policy = QueuePolicy(config)
        clock = Clock(wall_ns=self.wall, monotonic_ns=trio_clock_ns)
        store = await Store.open(
            self.disk.directory,
            fields=FIELDS,
            options=Options(segment_bytes=1 << 20),
            vfs=self.disk,
            clock_ms=lambda: self.wall.now_ms,
            run_in_worker=self.gate or run_inline,
        )
        await store.become_writer()
        clock.resume(store.position().log_clock_ms)
        storage = config.storage
        machine = Machine(store.slots, policy, retention_ms=storage.dead_letter_retention_ms)
        journal = Journal(store, machine)
        await journal.restore(clock.now())
        committer = Committer(
            journal, clock, capacity=storage.command_queue_capacity, flush=lambda: None
        )
        sweeper = Sweeper(
            committer,
            clock,
            interval_ms=storage.sweep_interval_ms,
            count_max=storage.sweep_limit,
            retention_ms=storage.dead_letter_retention_ms,
        )
        service = QueueService(
            policy,
            ApiKeys(config.auth.api_keys),
            clock,
            retention_ms=storage.dead_letter_retention_ms,
        )
        service.start(committer, journal.dedup_key)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(committer.serve)
            if self.is_sweeping:
                nursery.start_soon(sweeper.serve)
            yield LocalClient(service, committer, machine, store)
            machine.check()
            nursery.cancel_scope.cancel()
        self.disk = self.disk.crash()


@asynccontextmanager
async def local(**settings: Any) -> AsyncIterator[LocalClient]:
    """A service on a disk of its own; sections of the configuration as arguments."""
    async with Place(settings).serving() as client:
        yield client
