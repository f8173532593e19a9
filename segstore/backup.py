"""Copying a store, also one in use, so that the copy opens like any store.

A segment never changes once a later one was begun, and no id is used twice. So the older ones are
linked, or copied where a link cannot be; of the newest one all up to its last valid frame is
copied. That is the log as it stood when the newest one was read, and whatever was committed before
the backup began is in it. If a segment was dropped before it could be linked, its drop is in the
log by now: the end is read anew, and what was copied already is kept.

Only segments and FORMAT are copied; index and snapshots are derived. The source is only read, and
needs no lock. The target is complete once BACKUP is there, which is written last.
"""

import errno
import posixpath
from collections.abc import Callable, Generator, Iterator
from typing import Final

from segstore.directory import Directory, look_into, make_directory, read_file
from segstore.errors import StoreDamaged, TargetRefused
from segstore.layout import FORMAT_NAME, HeadLayout, segment_name
from segstore.local import SegmentEnd
from segstore.manifest import Manifest, write_durably
from segstore.recovered import LogEnd
from segstore.recovery import Progress, Recovery
from segstore.segment import write_all
from segstore.vfs import VFS, File
from segstore.walk import layout_of

PIECE_BYTES: Final = 4 << 20  # copied in one step
_ROUNDS_MAX: Final = 100  # of which each keeps what the ones before have copied
_NO_LINK: Final = frozenset(
    {errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS}
)


class Backup:
    """One backup; `steps` makes it.

    Args:
        vfs: The disk.
        source: Directory of the store, in use or not.
        target: Directory of the backup: a new one, or an empty one.
        now_ms: Wall clock, for the manifest.
        is_linking: Whether segments are linked where that is possible.
        read_end: Tells where the log ends, if somebody knows who also keeps segments from being
            dropped meanwhile.

    Attributes:
        manifest: Set when the steps are done.
        linked_bytes, copied_bytes: Of the segments in the target.
    """

    def __init__(
        self,
        vfs: VFS,
        source: str,
        target: str,
        *,
        now_ms: int,
        is_linking: bool = True,
        read_end: Callable[[], LogEnd | None] | None = None,
    ) -> None:
        self.manifest: Manifest
        self.linked_bytes = self.copied_bytes = 0
        self._vfs = vfs
        self._source = source.rstrip("/") or "/"
        self._target = target.rstrip("/") or "/"
        self._now_ms = now_ms
        self._is_linking = is_linking
        self._read_end = read_end or self._find_end
        self._layout: HeadLayout | None = None
        self._made: dict[int, tuple[int, bool]] = {}  # length of each segment, whether it is a link

    def steps(self) -> Generator[tuple[int, int], None, None]:
        """Make the backup in small steps that block; each yields bytes done and bytes in all.

        All is durable at the end. When a step raises, what was made is removed.

        Raises:
            NoStore, FormatRefused: there is nothing to copy.
            TargetRefused: there is something where it should go.
            StoreDamaged: the end of the source is damaged.
            OSError: reading or writing failed.
        """
        directory = look_into(self._vfs, self._source)
        prepare_target(self._vfs, self._source, self._target)
        try:
            yield from self._make(directory)
        except BaseException:
            self._remove()
            raise

    def _make(self, directory: Directory) -> Iterator[tuple[int, int]]:
        for _ in range(_ROUNDS_MAX):
            end = self._read_end()
            try:
                if end is not None:
                    yield from self._copy_older(end)
            except FileNotFoundError:
                continue  # dropped meanwhile: the log says so by now
            break
        else:
            raise TargetRefused(
                f"segments of {self._source} are dropped faster than they are copied to"
                f" {self._target}; name a target on the file system of {self._source}, where they"
                " can be linked"
            )
        if end is not None:
            file = self._begin(segment_name(end.segment))
            try:
                write_all(file, end.data, 0)
                file.fsync()
            finally:
                file.close()
            self._made[end.segment] = (len(end.data), False)
        self._vfs.sync_dir(self._target)
        # Without FORMAT no part of a backup opens, whenever this ends.
        marker = read_file(self._vfs, f"{self._source}/{FORMAT_NAME}")
        write_durably(self._vfs, self._target, FORMAT_NAME, marker)
        self.manifest = self._manifest(directory, end)
        self.manifest.write(self._vfs, self._target)
        for length, is_link in self._made.values():
            self.linked_bytes += length if is_link else 0
            self.copied_bytes += 0 if is_link else length
        yield self.manifest.byte_count, self.manifest.byte_count

    def _find_end(self) -> LogEnd | None:
        """Read where the log ends.

        A frame that was being written while it was read may look damaged. It was whole before the
        next one was begun, so what is wrong twice at the same place is damage.
        """
        seen = ("", 0)
        for _ in range(_ROUNDS_MAX):
            try:
                directory = look_into(self._vfs, self._source)
                if self._layout is None:
                    self._layout = layout_of(self._vfs, directory)
                if self._layout is None:
                    return None
                return Recovery(self._vfs, directory, self._layout, salvage_command="").read_end()
            except StoreDamaged as damage:
                if (damage.path, damage.offset) == seen:
                    raise
                seen = (damage.path, damage.offset)
            except FileNotFoundError:
                continue
        raise TargetRefused(f"the end of the log in {self._source} moves faster than it is read")

    def _copy_older(self, end: LogEnd) -> Iterator[tuple[int, int]]:
        """Link or copy the segments before the newest, and drop from the target what is gone."""
        kept = {each.segment for each in end.older}
        for segment in [each for each in self._made if each not in kept]:
            self._vfs.unlink(f"{self._target}/{segment_name(segment)}")
            del self._made[segment]
        total = sum(each.end for each in end.older) + len(end.data)
        done = sum(length for length, _ in self._made.values())
        for each in end.older:
            if each.segment in self._made:
                continue
            if not self._link(each):
                for offset in self._copy(each):
                    yield done + offset, total
            done += each.end
            yield done, total

    def _link(self, segment: SegmentEnd) -> bool:
        """Give the file of a segment a name in the target; False where that cannot be."""
        if not self._is_linking:
            return False
        name = segment_name(segment.segment)
        path = f"{self._target}/{name}"
        try:
            self._vfs.link(f"{self._source}/{name}", path)
        except OSError as problem:
            if problem.errno not in _NO_LINK:
                raise
            self._is_linking = False
            return False
        self._made[segment.segment] = (segment.end, True)
        file = self._vfs.open(path, is_readonly=True)
        try:
            file.fsync()
        finally:
            file.close()
        return True

    def _copy(self, segment: SegmentEnd) -> Iterator[int]:
        """Copy a segment up to its end; yields the bytes copied so far."""
        name = segment_name(segment.segment)
        source = self._vfs.open(f"{self._source}/{name}", is_readonly=True)
        try:
            target = self._begin(name)
            self._made[segment.segment] = (segment.end, False)
            try:
                offset = 0
                while offset < segment.end:
                    piece = source.pread(min(PIECE_BYTES, segment.end - offset), offset)
                    if not piece:
                        raise StoreDamaged(
                            source.path, offset, f"the file is shorter than {segment.end} bytes"
                        )
                    write_all(target, piece, offset)
                    offset += len(piece)
                    yield offset
                target.fsync()
            finally:
                target.close()
        finally:
            source.close()

    def _begin(self, name: str) -> File:
        return self._vfs.open(f"{self._target}/{name}", is_new=True)

    def _manifest(self, directory: Directory, end: LogEnd | None) -> Manifest:
        marker = directory.marker
        segments = tuple((each, length) for each, (length, _) in sorted(self._made.items()))
        if end is None:
            return Manifest(marker.store_uuid, 0, 0, 0, self._now_ms, segments)
        state = end.state
        return Manifest(
            marker.store_uuid,
            state.last_lsn,
            state.epoch,
            state.log_clock_ms,
            self._now_ms,
            segments,
        )

    def _remove(self) -> None:
        """Take away what was made: half a backup must not be taken for one."""
        for name in self._vfs.list_dir(self._target):
            self._vfs.unlink(f"{self._target}/{name}")


def backup(
    source: str,
    target: str,
    *,
    vfs: VFS,
    now_ms: int,
    on_progress: Progress | None = None,
    is_linking: bool = True,
) -> Backup:
    """Copy a store to a new directory, whether it is in use or not; see `Backup`.

    Returns:
        The backup that was made, all of it durable. Verify it: it is no better than its source.
    """
    made = Backup(vfs, source, target, now_ms=now_ms, is_linking=is_linking)
    for done, total in made.steps():
        if on_progress is not None:
            on_progress(done, total)
    return made


def prepare_target(vfs: VFS, source: str, target: str) -> None:
    """Make the directory a copy goes to.

    Raises:
        TargetRefused: it is not empty, or lies within the source or around it.
    """
    inner, outer = (f"{posixpath.normpath(path).rstrip('/')}/" for path in (target, source))
    if inner.startswith(outer) or outer.startswith(inner):
        raise TargetRefused(f"{target} and {source} lie within each other; name another directory")
    if vfs.exists(target):
        try:
            names = vfs.list_dir(target)
        except NotADirectoryError:
            raise TargetRefused(f"{target} is no directory; name a new one") from None
        if names:
            raise TargetRefused(
                f"{target} is not empty ({len(names)} names); name a new or empty directory"
            )
    make_directory(vfs, target)
