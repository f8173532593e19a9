"""The one door for change: commands go in by `Committer.submit`, answers leave after their sync.

A command is applied to the machine at once, in the caller's turn. Its writes collect in the *open
group*. One task turns the open group into a batch and commits it; while the disk works on that, new
commands are applied to the next group. When the sync is done the next batch starts first and the
finished group is answered while the disk works. Hence:

- nothing that depends on an unsynced change is shown to anyone: an answer waits for the newest
  batch that held a change when its command was applied, and leaves at once when there is none;
- RAM never has to be rolled back: a batch that fails ends the process (`StoreFailed`);
- one sync serves all commands that came while the one before it ran (group commit).
"""

import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

import trio

from segstore import BodyDamaged, Room, StoreFailed
from sepp.clock import Clock
from sepp.core.commands import Ack, Command, Enqueue, Extend, Nack, Now, Reserve, Sweep
from sepp.core.outcomes import Drained, Leased, Outcome, Parked, Swept
from sepp.core.statistics import JobRow
from sepp.counts import CommitStatistics
from sepp.journal import Body, Journal
from sepp.request import AwaitedRequest, Refusal, Request

RECORDS_MAX: Final = 4096
BYTES_MAX: Final = 4 * 1024 * 1024
# Answers are sent so many at a time: callers of the first go on while the others are still made.
FLUSH_ANSWERS: Final = 24
# How long a call may wait for room in the command queue before it is refused.
QUEUE_WAIT_S: Final = 5.0

_BODILESS: Final = frozenset((Enqueue, Ack, Nack, Extend))  # nothing of a body is in the answer
_NO_BODIES: Final[list[Body]] = []


class _Group:
    """Commands applied since the last batch was built, and what they wait for."""

    __slots__ = ("answers", "body_bytes", "reads")

    def __init__(self) -> None:
        self.answers: list[tuple[Request, Outcome, list[Body]]] = []
        # Bodies that were not in the page cache: where they go, and the read that was begun.
        self.reads: list[tuple[list[Body], list[int], Awaitable[list[bytes | BodyDamaged]]]] = []
        self.body_bytes = 0

    async def finish_reads(self) -> None:
        for bodies, missing, read in self.reads:
            for index, body in zip(missing, await read, strict=True):
                bodies[index] = body


class Committer:
    """Applies commands and makes them durable in groups.

    Args:
        journal: Joins machine and store.
        clock: Read for each command, at most once a millisecond.
        capacity: Commands that may wait for a group to have room.
        flush: Sends what was answered; called every FLUSH_ANSWERS answers, and after a group's
            last.

    Attributes:
        is_memory_short: Set from outside: no new jobs for now.
        statistics: Commits so far.
    """

    def __init__(
        self, journal: Journal, clock: Clock, *, capacity: int, flush: Callable[[], None]
    ) -> None:
        self._journal = journal
        self._machine = journal.machine
        self._handle = journal.machine.handle
        self._waiters = journal.machine.table.waiters
        # The writes of the open group; emptied in place when a batch is built.
        self._puts = journal.machine.puts
        self._states = journal.machine.states
        self._deletes = journal.machine.deletes
        self._store = journal.store
        self._clock = clock
        self._capacity = capacity
        self._flush = flush
        self._open = _Group()
        self._in_flight: _Group | None = None
        self._durable: deque[_Group] = deque()
        self._parked: dict[Reserve, Request] = {}
        # Commands that found the open group full; beyond the capacity they wait with a deadline.
        self._waiting: deque[Request] = deque()
        self._overflow: deque[tuple[float, Request]] = deque()
        self._overflowed = trio.Event()
        self._work = trio.Event()
        self._done = trio.Event()
        self._idle = trio.Event()
        self._deadline_moved = trio.Event()
        self._planned: tuple[int | None, int | None] = (None, None)
        self.is_memory_short = False
        self._room = self._store.room()
        self._no_room = Refusal.DISK_FULL
        self._looked_at: Now | None = None  # when the room was asked for: once a millisecond
        self._unanswered = 0  # groups that are durable, or had nothing to write, and not answered
        self.statistics = CommitStatistics()

    # Submitting.

    def submit(self, request: Request) -> None:
        """Apply a request now, or queue it while the open group is full.

        Its `answer` or `refuse` is called exactly once, later or before this returns, unless the
        owner called `forget`.
        """
        if not self._waiting and (  # and not `_is_full`, in line: every call comes through here
            len(self._puts) + len(self._states) + len(self._deletes) < RECORDS_MAX
            and self._open.body_bytes < BYTES_MAX
        ):
            self._apply(request)
        elif len(self._waiting) < self._capacity:
            self._waiting.append(request)
        else:
            self._overflow.append((trio.current_time() + QUEUE_WAIT_S, request))
            self._overflowed.set()

    def forget(self, request: Request) -> None:
        """The caller is gone: a parked or queued request is dropped and nothing is leased to it."""
        request.is_gone = True
        command = request.command
        if type(command) is Reserve and self._parked.pop(command, None) is not None:
            self._machine.drop_waiter(command)

    async def run(self, command: Command) -> Outcome:
        """Submit and wait: the outcome is durable on return.

        Raises:
            Refused: The command was not applied, or its fate is unknown.
        """
        return (await self.run_group([command]))[0]

    async def run_group(
        self,
        commands: list[Command],
        follow_up: Callable[[list[Outcome]], Command | None] | None = None,
    ) -> list[Outcome]:
        """Apply several commands back to back, in one batch; all are durable on return.

        Args:
            commands: In order. Reserves that park are not for here.
            follow_up: Sees their outcomes and returns one more command for the same batch, or None.

        Raises:
            Refused: A command was not applied, or the fate of all is unknown.
        """
        waits = [AwaitedRequest(command) for command in commands]
        outcomes = [self._apply(wait) for wait in waits]
        applied = [outcome for outcome in outcomes if outcome is not None]
        if follow_up is not None and len(applied) == len(commands):
            extra = follow_up(applied)
            if extra is not None:
                waits.append(AwaitedRequest(extra))
                self._apply(waits[-1])
        for wait in waits:
            await wait.is_settled.wait()
        return [wait.outcome() for wait in waits]

    async def sweep(self, command: Sweep) -> tuple[Swept, list[Body]]:
        """Run a sweep; return its outcome, durable, and the bodies of its jobs if it is traced.

        Raises:
            Refused: as `run`.
        """
        wait = AwaitedRequest(command)
        self._apply(wait)
        await wait.is_settled.wait()
        swept = wait.outcome()
        assert type(swept) is Swept
        return swept, wait.bodies

    def peek(self, job_id: bytes) -> tuple[JobRow, Body] | None:
        """The job as it is now, with its body if that is at hand; None: there is no such job."""
        job = self._machine.job_row(job_id)
        return None if job is None else (job, self._journal.bodies_nowait([job.slot])[0])

    def end_waits(self) -> None:
        """Answer every parked reserve empty: the server stops."""
        self._machine.end_waits()
        self._answer_woken(self._open, self._machine.take_woken())
        self._work.set()

    def waiting_count(self) -> int:
        """Commands that wait for a group with room."""
        return len(self._waiting) + len(self._overflow)

    async def wait_idle(self) -> None:
        """Return once nothing is queued, open or in flight: all submitted before is answered."""
        while self._waiting or self._in_flight or self._unanswered or self._has_open_work():
            self._idle = trio.Event()
            await self._idle.wait()

    async def wait_deadline_moved(self) -> None:
        """Return when something is due earlier than when the sweeper last asked."""
        await self._deadline_moved.wait()

    def next_deadline(self) -> tuple[int | None, int | None]:
        """Earliest (wall, steady) deadline; from now on `wait_deadline_moved` compares with it."""
        self._deadline_moved = trio.Event()
        self._planned = self._machine.next_deadline()
        return self._planned

    # Applying.

    def _apply(self, request: Request) -> Outcome | None:
        """Apply a command; return its outcome, which is not durable yet, None if it was refused."""
        command = request.command
        now = self._clock.now()
        if now is not self._looked_at:
            self._looked_at, self._room = now, self._store.room()
            if self._room is Room.NONE:  # also once the store has failed, in the last moments
                is_failed = self._store.stats().is_failed
                self._no_room = Refusal.STOPPING if is_failed else Refusal.DISK_FULL
        if type(command) is Enqueue:
            if self._room is not Room.OK:
                request.refuse(self._no_room)
                return None
            if self.is_memory_short:
                request.refuse(Refusal.MEMORY_SHORT)
                return None
            outcome = self._handle(command, now)
            for job in command.jobs:
                self._open.body_bytes += len(job.body)
        elif self._room is Room.NONE:
            request.refuse(self._no_room)
            return None
        else:
            outcome = self._handle(command, now)
            if type(outcome) is Parked:
                assert type(command) is Reserve
                self._parked[command] = request
                self._check_deadline()
                return outcome
        group = self._open
        if self._in_flight is not None and not (self._states or self._puts or self._deletes):
            # It changed nothing, and can depend on nothing newer than the batch under way.
            group = self._in_flight
        elif not group.answers:
            self._work.set()
        bodies = _NO_BODIES if type(command) in _BODILESS else self._bodies(group, command, outcome)
        group.answers.append((request, outcome, bodies))
        if self._waiters.woken:
            self._answer_woken(group, self._machine.take_woken())
        return outcome

    def _answer_woken(self, group: _Group, woken: list[tuple[Reserve, Leased]]) -> None:
        for reserve, leased in woken:
            request = self._parked.pop(reserve, None)
            if request is not None:
                group.answers.append((request, leased, self._bodies(group, reserve, leased)))

    def _bodies(self, group: _Group, command: Command, outcome: Outcome) -> list[Body]:
        """Read the bodies an outcome delivers while its slots are still these jobs'."""
        if type(outcome) is Leased:
            slots = [job.slot for job in outcome.jobs]
        elif type(outcome) is Drained:
            slots = []
            for record in outcome.records:
                slots.append(record.slot)
                if record.reason_slot >= 0:
                    slots.append(record.reason_slot)
        elif type(command) is Sweep and command.is_traced:
            assert type(outcome) is Swept
            slots = [job.slot for job in outcome.jobs]
        else:
            return _NO_BODIES
        if not slots:
            return _NO_BODIES
        bodies = self._journal.bodies_nowait(slots)
        if None in bodies:
            missing = [index for index, body in enumerate(bodies) if body is None]
            read = self._store.read_bodies([slots[index] for index in missing])
            group.reads.append((bodies, missing, read))
        return bodies

    def _is_full(self) -> bool:
        return self._journal.record_count() >= RECORDS_MAX or self._open.body_bytes >= BYTES_MAX

    def _has_open_work(self) -> bool:
        return bool(self._open.answers) or self._journal.has_writes()

    def _check_deadline(self) -> None:
        if not self._machine.take_hastened():
            return
        planned_wall, planned_steady = self._planned
        wall, steady = self._machine.next_deadline()
        if _is_earlier(wall, planned_wall) or _is_earlier(steady, planned_steady):
            self._deadline_moved.set()

    # Committing.

    async def serve(self) -> None:
        """Commit groups until cancelled.

        Raises:
            StoreFailed: A write or sync failed. Whoever waited was refused; the process must end.
        """
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._answer_durable)
            nursery.start_soon(self._refuse_overdue)
            while True:
                await self._work.wait()
                self._work = trio.Event()
                while self._has_open_work():
                    await self._commit_open()

    async def _commit_open(self) -> None:
        group, self._open = self._open, _Group()
        if self._journal.has_writes():
            self._in_flight = group
            started = time.perf_counter()
            batch = self._journal.build(self._clock.now())
            try:
                await self._store.commit(batch)
            except StoreFailed:
                self._refuse_all()
                raise
            self.statistics.observe(batch.count, time.perf_counter() - started)
            self._in_flight = None
            self._check_deadline()
        else:
            await trio.lowlevel.checkpoint()
        self._unanswered += 1
        self._durable.append(group)
        self._done.set()
        self._admit_waiting()

    def _admit_waiting(self) -> None:
        waiting, overflow = self._waiting, self._overflow
        while waiting and not self._is_full():
            request = waiting.popleft()
            if not request.is_gone:
                self._apply(request)
            if overflow:
                waiting.append(overflow.popleft()[1])

    async def _refuse_overdue(self) -> None:
        """Refuse what has waited too long outside a full queue: nothing of it was applied."""
        while True:
            await self._overflowed.wait()
            self._overflowed = trio.Event()
            while self._overflow:
                await trio.sleep_until(self._overflow[0][0])
                now = trio.current_time()
                while self._overflow and self._overflow[0][0] <= now:
                    request = self._overflow.popleft()[1]
                    if not request.is_gone:
                        request.refuse(Refusal.OVERLOADED)
                self._flush()

    async def _answer_durable(self) -> None:
        while True:
            # The task that sets it hands the next batch to the disk in the same turn: answers are
            # made while that works.
            await self._done.wait()
            self._done = trio.Event()
            while self._durable:
                group = self._durable.popleft()
                await group.finish_reads()
                for index, (request, outcome, bodies) in enumerate(group.answers, 1):
                    request.answer(outcome, bodies)
                    if not index % FLUSH_ANSWERS:
                        self._flush()
                self._flush()
                self._unanswered -= 1
            self._idle.set()

    def _refuse_all(self) -> None:
        in_flight = self._in_flight
        assert in_flight is not None
        for group in (in_flight, self._open):
            for request, _, _ in group.answers:
                request.refuse(Refusal.UNKNOWN)
        for request in (*self._waiting, *(request for _, request in self._overflow)):
            request.refuse(Refusal.STOPPING)
        self._flush()


def _is_earlier(deadline_ms: int | None, planned_ms: int | None) -> bool:
    return deadline_ms is not None and (planned_ms is None or deadline_ms < planned_ms)
