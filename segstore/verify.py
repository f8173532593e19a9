"""Reading all of a store and saying all that is wrong with it. Changes nothing.

Every frame of every live segment is read, its place in the log and its bodies are checked, and
snapshots and index are held against the log. The last word on whether it opens has the code that
opens.
"""

from dataclasses import dataclass, field
from zlib import crc32

from segstore.directory import (
    Directory,
    is_known,
    kept_from_writers,
    look_into,
    read_file,
)
from segstore.errors import BodyDamaged, StoreDamaged
from segstore.index_check import check_index
from segstore.layout import (
    BACKUP_NAME,
    INDEX_NAME,
    TMP_SUFFIX,
    HeadLayout,
)
from segstore.local import SegmentEnd
from segstore.manifest import Manifest, decode_manifest
from segstore.recovered import Recovered
from segstore.recovery import Progress, Recovery
from segstore.slots import Slots
from segstore.snapshot_check import check_snapshots
from segstore.survey import Survey
from segstore.vfs import VFS
from segstore.walk import Break, FoundBody, LogWalk, bodies_in, layout_of, load


@dataclass(frozen=True, slots=True)
class DamagedBody:
    """A body that is not what was stored.

    Attributes:
        is_live: Whether its entry is still there; a dead one is only garbage not yet dropped.
    """

    damage: BodyDamaged
    is_live: bool

    def __str__(self) -> str:
        return f"{self.damage}" + ("" if self.is_live else "; its entry ended since")


@dataclass(slots=True)
class Report:
    """What `verify` found.

    Attributes:
        path: Of the directory.
        breaks, bodies: The damage. Without any, the store opens and holds all it acknowledged.
        notes: What is as it may be, in words: a torn tail, files that the next open removes.
        manifest: Of a backup that was never opened.
        last_lsn: Where the log stands.
    """

    path: str
    segment_count: int = 0
    byte_count: int = 0
    frame_count: int = 0
    record_count: int = 0
    body_count: int = 0
    entry_count: int = 0
    last_lsn: int = 0
    manifest: Manifest | None = None
    breaks: list[Break] = field(default_factory=list)
    bodies: list[DamagedBody] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def damage_count(self) -> int:
        """How many damages there are; 0: the store is sound."""
        return len(self.breaks) + len(self.bodies)


def verify(path: str, *, vfs: VFS, on_progress: Progress | None = None) -> Report:
    """Check a store that nobody has open, or a backup.

    Args:
        path: The directory.
        vfs: The disk.
        on_progress: Told bytes read and bytes in all.

    Raises:
        StoreLocked: somebody has it open.
        NoStore: there is none.
        FormatRefused: a format of a later version; MarkerDamaged if the marker is not intact.
        OSError: it cannot be read.
    """
    with kept_from_writers(vfs, path):
        return _Verification(vfs, look_into(vfs, path), on_progress).run()


class _Verification:
    def __init__(self, vfs: VFS, directory: Directory, on_progress: Progress | None) -> None:
        self._vfs = vfs
        self._directory = directory
        self._on_progress = on_progress
        self._report = Report(directory.path)
        self._bodies: list[tuple[str, int, FoundBody, int]] = []  # damaged: path, segment, crc
        self._cuts: list[tuple[str, int]] = []
        self._sizes: dict[int, int] = {}

    def run(self) -> Report:
        report, directory = self._report, self._directory
        try:
            layout = layout_of(self._vfs, directory)
        except StoreDamaged as damage:
            report.breaks += [
                Break(directory.segment_path(each), 0, 0, damage.problem)
                for each in directory.segments
            ]
        else:
            if layout is not None:
                self._check_log(layout)
        self._check_manifest()
        self._note_files()
        return report

    def _check_log(self, layout: HeadLayout) -> None:
        survey = Survey(self._vfs, self._directory, layout)
        self._sizes = survey.sizes
        total = 2 * sum(survey.sizes.values()) or 1
        walk = LogWalk(layout)
        done = 0
        for segment in survey.due:
            self._check_segment(walk, segment, survey.ends.get(segment))
            done += survey.sizes.get(segment, 0)
            self._progress(done, total)
        report = self._report
        report.breaks += walk.breaks
        report.frame_count = walk.frame_count
        recovered = self._open(layout, done, total)
        self._judge_bodies(recovered.slots if recovered is not None else None)
        if recovered is None:
            return
        report.entry_count = len(recovered.slots)
        report.last_lsn = recovered.state.last_lsn
        breaks, notes, slots = check_snapshots(self._vfs, self._directory, layout, recovered.slots)
        report.breaks += breaks
        report.notes += notes
        if INDEX_NAME in self._directory.names:
            path, uuid = self._directory.path, self._directory.marker.store_uuid
            found = check_index(self._vfs, path, slots, uuid)
            if isinstance(found, str):
                report.notes.append(f"{path}/{INDEX_NAME}: {found}; the next open builds it anew")
            else:
                report.breaks += found

    def _check_segment(self, walk: LogWalk, segment: int, end: SegmentEnd | None) -> None:
        report = self._report
        path = self._directory.segment_path(segment)
        if segment not in self._directory.segments:
            walk.lose(path, 0, "the file is missing")
            return
        loaded = load(self._vfs, path, segment, self._directory.marker.store_uuid)
        report.segment_count += 1
        report.byte_count += len(loaded.data)
        walk.breaks += loaded.unreadable
        if isinstance(loaded.header, str):
            walk.lose(path, len(loaded.data), loaded.header)
            return
        for scan, frame in walk.walk(loaded):
            report.record_count += frame.header.record_count
            for body in bodies_in(scan, frame):
                report.body_count += 1
                crc = crc32(scan.view[body.offset : body.offset + body.length])
                if crc != body.crc:
                    self._bodies.append((path, segment, body, crc))
        walk.check_end(path, end)

    def _open(self, layout: HeadLayout, done: int, total: int) -> Recovered | None:
        """Do what an open does, without changing anything; None: it would be refused."""
        report = self._report

        def on_progress(part: int, whole: int) -> None:
            self._progress(done + (total - done) * part // max(whole, 1), total)

        recovery = Recovery(
            self._vfs, self._directory, layout, salvage_command="", on_progress=on_progress
        )
        try:
            recovered = recovery.read()
        except StoreDamaged as damage:
            if not any(each.path == damage.path for each in report.breaks):
                report.breaks.append(Break(damage.path, damage.offset, 0, damage.problem))
            return None
        except OSError as problem:
            if not report.breaks:
                report.breaks.append(Break(problem.filename or report.path, 0, 0, str(problem)))
            return None
        judgement = recovery.judgement()
        for cut in judgement.cuts:
            self._cuts.append((cut.path, cut.offset))
            report.notes.append(
                f"{cut.path}+{cut.offset}: torn tail of {len(cut.tail)} bytes, never acknowledged"
                " (but in buffer mode); the next open cuts it off"
                + ("; no sector is missing in it, so it may be damage" * cut.is_suspicious)
            )
        report.breaks = [each for each in report.breaks if not self._is_cut(each.path, each.offset)]
        report.notes += [
            f"{path}: made ahead and not used; the next open removes it"
            for path in judgement.spares
            if path not in [cut.path for cut in judgement.cuts]
        ]
        report.notes += [
            f"{path}: no part of the log any more; the next open removes it"
            for path in judgement.dropped
        ]
        return recovered

    def _is_cut(self, path: str, offset: int) -> bool:
        return any(path == cut and offset >= start for cut, start in self._cuts)

    def _judge_bodies(self, slots: Slots | None) -> None:
        for path, segment, body, crc in self._bodies:
            if self._is_cut(path, body.offset):
                continue
            slot = slots.find(body.table, body.key) if slots is not None else -1
            is_live = slots is None or (
                slot >= 0
                and slots.segment[slot] == segment
                and slots.offset8[slot] << 3 == body.offset
            )
            damage = BodyDamaged(
                body.table, body.key, path, body.offset, body.length, body.crc, crc
            )
            self._report.bodies.append(DamagedBody(damage, is_live))

    def _check_manifest(self) -> None:
        """Hold a backup against what it says it holds."""
        report, directory = self._report, self._directory
        if BACKUP_NAME not in directory.names:
            return
        path = f"{directory.path}/{BACKUP_NAME}"
        manifest = decode_manifest(read_file(self._vfs, path))
        if isinstance(manifest, str):
            report.breaks.append(Break(path, 0, 0, manifest))
            return
        report.manifest = manifest
        ours = directory.marker.store_uuid
        if manifest.store_uuid != ours:
            problem = f"of store {manifest.store_uuid.hex()}, not of {ours.hex()}"
            report.breaks.append(Break(path, 0, 0, problem))
        expected = dict(manifest.segments)
        if set(expected) != set(directory.segments):
            problem = f"names segments {sorted(expected)}, there are {directory.segments}"
            report.breaks.append(Break(path, 0, 0, problem))
        elif not report.damage_count and report.last_lsn != manifest.last_lsn:
            problem = f"names LSN {manifest.last_lsn}, the log ends with {report.last_lsn}"
            report.breaks.append(Break(path, 0, 0, problem))
        for segment, length in manifest.segments:
            size = self._sizes.get(segment, length)
            if size < length:
                problem = f"{length} bytes according to {BACKUP_NAME}"
                report.breaks.append(Break(directory.segment_path(segment), size, 0, problem))
        report.breaks += [
            Break(path, offset, 0, "torn, in a backup") for path, offset in self._cuts
        ]

    def _note_files(self) -> None:
        directory = self._directory
        for name in directory.names:
            if name.endswith(TMP_SUFFIX):
                self._report.notes.append(
                    f"{directory.path}/{name}: unfinished; the next open removes it"
                )
            elif not is_known(name):
                self._report.notes.append(f"{directory.path}/{name}: no file of the store")

    def _progress(self, done: int, total: int) -> None:
        if self._on_progress is not None:
            self._on_progress(done, total)
