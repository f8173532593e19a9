"""Between core and store: the writes of a group, the body of a job, what a restart finds.

Core knows orderings and segstore knows bytes; only this module knows both. It has no clock and no
task.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import cast

from segstore import Batch, BodyDamaged, Store
from sepp.core import slots as tables
from sepp.core.commands import Now
from sepp.core.machine import Machine

# A stored body, what is wrong with it, or None while it is still being read.
Body = bytes | BodyDamaged | None


class Journal:
    """The writes of the open group and the bodies of known slots.

    Args:
        store: An open store whose fields are `sepp.core.slots.FIELDS`.
        machine: The machine that works on the store's slots.
    """

    def __init__(self, store: Store, machine: Machine) -> None:
        self.store = store
        self.machine = machine
        self._dedup_hash = blake2b(digest_size=16, key=store.position().store_uuid)

    def dedup_key(self, queue: str, idempotency_key: str) -> bytes:
        """The 16-byte name of a (queue, key) pair, keyed by the store: nobody aims at a clash."""
        digest = self._dedup_hash.copy()
        name = queue.encode()
        digest.update(len(name).to_bytes(4, "big") + name + idempotency_key.encode())
        return digest.digest()

    async def restore(self, now: Now) -> None:
        """Rebuild core's orderings from the live slots of the store."""
        machine, slots = self.machine, self.store.slots
        rows = {table: list(self.store.scan(table)) for table in tables.ROW_TABLES}
        named = rows[tables.QUEUES]
        bodies = await self.store.read_bodies(named)
        names: dict[int, str] = {}
        for slot, body in zip(named, bodies, strict=True):
            if isinstance(body, BodyDamaged):
                raise QueueNameDamaged(body)
            names[int.from_bytes(slots.key(slot), "big")] = body.decode()
        machine.restore(rows, len(slots) - sum(map(len, rows.values())), names, now)

    def has_writes(self) -> bool:
        """Whether the open group changed anything."""
        machine = self.machine
        return bool(machine.states or machine.puts or machine.deletes)

    def record_count(self) -> int:
        """How many records the open group holds by now; a slot written twice counts twice."""
        machine = self.machine
        return len(machine.puts) + len(machine.states) + len(machine.deletes)

    def build(self, now: Now) -> Batch:
        """Turn the writes of the open group into a batch and start the next group empty.

        Nothing is on disk yet. Records are made from the columns as they stand, so a job enqueued
        and leased in one group is one record.
        """
        machine = self.machine
        batch = self.store.build(machine.puts, machine.states, machine.deletes, clock_ms=now.log_ms)
        machine.puts.clear()
        machine.states.clear()
        machine.deletes.clear()
        return batch

    def bodies_nowait(self, slots: Sequence[int]) -> list[Body]:
        """Bodies of live slots as far as RAM and page cache hold them; None: read it with the
        store.
        """
        puts = self.machine.puts
        if len(slots) == 1:
            body = puts.get(slots[0])
            if body is not None:
                return [body]
        elif puts:
            found: list[Body] = [puts.get(slot) for slot in slots]
            rest = [slot for slot, body in zip(slots, found, strict=True) if body is None]
            if not rest:
                return found
            read = iter(self.store.read_bodies_nowait(rest))
            return [body if body is not None else next(read) for body in found]
        return cast(list[Body], self.store.read_bodies_nowait(slots))


class QueueNameDamaged(Exception):
    """The row that names a queue cannot be read: its jobs could not be found. Restore or
    salvage.
    """

    def __init__(self, damage: BodyDamaged) -> None:
        super().__init__(f"the name of a queue is damaged: {damage}")
