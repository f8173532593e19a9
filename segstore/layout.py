"""Names of files, the format marker, the segment header, and the head struct made from the fields.

The numbers and names here are on disk: see FORMAT.md before changing any.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct, error
from typing import Final
from zlib import crc32

from segstore.errors import FormatRefused, MarkerDamaged

FORMAT_VERSION: Final = 1
KEY_BYTES: Final = 16

LOCK_NAME: Final = "LOCK"
FORMAT_NAME: Final = "FORMAT"
QUARANTINE_NAME: Final = "quarantine"
BACKUP_NAME: Final = "BACKUP"  # what a backup holds; gone once it was opened
INDEX_NAME: Final = "index.hix"  # derived; may be deleted at any time
SNAPSHOT_PREFIX: Final = "snap-"  # derived too
SNAPSHOT_SUFFIX: Final = ".snap"
TMP_SUFFIX: Final = ".tmp"

SEGMENT_MAGIC: Final = b"SEGSTOR1"
SEGMENT_VERSION: Final = 1
SEGMENT_HEADER_BYTES: Final = 4096

_SEGMENT_HEADER: Final = Struct("<8sII16sQQQIIH")
_CRC: Final = Struct("<I")
_SEGMENT_NAME: Final = re.compile(r"seg-(\d{20})\.seg\Z")
_FIELD_BYTES: Final = {"B": 1, "H": 2, "I": 4, "Q": 8}
_RECORD_PREFIX: Final = "<BBHII16s"  # kind, table, 0, body length, body crc, key


def segment_name(segment: int) -> str:
    """Return the file name of a segment."""
    return f"seg-{segment:020d}.seg"


def segment_of(name: str) -> int | None:
    """Return the segment a file name means, or None."""
    match = _SEGMENT_NAME.match(name)
    return int(match[1]) if match else None


def aligned(length: int) -> int:
    """Round up to the next multiple of 8."""
    return (length + 7) & ~7


class HeadLayout:
    """Where the declared fields lie in the head of a record, and the structs made from that.

    Args:
        fields: name and `array` typecode (B, H, I or Q) of each field, in head order.
    """

    def __init__(self, fields: Sequence[tuple[str, str]]) -> None:
        if not fields or len({name for name, _ in fields}) != len(fields):
            raise ValueError(f"fields must have distinct names, and there must be one: {fields}")
        self.fields = tuple((name, typecode) for name, typecode in fields)
        offset = 0
        head = ""
        offsets = []
        for name, typecode in self.fields:
            if typecode not in _FIELD_BYTES or not name.isidentifier():
                raise ValueError(f"not a field: {name!r} with typecode {typecode!r}")
            pad = -offset % _FIELD_BYTES[typecode]
            head += "x" * pad + typecode
            offsets.append(offset + pad)
            offset += pad + _FIELD_BYTES[typecode]
        head += "x" * (-offset % 8)
        self.offsets = tuple(offsets)
        self.head_bytes = aligned(offset)
        # One struct packs a record from the columns; another leaves the head as bytes.
        self.record = Struct(_RECORD_PREFIX + head)
        self.raw_record = Struct(f"{_RECORD_PREFIX}{self.head_bytes}s")
        self.headless_record = Struct(f"{_RECORD_PREFIX}{self.head_bytes}x")
        self.record_bytes = self.record.size
        self.text = ",".join(f"{name}:{typecode}" for name, typecode in self.fields)

    @classmethod
    def from_text(cls, text: str) -> "HeadLayout":
        """Return the layout whose `text` this is, as the header of a segment has it."""
        return cls([_field(part) for part in text.split(",")])

    def item_bytes(self, index: int) -> int:
        """Return the size of one value of field `index` in bytes."""
        return _FIELD_BYTES[self.fields[index][1]]


def _field(text: str) -> tuple[str, str]:
    name, _, typecode = text.partition(":")
    return name, typecode


@dataclass(frozen=True, slots=True)
class FormatMarker:
    """What FORMAT says: which store this is and who may read and write it."""

    store_uuid: bytes
    created_ms: int
    version: int = FORMAT_VERSION
    min_reader: int = FORMAT_VERSION
    min_writer: int = FORMAT_VERSION

    def encode(self) -> bytes:
        """Return the bytes of the file."""
        line = json.dumps(
            {
                "magic": "segstore",
                "format": self.version,
                "min_reader": self.min_reader,
                "min_writer": self.min_writer,
                "store_uuid": self.store_uuid.hex(),
                "created_ms": self.created_ms,
            }
        ).encode()
        line += b"\n"
        return line + b"%08x\n" % crc32(line)


def decode_format(data: bytes, path: str) -> FormatMarker:
    """Return the marker in the bytes of FORMAT.

    Raises:
        FormatRefused: it is no marker, is damaged, or asks for a later version than this one.
    """
    line, newline, tail = data.partition(b"\n")
    line += newline
    if tail != b"%08x\n" % crc32(line):
        raise MarkerDamaged(f"{path}: CRC mismatch, this is not an intact format marker")
    try:
        values = json.loads(line)
        marker = FormatMarker(
            store_uuid=bytes.fromhex(values["store_uuid"]),
            created_ms=int(values["created_ms"]),
            version=int(values["format"]),
            min_reader=int(values["min_reader"]),
            min_writer=int(values["min_writer"]),
        )
    except (ValueError, KeyError, TypeError) as problem:
        raise MarkerDamaged(f"{path}: not a format marker: {problem!r}") from problem
    if values.get("magic") != "segstore" or len(marker.store_uuid) != 16:
        raise MarkerDamaged(f"{path}: not a format marker of segstore")
    if marker.version < 1:
        raise MarkerDamaged(f"{path}: a marker of format {marker.version}, which never was")
    if max(marker.min_reader, marker.min_writer) > FORMAT_VERSION:
        raise FormatRefused(
            f"{path}: format {marker.version} needs a reader of version {marker.min_reader} and a"
            f" writer of version {marker.min_writer}; this one is version {FORMAT_VERSION}",
            "use a later release, one that knows it, or restore a backup from before it was made",
        )
    return marker


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """The first 4096 bytes of a segment."""

    store_uuid: bytes
    segment: int
    previous: int  # id of the segment before it in the log; 0: none
    created_ms: int
    salt: int
    record_bytes: int
    fields: str
    crc: int = 0  # of the encoded header; set by `decode_header`

    def encode(self) -> bytes:
        """Return the bytes of the header; its crc is the last four."""
        fields = self.fields.encode("ascii")
        body = _SEGMENT_HEADER.pack(
            SEGMENT_MAGIC,
            SEGMENT_VERSION,
            SEGMENT_HEADER_BYTES,
            self.store_uuid,
            self.segment,
            self.previous,
            self.created_ms,
            self.salt,
            self.record_bytes,
            len(fields),
        )
        body = (body + fields).ljust(SEGMENT_HEADER_BYTES - 4, b"\0")
        assert len(body) == SEGMENT_HEADER_BYTES - 4, "the field list does not fit the header"
        return body + _CRC.pack(crc32(body))


def decode_header(data: bytes) -> SegmentHeader | str:
    """Return the header in the first bytes of a segment, or what is wrong with it."""
    if len(data) < SEGMENT_HEADER_BYTES:
        return f"segment header is cut short: {len(data)} of {SEGMENT_HEADER_BYTES} bytes"
    data = data[:SEGMENT_HEADER_BYTES]
    (crc,) = _CRC.unpack_from(data, SEGMENT_HEADER_BYTES - 4)
    if crc != crc32(data[:-4]):
        return "segment header CRC mismatch"
    try:
        (
            magic,
            version,
            header_bytes,
            uuid,
            segment,
            previous,
            created,
            salt,
            record_bytes,
            count,
        ) = _SEGMENT_HEADER.unpack_from(data)
        fields = data[_SEGMENT_HEADER.size : _SEGMENT_HEADER.size + count].decode("ascii")
    except (error, UnicodeDecodeError) as problem:
        return f"segment header does not parse: {problem}"
    if magic != SEGMENT_MAGIC or version != SEGMENT_VERSION or header_bytes != SEGMENT_HEADER_BYTES:
        return f"segment has magic {magic!r}, version {version}"
    return SegmentHeader(uuid, segment, previous, created, salt, record_bytes, fields, crc)
