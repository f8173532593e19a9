"""What an open changes on the disk: cut torn tails, remove what was dropped, make both durable."""

import posixpath
from collections.abc import Sequence
from dataclasses import dataclass

from segstore.events import log
from segstore.layout import QUARANTINE_NAME
from segstore.segment import Segment, write_all
from segstore.vfs import VFS


@dataclass(slots=True)
class Cut:
    """A torn tail: the bytes of a segment from `offset` on."""

    path: str
    offset: int
    tail: bytes
    problem: str  # with the frame at `offset`
    is_suspicious: bool  # no sector is missing in it: it may be damage instead


def mend(
    vfs: VFS,
    directory: str,
    *,
    last: Segment | None,
    cuts: Sequence[Cut],
    spares: Sequence[str],
    dropped: Sequence[str],
) -> None:
    """Do it, in an order that a crash at any point leaves for the next open to do again.

    Args:
        last: The newest segment that stays; its pages may never have reached the disk. Nothing
            is ever added to it, so the space behind its end is given back.
        cuts: Torn tails; each is durable in quarantine before it is cut.
        spares: Segments behind the last one that were never used, newest first.
        dropped: Older files that are no part of the log any more.
    """
    for cut in cuts:
        log.warning(
            "torn tail cut off and kept in quarantine",
            path=cut.path,
            offset=cut.offset,
            bytes=len(cut.tail),
            problem=cut.problem,
            may_be_damage=cut.is_suspicious,
        )
        _quarantine(vfs, directory, cut)
    for cut in cuts:
        file = vfs.open(cut.path)
        try:
            file.truncate(cut.offset)
            file.fsync()
        finally:
            file.close()
    if last is not None:
        file = vfs.open(last.path)
        try:
            if file.size() > last.end:
                file.truncate(last.end)
            file.fsync()
        finally:
            file.close()
    vfs.sync_dir(directory)
    for path in spares:
        # One by one from the end: the header of each names the one before, which must not go first.
        vfs.unlink(path)
        vfs.sync_dir(directory)
    for path in dropped:
        log.info("removing a file that is no part of the log any more", path=path)
        vfs.unlink(path)
    if dropped:
        vfs.sync_dir(directory)


def _quarantine(vfs: VFS, directory: str, cut: Cut) -> None:
    """Keep the tail, durably, under a name that tells where it was."""
    folder = f"{directory}/{QUARANTINE_NAME}"
    if not vfs.exists(folder):
        vfs.mkdir(folder)
        vfs.sync_dir(directory)
    stem = posixpath.basename(cut.path).removesuffix(".seg")
    path = f"{folder}/{stem}-{cut.offset}.tail"
    number = 1
    while vfs.exists(path):  # an earlier open was stopped after this, or the id was used again
        number += 1
        path = f"{folder}/{stem}-{cut.offset}.{number}.tail"
    file = vfs.open(path, is_new=True)
    try:
        write_all(file, cut.tail, 0)
        file.fsync()
    finally:
        file.close()
    vfs.sync_dir(folder)
