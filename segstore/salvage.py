"""Carrying all that is provable in a damaged store over to a new one, and saying what is lost.

The source is only read. Every intact frame of the log counts, also behind damage; entries are put
together from them as an open would, and written to a new store with the uuid of the old one. A
record that is lost leaves its entry as it was before: an entry whose delete is lost is there again.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final
from zlib import crc32

from segstore.backup import prepare_target
from segstore.batch import DEL, PUT, STATE
from segstore.directory import Directory, kept_from_writers, look_into, names_in, segments_among
from segstore.errors import BodyDamaged, MarkerDamaged, NoStore
from segstore.layout import (
    FORMAT_NAME,
    QUARANTINE_NAME,
    SEGMENT_HEADER_BYTES,
    FormatMarker,
    HeadLayout,
    decode_header,
)
from segstore.local import Move
from segstore.manifest import write_durably
from segstore.options import Options
from segstore.recovery import Progress
from segstore.redo import Redo
from segstore.rescue import rescue_batch, rescue_header
from segstore.scan import Frame, SegmentScan
from segstore.slots import Slots
from segstore.store import Store
from segstore.survey import Survey
from segstore.vfs import VFS
from segstore.walk import Break, LoadedSegment, LogWalk, layout_of, load
from segstore.workers import run_inline

REPORT_NAME: Final = "salvage.json"  # in quarantine/ of the target
_BATCH_BYTES: Final = 4 << 20
_BATCH_RECORDS: Final = 4096


@dataclass(slots=True)
class Salvaged:
    """What became of a damaged store.

    Attributes:
        entry_count: Entries in the new one.
        breaks: Where the old log could not be read, with the LSNs that are missing.
        bodies: Of entries that are lost because their body is not what was stored.
        orphans: Table and key of entries that may be lost: a later state of them was found, and
            neither their body nor their end. Only told when records are missing.
        notes: Damage that cost nothing, in words.
    """

    entry_count: int = 0
    breaks: list[Break] = field(default_factory=list)
    bodies: list[BodyDamaged] = field(default_factory=list)
    orphans: list[tuple[int, bytes]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        """Whether nothing was lost."""
        return not self.breaks and not self.bodies


async def salvage(
    source: str,
    target: str,
    *,
    vfs: VFS,
    clock_ms: Callable[[], int],
    options: Options | None = None,
    on_progress: Progress | None = None,
) -> Salvaged:
    """Write what is provable in `source` to a new store in `target`, durably; it blocks.

    What was lost is also listed in quarantine/salvage.json of the new store.

    Raises:
        StoreLocked: somebody has the source open.
        NoStore: there is nothing to salvage in it.
        FormatRefused: it needs a later version.
        TargetRefused: the target is not a new or empty directory of its own.
        OSError, StoreFailed: the target cannot be written; what was written was removed.
    """
    with kept_from_writers(vfs, source):
        work = _Salvage(vfs, _look(vfs, source), on_progress)
        prepare_target(vfs, source, target)
        try:
            await work.write(target, clock_ms, options or Options())
        except BaseException:
            for name in vfs.list_dir(target):
                if name != QUARANTINE_NAME:
                    vfs.unlink(f"{target}/{name}")
            raise
    return work.found


def _look(vfs: VFS, path: str) -> Directory:
    """Look into a directory whose format marker may be damaged; the segments know the uuid too."""
    try:
        return look_into(vfs, path)
    except MarkerDamaged as problem:
        names = names_in(vfs, path)
        directory = Directory(path, FormatMarker(bytes(16), 0), names, segments_among(names))
        uuids = []
        for segment in directory.segments:
            file = vfs.open(directory.segment_path(segment), is_readonly=True)
            try:
                header = decode_header(file.pread(SEGMENT_HEADER_BYTES, 0))
            finally:
                file.close()
            if not isinstance(header, str):
                uuids.append(header.store_uuid)
        if not uuids:
            raise NoStore(
                f"{problem.problem}, and no segment has a good header; restore a backup"
            ) from None
        directory.marker = FormatMarker(max(uuids, key=uuids.count), 0)
        return directory


class _Salvage:
    def __init__(
        self,
        vfs: VFS,
        directory: Directory,
        on_progress: Progress | None,
    ) -> None:
        self.found = Salvaged()
        self._vfs = vfs
        self._directory = directory
        self._on_progress = on_progress
        self._orphans: dict[tuple[int, bytes], None] = {}
        self._segments: list[int] = []
        self._log_clock_ms = 0
        layout = layout_of(vfs, directory)
        if layout is None:
            raise NoStore(f"{directory.path} holds no segments")
        self._layout: HeadLayout = layout
        self._total = 1
        self._done = 0

    async def write(self, target: str, clock_ms: Callable[[], int], options: Options) -> None:
        """Replay the log past damage, then write the entries that came of it."""
        slots = self._replay()
        marker = FormatMarker(self._directory.marker.store_uuid, clock_ms())
        write_durably(self._vfs, target, FORMAT_NAME, marker.encode())
        store = await Store.open(
            target,
            fields=self._layout.fields,
            options=options,
            vfs=self._vfs,
            clock_ms=clock_ms,
            run_in_worker=run_inline,
        )
        try:
            await store.become_writer()
            for entries in self._batches(slots):
                await self._put(store, slots, entries)
                await store.maintain(lambda: False)
        finally:
            await store.close()
        self._write_report(target)

    def _replay(self) -> Slots:
        directory, layout = self._directory, self._layout
        survey = Survey(self._vfs, directory, layout)
        self._segments = [each for each in survey.due if each in survey.sizes]
        self._total = 2 * sum(survey.sizes.values()) or 1
        walk = LogWalk(layout, rescue_batch)
        redo = Redo(Slots(layout), layout)
        for segment in survey.due:
            path = directory.segment_path(segment)
            if segment not in survey.sizes:
                walk.lose(path, 0, "the file is missing")
                continue
            loaded = self._load(segment, walk)
            for scan, frame in walk.walk(loaded):
                redo.apply(scan, frame)
                self._note_orphans(redo.slots, scan, frame)
                self._log_clock_ms = max(self._log_clock_ms, scan.state.log_clock_ms)
            walk.check_end(path, survey.ends.get(segment))
            self._progress(survey.sizes[segment])
        redo.finish()
        self.found.breaks = walk.breaks
        if walk.breaks:
            self.found.orphans = list(self._orphans)
        return redo.slots

    def _load(self, segment: int, walk: LogWalk) -> LoadedSegment:
        """Load a segment, with what header there is."""
        path, uuid = self._directory.segment_path(segment), self._directory.marker.store_uuid
        loaded = load(self._vfs, path, segment, uuid)
        walk.breaks += loaded.unreadable
        if isinstance(loaded.header, str):
            problem = loaded.header
            loaded.header, is_readable = rescue_header(loaded.data, segment, uuid, self._layout)
            if not is_readable:
                walk.lose(path, SEGMENT_HEADER_BYTES, problem)
            else:
                text = f"{path}+0: {problem}; its frames could be read all the same"
                self.found.notes.append(text)
        return loaded

    def _note_orphans(self, slots: Slots, scan: SegmentScan, frame: Frame) -> None:
        """Keep track of entries of which only a later state was found."""
        unpack = self._layout.raw_record
        records = list(unpack.iter_unpack(scan.record_bytes_of(frame))) if frame.batch else []
        records += [unpack.unpack(each.record) for each in frame.locals if isinstance(each, Move)]
        for kind, table, _zero, _length, _crc, key, _head in records:
            if kind == STATE and slots.find(table, key) < 0:
                self._orphans[(table, key)] = None
            elif kind in (PUT, DEL) and self._orphans:
                self._orphans.pop((table, key), None)

    def _batches(self, slots: Slots) -> Iterator[list[tuple[int, bytes]]]:
        """Yield slots and bodies of the entries whose bodies are whole, in the order of the log."""
        by_segment: dict[int, list[int]] = {}
        for slot in slots.scan():
            by_segment.setdefault(slots.segment[slot], []).append(slot)
        batch: list[tuple[int, bytes]] = []
        batch_bytes = 0
        for segment in sorted(by_segment):
            path = self._directory.segment_path(segment)
            data = load(self._vfs, path, segment, self._directory.marker.store_uuid).data
            for slot in sorted(by_segment[segment], key=slots.offset8.__getitem__):
                offset, length = slots.offset8[slot] << 3, slots.body_length[slot]
                body = data[offset : offset + length]
                crc = crc32(body)
                if len(body) != length or crc != slots.body_crc[slot]:
                    self._lose_body(slots, slot, path, crc)
                    continue
                batch.append((slot, body))
                batch_bytes += length
                if batch_bytes >= _BATCH_BYTES or len(batch) == _BATCH_RECORDS:
                    yield batch
                    batch, batch_bytes = [], 0
            self._progress(len(data))
        if batch:
            yield batch

    def _lose_body(self, slots: Slots, slot: int, path: str, crc: int) -> None:
        self.found.bodies.append(
            BodyDamaged(
                slots.table(slot),
                slots.key(slot),
                path,
                slots.offset8[slot] << 3,
                slots.body_length[slot],
                slots.body_crc[slot],
                crc,
            )
        )

    async def _put(self, store: Store, old: Slots, entries: list[tuple[int, bytes]]) -> None:
        puts: dict[int, bytes] = {}
        for slot, body in entries:
            new = store.slots.allocate(old.table(slot), old.key(slot))
            for source, column in zip(old.heads, store.slots.heads, strict=True):
                column[new] = source[slot]
            puts[new] = body
        await store.commit(store.build(puts, (), (), clock_ms=self._log_clock_ms))
        self.found.entry_count += len(puts)

    def _write_report(self, target: str) -> None:
        found = self.found
        report = {
            "source": self._directory.path,
            "entries": found.entry_count,
            "breaks": [
                {"where": str(each), "entries": [_name(*entry) for entry in each.keys]}
                for each in found.breaks
            ],
            "bodies": [str(each) for each in found.bodies],
            "notes": found.notes,
            "perhaps": [_name(*entry) for entry in found.orphans],
        }
        folder = f"{target}/{QUARANTINE_NAME}"
        self._vfs.mkdir(folder)
        self._vfs.sync_dir(target)
        write_durably(self._vfs, folder, REPORT_NAME, json.dumps(report, indent=1).encode())

    def _progress(self, byte_count: int) -> None:
        self._done += byte_count
        if self._on_progress is not None:
            self._on_progress(min(self._done, self._total), self._total)


def _name(table: int, key: bytes) -> str:
    return f"table {table}, key {key.hex()}"
