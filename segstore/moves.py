"""Copies of what still counts in a segment that is about to go, as the bytes of MOVE records.

A copy is made when its frame is made, from the slot as it is then and never from what was read
before: an entry that ended meanwhile is passed over, one that changed is copied with its new head.
So a copy always says what the log says at its place.
"""

from collections import deque
from dataclasses import dataclass
from struct import Struct
from typing import Final

from segstore.batch import DAMAGED, DEL, PADDING, PUT, STATE
from segstore.built import BuiltFrame
from segstore.layout import HeadLayout, aligned
from segstore.local import MOVE, MOVE_HEAD_FORMAT
from segstore.slots import Slots
from segstore.usage import Usage
from segstore.writer import LogWriter

# Of one copy, in bytes: a frame of many small ones is a matter of time, not of the disk.
RECORD_COST: Final = 512


@dataclass(slots=True)
class Entry:
    """An entry whose body, newest head or both lie in the victim.

    Attributes:
        offset8: Where its body was read, in units of 8 bytes; 0: only the head lies there.
        is_damaged: Whether the body does not match its CRC.
    """

    slot: int
    offset8: int = 0
    body: bytes = b""
    is_damaged: bool = False

    @property
    def cost(self) -> int:
        """Work in bytes: what it adds to the log, and the time that a record takes."""
        return RECORD_COST + len(self.body)


@dataclass(slots=True)
class Tombstone:
    """A record of the victim that holds down a PUT in an older segment, its home."""

    table: int
    key: bytes
    lsn: int
    home: int
    cost: int = RECORD_COST


Copy = Entry | Tombstone


class Mover:
    """Makes frames of MOVE records.

    Args:
        writer, usage, slots, layout: Of the store.

    Attributes:
        count: Copies made.
    """

    def __init__(self, writer: LogWriter, usage: Usage, slots: Slots, layout: HeadLayout) -> None:
        self.count = 0
        self._writer = writer
        self._usage = usage
        self._slots = slots
        self._layout = layout
        payload = f"{MOVE_HEAD_FORMAT}{layout.record.format.removeprefix('<')}"
        self._payload_bytes = Struct(f"<{payload}").size
        pad = -self._payload_bytes & 7
        self._move = Struct(f"<BBHI{payload}{pad}x")

    @property
    def record_bytes(self) -> int:
        """What a copy costs in the log beside its body."""
        return self._move.size

    def make(self, copies: "deque[Copy]", victim: int, cost_max: int) -> BuiltFrame | None:
        """Make a frame of the first copies, up to some cost; they leave the queue.

        A damaged body gets a frame of its own: there it cannot be taken for a torn write, and no
        other copy for damaged.

        Returns:
            The frame, or None if none of the copies is wanted any more.
        """
        taken: list[Copy] = []
        cost = 0
        while copies and (not taken or cost + copies[0].cost <= cost_max):
            is_damaged = isinstance(copies[0], Entry) and copies[0].is_damaged
            if is_damaged and taken:
                break
            copy = copies.popleft()
            if self._is_wanted(copy, victim):
                taken.append(copy)
                cost += copy.cost
                if is_damaged:
                    return self._frame(taken, victim, flags=DAMAGED)
        return self._frame(taken, victim) if taken else None

    def _is_wanted(self, copy: Copy, victim: int) -> bool:
        if isinstance(copy, Tombstone):
            home = self._writer.segments.get(copy.home)
            return home is not None and not home.is_leaving
        slots, slot = self._slots, copy.slot
        if slots.segment[slot] == victim:
            return slots.offset8[slot] == copy.offset8 and slots.lsn[slot] > 0
        return not copy.offset8 and slots.head_segment[slot] == victim

    def _frame(self, copies: list[Copy], victim: int, *, flags: int = 0) -> BuiltFrame:
        slots, usage = self._slots, self._usage
        self.count += len(copies)
        records: list[bytes] = []
        bodies: list[bytes] = []
        for copy in copies:
            if isinstance(copy, Tombstone):
                records.append(self._pack(DEL, copy, victim))
                continue
            kind = PUT if copy.offset8 else STATE
            records.append(self._pack_entry(kind, copy, victim))
            if kind == PUT:
                bodies += (copy.body, PADDING[len(copy.body) & 7])
        moved_bytes = sum(map(len, bodies))
        place = self._writer.reserve(0, 0, moves=records, moved_bytes=moved_bytes)
        target = place.segment
        if target not in usage.live_bytes:
            usage.add_segment(target)
        offset8 = place.bodies_offset >> 3
        for copy in copies:
            if isinstance(copy, Tombstone):
                usage.need(target, copy.home)
                continue
            slot = copy.slot
            if not copy.offset8:
                usage.move_state(victim, target)
                slots.head_segment[slot] = target
                continue
            usage.move_put(victim, slots.body_length[slot], slots.head_segment[slot], target)
            slots.segment[slot] = target
            slots.offset8[slot] = offset8
            slots.head_segment[slot] = 0
            offset8 += aligned(len(copy.body)) >> 3
        frame = self._writer.fill(place, bodies=bodies, flags=flags)
        # Their places are not on disk yet.
        frame.bodies = {
            copy.slot: copy.body
            for copy in copies
            if isinstance(copy, Entry) and copy.offset8 and not copy.is_damaged
        }
        return frame

    def _pack(self, kind: int, copy: Tombstone, victim: int) -> bytes:
        no_head = (0,) * len(self._layout.fields)
        return self._move.pack(
            MOVE, 0, 0, self._payload_bytes,
            copy.lsn, victim, 0, copy.home,
            kind, copy.table, 0, 0, 0, copy.key, *no_head,
        )  # fmt: skip

    def _pack_entry(self, kind: int, copy: Entry, victim: int) -> bytes:
        slots, slot = self._slots, copy.slot
        is_put = kind == PUT
        return self._move.pack(
            MOVE, 0, 0, self._payload_bytes,
            slots.lsn[slot], victim, slot, 0,
            kind, slots.tables[slot], 0,
            len(copy.body) if is_put else 0, slots.body_crc[slot] if is_put else 0,
            slots.keys[slot << 4 : (slot << 4) + 16], *[column[slot] for column in slots.heads],
        )  # fmt: skip
