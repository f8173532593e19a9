"""Where blocking calls run: a function given to the store, and here the one it uses by default.

Nothing else in the store starts a thread.
"""

from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from queue import SimpleQueue
from threading import Thread
from typing import Any, Generic, Protocol, TypeVar
from weakref import finalize

import trio

T = TypeVar("T")


class Lane(Enum):
    """What a call is for; one lane never waits for another."""

    COMMIT = "commit"  # one at a time by the nature of a log
    READ = "read"
    MAINTENANCE = "maintenance"
    SNAPSHOT = "snapshot"  # mostly syncs; nobody waits for it


class RunInWorker(Protocol):
    """Runs a function that blocks and returns its result; once started it is run to its end."""

    async def __call__(self, function: Callable[[], T], lane: Lane) -> T: ...


class TrioWorkers:
    """A thread kept for the commits, and Trio's worker threads for the rest, so many a lane."""

    def __init__(self) -> None:
        self._limiters = {
            Lane.READ: trio.CapacityLimiter(2),
            Lane.MAINTENANCE: trio.CapacityLimiter(1),
            Lane.SNAPSHOT: trio.CapacityLimiter(1),
        }
        self._commits = _KeptThread()

    async def __call__(self, function: Callable[[], T], lane: Lane) -> T:
        """See `RunInWorker`. Cancelled only before the function starts."""
        if lane is Lane.COMMIT:
            return await self._commits.run(function)
        return await trio.to_thread.run_sync(function, limiter=self._limiters[lane])


class _Call(Generic[T]):
    """A call, and once it is done its result or its exception."""

    __slots__ = ("fault", "function", "result", "task", "token")

    result: T

    def __init__(
        self, function: Callable[[], T], task: trio.lowlevel.Task, token: trio.lowlevel.TrioToken
    ) -> None:
        self.function = function
        self.task = task
        self.token = token
        self.fault: BaseException | None = None

    def do(self) -> None:
        """Run it, on the thread."""
        try:
            self.result = self.function()
        except BaseException as fault:  # noqa: BLE001  # whoever asked gets it
            self.fault = fault
        with suppress(trio.RunFinishedError):  # then nobody is left to be told
            self.token.run_sync_soon(trio.lowlevel.reschedule, self.task)


class _KeptThread:
    """One thread that runs calls in order. It starts with the first and ends when this object goes.

    Trio's own worker threads carry context, names and cancellation across, none of which a commit
    has; without them the hop costs half.
    """

    def __init__(self) -> None:
        self._calls: SimpleQueue[_Call[Any] | None] = SimpleQueue()
        self._is_started = False

    async def run(self, function: Callable[[], T]) -> T:
        """Run `function` on the thread; not cancelled once it is handed over."""
        await trio.lowlevel.checkpoint_if_cancelled()
        token = trio.lowlevel.current_trio_token()
        call = _Call(function, trio.lowlevel.current_task(), token)
        if not self._is_started:
            self._is_started = True
            # A daemon: a disk that hangs must not keep the process from ending.
            Thread(target=_work, args=(self._calls,), name="commit", daemon=True).start()
            finalize(self, self._calls.put, None)
        self._calls.put(call)
        await trio.lowlevel.wait_task_rescheduled(_never)
        if call.fault is not None:
            raise call.fault
        return call.result


def _work(calls: "SimpleQueue[_Call[Any] | None]") -> None:
    while (call := calls.get()) is not None:
        call.do()
        del call  # or its result would live until the next one


def _never(_: object) -> trio.lowlevel.Abort:
    return trio.lowlevel.Abort.FAILED


async def run_inline(function: Callable[[], T], lane: Lane) -> T:
    """Run it right here: for simulations, where a run is one seed."""
    await trio.lowlevel.checkpoint()
    return function()
