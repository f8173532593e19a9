"""Which keys a command may look up, as its form tells: a lookup can cost a read of the index file.

`World.do` holds the machine to it: no other key is ever looked up.
"""

from sepp.core.commands import (
    Ack,
    Command,
    DeadLetter,
    DeleteDead,
    Enqueue,
    Extend,
    GiveBack,
    Nack,
    Release,
    Requeue,
    SetAside,
)
from sepp.core.slots import DEDUP, JOBS

_BY_LEASE = (Ack, Nack, Extend, GiveBack, SetAside, Release)
_BY_IDS = (DeadLetter, Requeue, DeleteDead)


def lookups(command: Command) -> list[tuple[int, bytes]]:
    """Return (table, key) of every entry `command` may look up by key."""
    if isinstance(command, Enqueue):
        return [(DEDUP, job.dedup_key) for job in command.jobs if job.dedup_key is not None]
    if isinstance(command, _BY_LEASE):
        return [(JOBS, command.job_id)]
    if isinstance(command, _BY_IDS):
        return [(JOBS, job_id) for job_id in command.job_ids]
    return []
