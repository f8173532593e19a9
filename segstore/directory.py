"""The directory of a store: its lock, its format marker, and what lies in it."""

import posixpath
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from segstore.errors import MarkerDamaged, NoStore, StoreLocked
from segstore.events import log
from segstore.layout import (
    BACKUP_NAME,
    FORMAT_NAME,
    INDEX_NAME,
    LOCK_NAME,
    QUARANTINE_NAME,
    TMP_SUFFIX,
    FormatMarker,
    decode_format,
    segment_name,
    segment_of,
)
from segstore.segment import write_all
from segstore.snapshot_file import snapshot_lsn
from segstore.vfs import VFS, File, process_id

_KNOWN_NAMES: Final = frozenset({LOCK_NAME, FORMAT_NAME, QUARANTINE_NAME, INDEX_NAME, BACKUP_NAME})


@dataclass(slots=True)
class Directory:
    """A directory whose format is known."""

    path: str
    marker: FormatMarker
    names: list[str]  # of all that lies in it
    segments: list[int]  # ids of the files there, rising

    def segment_path(self, segment: int) -> str:
        """Return the path of a segment's file."""
        return f"{self.path}/{segment_name(segment)}"

    def snapshot_paths(self) -> list[str]:
        """Return the paths of the snapshots, newest first."""
        names = [name for name in self.names if snapshot_lsn(name) is not None]
        return [f"{self.path}/{name}" for name in sorted(names, reverse=True)]


@dataclass(slots=True)
class OpenDirectory(Directory):
    """A directory that is locked for a writer."""

    lock: File


def open_directory(
    vfs: VFS, path: str, *, clock_ms: Callable[[], int], entropy: Callable[[int], bytes]
) -> OpenDirectory:
    """Lock the directory, read or make its format marker, and remove unfinished files.

    Makes the directory, and those above it, where they are missing.

    Raises:
        StoreLocked: someone has it open.
        FormatRefused: not a directory this version can serve; MarkerDamaged if that cannot be told.
    """
    make_directory(vfs, path)
    lock = _lock(vfs, path)
    try:
        return _look_around(vfs, path, lock, clock_ms=clock_ms, entropy=entropy)
    except BaseException:
        lock.close()
        raise


def _look_around(
    vfs: VFS,
    path: str,
    lock: File,
    *,
    clock_ms: Callable[[], int],
    entropy: Callable[[int], bytes],
) -> OpenDirectory:
    names = sorted(vfs.list_dir(path))
    segments = []
    for name in names:
        segment = segment_of(name)
        if segment is not None:
            segments.append(segment)
        elif name.endswith(TMP_SUFFIX):
            vfs.unlink(f"{path}/{name}")
        elif not is_known(name):
            log.warning("unknown file left alone", path=f"{path}/{name}")
    if FORMAT_NAME in names:
        marker = decode_format(read_file(vfs, f"{path}/{FORMAT_NAME}"), f"{path}/{FORMAT_NAME}")
    elif segments:
        raise MarkerDamaged(f"{path} holds segments but no {FORMAT_NAME}")
    else:
        marker = FormatMarker(store_uuid=entropy(16), created_ms=clock_ms())
        _write_marker(vfs, path, marker)
    return OpenDirectory(path, marker, names, sorted(segments), lock)


def look_into(vfs: VFS, path: str) -> Directory:
    """Return what a directory holds. Changes nothing, locks nothing.

    Raises:
        NoStore: no directory, or one without a store.
        FormatRefused: not a format this version can read; MarkerDamaged if it is damaged.
    """
    names = names_in(vfs, path)
    if FORMAT_NAME not in names:
        raise MarkerDamaged(f"{path} holds segments but no {FORMAT_NAME}")
    marker = decode_format(read_file(vfs, f"{path}/{FORMAT_NAME}"), f"{path}/{FORMAT_NAME}")
    return Directory(path, marker, names, segments_among(names))


def names_in(vfs: VFS, path: str) -> list[str]:
    """Return the names in the directory of a store, sorted.

    Raises:
        NoStore: no directory, or one without a store.
    """
    try:
        names = sorted(vfs.list_dir(path))
    except (FileNotFoundError, NotADirectoryError) as problem:
        raise NoStore(f"{path}: {problem.strerror}") from None
    if FORMAT_NAME not in names and not segments_among(names):
        raise NoStore(f"{path} holds no store: no {FORMAT_NAME}, no segments")
    return names


def segments_among(names: list[str]) -> list[int]:
    """Return the ids of the segments among names of files, rising."""
    found = (segment_of(name) for name in names)
    return sorted(segment for segment in found if segment is not None)


def is_known(name: str) -> bool:
    """Whether a file of this name has a meaning in the directory of a store."""
    return (
        name in _KNOWN_NAMES
        or snapshot_lsn(name) is not None
        or name.endswith(TMP_SUFFIX)
        or segment_of(name) is not None
    )


@contextmanager
def kept_from_writers(vfs: VFS, path: str) -> Iterator[None]:
    """Keep writers out while a directory is looked at; other lookers may come.

    A directory without LOCK never had a writer, and is not locked: nothing is made in it.

    Raises:
        StoreLocked: it has a writer.
    """
    name = f"{path}/{LOCK_NAME}"
    try:
        file = vfs.open(name, is_readonly=True)
    except FileNotFoundError:
        yield
        return
    try:
        if not file.lock_nowait(is_shared=True):
            raise StoreLocked(f"{path} is in use by process {_holder(file)}; stop it first")
        yield
    finally:
        file.close()


def _holder(file: File) -> str:
    return file.pread(32, 0).decode("ascii", "replace").strip().lstrip("0") or "unknown"


def make_directory(vfs: VFS, path: str) -> None:
    """Make a directory, and those above it, where they are missing; durable on return."""
    if vfs.exists(path):
        return
    parent = posixpath.dirname(path.rstrip("/")) or "."
    make_directory(vfs, parent)
    vfs.mkdir(path)
    vfs.sync_dir(parent)


def _lock(vfs: VFS, path: str) -> File:
    name = f"{path}/{LOCK_NAME}"
    while True:
        try:
            file = vfs.open(name)
        except FileNotFoundError:
            try:
                file = vfs.open(name, is_new=True)
            except FileExistsError:
                continue  # another one made it just now
        break
    try:
        if not file.lock_nowait():
            if file.lock_nowait(is_shared=True):  # whoever reads leaves no name there
                raise StoreLocked(f"{path} is being read, to verify or copy it; wait for that")
            raise StoreLocked(f"{path} is in use by process {_holder(file)}; stop it first")
        write_all(file, b"%010d\n" % process_id(), 0)  # always as long, so none need be cut
    except BaseException:
        file.close()
        raise
    return file


def _write_marker(vfs: VFS, path: str, marker: FormatMarker) -> None:
    tmp = f"{path}/{FORMAT_NAME}{TMP_SUFFIX}"
    file = vfs.open(tmp, is_new=True)
    try:
        write_all(file, marker.encode(), 0)
        file.fsync()
    finally:
        file.close()
    vfs.rename(tmp, f"{path}/{FORMAT_NAME}")
    vfs.sync_dir(path)


def read_file(vfs: VFS, path: str) -> bytes:
    """Return the content of a file."""
    file = vfs.open(path, is_readonly=True)
    try:
        return file.pread(file.size(), 0)
    finally:
        file.close()
