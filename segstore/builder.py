"""Turning changed slots into the records of a batch, and keeping the slot table in step with them.

The order inside a batch is deletes, puts, states: a key may be deleted and put anew in one batch,
in two slots, and one slot never has two records. Work that is the same for every record runs in C
over whole columns: every change of every entry comes through here.
"""

from collections.abc import Iterable, Mapping
from itertools import chain, repeat
from operator import itemgetter
from zlib import crc32

from segstore.batch import DEL, PADDING, PUT, STATE
from segstore.built import BuiltFrame
from segstore.layout import HeadLayout
from segstore.slots import Slots
from segstore.usage import Usage
from segstore.writer import LogWriter


class Builder:
    """See the module.

    Args:
        slots: Of the store.
        usage: Told what each record makes superfluous.
        layout: Of the heads.
    """

    def __init__(self, slots: Slots, usage: Usage, layout: HeadLayout) -> None:
        self._slots = slots
        self._usage = usage
        self._layout = layout

    def build(
        self,
        writer: LogWriter,
        puts: Mapping[int, bytes],
        states: Iterable[int],
        gone: list[int],
        clock_ms: int,
    ) -> BuiltFrame | None:
        """Make the frame of a batch, or None if there is nothing to write."""
        lsns = self._slots.lsn
        bodies = dict(puts)
        if gone:
            for slot in gone:
                bodies.pop(slot, None)
            dead = set(gone)
            kept = [slot for slot in states if slot not in bodies and slot not in dead]
        else:
            kept = [slot for slot in states if slot not in bodies]
        for slot in kept:
            if not lsns[slot]:  # never written: it is an entry without a body
                bodies[slot] = b""
        if len(bodies) > len(puts):
            kept = [slot for slot in kept if slot not in bodies]
        ended = [slot for slot in gone if lsns[slot]]
        frame = None
        if ended or bodies or kept:
            frame = self._frame(writer, ended, bodies, kept, clock_ms)
            frame.bodies = bodies
        if gone:
            self._slots.free(gone)
        return frame

    def _frame(
        self,
        writer: LogWriter,
        ended: list[int],
        bodies: dict[int, bytes],
        kept: list[int],
        clock_ms: int,
    ) -> BuiltFrame:
        put = list(bodies)
        lengths = list(map(len, bodies.values()))
        padded = [(length + 7) & ~7 for length in lengths]
        place = writer.reserve(len(ended) + len(put) + len(kept), sum(padded))
        usage = self._usage
        if place.segment not in usage.live_bytes:
            usage.add_segment(place.segment)
        lsn = writer.last_lsn + 1
        homes = self._end(ended, place.segment)
        crcs = list(map(crc32, bodies.values()))
        homes += self._put(
            put, lengths, padded, crcs, lsn + len(ended), place.segment, place.bodies_offset >> 3
        )
        homes += repeat(0, len(kept))
        self._keep(kept, lsn + len(ended) + len(put), place.segment)
        paddings = [PADDING[length & 7] for length in lengths]
        records = b"".join(
            (self._pack_ended(ended), self._pack(PUT, put, lengths, crcs), self._pack(STATE, kept))
        )
        return writer.fill(
            place,
            records=records,
            bodies=list(chain.from_iterable(zip(bodies.values(), paddings, strict=True))),
            hints=ended + put + kept,
            homes=homes,
            clock_ms=clock_ms,
        )

    def _pack(
        self, kind: int, slots: list[int], lengths: Iterable[int] = (), crcs: Iterable[int] = ()
    ) -> bytes:
        """Return packed PUTs or STATEs, heads from the columns."""
        if not slots:
            return b""
        table = self._slots
        if len(slots) == 1:
            (slot,) = slots
            columns = [(column[slot],) for column in (table.tables, *table.heads)]
        else:
            pick = itemgetter(*slots)
            columns = [pick(column) for column in (table.tables, *table.heads)]
        keys = table.keys
        return b"".join(
            map(
                self._layout.record.pack,
                repeat(kind),
                columns[0],
                repeat(0),
                lengths or repeat(0),
                crcs or repeat(0),
                [keys[slot << 4 : (slot << 4) + 16] for slot in slots],
                *columns[1:],
            )
        )

    def _pack_ended(self, slots: list[int]) -> bytes:
        """Return packed DELs."""
        pack, tables, keys = self._layout.headless_record.pack, self._slots.tables, self._slots.keys
        return b"".join(
            [pack(DEL, tables[slot], 0, 0, 0, keys[slot << 4 : (slot << 4) + 16]) for slot in slots]
        )

    def _end(self, slots: list[int], segment: int) -> list[int]:
        """Count entries out that are deleted; return the home of each."""
        table, live, record_bytes = self._slots, self._usage.live_bytes, self._usage.record_bytes
        segments, lengths, head_segments = table.segment, table.body_length, table.head_segment
        homes = []
        for slot in slots:
            home = segments[slot]
            live[home] -= record_bytes + ((lengths[slot] + 7) & ~7)
            if head := head_segments[slot]:
                live[head] -= record_bytes
            homes.append(home)
            if home != segment:
                self._usage.need(segment, home)
        return homes

    def _put(
        self,
        slots: list[int],
        lengths: list[int],
        padded: list[int],
        crcs: list[int],
        lsn: int,
        segment: int,
        offset8: int,
    ) -> list[int]:
        """Give entries the place of their new bodies; return the homes."""
        table, usage = self._slots, self._usage
        lsns, segments, offsets = table.lsn, table.segment, table.offset8
        body_lengths, body_crcs, head_segments = (
            table.body_length,
            table.body_crc,
            table.head_segment,
        )
        homes = []
        for slot, length, size, crc in zip(slots, lengths, padded, crcs, strict=True):
            if lsns[slot]:
                home = segments[slot]
                usage.end_entry(home, body_lengths[slot], head_segments[slot])
                head_segments[slot] = 0
                homes.append(home)
                if home != segment:
                    usage.need(segment, home)
            else:
                homes.append(0)
            lsns[slot] = lsn
            lsn += 1
            segments[slot] = segment
            offsets[slot] = offset8
            offset8 += size >> 3
            body_lengths[slot] = length
            body_crcs[slot] = crc
        usage.live_bytes[segment] += len(slots) * usage.record_bytes + sum(padded)
        return homes

    def _keep(self, slots: list[int], lsn: int, segment: int) -> None:
        """Note that the newest heads lie in `segment`."""
        table, live, record_bytes = (
            self._slots,
            self._usage.live_bytes,
            self._usage.record_bytes,
        )
        lsns, head_segments = table.lsn, table.head_segment
        moved = 0
        for slot in slots:
            lsns[slot] = lsn
            lsn += 1
            before = head_segments[slot]
            if before != segment:
                if before:
                    live[before] -= record_bytes
                head_segments[slot] = segment
                moved += 1
        live[segment] += moved * record_bytes
