"""The one door to the disk: every system call segstore makes goes through a `VFS`.

`RealVFS` passes through to `os`; tests put a simulated disk in its place (`tests/fakes/simvfs.py`).
Nothing else in the package may use `os` or `open`. Errors are `OSError`, as the system call gives
them, and `NotAFile`, which is one. All calls block, but for those of a `Syncer`; the store decides
on which thread they run.
"""

import errno
import fcntl
import os
import stat
from collections.abc import Sequence
from typing import Final, Protocol

from segstore.aio import KernelQueue
from segstore.errors import NotAFile
from segstore.events import log

# Bytes-like things a call may write.
Buffer = bytes | bytearray | memoryview


class File(Protocol):
    """An open file. Offsets are bytes from the start; there is no file position."""

    path: str

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> int:
        """Write the buffers at `offset`; return the bytes written, perhaps fewer than given."""
        ...

    def pread(self, length: int, offset: int) -> bytes:
        """Read up to `length` bytes; fewer only at the end of the file."""
        ...

    def pread_nowait(self, length: int, offset: int) -> bytes | None:
        """Like `pread` if the page cache holds the range (RWF_NOWAIT), else None."""
        ...

    def fsync(self) -> None: ...
    def fdatasync(self) -> None: ...
    def truncate(self, length: int) -> None: ...
    def fallocate(self, offset: int, length: int) -> None: ...
    def drop_cache(self) -> None:
        """posix_fadvise(DONTNEED) over the whole file."""
        ...

    def size(self) -> int: ...
    def lock_nowait(self, *, is_shared: bool = False) -> bool:
        """flock(LOCK_EX | LOCK_NB), or LOCK_SH; False when another open file is in the way."""
        ...

    def is_in_place(self) -> bool:
        """Whether `path` still leads to this file."""
        ...

    def close(self) -> None: ...


class Syncer(Protocol):
    """Syncs one file at a time, on no thread of this process."""

    async def sync(self, file: File, *, is_data_only: bool) -> bool:
        """Like `File.fsync` or `File.fdatasync`; False: not now, nothing was done.

        To be called shielded from cancellation.
        """
        ...

    def close(self) -> None: ...


class VFS(Protocol):
    """The calls on names. Paths are strings.

    A created, renamed or removed name is durable only after `sync_dir`.
    """

    def open(self, path: str, *, is_new: bool = False, is_readonly: bool = False) -> File:
        """Open for reading and writing.

        `is_new` creates the file and fails with FileExistsError if it is there. Whatever else than
        a file has the name fails with NotAFile.
        """
        ...

    def rename(self, source: str, target: str) -> None: ...
    def link(self, source: str, target: str) -> None: ...
    def unlink(self, path: str) -> None: ...
    def mkdir(self, path: str) -> None: ...
    def list_dir(self, path: str) -> list[str]: ...
    def exists(self, path: str) -> bool: ...
    def sync_dir(self, path: str) -> None: ...
    def free_bytes(self, path: str) -> int:
        """Bytes a process without privileges may still use (statvfs f_bavail * f_frsize)."""
        ...

    def syncer(self) -> Syncer | None:
        """Return a new one, None where the system has no such thing."""
        ...


# RWF_NOWAIT: answer from the page cache or fail with EAGAIN.
_NOWAIT: Final = os.RWF_NOWAIT
_NOT_NOW: Final = frozenset({errno.EAGAIN, errno.EOPNOTSUPP})
_KINDS: Final = {stat.S_IFDIR: "a directory", stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket"}


class RealFile:
    """A file of the operating system."""

    __slots__ = ("_fd", "path")

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self._fd = fd

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> int:
        """See `File.pwritev`."""
        return os.pwritev(self._fd, buffers, offset)

    def pread(self, length: int, offset: int) -> bytes:
        """See `File.pread`."""
        piece = os.pread(self._fd, length, offset)
        if len(piece) == length or not piece:
            return piece
        pieces = [piece]  # Linux ends a read at 2 GiB, and a signal may end one early
        left = length - len(piece)
        while left:
            piece = os.pread(self._fd, left, offset + length - left)
            if not piece:
                break
            pieces.append(piece)
            left -= len(piece)
        return b"".join(pieces)

    def pread_nowait(self, length: int, offset: int) -> bytes | None:
        """See `File.pread_nowait`. A file system that cannot tell counts as "not in the cache"."""
        buffer = bytearray(length)
        try:
            count = os.preadv(self._fd, [buffer], offset, _NOWAIT)
        except OSError as error:
            if error.errno in _NOT_NOW:
                return None
            raise
        # Fewer bytes: the rest is not cached, or behind the end. `pread` will tell.
        return bytes(buffer) if count == length else None

    @property
    def descriptor(self) -> int:
        """What the system calls the open file; -1 once it is closed."""
        return self._fd

    def fsync(self) -> None:
        """Make bytes, length and metadata durable, not the name."""
        os.fsync(self._fd)

    def fdatasync(self) -> None:
        """Make bytes and length durable, not the name."""
        os.fdatasync(self._fd)

    def truncate(self, length: int) -> None:
        """Set the length in bytes."""
        os.ftruncate(self._fd, length)

    def fallocate(self, offset: int, length: int) -> None:
        """Reserve blocks for a range, growing the file to hold it."""
        os.posix_fallocate(self._fd, offset, length)

    def drop_cache(self) -> None:
        """See `File.drop_cache`."""
        os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def size(self) -> int:
        """Return the length in bytes."""
        return os.fstat(self._fd).st_size

    def lock_nowait(self, *, is_shared: bool = False) -> bool:
        """See `File.lock_nowait`."""
        # flock, not lockf: closing any other descriptor of the file would drop a POSIX lock.
        kind = fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX
        try:
            fcntl.flock(self._fd, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def is_in_place(self) -> bool:
        """See `File.is_in_place`."""
        try:
            return os.path.samestat(os.stat(self.path), os.fstat(self._fd))
        except (FileNotFoundError, NotADirectoryError):
            return False

    def close(self) -> None:
        """Close the file and drop its lock; twice is harmless."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def _check_kind(path: str) -> None:
    """Raise NotAFile for what is none: to open a FIFO waits for its other end, maybe for ever."""
    kind = stat.S_IFMT(os.stat(path).st_mode)
    if kind != stat.S_IFREG:
        problem = (
            f"this is {_KINDS.get(kind, 'a device')} and no file; move it out of the directory,"
            " and if a file is missed then, restore a backup or salvage"
        )
        raise NotAFile(errno.EINVAL, problem, path)


class KernelSyncer:
    """A `Syncer` for real files, by a queue of the kernel."""

    def __init__(self, queue: KernelQueue) -> None:
        self._queue = queue

    async def sync(self, file: File, *, is_data_only: bool) -> bool:
        """See `Syncer.sync`. Some kernels and file systems never can."""
        assert isinstance(file, RealFile)
        return await self._queue.sync(file.descriptor, is_data_only=is_data_only)

    def close(self) -> None:
        """Give the queue back; nothing may be under way."""
        self._queue.close()


class RealVFS:
    """The disk of the operating system."""

    def open(self, path: str, *, is_new: bool = False, is_readonly: bool = False) -> RealFile:
        """See `VFS.open`."""
        flags = os.O_CLOEXEC | (os.O_RDONLY if is_readonly else os.O_RDWR)
        if is_new:
            flags |= os.O_CREAT | os.O_EXCL
        else:
            _check_kind(path)
        return RealFile(path, os.open(path, flags, 0o640))

    def rename(self, source: str, target: str) -> None:
        """Give a file another name, over the one that had it."""
        os.rename(source, target)

    def link(self, source: str, target: str) -> None:
        """Give a file one more name."""
        os.link(source, target)

    def unlink(self, path: str) -> None:
        """Take a name away; open files stay usable."""
        os.unlink(path)

    def mkdir(self, path: str) -> None:
        """Make a directory."""
        os.mkdir(path, 0o750)

    def list_dir(self, path: str) -> list[str]:
        """Return the names in a directory, in no order to rely on."""
        return os.listdir(path)

    def exists(self, path: str) -> bool:
        """Whether a file or directory has this name."""
        return os.path.exists(path)

    def sync_dir(self, path: str) -> None:
        """Make the names in a directory durable."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def free_bytes(self, path: str) -> int:
        """See `VFS.free_bytes`."""
        free = os.statvfs(path)
        return free.f_bavail * free.f_frsize

    def syncer(self) -> KernelSyncer | None:
        """See `VFS.syncer`."""
        try:
            return KernelSyncer(KernelQueue())
        except OSError as problem:
            log.info("the kernel takes no syncs; a thread does them", error=problem)
            return None


def process_id() -> int:
    """Return the id of this process, for the people who read LOCK."""
    return os.getpid()
