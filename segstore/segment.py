"""A segment: an open file, where its log ends, and how a new one is made."""

import errno
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from segstore.events import log
from segstore.layout import SEGMENT_HEADER_BYTES, TMP_SUFFIX, SegmentHeader, segment_name
from segstore.vfs import VFS, File

Prealloc = Literal["zero", "fallocate", "none"]

_FILL_BYTES: Final = 1 << 20
_FILL_SYNC_BYTES: Final = 4 << 20  # synced in pieces, so that no commit waits for all of it


class SyncFailed(OSError):
    """A sync failed, also when its errno says ENOSPC (a thin volume). The store must stop."""

    @classmethod
    def of(cls, problem: OSError, path: str) -> "SyncFailed":
        """Return what to raise for what the system said."""
        return cls(problem.errno, f"sync failed: {problem.strerror}", path)


@dataclass(slots=True, eq=False)
class Spare:
    """A segment that does not exist in the log yet: its header is settled, its file maybe made."""

    header: SegmentHeader
    path: str
    encoded: bytes
    file: File | None = None
    allocated: int = 0  # bytes of the file that can be written without new space on the disk

    def to_segment(self) -> "Segment":
        """Return the segment this becomes with its first frame."""
        crc = int.from_bytes(self.encoded[-4:], "little")
        return Segment(self.header.segment, self.path, self.header.salt, crc, spare=self)


@dataclass(slots=True, eq=False)
class Segment:
    """One live segment.

    Attributes:
        end: Where its last built frame ends; the next one starts there.
        last_crc: CRC of that frame, or of the header while there is none.
        is_leaving: SEGDROP was built for it; later segment lists leave it out.
        is_dropped: Its file is durably gone.
        written: Up to here the frames were handed to the operating system.
        synced: Up to here they are known durable.
        reader_count: Reads under way; a dropped file is closed by the last of them.
        spare: What it was made from, if this process made it.
        seal_at: A frame that ends behind this seals it.
    """

    id: int
    path: str
    salt: int
    last_crc: int
    end: int = SEGMENT_HEADER_BYTES
    file: File | None = None
    is_sealed: bool = False
    is_leaving: bool = False
    is_dropped: bool = False
    written: int = SEGMENT_HEADER_BYTES
    synced: int = SEGMENT_HEADER_BYTES
    reader_count: int = 0
    spare: Spare | None = None
    seal_at: int = 0

    @property
    def allocated(self) -> int:
        """Bytes of its file that can be written without new space on the disk; 0: not known."""
        return self.spare.allocated if self.spare is not None else 0

    def writing_file(self) -> File | None:
        """Return the file to append to, once there is one."""
        if self.file is None and self.spare is not None:
            self.file = self.spare.file
        return self.file

    def reading_file(self, vfs: VFS) -> File:
        """Return the open file, opening it for reading when it is not."""
        file = self.file or self.writing_file()
        if file is None:
            file = self.file = vfs.open(self.path, is_readonly=True)
        return file

    def begin_read(self) -> None:
        """Keep the file open until `end_read`, also when the segment is dropped meanwhile."""
        self.reader_count += 1

    def end_read(self) -> None:
        """End what `begin_read` began."""
        self.reader_count -= 1
        if self.is_dropped and not self.reader_count:
            self.close()

    def close(self) -> None:
        """Close the file, if it is open."""
        file, self.file = self.file, None
        if file is not None:
            file.close()


def close_all(files: Iterable[File | None]) -> None:
    """Close files; what was durable stays so even if the system complains here."""
    for file in files:
        if file is None:
            continue
        try:
            file.close()
        except OSError as problem:
            log.warning("closing a file failed", path=file.path, error=problem)


def plan_spare(directory: str, header: SegmentHeader) -> Spare:
    """Return a spare whose file is still to be made by `make_file`."""
    path = f"{directory}/{segment_name(header.segment)}"
    return Spare(header, path, header.encode())


def check_place(lock: File) -> None:
    """Raise OSError if another directory took our place: two logs would be mixed up there."""
    if not lock.is_in_place():
        raise OSError(errno.ESTALE, "the directory was taken away or replaced", lock.path)


def make_file(
    vfs: VFS, directory: str, path: str, encoded: bytes, *, prealloc: Prealloc, segment_bytes: int
) -> File:
    """Make the file of a segment completely: header, space, and a durable name.

    Returns:
        The open file. When this returns, an empty segment survives a power cut.

    Raises:
        SyncFailed: a sync failed; the store must stop.
        OSError: anything else; nothing but a `.tmp` may be left.
    """
    tmp = path + TMP_SUFFIX
    if vfs.exists(tmp):  # of an attempt that found the disk full
        vfs.unlink(tmp)
    file = vfs.open(tmp, is_new=True)
    try:
        write_all(file, encoded, 0)
        if prealloc == "fallocate":
            file.fallocate(0, segment_bytes)
        elif prealloc == "zero":
            _fill(file, len(encoded), segment_bytes)
        sync(file)
        vfs.rename(tmp, path)
        sync_names(vfs, directory)
    except OSError:
        file.close()
        if vfs.exists(tmp):  # on a full disk it is in the way
            vfs.unlink(tmp)
        raise
    file.path = path
    return file


def write_all(file: File, data: bytes, offset: int) -> None:
    """Write all of `data`; a short write is an error (ENOSPC), never retried."""
    count = file.pwritev([data], offset)
    if count != len(data):
        raise OSError(errno.ENOSPC, f"short write: {count} of {len(data)} bytes", file.path)


def sync(file: File, *, is_data_only: bool = False) -> None:
    """fsync or fdatasync, with a failure that cannot be taken for a full disk.

    Raises:
        SyncFailed: whatever the system said; what was written may be lost without a trace.
    """
    try:
        if is_data_only:
            file.fdatasync()
        else:
            file.fsync()
    except OSError as problem:
        raise SyncFailed.of(problem, file.path) from problem


def sync_names(vfs: VFS, directory: str) -> None:
    """Make names durable; see `sync`."""
    try:
        vfs.sync_dir(directory)
    except OSError as problem:
        raise SyncFailed.of(problem, directory) from problem


def _fill(file: File, start: int, stop: int) -> None:
    """Write zeros, so that later writes need no new blocks and their syncs no journal commit."""
    zeros = bytes(_FILL_BYTES)
    unsynced = 0
    while start < stop:
        piece = zeros[: stop - start]
        write_all(file, piece, start)
        start += len(piece)
        unsynced += len(piece)
        if unsynced >= _FILL_SYNC_BYTES:
            sync(file, is_data_only=True)
            unsynced = 0
