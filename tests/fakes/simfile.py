"""An open file of the simulated disk (`simvfs.py`)."""

import errno
from collections.abc import Sequence
from typing import TYPE_CHECKING

from segstore.vfs import Buffer
from tests.fakes.faults import SHORT_WRITE, os_error
from tests.fakes.simdisk import Inode

if TYPE_CHECKING:  # the disk makes the files
    from tests.fakes.simvfs import SimVFS


class SimFile:
    """An open file of a `SimVFS`."""

    def __init__(self, vfs: "SimVFS", path: str, inode: Inode, *, is_readonly: bool) -> None:
        self.path = path
        self._vfs = vfs
        self._inode = inode
        self._is_readonly = is_readonly
        self._is_open = True

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> int:
        """See `File.pwritev`."""
        data = b"".join(buffers)
        error = self._enter("pwritev", offset, len(data))
        if self._is_readonly:
            raise os_error(errno.EBADF, self.path)
        if error == SHORT_WRITE:
            data = data[: len(data) // 2]
        elif error:
            raise os_error(error, self.path)
        self._vfs.write(self._inode, data, offset)
        return len(data)

    def pread(self, length: int, offset: int) -> bytes:
        """See `File.pread`."""
        self._enter_or_fail("pread", offset, length)
        self._inode.is_cached = True
        return bytes(self._inode.visible[offset : offset + length])

    def pread_nowait(self, length: int, offset: int) -> bytes | None:
        """See `File.pread_nowait`; None after `drop_cache` until something is read or written."""
        self._enter_or_fail("pread_nowait", offset, length)
        return (
            bytes(self._inode.visible[offset : offset + length]) if self._inode.is_cached else None
        )

    def fsync(self) -> None:
        """Make bytes and length durable, not the name."""
        self._vfs.sync(self._inode, self._enter("fsync"))

    def fdatasync(self) -> None:
        """Make bytes and length durable, not the name."""
        self._vfs.sync(self._inode, self._enter("fdatasync"))

    def truncate(self, length: int) -> None:
        """Set the length."""
        self._enter_or_fail("truncate", 0, length)
        self._vfs.set_size(self._inode, length)

    def fallocate(self, offset: int, length: int) -> None:
        """Grow the file to hold the range; what is there already stays."""
        self._enter_or_fail("fallocate", offset, length)
        if offset + length > len(self._inode.visible):
            self._vfs.set_size(self._inode, offset + length)

    def drop_cache(self) -> None:
        """Read clean pages from the disk again from now on."""
        self._enter_or_fail("drop_cache")
        self._vfs.reload(self._inode)

    def size(self) -> int:
        """See `File.size`."""
        self._enter_or_fail("size")
        return len(self._inode.visible)

    def lock_nowait(self, *, is_shared: bool = False) -> bool:
        """See `File.lock_nowait`."""
        self._enter_or_fail("lock_nowait")
        inode = self._inode
        if inode.lock_owner not in (None, self) or (not is_shared and inode.readers - {self}):
            return False
        inode.readers.discard(self)
        inode.lock_owner = None if is_shared else self
        if is_shared:
            inode.readers.add(self)
        return True

    def is_in_place(self) -> bool:
        """See `File.is_in_place`."""
        return self._vfs.leads_to(self.path, self._inode)

    def close(self) -> None:
        """Close the file and drop its lock; twice is harmless. A failing one closes it too."""
        if not self._is_open:
            return
        self._is_open = False
        if self._inode.lock_owner is self:
            self._inode.lock_owner = None
        self._inode.readers.discard(self)
        self._vfs.enter_or_fail("close", self.path)

    def _enter(self, name: str, offset: int = 0, length: int = 0) -> int:
        if not self._is_open:
            raise os_error(errno.EBADF, self.path)
        return self._vfs.enter(name, self.path, offset, length)

    def _enter_or_fail(self, name: str, offset: int = 0, length: int = 0) -> None:
        error = self._enter(name, offset, length)
        if error:
            raise os_error(error, self.path)
