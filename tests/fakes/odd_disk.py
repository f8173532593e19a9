"""A real directory with a disk's limits and faults, for servers in processes of their own.

    python -m tests.fakes.odd_disk ROOT QUOTA_BYTES serve --config …

runs `sepp-trio serve …` so that the files under ROOT hold no more than QUOTA_BYTES together (0: any
number), and that the first sync after a file ROOT/fail-sync appeared fails with EIO. Only that one:
as on Linux, a second would succeed.
"""

import errno
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import segstore.store
from segstore.vfs import Buffer, RealFile, RealVFS

TRIGGER = "fail-sync"


class OddDisk(RealVFS):
    """See the module."""

    def __init__(self, root: Path, quota_bytes: int) -> None:
        self.root = root
        self.quota_bytes = quota_bytes

    def open(self, path: str, *, is_new: bool = False, is_readonly: bool = False) -> "OddFile":
        file = super().open(path, is_new=is_new, is_readonly=is_readonly)
        fd, file._fd = file._fd, -1
        return OddFile(self, path, fd)

    def free_bytes(self, path: str) -> int:
        if not self.quota_bytes:
            return super().free_bytes(path)
        return max(0, self.quota_bytes - used_bytes(self.root))

    def syncer(self) -> None:
        """Return nothing: syncs come through here, to fail when they are to."""

    def check_sync(self) -> None:
        """Fail once if the trigger is there."""
        try:
            os.unlink(self.root / TRIGGER)
        except FileNotFoundError:
            return
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(self.root))


class OddFile(RealFile):
    """A file on it."""

    __slots__ = ("_disk",)

    def __init__(self, disk: OddDisk, path: str, fd: int) -> None:
        super().__init__(path, fd)
        self._disk = disk

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> int:
        length = sum(map(len, buffers))
        growth = offset + length - self.size()
        disk = self._disk
        is_limited = disk.quota_bytes and growth > 0
        if is_limited and used_bytes(disk.root) + growth > disk.quota_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)
        return super().pwritev(buffers, offset)

    def fsync(self) -> None:
        self._disk.check_sync()
        super().fsync()

    def fdatasync(self) -> None:
        self._disk.check_sync()
        super().fdatasync()


def used_bytes(root: Path) -> int:
    """Return the bytes of all files under a directory."""
    used = 0
    for folder, _, names in os.walk(root):
        for name in names:
            try:
                used += os.stat(f"{folder}/{name}").st_size
            except FileNotFoundError:
                continue  # renamed or removed meanwhile
    return used


def main() -> None:
    """Run the command line on such a disk."""
    disk = OddDisk(Path(sys.argv[1]), int(sys.argv[2]))
    segstore.store.RealVFS = lambda: disk  # type: ignore[attr-defined, misc, assignment]  # the seam
    from sepp.cli.app import run

    sys.exit(run(sys.argv[3:]))


if __name__ == "__main__":
    main()
