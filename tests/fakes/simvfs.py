"""A disk in RAM that can lose power: a `VFS` whose crashes, faults and trace a test controls.

What a crash may leave is told in `simdisk.py`; which of it to try, in `crash_states.py`. Nothing
here is shared between a disk and the clones made of its crashes.
"""

import errno
import posixpath
from collections.abc import Callable, Sequence

from attrs import define, evolve, field

from tests.fakes.faults import Call, Fault, os_error
from tests.fakes.simdisk import (
    DIRECTORY,
    SECTOR,
    Change,
    Directory,
    Entry,
    Fate,
    Image,
    Inode,
    NameChange,
    Resize,
    Write,
    crash_image,
    cut,
    forget,
    patch,
    set_length,
    settle,
)
from tests.fakes.simfile import SimFile


@define(eq=False)
class SimVFS:
    """See the module. `directory` is there and durable from the start.

    Set `free` (bytes) to say what `free_bytes` returns, `capacity` (bytes) to have it counted and
    writes beyond it fail with ENOSPC. `on_point` is called with each call before it takes effect:
    the crashes of these moments are all there are.
    """

    directory: str = "/store"
    free: int = 1 << 40
    capacity: int | None = None
    on_point: Callable[[Call], None] | None = None
    trace: list[Call] = field(factory=list)
    faults: list[Fault] = field(factory=list)
    pending: list[Change] = field(factory=list)  # not synced, oldest first
    version: int = 0  # grows with each change of what a crash may leave
    _names: dict[str, Entry] = field(factory=dict)
    _durable_names: dict[str, Entry] = field(factory=dict)
    _inode_count: int = 0

    def __attrs_post_init__(self) -> None:
        path = self.directory
        while path not in self._names:
            self._names[path] = DIRECTORY
            path = posixpath.dirname(path)
        self._durable_names = dict(self._names)

    @classmethod
    def from_image(cls, image: Image, *, directory: str = "/store") -> "SimVFS":
        """Return a disk that holds what a crash left, all of it durable."""
        vfs = cls(directory)
        inodes: dict[int, Inode] = {}
        for path, number in image.names.items():
            if number is None:
                vfs._names[path] = DIRECTORY
                continue
            content = image.contents[number]
            if number not in inodes:
                inodes[number] = Inode(
                    number, bytearray(content), len(content), bytearray(content), False
                )
            vfs._names[path] = inodes[number]
        vfs._durable_names = dict(vfs._names)
        vfs._inode_count = max(inodes, default=0)
        return vfs

    # What a test does to the disk.

    @property
    def call_count(self) -> int:
        """How many calls were made."""
        return len(self.trace)

    def fail(
        self,
        error: int,
        *,
        number: int | None = None,
        names: Sequence[str] | None = None,
        path_part: str = "",
        is_forever: bool = False,
    ) -> None:
        """Let call `number` fail, or the next one of `names` on a path with `path_part` in it."""
        chosen = None if names is None else frozenset(names)
        self.faults.append(Fault(error, number, chosen, path_part, is_forever))

    def image(self, fates: Sequence[Fate]) -> Image:
        """Return what a crash now leaves if each pending change has the given fate."""
        return crash_image(self._durable_names, self.pending, fates)

    def crash(self, fates: Sequence[Fate] | None = None) -> "SimVFS":
        """Return an independent disk as a crash now leaves it; by default all pending is lost."""
        chosen = [0] * len(self.pending) if fates is None else fates
        return SimVFS.from_image(self.image(chosen), directory=self.directory)

    def fork(self) -> "SimVFS":
        """Return an independent disk and page cache as they are after the end of all processes."""
        vfs = SimVFS(self.directory, self.free, self.capacity)
        memo: dict[Inode, Inode] = {}

        def inode(old: Inode) -> Inode:
            if old not in memo:
                memo[old] = old.copy()
            return memo[old]

        def entries(names: dict[str, Entry]) -> dict[str, Entry]:
            return {p: inode(e) if isinstance(e, Inode) else e for p, e in names.items()}

        vfs._names, vfs._durable_names = entries(self._names), entries(self._durable_names)
        for change in self.pending:
            if isinstance(change, NameChange):
                vfs.pending.append(NameChange(entries(change.entries)))
            else:
                vfs.pending.append(evolve(change, inode=inode(change.inode)))
        vfs._inode_count = self._inode_count
        return vfs

    def visible_files(self) -> dict[str, bytes]:
        """Return path and content of each file as readers see them now."""
        return {p: bytes(e.visible) for p, e in self._names.items() if isinstance(e, Inode)}

    # The calls on names.

    def open(self, path: str, *, is_new: bool = False, is_readonly: bool = False) -> SimFile:
        """See `VFS.open`."""
        self.enter_or_fail("open", path)
        entry = self._names.get(path)
        if isinstance(entry, Directory):
            raise os_error(errno.EISDIR, path)
        if is_new:
            if entry is not None:
                raise os_error(errno.EEXIST, path)
            self._inode_count += 1
            entry = Inode(self._inode_count)
            self._change_names({path: entry})
        elif entry is None:
            raise os_error(errno.ENOENT, path)
        return SimFile(self, path, entry, is_readonly=is_readonly)

    def rename(self, source: str, target: str) -> None:
        """Give a file another name, over the one that had it."""
        self.enter_or_fail("rename", source)
        if source != target:
            self._change_names({target: self._file(source), source: None})

    def link(self, source: str, target: str) -> None:
        """Give a file one more name."""
        self.enter_or_fail("link", source)
        if self._names.get(target) is not None:
            raise os_error(errno.EEXIST, target)
        self._change_names({target: self._file(source)})

    def unlink(self, path: str) -> None:
        """Take a name away; open files stay usable."""
        self.enter_or_fail("unlink", path)
        self._file(path)
        self._change_names({path: None})

    def mkdir(self, path: str) -> None:
        """Make a directory."""
        self.enter_or_fail("mkdir", path)
        if self._names.get(path) is not None:
            raise os_error(errno.EEXIST, path)
        self._change_names({path: DIRECTORY})

    def list_dir(self, path: str) -> list[str]:
        """Return the names in a directory, in no order to rely on."""
        self.enter_or_fail("list_dir", path)
        self._check_directory(path)
        names = [
            posixpath.basename(each)
            for each, entry in self._names.items()
            if entry is not None and each != "/" and posixpath.dirname(each) == path
        ]
        return sorted(names, key=lambda name: name[::-1], reverse=True)

    def exists(self, path: str) -> bool:
        """Whether a file or directory has this name."""
        self.enter("exists", path)
        return self._names.get(path) is not None

    def sync_dir(self, path: str) -> None:
        """Make the names in a directory durable. After a failure those of then never get there."""
        error = self.enter("sync_dir", path)
        self._check_directory(path)
        if error == errno.EINTR:
            raise os_error(error, path)
        left: list[Change] = []
        for change in self.pending:
            if not isinstance(change, NameChange) or not change.touches(path):
                left.append(change)
            elif not error:
                self._durable_names.update(change.entries)
        self.pending = left
        self.version += 1
        if error:
            raise os_error(error, path)

    def leads_to(self, path: str, inode: Inode) -> bool:
        """Whether a path leads to a file; no call that could fail or be crashed at."""
        return self._names.get(path) is inode

    def free_bytes(self, path: str) -> int:
        """See `VFS.free_bytes`; `free`, or what `capacity` leaves."""
        self.enter_or_fail("free_bytes", path)
        if self.capacity is None:
            return self.free
        return max(0, self.capacity - self._used_bytes())

    def syncer(self) -> None:
        """Return nothing: syncs are calls like others, so that crashes and faults find them."""

    # What files do to the disk.

    def enter(self, name: str, path: str, offset: int = 0, length: int = 0) -> int:
        """Count and trace a call; return the errno it is to fail with, SHORT_WRITE, or 0."""
        call = Call(len(self.trace) + 1, name, path, offset, length)
        self.trace.append(call)
        if self.on_point is not None:
            self.on_point(call)
        for fault in self.faults:
            if fault.matches(call):
                if not fault.is_forever:
                    self.faults.remove(fault)
                return fault.error
        return 0

    def enter_or_fail(self, name: str, path: str) -> None:
        """Like `enter`, for a call that does nothing when it fails."""
        error = self.enter(name, path)
        if error:
            raise os_error(error, path)

    def write(self, inode: Inode, data: bytes, offset: int) -> None:
        """Put bytes into the page cache."""
        if not data:
            return
        end = offset + len(data)
        if end > len(inode.visible):
            self._reserve(end - len(inode.visible))
        length = len(inode.visible)
        patch(inode.visible, offset, data)
        start = offset // SECTOR * SECTOR
        stop = -(-end // SECTOR) * SECTOR
        sectors = bytes(inode.visible[start:stop]).ljust(stop - start, b"\0")
        # Behind the end of the file are only zeros, so there the last sector counts as whole.
        is_last_whole = end == stop or end >= length
        is_first_whole = offset == start and (stop - start > SECTOR or is_last_whole)
        self.pending.append(Write(inode, start, sectors, is_first_whole, is_last_whole))
        if end > length:
            self.pending.append(Resize(inode, end, False))
        inode.is_cached = True
        self.version += 1

    def set_size(self, inode: Inode, length: int) -> None:
        """Cut or grow a file in the page cache."""
        old = len(inode.visible)
        if length > old:
            self._reserve(length - old)
        del inode.visible[length:]
        inode.visible.extend(bytes(max(0, length - old)))
        if length != old:
            self.pending.append(Resize(inode, length, length < old))
        self.version += 1

    def sync(self, inode: Inode, error: int) -> None:
        """Make a file durable, or fail as Linux does."""
        if error == errno.EINTR:
            raise os_error(error, "")
        self.version += 1
        if error:
            self.pending = forget(self.pending, inode)
            raise os_error(error, "")
        self.pending = settle(self.pending, inode)

    def reload(self, inode: Inode) -> None:
        """Drop the clean pages of a file."""
        data, length = bytearray(inode.durable), inode.durable_length
        for change in self.pending:
            if isinstance(change, NameChange) or change.inode is not inode:
                continue
            if isinstance(change, Write):
                patch(data, change.start, change.data)
            else:
                length = set_length(data, length, change.length)
        inode.visible = bytearray(cut(data, length))
        inode.is_cached = False

    def _file(self, path: str) -> Inode:
        entry = self._names.get(path)
        if isinstance(entry, Directory):
            raise os_error(errno.EISDIR, path)
        if entry is None:
            raise os_error(errno.ENOENT, path)
        return entry

    def _check_directory(self, path: str) -> None:
        entry = self._names.get(path)
        if entry is None:
            raise os_error(errno.ENOENT, path)
        if not isinstance(entry, Directory):
            raise os_error(errno.ENOTDIR, path)

    def _change_names(self, entries: dict[str, Entry]) -> None:
        for path in entries:
            self._check_directory(posixpath.dirname(path))
        if any(isinstance(self._names.get(path), Directory) for path in entries):
            raise os_error(errno.EISDIR, next(iter(entries)))
        self._names.update(entries)
        self.pending.append(NameChange(entries))
        self.version += 1

    def _used_bytes(self) -> int:
        inodes = {entry for entry in self._names.values() if isinstance(entry, Inode)}
        return sum(len(inode.visible) for inode in inodes)

    def _reserve(self, length: int) -> None:
        if self.capacity is not None and self._used_bytes() + length > self.capacity:
            raise os_error(errno.ENOSPC, "")
