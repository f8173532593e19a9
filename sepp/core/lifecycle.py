"""The life of a job as one table: every (state, event) pair that may happen, and the state after
it.

The table is the only place that says what may follow what. Code that moves a job looks its pair up
first, so an illegal move raises before anything has changed. The table knows no queue, no clock and
no slot; what else a move entails (orderings, columns, writes) is `JobTable.move`.
"""

from enum import IntEnum
from typing import Final

from sepp.core.slots import ASIDE, DEAD, FREE, LEASED, READY, SCHEDULED


class Event(IntEnum):
    """What can happen to a job."""

    ENQUEUE = 1  # a producer hands it in, ready at once
    SCHEDULE = 2  # a producer hands it in for later
    PROMOTE = 3  # its due time came
    LEASE = 4  # a worker takes it
    EXTEND = 5  # its worker asks for more time
    ACK = 6  # its worker is done
    RETRY = 7  # its attempt failed, the next may follow at once: nack, lease expiry, release
    RETRY_LATER = 8  # its attempt failed, the next waits for the retry delay
    GIVE_BACK = 9  # its lease never reached a worker
    BURY = 10  # it is given up and kept as a dead letter
    DISCARD = 11  # it is given up and dead letters are not kept
    REQUEUE = 12  # an operator sends it round again
    REMOVE = 13  # a dead letter goes: drained, deleted, expired
    PURGE = 14  # an operator empties the queue
    SET_ASIDE = 15  # its body cannot be read: no worker can be given it


class IllegalTransitionError(Exception):
    """A job was asked to do what its state does not allow: a fault of this package, never of a
    caller.

    Nothing was changed. The process should stop: its picture of the jobs is wrong.
    """


class _Transitions(dict[tuple[int, int], int]):
    """A plain dict but for the error: a lookup of an absent pair names it."""

    def __missing__(self, pair: tuple[int, int]) -> int:
        state, event = pair
        raise IllegalTransitionError(f"a job in state {state} cannot {Event(event).name}")


TRANSITIONS: Final[dict[tuple[int, int], int]] = _Transitions(
    {
        (FREE, Event.ENQUEUE): READY,
        (FREE, Event.SCHEDULE): SCHEDULED,
        (SCHEDULED, Event.PROMOTE): READY,
        (READY, Event.LEASE): LEASED,
        (LEASED, Event.EXTEND): LEASED,
        (LEASED, Event.ACK): FREE,
        (LEASED, Event.RETRY): READY,
        (LEASED, Event.RETRY_LATER): SCHEDULED,
        (LEASED, Event.GIVE_BACK): READY,
        (LEASED, Event.BURY): DEAD,
        (LEASED, Event.DISCARD): FREE,
        (LEASED, Event.SET_ASIDE): ASIDE,
        (READY, Event.BURY): DEAD,
        (READY, Event.DISCARD): FREE,
        (READY, Event.PURGE): FREE,
        (SCHEDULED, Event.BURY): DEAD,
        (SCHEDULED, Event.DISCARD): FREE,
        (SCHEDULED, Event.PURGE): FREE,
        (DEAD, Event.REQUEUE): READY,
        (DEAD, Event.REMOVE): FREE,
        (DEAD, Event.PURGE): FREE,
        (ASIDE, Event.PURGE): FREE,
    }
)
