"""What of a victim has to be copied: found in the slot table and in its frames, read in pieces.

Entries are found by their place: two passes over the columns, in slices, name the slots whose body
or newest head lies in the victim. No key is looked up, and dead bytes are not read. Deletes are
found in the heads of the frames, which is only done if some are needed.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from zlib import crc32

from segstore.batch import (
    BATCH_HEADER_BYTES,
    FRAME_HEADER_BYTES,
    FrameHeader,
    decode_u32,
    parse_batch,
    parse_frame,
)
from segstore.layout import KEY_BYTES, SEGMENT_HEADER_BYTES, HeadLayout
from segstore.local import Move, decode_locals
from segstore.moves import Entry, Tombstone
from segstore.segment import Segment
from segstore.slots import Slots
from segstore.vfs import VFS

PIECE_BYTES: Final = 256 << 10
_SLICE_SLOTS: Final = 1 << 13  # about a millisecond
_GAP_BYTES: Final = 16 << 10  # read through rather than start another read
_KEY_AT: Final = 12  # in a record


class VictimDamaged(Exception):
    """A frame of the victim cannot be read: acknowledged bytes are damaged."""


class Sweep:
    """Finds the entries whose body or newest head lies in one segment, slice by slice.

    Entries that came after the start of the sweep do not lie in a sealed segment.
    """

    def __init__(self, slots: Slots, segment: int) -> None:
        self._slots = slots
        self._segment = segment
        self._next = 0

    @property
    def is_done(self) -> bool:
        """Whether all slots were looked at."""
        return self._next >= self._slots.used_count()

    def slice(self) -> tuple[list[int], list[int]]:
        """Return slots whose body, and those of which only the head, lies there; go on."""
        slots, segment = self._slots, self._segment
        start = self._next
        stop = self._next = min(start + _SLICE_SLOTS, slots.used_count())
        lsns, segments, offsets = slots.lsn, slots.segment, slots.offset8
        bodies = [slot for slot in occurrences(segments, segment, start, stop) if lsns[slot]]
        bodies.sort(key=offsets.__getitem__)
        heads = [
            slot
            for slot in occurrences(slots.head_segment, segment, start, stop)
            if segments[slot] != segment
        ]
        return bodies, heads


def occurrences(column: "array[int]", value: int, start: int, stop: int) -> list[int]:
    """Return where in a part of a column a value stands."""
    found = []
    index = column.index
    try:
        while True:
            at = index(value, start, stop)
            found.append(at)
            start = at + 1
    except ValueError:
        return found


@dataclass(slots=True)
class BodyPlace:
    """A body in the victim, as of now."""

    slot: int
    offset8: int
    length: int
    crc: int


def take_places(slots: Slots, segment: int, wanted: list[int]) -> list[BodyPlace]:
    """Return the places of the last slots in `wanted`, as much as one piece; they leave it."""
    places: list[BodyPlace] = []
    byte_count = 0
    while wanted and byte_count < PIECE_BYTES:
        slot = wanted.pop()
        if slots.segment[slot] == segment and slots.lsn[slot]:
            length = slots.body_length[slot]
            places.append(BodyPlace(slot, slots.offset8[slot], length, slots.body_crc[slot]))
            byte_count += length
    places.sort(key=lambda place: place.offset8)
    return places


def read_bodies(vfs: VFS, segment: Segment, places: Sequence[BodyPlace]) -> list[Entry]:
    """Read and check bodies, neighbours in one call. Blocks.

    Raises:
        OSError: one of them cannot be read.
    """
    file = segment.reading_file(vfs)
    entries: list[Entry] = []
    start = 0
    while start < len(places):
        stop = start + 1
        begin = places[start].offset8 << 3
        end = begin + places[start].length
        while stop < len(places):
            offset = places[stop].offset8 << 3
            if offset - end > _GAP_BYTES or offset + places[stop].length - begin > PIECE_BYTES:
                break
            end = max(end, offset + places[stop].length)  # an empty body lies where the next does
            stop += 1
        data = file.pread(end - begin, begin) if end > begin else b""
        for place in places[start:stop]:
            at = (place.offset8 << 3) - begin
            body = data[at : at + place.length].ljust(place.length, b"\0")
            entries.append(Entry(place.slot, place.offset8, body, crc32(body) != place.crc))
        start = stop
    return entries


class TombstoneReader:
    """Reads the heads of a segment's frames for records with a home; skips bodies."""

    def __init__(self, vfs: VFS, segment: Segment, layout: HeadLayout) -> None:
        self._vfs = vfs
        self._segment = segment
        self._layout = layout
        self._offset = SEGMENT_HEADER_BYTES

    @property
    def is_done(self) -> bool:
        """Whether all frames were read."""
        return self._offset >= self._segment.end

    def read(self, homes: frozenset[int]) -> tuple[list[Tombstone], int]:
        """Return the next records with one of the homes, and the bytes read. Blocks.

        Raises:
            OSError: it cannot be read.
            VictimDamaged: see there.
        """
        file = self._segment.reading_file(self._vfs)
        base = self._offset
        data = memoryview(file.pread(min(PIECE_BYTES, self._segment.end - base), base))
        byte_count = len(data)
        found: list[Tombstone] = []
        while self._offset < self._segment.end:
            if self._offset + FRAME_HEADER_BYTES > base + len(data):
                break  # the next piece starts with it
            heads_bytes = self._heads_bytes(data, base)
            if self._offset + heads_bytes > base + len(data):
                if self._offset > base:
                    break
                data = memoryview(file.pread(heads_bytes, base))  # a frame of many records
                byte_count += len(data)
            self._read_frame(data, base, homes, found)
        return found, byte_count

    def _heads_bytes(self, data: memoryview, base: int) -> int:
        """Return the length of all but the bodies of the frame that starts at the offset."""
        at = self._offset - base
        count = int.from_bytes(data[at + 12 : at + 16], "little")
        local_bytes = int.from_bytes(data[at + 20 : at + 24], "little")
        canonical_bytes = int.from_bytes(data[at + 24 : at + 28], "little")
        length = FRAME_HEADER_BYTES + 8 * count + local_bytes + canonical_bytes
        if self._offset + length > self._segment.end:
            raise VictimDamaged(f"{self._segment.path}+{self._offset}: no frame starts here")
        return length

    def _read_frame(
        self, data: memoryview, base: int, homes: frozenset[int], found: list[Tombstone]
    ) -> None:
        segment = self._segment
        header = parse_frame(data, self._offset, segment.id, segment.salt, base=base)
        if isinstance(header, str):
            raise VictimDamaged(f"{segment.path}+{self._offset}: {header}")
        if header.record_count:
            self._read_batch(data, base, header, homes, found)
        if header.local_count:
            start, stop = header.locals_at - base, header.canonical_at - base
            records = decode_locals(bytes(data[start:stop]), header.local_count)
            if isinstance(records, str):
                raise VictimDamaged(f"{segment.path}+{self._offset}: {records}")
            for record in records:
                if isinstance(record, Move) and record.home in homes:
                    found.append(_tombstone(record.record, record.lsn, record.home))
        self._offset += header.frame_bytes

    def _read_batch(
        self,
        data: memoryview,
        base: int,
        header: FrameHeader,
        homes: frozenset[int],
        found: list[Tombstone],
    ) -> None:
        count = header.record_count
        stop = header.locals_at - base
        named = decode_u32(data[stop - 4 * count : stop])
        if homes.isdisjoint(named):
            return
        batch = parse_batch(data, header, self._layout.record_bytes, base=base)
        if isinstance(batch, str):
            raise VictimDamaged(f"{self._segment.path}+{self._offset}: {batch}")
        records_at = header.canonical_at - base + BATCH_HEADER_BYTES
        for index, home in enumerate(named):
            if home in homes:
                at = records_at + index * batch.record_bytes
                record = bytes(data[at : at + batch.record_bytes])
                found.append(_tombstone(record, batch.first_lsn + index, home))


def _tombstone(record: bytes, lsn: int, home: int) -> Tombstone:
    return Tombstone(record[1], record[_KEY_AT : _KEY_AT + KEY_BYTES], lsn, home)
