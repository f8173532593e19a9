"""What the committer takes and gives back: a command with its owner, or why it has no outcome."""

from enum import Enum
from typing import Protocol

import trio

from sepp.core.commands import Command
from sepp.core.outcomes import Outcome
from sepp.journal import Body


class Refusal(Enum):
    """Why a command was not applied, or why nobody can say whether it was."""

    OVERLOADED = "overloaded"  # the command queue was full for 5 s; nothing was applied
    DISK_FULL = "disk full"  # nothing was applied
    MEMORY_SHORT = "memory short"  # nothing was applied
    STOPPING = "stopping"  # nothing was applied
    UNKNOWN = "unknown"  # the store failed: the change may or may not survive


class Request(Protocol):
    """A command and whoever waits for its outcome."""

    command: Command
    is_gone: bool  # set by the owner; a command not yet applied is then dropped

    def answer(self, outcome: Outcome, bodies: list[Body]) -> None:
        """Take the outcome: it is durable. `bodies` belong to the jobs of Leased and Drained, in
        order.
        """
        ...

    def refuse(self, refusal: Refusal) -> None:
        """Learn that there is no outcome."""
        ...


class AwaitedRequest:
    """A request made by a task of this process instead of a call."""

    __slots__ = ("_outcome", "_refusal", "bodies", "command", "is_gone", "is_settled")

    def __init__(self, command: Command) -> None:
        self.command = command
        self.is_gone = False
        self.is_settled = trio.Event()
        self.bodies: list[Body] = []
        self._outcome: Outcome | None = None
        self._refusal: Refusal | None = None

    def answer(self, outcome: Outcome, bodies: list[Body]) -> None:
        self._outcome = outcome
        self.bodies = bodies
        self.is_settled.set()

    def refuse(self, refusal: Refusal) -> None:
        self._refusal = refusal
        self.is_settled.set()

    def outcome(self) -> Outcome:
        """Return the outcome, durable; only once `is_settled` is set.

        Raises:
            Refused: There is none.
        """
        if self._refusal is not None:
            raise Refused(self._refusal)
        assert self._outcome is not None
        return self._outcome


class Refused(Exception):
    """A command of this process got no outcome; `refusal` says why."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.value)
        self.refusal = refusal


class SilentRequest:
    """A command nobody waits for."""

    __slots__ = ("command", "is_gone")

    def __init__(self, command: Command) -> None:
        self.command = command
        self.is_gone = False

    def answer(self, outcome: Outcome, bodies: list[Body]) -> None:
        """Nothing to tell."""

    def refuse(self, refusal: Refusal) -> None:
        """The lease then stands until it ends."""
