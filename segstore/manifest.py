"""BACKUP: what a backup holds, written last, so that its presence says the backup is complete.

FORMAT.md section 9 is the grammar.
"""

import json
from dataclasses import dataclass
from typing import Final
from zlib import crc32

from segstore.layout import BACKUP_NAME, TMP_SUFFIX
from segstore.segment import write_all
from segstore.vfs import VFS

_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a backup holds.

    Attributes:
        store_uuid: 16 bytes, of the store it was made from.
        last_lsn, epoch, log_clock_ms: Where the log stands in it.
        made_ms: Wall clock of when it was begun.
        segments: Id and length of each segment, rising.
    """

    store_uuid: bytes
    last_lsn: int
    epoch: int
    log_clock_ms: int
    made_ms: int
    segments: tuple[tuple[int, int], ...]

    @property
    def byte_count(self) -> int:
        """Bytes of the segments."""
        return sum(length for _, length in self.segments)

    def encode(self) -> bytes:
        """Return the bytes of the file."""
        line = json.dumps(
            {
                "magic": "segstore-backup",
                "format": _VERSION,
                "store_uuid": self.store_uuid.hex(),
                "last_lsn": self.last_lsn,
                "epoch": self.epoch,
                "log_clock_ms": self.log_clock_ms,
                "made_ms": self.made_ms,
                "segments": self.segments,
            }
        ).encode()
        line += b"\n"
        return line + b"%08x\n" % crc32(line)

    def write(self, vfs: VFS, directory: str) -> None:
        """Write it durably."""
        write_durably(vfs, directory, BACKUP_NAME, self.encode())


def decode_manifest(data: bytes) -> Manifest | str:
    """Return the manifest in the bytes of BACKUP, or what is wrong with them."""
    line, newline, tail = data.partition(b"\n")
    if tail != b"%08x\n" % crc32(line + newline):
        return "CRC mismatch"
    try:
        values = json.loads(line)
        if values["magic"] != "segstore-backup" or values["format"] != _VERSION:
            return f"magic {values['magic']!r}, format {values['format']}"
        return Manifest(
            bytes.fromhex(values["store_uuid"]),
            int(values["last_lsn"]),
            int(values["epoch"]),
            int(values["log_clock_ms"]),
            int(values["made_ms"]),
            tuple((int(segment), int(length)) for segment, length in values["segments"]),
        )
    except (ValueError, KeyError, TypeError) as problem:
        return f"does not parse: {problem!r}"


def write_durably(vfs: VFS, directory: str, name: str, data: bytes) -> None:
    """Make a file that is there whole, durably, or not at all."""
    tmp = f"{directory}/{name}{TMP_SUFFIX}"
    file = vfs.open(tmp, is_new=True)
    try:
        write_all(file, data, 0)
        file.fsync()
    finally:
        file.close()
    vfs.rename(tmp, f"{directory}/{name}")
    vfs.sync_dir(directory)
