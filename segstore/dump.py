"""What the segments of a store say, record by record, for people. Changes nothing.

Segments are read one by one and past damage, so this works on whatever is left of a store.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any
from zlib import crc32

from segstore.batch import DEL, EPOCH, PUT, STATE, decode_u32
from segstore.directory import kept_from_writers, look_into
from segstore.errors import StoreDamaged
from segstore.layout import KEY_BYTES, HeadLayout, aligned
from segstore.local import Local, Move
from segstore.scan import Frame, SegmentScan
from segstore.vfs import VFS
from segstore.walk import Break, LoadedSegment, LogWalk, layout_of, load

_KINDS = {PUT: "put", STATE: "state", DEL: "delete", EPOCH: "epoch"}


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which records to yield; None: all.

    Attributes:
        segment: Only this one.
        lsn_first, lsn_last: Only canonical records, and copies, from and up to these.
        key: Only this one's.
    """

    segment: int | None = None
    lsn_first: int | None = None
    lsn_last: int | None = None
    key: bytes | None = None

    @property
    def is_narrow(self) -> bool:
        """Whether records without LSN and key are left out."""
        return not (self.lsn_first is None and self.lsn_last is None and self.key is None)

    def takes(self, lsn: int, key: bytes) -> bool:
        """Whether a record is wanted."""
        return (
            (self.lsn_first is None or lsn >= self.lsn_first)
            and (self.lsn_last is None or lsn <= self.lsn_last)
            and (self.key is None or key == self.key)
        )


@dataclass(frozen=True, slots=True)
class Dumped:
    """A record that is in a batch or was copied from one.

    Attributes:
        kind: put, state, delete or epoch.
        is_moved: Whether compaction copied it here.
        segment, frame_offset: Where its frame starts.
        home: Segment of the older PUT it undoes; 0: none.
        head: Values by name; empty for a delete.
        body: Of a put, as it lies there; None for others.
        is_body_damaged: Whether the body is not what was stored.
    """

    kind: str
    is_moved: bool
    segment: int
    frame_offset: int
    lsn: int
    table: int
    key: bytes
    home: int
    head: Mapping[str, int]
    body: bytes | None
    is_body_damaged: bool


@dataclass(frozen=True, slots=True)
class DumpedLocal:
    """A local record (FORMAT.md section 5), other than MOVE."""

    kind: str
    segment: int
    frame_offset: int
    values: Mapping[str, object]


def dump(
    path: str, *, vfs: VFS, wanted: Wanted | None = None
) -> Iterator[Dumped | DumpedLocal | Break]:
    """Yield the records of a store that nobody has open, and each stretch that cannot be read.

    Raises:
        StoreLocked, NoStore, FormatRefused: as `verify`.
        OSError: it cannot be read.
    """
    chosen = wanted or Wanted()
    with kept_from_writers(vfs, path):
        directory = look_into(vfs, path)
        try:
            layout = layout_of(vfs, directory)
        except StoreDamaged:
            layout = None
        for segment in directory.segments:
            if chosen.segment not in (None, segment):
                continue
            file = directory.segment_path(segment)
            loaded = load(vfs, file, segment, directory.marker.store_uuid)
            if isinstance(loaded.header, str) or layout is None:
                yield Break(file, 0, len(loaded.data), str(loaded.header))
            else:
                yield from _dump_segment(loaded, layout, chosen)


def _dump_segment(
    loaded: LoadedSegment, layout: HeadLayout, wanted: Wanted
) -> Iterator[Dumped | DumpedLocal | Break]:
    walk = LogWalk(layout)
    break_count = 0
    for scan, frame in walk.walk(loaded):
        yield from walk.breaks[break_count:]
        break_count = len(walk.breaks)
        yield from _dump_frame(scan, frame, wanted)
    yield from walk.breaks[break_count:]


def _dump_frame(scan: SegmentScan, frame: Frame, wanted: Wanted) -> Iterator[Dumped | DumpedLocal]:
    header = frame.header
    names = [name for name, _ in scan.layout.fields]
    if frame.batch is not None:
        start = header.locals_at - 4 * header.record_count
        homes = decode_u32(scan.view[start : start + 4 * header.record_count])
        position = header.bodies_at
        records = scan.layout.record.iter_unpack(scan.record_bytes_of(frame))
        for index, record in enumerate(records):
            lsn = frame.batch.first_lsn + index
            if wanted.takes(lsn, record[5]):
                place = (False, header.segment, header.offset, lsn)
                yield _dumped(scan, names, record, place, homes[index], position)
            if record[0] == PUT:
                position += aligned(record[3])
    position = header.moved_at
    for local in frame.locals:
        if isinstance(local, Move):
            record = scan.layout.record.unpack(local.record)
            if wanted.takes(local.lsn, record[5]):
                place = (True, header.segment, header.offset, local.lsn)
                yield _dumped(scan, names, record, place, local.home, position)
            if record[0] == PUT:
                position += aligned(record[3])
        elif not wanted.is_narrow:
            yield DumpedLocal(_name(local), header.segment, header.offset, asdict(local))


def _dumped(
    scan: SegmentScan,
    names: list[str],
    record: tuple[Any, ...],
    place: tuple[bool, int, int, int],
    home: int,
    body_at: int,
) -> Dumped:
    kind, table, _zero, length, crc, key, *values = record
    assert len(key) == KEY_BYTES
    body = bytes(scan.view[body_at : body_at + length]) if kind == PUT else None
    is_moved, segment, frame_offset, lsn = place
    return Dumped(
        _KINDS.get(kind, str(kind)),
        is_moved,
        segment,
        frame_offset,
        lsn,
        table,
        key,
        home,
        {} if kind in (DEL, EPOCH) else dict(zip(names, values, strict=True)),
        body,
        body is not None and (len(body) != length or crc32(body) != crc),
    )


def _name(local: Local) -> str:
    return type(local).__name__.lower()
