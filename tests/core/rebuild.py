"""A second machine, built from nothing but the disk: the witness for the orderings of the first."""

from sepp.core.commands import Now
from sepp.core.machine import Machine
from sepp.core.queue import SLOT_MASK
from sepp.core.slots import QUEUES
from tests.core.world import World
from tests.fakes.slots import FakeSlots


def compare_with_rebuilt(world: World) -> None:
    """Compare every ordering of the machine with a rebuilt one; nothing may be unwritten."""
    assert not world.has_writes()
    slots = FakeSlots(world.slots.disk)
    rows = slots.rows()
    names = {slots.queue[slot]: slots.body(slot).decode() for slot in rows[QUEUES]}
    rebuilt = Machine(slots, world.policy, retention_ms=world.retention_ms)
    job_count = len(slots.live()) - sum(map(len, rows.values()))
    rebuilt.restore(rows, job_count, names, Now(world.wall_ms, world.log_ms, world.wall_ms))
    for name, new in rebuilt.table.queues.items():
        old = world.machine.table.queues[name]
        for old_lane, new_lane in zip(old.lanes, new.lanes, strict=True):
            assert list(old_lane or []) == list(new_lane or [])
        assert list(old.scheduled) == list(new.scheduled)
        assert list(old.dead) == list(new.dead)
        assert list(old.dedup) == list(new.dedup)
        # Not in the same order: the wall clock may have been stepped between two leases.
        assert {key & SLOT_MASK for key in old.leased} == {key & SLOT_MASK for key in new.leased}
        assert (old.live_count, old.dead_counts) == (new.live_count, new.dead_counts)
        assert (old.number, old.row_slot) == (new.number, new.row_slot)
        assert old.closing_slot == new.closing_slot
    assert world.machine.table.reason_slots == rebuilt.table.reason_slots
    assert [list(world.machine.table.audit)] == [list(rebuilt.table.audit)]
