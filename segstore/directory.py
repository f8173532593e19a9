"""The directory of a store: its lock, its format marker, and what lies in it."""

import posixpath
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from segstore.errors import FormatRefused, StoreLocked
from segstore.events import log
from segstore.layout import (
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

_KNOWN_NAMES: Final = frozenset({LOCK_NAME, FORMAT_NAME, QUARANTINE_NAME, INDEX_NAME})


@dataclass(slots=True)
class OpenDirectory:
    """A locked directory whose format is known."""

    path: str
    lock: File
    marker: FormatMarker
    segments: list[int]  # ids of the files there, rising
    snapshots: list[str]  # paths of the files there, newest first

    def segment_path(self, segment: int) -> str:
        """Return the path of a segment's file."""
        return f"{self.path}/{segment_name(segment)}"


def open_directory(
    vfs: VFS, path: str, *, clock_ms: Callable[[], int], entropy: Callable[[int], bytes]
) -> OpenDirectory:
    """Lock the directory, read or make its format marker, and remove unfinished files.

    Makes the directory, and those above it, where they are missing.

    Raises:
        StoreLocked: someone has it open.
        FormatRefused: not a directory this version can serve.
    """
    _make(vfs, path)
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
    snapshots: list[str] = []
    for name in names:
        segment = segment_of(name)
        if segment is not None:
            segments.append(segment)
        elif name.endswith(TMP_SUFFIX):
            vfs.unlink(f"{path}/{name}")
        elif snapshot_lsn(name) is not None:
            snapshots.insert(0, f"{path}/{name}")
        elif name not in _KNOWN_NAMES:
            log.warning("unknown file left alone", path=f"{path}/{name}")
    if FORMAT_NAME in names:
        marker = decode_format(_read(vfs, f"{path}/{FORMAT_NAME}"), f"{path}/{FORMAT_NAME}")
    elif segments:
        raise FormatRefused(f"{path} holds segments but no {FORMAT_NAME}; nothing was changed")
    else:
        marker = FormatMarker(store_uuid=entropy(16), created_ms=clock_ms())
        _write_marker(vfs, path, marker)
    return OpenDirectory(path, lock, marker, sorted(segments), snapshots)


def _make(vfs: VFS, path: str) -> None:
    if vfs.exists(path):
        return
    parent = posixpath.dirname(path.rstrip("/")) or "."
    _make(vfs, parent)
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
            holder = file.pread(32, 0).decode("ascii", "replace").strip() or "unknown"
            raise StoreLocked(f"{path} is in use by process {holder}; stop it first")
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


def _read(vfs: VFS, path: str) -> bytes:
    file = vfs.open(path, is_readonly=True)
    try:
        return file.pread(file.size(), 0)
    finally:
        file.close()
