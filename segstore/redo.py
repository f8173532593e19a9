"""Applying records to the slot table: the one way in which a log becomes state.

Records are absolute and carry their LSN, so applying one twice changes nothing. Copies made by a
compaction come later than the records they were made from, so they are out of the order of LSNs:

- A delete ends every body older than itself, whatever came after: it is held against the LSN of the
  PUT (`_born`), not of the last change. A STATE of a later life of the same key may have been
  applied to the earlier one, because the delete between the two was copied forward.
- A moved PUT has the LSN of the last change by then. No delete of its key lies between the two.

On a snapshot only what the log says from its begin on is replayed. It is fuzzy, so an entry may be
newer in it than the record that is replayed, or be there twice: the higher LSN counts. The LSN of
a PUT is not in it; that of the last change does as well, as the entry was there when it was copied:
an older delete than that ended an earlier life. An entry whose body lies in a segment that was
dropped since had ended by then, and its delete may have gone with that segment.
"""

from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from itertools import accumulate, compress
from struct import Struct
from typing import Any, Final

from segstore.batch import DEL, PUT, STATE, decode_u32
from segstore.layout import KEY_BYTES, HeadLayout
from segstore.local import Move
from segstore.recovered import Replayed
from segstore.runs import Run
from segstore.scan import Frame, SegmentScan
from segstore.slots import Slots
from segstore.snapshot_file import Snapshot
from segstore.usage import Needed

# kind, table, 0, body length, body CRC, key, packed head
Record = Sequence[Any]

_BULK_COUNT: Final = 8  # fewer records are not worth the set-up


class Redo:
    """Replays frames in log order into `slots`; `finish` makes the table usable.

    Heads are kept packed until then: most records only replace them, and turning all of them into
    columns at once costs next to nothing.

    Args:
        slots: An empty table.
        layout: Of its heads.
    """

    def __init__(self, slots: Slots, layout: HeadLayout) -> None:
        self.slots = slots
        self.needed: Needed = {}
        self.replayed = Replayed()
        self._layout = layout
        self._rows = bytearray()
        self._born = array("Q")  # LSN of the PUT that gave a slot its body
        self._is_asleep = False  # whether the table is that of a snapshot, and as it was there

    def take_over(self, snapshot: Snapshot) -> None:
        """Start from a snapshot."""
        self.slots.take_over(snapshot.used_count, snapshot.parts)
        snapshot.parts.clear()  # as large as the table itself
        self.needed = {each: dict(homes) for each, homes in snapshot.begin.needed.items()}
        self.replayed.snapshot_lsn = snapshot.begin.point.state.last_lsn
        self.replayed.snapshot_bytes = snapshot.byte_count
        self._is_asleep = True

    def _wake(self) -> None:
        """Make what is needed to apply records to the table of a snapshot."""
        self._is_asleep = False
        slots = self.slots
        self._rows = slots.heads_as_rows()
        self._born = slots.lsn[: slots.used_count()]
        keys = [key for (key,) in Struct(f"{KEY_BYTES}s").iter_unpack(slots.keys)]
        for table in set(slots.tables) - {0}:
            flags = slots.flags_of(table)
            known = slots.recent[table]
            known.update(
                zip(compress(keys, flags), compress(range(len(flags)), flags), strict=True)
            )
            if len(known) != flags.count(1):
                self._keep_newest(table, compress(range(len(flags)), flags), keys)

    def _keep_newest(self, table: int, found: Iterable[int], keys: Sequence[bytes]) -> None:
        """Of each key keep the slot with the highest LSN: it went from one slot to another."""
        slots, known = self.slots, self.slots.recent[table]
        known.clear()
        for slot in found:
            other = known.setdefault(keys[slot], slot)
            if other == slot:
                continue
            if slots.lsn[slot] > slots.lsn[other]:
                known[keys[slot]] = slot
                slots.release(other)
            else:
                slots.release(slot)

    def apply(self, scan: SegmentScan, found: Frame | Run) -> None:
        """Apply everything in a frame, or in a run of frames, of the segment that is scanned."""
        if self._is_asleep:
            self._wake()
        if isinstance(found, Run):
            self._count_needed(found.segment, found.homes)
            self._apply_batch(found.records, found.first_lsn, found.segment, found.offsets8)
            self.replayed.frame_count += len(found.records)
            self.replayed.byte_count += found.byte_count
        else:
            self._apply_frame(scan, found)
            self.replayed.frame_count += 1
            self.replayed.byte_count += found.header.frame_bytes

    def _apply_frame(self, scan: SegmentScan, frame: Frame) -> None:
        header = frame.header
        segment = header.segment
        if frame.batch is not None:
            start = header.locals_at - 4 * frame.batch.count
            self._count_needed(segment, decode_u32(scan.view[start : header.locals_at]))
            records = list(self._layout.raw_record.iter_unpack(scan.record_bytes_of(frame)))
            # A record without a body has a length of 0.
            sizes = [(record[3] + 7) >> 3 for record in records[:-1]]
            offsets8 = list(accumulate(sizes, initial=header.bodies_at >> 3))
            self._apply_batch(records, frame.batch.first_lsn, segment, offsets8)
        if header.local_count:
            offset8 = header.moved_at >> 3
            for local in frame.locals:
                if isinstance(local, Move):
                    offset8 += self._apply_move(local, segment, offset8)

    def finish(self, live: Collection[int] = ()) -> None:
        """Turn the packed heads into columns.

        Args:
            live: Segments of the log; for a table that began as a snapshot.
        """
        slots = self.slots
        if self.replayed.snapshot_bytes:
            self._end_homeless(live)
        slots.settle_free()
        if not self._is_asleep:
            self._settle_heads()
        if slots.is_sparse():
            slots.renumber()

    def _settle_heads(self) -> None:
        slots, head_bytes = self.slots, self._layout.head_bytes
        self._grow_rows(slots.used_count())
        del self._rows[slots.used_count() * head_bytes :]
        for slot in slots.free_slots():
            start = slot * head_bytes
            self._rows[start : start + head_bytes] = bytes(head_bytes)
        slots.load_heads(self._rows)
        self._rows = bytearray()
        self._born = array("Q")

    def _end_homeless(self, live: Collection[int]) -> None:
        """End the entries of a snapshot whose segment was dropped since."""
        slots = self.slots
        gone = set(slots.segment).difference(live, (0,))
        if not gone:
            return
        if self._is_asleep:
            self._wake()
        for slot, segment in enumerate(slots.segment):
            if segment in gone and slots.lsn[slot]:
                slots.recent[slots.tables[slot]].pop(slots.key(slot), None)
                slots.release(slot)

    def _apply_batch(
        self, records: Sequence[Record], lsn: int, segment: int, offsets8: list[int]
    ) -> None:
        """Apply canonical records with consecutive LSNs.

        Args:
            offsets8: Where their bodies are, or would be.
        """
        if not self._apply_new(records, lsn, segment, offsets8):
            self._apply_records(records, lsn, segment, offsets8)
        self.replayed.record_count += len(records)

    def _apply_new(
        self, records: Sequence[Record], lsn: int, segment: int, offsets8: list[int]
    ) -> bool:
        """Apply a batch that does nothing but put new entries of one table, column by column.

        Returns False, with nothing done, for any other: most of a large backlog is made of these,
        and they take a third of the time this way.
        """
        slots = self.slots
        count = len(records)
        if count < _BULK_COUNT or slots.free_slots():
            return False
        kinds, tables, _zeros, lengths, crcs, keys, heads = zip(*records, strict=True)
        known = slots.recent[tables[0]]
        if (
            kinds.count(PUT) != count
            or tables.count(tables[0]) != count
            or len(set(keys)) != count
            or not known.keys().isdisjoint(keys)
        ):
            return False
        first = slots.allocate_run(tables[0], keys)
        stop = first + count
        self._grow_rows(stop)
        head_bytes = self._layout.head_bytes
        self._rows[first * head_bytes : stop * head_bytes] = b"".join(heads)
        slots.lsn[first:stop] = self._born[first:stop] = array("Q", range(lsn, lsn + count))
        slots.segment[first:stop] = array("I", [segment]) * count
        slots.offset8[first:stop] = array("I", offsets8)
        slots.body_length[first:stop] = array("I", lengths)
        slots.body_crc[first:stop] = array("I", crcs)
        return True

    def _apply_records(
        self, records: Sequence[Record], lsn: int, segment: int, offsets8: list[int]
    ) -> None:
        """Apply canonical records one by one."""
        slots = self.slots
        tables = slots.recent
        lsns, segments, offsets = slots.lsn, slots.segment, slots.offset8
        lengths, crcs, head_segments = slots.body_length, slots.body_crc, slots.head_segment
        allocate, rows, head_bytes = slots.allocate, self._rows, self._layout.head_bytes
        born = self._born
        for (kind, table, _zero, length, crc, key, head), offset8 in zip(
            records, offsets8, strict=True
        ):
            if kind == STATE:
                slot = tables[table].get(key, -1)
                # The entry may have ended with a segment that was dropped since.
                if slot >= 0 and lsn > lsns[slot]:
                    start = slot * head_bytes
                    rows[start : start + head_bytes] = head
                    lsns[slot] = lsn
                    head_segments[slot] = segment
            elif kind == PUT:
                slot = tables[table].get(key, -1)
                if slot < 0:
                    slot = allocate(table, key)
                    if (slot + 1) * head_bytes > len(rows):
                        self._grow_rows(slot + 1)
                if lsn > lsns[slot]:
                    start = slot * head_bytes
                    rows[start : start + head_bytes] = head
                    lsns[slot] = born[slot] = lsn
                    segments[slot] = segment
                    offsets[slot] = offset8
                    lengths[slot] = length
                    crcs[slot] = crc
                    head_segments[slot] = 0
            elif kind == DEL:
                slot = tables[table].get(key, -1)
                if slot >= 0 and lsn > born[slot]:
                    del tables[table][key]
                    slots.release(slot)
            lsn += 1

    def _apply_move(self, move: Move, segment: int, offset8: int) -> int:
        """Apply a copy of an older record; return the length of its body in units of 8 bytes."""
        slots = self.slots
        length: int
        kind, table, _, length, crc, key, head = self._layout.raw_record.unpack(move.record)
        self._count_needed(segment, (move.home,))
        slot = slots.find(table, key)
        if kind == DEL:
            if slot >= 0 and move.lsn > self._born[slot]:
                del slots.recent[table][key]
                slots.release(slot)
            return 0
        if slot < 0 and kind == PUT:
            slot = slots.allocate(table, key)
        if slot < 0 or move.lsn < slots.lsn[slot]:
            return (length + 7) >> 3
        self._grow_rows(slot + 1)
        start = slot * self._layout.head_bytes
        self._rows[start : start + self._layout.head_bytes] = head
        slots.lsn[slot] = move.lsn
        slots.head_segment[slot] = segment if kind == STATE else 0
        if kind == PUT:
            self._born[slot] = move.lsn
            slots.segment[slot] = segment
            slots.offset8[slot] = offset8
            slots.body_length[slot] = length
            slots.body_crc[slot] = crc
        return (length + 7) >> 3

    def _count_needed(self, segment: int, homes: Sequence[int]) -> None:
        """Count the records of `segment` that hold down a PUT in another one."""
        if not any(homes):
            return
        for home, count in Counter(homes).items():
            if home and home != segment:
                counts = self.needed.setdefault(segment, {})
                counts[home] = counts.get(home, 0) + count

    def _grow_rows(self, slot_count: int) -> None:
        missing = slot_count * self._layout.head_bytes - len(self._rows)
        if missing > 0:
            count = max(missing // self._layout.head_bytes, 4096)
            self._rows.extend(bytes(count * self._layout.head_bytes))
            self._born.frombytes(bytes(count * self._born.itemsize))
