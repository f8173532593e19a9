"""Where blocking calls run: a function given to the store, and here the one it uses by default.

Nothing else in the store starts a thread.
"""

from collections.abc import Callable
from enum import Enum
from typing import Protocol, TypeVar

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
    """Trio's worker threads, so many a lane."""

    def __init__(self) -> None:
        self._limiters = {
            Lane.COMMIT: trio.CapacityLimiter(1),
            Lane.READ: trio.CapacityLimiter(2),
            Lane.MAINTENANCE: trio.CapacityLimiter(1),
            Lane.SNAPSHOT: trio.CapacityLimiter(1),
        }

    async def __call__(self, function: Callable[[], T], lane: Lane) -> T:
        """See `RunInWorker`. Cancelled only before the function starts."""
        return await trio.to_thread.run_sync(function, limiter=self._limiters[lane])


async def run_inline(function: Callable[[], T], lane: Lane) -> T:
    """Run it right here: for simulations, where a run is one seed."""
    await trio.lowlevel.checkpoint()
    return function()
