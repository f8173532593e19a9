"""Reserves that found nothing and wait inside the machine.

A waiting reserve stands in the `waiters` of every queue it lists, in order of arrival, and once in
the list of wait deadlines here. It leaves all of them together: when it is served, when its wait
ends, when its caller is gone, or at shutdown. Nothing here depends on how many others wait.
"""

from sortedcontainers import SortedList

from sepp.core.commands import Reserve
from sepp.core.outcomes import Leased
from sepp.core.queue import NEVER, Queue


class Waiters:
    """All waiting reserves by the end of their wait, and those that have ended since last asked."""

    __slots__ = ("_deadlines", "_sequence", "woken")

    def __init__(self) -> None:
        self._deadlines: SortedList = SortedList()  # of (deadline_ms, arrival, reserve)
        self._sequence = 0
        self.woken: list[tuple[Reserve, Leased]] = []

    def __len__(self) -> int:
        return len(self._deadlines)

    def park(self, reserve: Reserve, queues: list[Queue], *, deadline_ms: int) -> None:
        """Let `reserve` wait on `queues` until `deadline_ms` (steady clock)."""
        assert not reserve.is_parked
        self._sequence += 1
        reserve.arrival = self._sequence
        reserve.deadline_ms = deadline_ms
        reserve.is_parked = True
        self._deadlines.add((deadline_ms, reserve.arrival, reserve))
        for queue in queues:
            queue.waiters[reserve] = None

    def leave(self, reserve: Reserve, queues: list[Queue]) -> None:
        """Take `reserve` out of every place it waits in: `queues` as it was parked with."""
        assert reserve.is_parked
        reserve.is_parked = False
        self._deadlines.remove((reserve.deadline_ms, reserve.arrival, reserve))
        for queue in queues:
            queue.waiters.pop(reserve, None)  # a queue may be listed twice

    def next_ms(self) -> int:
        """Return when the first wait ends (steady clock), NEVER if nobody waits."""
        if not self._deadlines:
            return NEVER
        deadline_ms: int = self._deadlines[0][0]
        return deadline_ms

    def first(self) -> Reserve:
        """Return the reserve whose wait ends first. Somebody must wait."""
        reserve = self._deadlines[0][2]
        assert isinstance(reserve, Reserve)
        return reserve

    def all(self) -> list[Reserve]:
        """Return every waiting reserve, by the end of its wait; for checks."""
        return [entry[2] for entry in self._deadlines]

    def take_woken(self) -> list[tuple[Reserve, Leased]]:
        """Return the reserves that were served or ended since the last call, in that order."""
        woken = self.woken
        if woken:
            self.woken = []
        return woken
