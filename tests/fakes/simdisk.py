"""What is on a simulated disk, what is only in its page cache, and what a power cut may make of it.

Rules of the model:

- The page cache writes back in sectors of 512 bytes, in any order, each at any time after the
  write. A sector not yet synced is therefore old or new after a crash. It may also be zero, if the
  write covered the whole of it (an extent allocated but not written); bytes outside a write are
  never harmed.
- The length of a file is apart from its bytes. It is one of the values it had since the last sync,
  in order: a kept length keeps the ones before it. A kept length over lost bytes reads as zeros.
- A name is an entry of a directory. Changes of names wait for the sync of their directory, whatever
  was done to the file. A rename is one change of two names and is never half done.
- After a failed sync of a file the kernel takes its pages for clean: they can be read until the
  cache is dropped, the next sync has nothing to do and succeeds, and the bytes never reach the
  disk.
"""

import hashlib
import posixpath
from collections.abc import Iterable, Sequence

from attrs import define, field, frozen

SECTOR = 512

LOST = 0
KEPT = 1
ZERO = 2  # a sector only

# What became of one pending change: one of the above, or for a write one byte a sector.
Fate = int | bytes


class Directory:
    """Stands for a directory among the names."""


DIRECTORY = Directory()


@define(eq=False)
class Inode:
    """A file without its names: the bytes on disk and the bytes a reader sees."""

    number: int
    durable: bytearray = field(factory=bytearray)  # may be longer or shorter than the length
    durable_length: int = 0
    visible: bytearray = field(factory=bytearray)
    is_cached: bool = True
    lock_owner: object = None
    readers: set[object] = field(factory=set)  # who holds a shared lock
    _frozen: tuple[bytes, bytes] | None = None

    def copy(self) -> "Inode":
        """Return an inode like this one that nobody has locked."""
        durable, visible = bytearray(self.durable), bytearray(self.visible)
        return Inode(self.number, durable, self.durable_length, visible, self.is_cached)

    def freeze(self) -> tuple[bytes, bytes]:
        """Return the durable bytes and their digest, computed once until they change."""
        if self._frozen is None:
            content = cut(self.durable, self.durable_length)
            self._frozen = (content, digest(content))
        return self._frozen

    def thaw(self) -> None:
        """Forget the frozen bytes: `durable` is about to change."""
        self._frozen = None


Entry = Inode | Directory | None


@define(eq=False)
class Write:
    """Sectors written but not synced: what they hold from offset `start` on."""

    inode: Inode
    start: int
    data: bytes
    is_first_whole: bool
    is_last_whole: bool

    @property
    def sector_count(self) -> int:
        """How many sectors wait."""
        return len(self.data) // SECTOR

    def may_zero(self, sector: int) -> bool:
        """Whether the write covered all of its `sector`th sector."""
        if sector == 0 and not self.is_first_whole:
            return False
        return self.is_last_whole or sector < self.sector_count - 1


@define(eq=False)
class Resize:
    """A length not synced."""

    inode: Inode
    length: int
    is_cut: bool


@define(eq=False)
class NameChange:
    """Names not synced, kept or lost as one: path to what it names now, None for nothing."""

    entries: dict[str, Entry]

    def touches(self, directory: str) -> bool:
        """Whether one of the names is in `directory`."""
        return any(posixpath.dirname(path) == directory for path in self.entries)


Change = Write | Resize | NameChange


@frozen(eq=False)
class Image:
    """A disk after a power cut: all that is left, nothing pending."""

    names: dict[str, int | None]  # path -> inode number, None for a directory
    contents: dict[int, bytes]
    digest: bytes  # equal for equal disks


def digest(content: bytes) -> bytes:
    """Return 16 bytes that tell contents apart."""
    return hashlib.blake2b(content, digest_size=16).digest()


def patch(data: bytearray, start: int, piece: bytes) -> None:
    """Write `piece` at `start`, with zeros before it if `data` is shorter."""
    if len(data) < start:
        data.extend(bytes(start - len(data)))
    data[start : start + len(piece)] = piece


def cut(data: bytearray, length: int) -> bytes:
    """Return `length` bytes of `data`, with zeros for those it lacks."""
    return bytes(data[:length]).ljust(length, b"\0")


def set_length(data: bytearray, length: int, new_length: int) -> int:
    """Return the new length; what a shorter one cuts off is gone from `data`."""
    if new_length < length:
        del data[new_length:]
    return new_length


def crash_image(names: dict[str, Entry], pending: Sequence[Change], fates: Sequence[Fate]) -> Image:
    """Return the disk that a power cut leaves if each pending change has the given fate.

    Args:
        names: the durable names.
        pending: the changes not synced, oldest first.
        fates: what became of each of them.
    """
    assert len(pending) == len(fates)
    left = dict(names)
    changed: dict[Inode, tuple[bytearray, int]] = {}
    kept_lengths = _kept_lengths(pending, fates)
    for index, (change, fate) in enumerate(zip(pending, fates, strict=True)):
        if isinstance(change, NameChange):
            if fate:
                left.update(change.entries)
            continue
        inode = change.inode
        data, length = changed.get(inode) or (bytearray(inode.durable), inode.durable_length)
        if isinstance(change, Write):
            _write_back(data, change, fate)
        elif index in kept_lengths:
            length = set_length(data, length, change.length)
        changed[inode] = (data, length)
    contents: dict[Inode, tuple[bytes, bytes]] = {}
    for inode, (data, length) in changed.items():
        content = cut(data, length)
        contents[inode] = (content, digest(content))
    return _gather(left, contents)


def _kept_lengths(pending: Sequence[Change], fates: Sequence[Fate]) -> set[int]:
    """Return the indexes of the lengths that are left, counting those a later one stands on."""
    kept: set[int] = set()
    settled: set[Inode] = set()
    for index in range(len(pending) - 1, -1, -1):
        change = pending[index]
        if isinstance(change, Resize) and (fates[index] or change.inode in settled):
            kept.add(index)
            settled.add(change.inode)
    return kept


def _write_back(data: bytearray, write: Write, fate: Fate) -> None:
    if isinstance(fate, int):
        if fate == KEPT:
            patch(data, write.start, write.data)
            return
        fate = bytes([fate]) * write.sector_count
    for sector, each in enumerate(fate):
        offset = sector * SECTOR
        if each == KEPT:
            patch(data, write.start + offset, write.data[offset : offset + SECTOR])
        elif each == ZERO and write.may_zero(sector):
            patch(data, write.start + offset, bytes(SECTOR))


def _gather(names: dict[str, Entry], changed: dict[Inode, tuple[bytes, bytes]]) -> Image:
    """Collect what can still be reached from the root."""
    paths = sorted(path for path, entry in names.items() if entry is not None)
    reached: dict[str, int | None] = {}
    contents: dict[int, bytes] = {}
    order: dict[int, int] = {}  # inode number -> nth file met, so that the digest knows links only
    total = hashlib.blake2b(digest_size=16)
    for path in paths:
        parent = posixpath.dirname(path)
        if path != "/" and reached.get(parent, 0) is not None:
            continue  # its directory was lost, or is a file now
        entry = names[path]
        total.update(path.encode() + b"\0")
        if isinstance(entry, Inode):
            content, content_digest = changed.get(entry) or entry.freeze()
            reached[path] = entry.number
            contents[entry.number] = content
            total.update(b"%d" % order.setdefault(entry.number, len(order)) + content_digest)
        else:
            reached[path] = None
    return Image(reached, contents, total.digest())


def settle(pending: Iterable[Change], inode: Inode) -> list[Change]:
    """Bring the sectors and the length of `inode` to the disk; return what still waits."""
    left: list[Change] = []
    inode.thaw()
    for change in pending:
        if isinstance(change, NameChange) or change.inode is not inode:
            left.append(change)
        elif isinstance(change, Write):
            patch(inode.durable, change.start, change.data)
        else:
            inode.durable_length = set_length(inode.durable, inode.durable_length, change.length)
    return left


def forget(pending: Iterable[Change], inode: Inode) -> list[Change]:
    """Take the sectors of `inode` for clean without writing them.

    Returns what still waits; lengths do.
    """
    return [
        change for change in pending if not (isinstance(change, Write) and change.inode is inode)
    ]
