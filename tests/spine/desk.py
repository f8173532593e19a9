"""A committer on a real store on a simulated disk, with a gate before the disk."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import trio
from attrs import define, field

from segstore import Lane, Options, Store
from sepp.clock import Clock
from sepp.committer import Committer
from sepp.core.commands import Command, Enqueue, NewJob, Reserve
from sepp.core.limits import QueueLimits
from sepp.core.machine import Machine
from sepp.core.outcomes import Outcome
from sepp.core.slots import FIELDS
from sepp.journal import Journal
from sepp.request import Body, Refusal
from tests.fakes.simvfs import SimVFS

T = TypeVar("T")

START_MS = 1_800_000_000_000


class Policy:
    """The same limits for every queue."""

    def limits(self, queue: str) -> QueueLimits:
        return QueueLimits()


class Gate:
    """Runs what blocks, once it is open. Counts the writes and syncs of commits that came by."""

    def __init__(self) -> None:
        self.opened = trio.Event()
        self.opened.set()
        self.commit_count = 0

    def shut(self) -> None:
        """Let no commit through any more."""
        self.opened = trio.Event()

    def open(self) -> None:
        """Let them through again."""
        self.opened.set()

    async def __call__(self, function: Callable[[], T], lane: Lane) -> T:
        if lane is Lane.COMMIT:
            self.commit_count += 1
            await self.opened.wait()
        await trio.lowlevel.checkpoint()
        return function()


@define(eq=False)
class Ask:
    """A request that remembers what it was told."""

    command: Command
    is_gone: bool = False
    outcomes: list[Outcome] = field(factory=list)
    bodies: list[Body] = field(factory=list)
    refusals: list[Refusal] = field(factory=list)

    def answer(self, outcome: Outcome, bodies: list[Body]) -> None:
        self.outcomes.append(outcome)
        self.bodies = list(bodies)

    def refuse(self, refusal: Refusal) -> None:
        self.refusals.append(refusal)


@define(eq=False)
class Desk:
    """Everything a test holds."""

    disk: SimVFS
    gate: Gate
    store: Store
    machine: Machine
    clock: Clock
    committer: Committer
    flush_count: int = 0
    serving: trio.CancelScope = field(factory=trio.CancelScope)

    def submit(self, command: Command) -> Ask:
        ask = Ask(command)
        self.committer.submit(ask)
        return ask


def trio_clock_ns() -> int:
    """Trio's clock, so that a mock clock moves ours too."""
    return int(trio.current_time() * 1e9)


async def open_desk(disk: SimVFS, gate: Gate, *, capacity: int = 4096) -> Desk:
    """Open store, machine and committer; the committer is not serving yet."""
    base_ns = START_MS * 1_000_000 - trio_clock_ns()
    clock = Clock(wall_ns=lambda: base_ns + trio_clock_ns(), monotonic_ns=trio_clock_ns)
    store = await Store.open(
        disk.directory,
        fields=FIELDS,
        options=Options(segment_bytes=1 << 20),
        vfs=disk,
        clock_ms=lambda: clock.now().wall_ms,
        run_in_worker=gate,
    )
    await store.become_writer()
    machine = Machine(store.slots, Policy(), retention_ms=60_000)
    journal = Journal(store, machine)
    await journal.restore(clock.now())
    desk: Desk

    def count_flush() -> None:
        desk.flush_count += 1

    committer = Committer(journal, clock, capacity=capacity, flush=count_flush)
    desk = Desk(disk, gate, store, machine, clock, committer)
    return desk


@asynccontextmanager
async def serving(*, capacity: int = 4096) -> AsyncIterator[Desk]:
    """A desk whose committer serves until the block ends."""
    desk = await open_desk(SimVFS(), Gate(), capacity=capacity)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(desk.committer.serve)
        try:
            yield desk
        finally:
            desk.gate.open()  # a commit under way is not cancelled
            nursery.cancel_scope.cancel()


def enqueue(number: int, queue: str = "q", body: bytes = b"body") -> Enqueue:
    """The command that inserts job `number`."""
    return Enqueue([NewJob(queue, number.to_bytes(16, "big"), body, 0, 3)])


def reserve(queue: str = "q", *, wait_ms: int = 0, max_jobs: int = 1) -> Reserve:
    """The command that leases from one queue for a minute."""
    return Reserve((queue,), lease_ms=60_000, wait_ms=wait_ms, max_jobs=max_jobs)
