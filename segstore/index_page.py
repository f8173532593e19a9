"""The bytes of `index.hix`: pages of 4096 bytes, and the hash that leads to them.

    file    = header page | one page a bucket | trailer (only after a clean close)
    header  = "SEGIDX01" | version u32 | is_clean u32 | store_uuid 16 | seed 32 | slots_crc u32
              | bucket_count u32 | recent_count u32 | trailer_crc u32 | zeros | crc u32
    page    = crc u32 | bucket u32 | count u32 | 0 u32 | count x (slot u32 | hash u32) | rest unused
    trailer = crc u32 of each page | 512-byte filter of each bucket | slot u32 of each recent entry

Numbers are little-endian and unsigned; a crc is zlib's CRC-32 of what follows it up to the end of
the entries, and that of the header lies at its end. The file is derived from the slot table: a
change of this format needs no reader of the old one, only another version number.
"""

import struct
from array import array
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from sys import byteorder
from typing import Final
from zlib import crc32

from segstore.vfs import Buffer

PAGE_BYTES: Final = 4096
ENTRY_BYTES: Final = 8
PAGE_HEAD: Final = struct.Struct("<IIII")
ENTRIES_MAX: Final = (PAGE_BYTES - PAGE_HEAD.size) // ENTRY_BYTES
FILTER_BYTES: Final = 512
SEED_BYTES: Final = 32
VERSION: Final = 1

_HEAD_BYTES: Final = 16
_MAGIC: Final = b"SEGIDX01"
_HEADER: Final = struct.Struct("<8sII16s32sIIII")
_HEADER_CRC_OFFSET: Final = PAGE_BYTES - 4
_PRIME: Final = (1 << 130) - 5
_U32: Final = (1 << 32) - 1


class KeyHash:
    """A universal hash of table and key to 32 bits: (a * key + b[table]) mod p, low bits.

    Who does not know the seed cannot choose keys that meet in one page.

    Args:
        seed: 32 random bytes.
    """

    __slots__ = ("_factor", "_terms")

    def __init__(self, seed: bytes) -> None:
        assert len(seed) == SEED_BYTES
        self._factor = _number(seed, b"factor") | 1
        self._terms = [_number(seed, b"table %d" % table) for table in range(256)]

    def __call__(self, table: int, key: bytes) -> int:
        """Return the hash of a key of 16 bytes."""
        product = int.from_bytes(key, "big") * self._factor + self._terms[table]
        return product % _PRIME & _U32


def _number(seed: bytes, name: bytes) -> int:
    return int.from_bytes(blake2b(name, key=seed, digest_size=16).digest(), "big")


def pack_page(bucket: int, entries: bytes) -> bytes:
    """Return the page of a bucket; `entries` as `pack_entries` makes them."""
    count = len(entries) // ENTRY_BYTES
    assert count <= ENTRIES_MAX
    rest = struct.pack("<III", bucket, count, 0) + entries
    return (crc32(rest).to_bytes(4, "little") + rest).ljust(PAGE_BYTES, b"\0")


def page_crc(page: bytes) -> int:
    """Return the crc that a page claims."""
    return int.from_bytes(page[:4], "little")


def page_end(page: bytes, crc: int) -> int:
    """Return where the entries of a page end, or 0 if it is not the page with this crc.

    Args:
        page: 4096 bytes, or fewer if the file is too short.
        crc: of that page when it was last written; it covers bucket and count as well. A page that
            verifies but is older is no good.
    """
    end = _HEAD_BYTES + ENTRY_BYTES * int.from_bytes(page[8:12], "little")
    return end if crc32(page[4:end]) == crc else 0


def pack_entries(entries: Iterable[int]) -> bytes:
    """Return the bytes of entries, each `hash << 32 | slot`."""
    packed = array("Q", entries)
    if byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def unpack_entries(data: Buffer) -> "array[int]":
    """Return what `pack_entries` was given."""
    entries = array("Q", bytes(data))
    if byteorder == "big":
        entries.byteswap()
    return entries


def pack_u32(values: "array[int]") -> bytes:
    """Return numbers of the trailer as bytes."""
    if byteorder == "big":
        values = values[:]
        values.byteswap()
    return values.tobytes()


def unpack_u32(data: Buffer) -> "array[int]":
    """Return what `pack_u32` was given."""
    values = array("I", bytes(data))
    if byteorder == "big":
        values.byteswap()
    return values


def find_slots(page: bytes, end: int, key_hash: int) -> Sequence[int]:
    """Return the slots that a page has under a hash: mostly none or one."""
    needle = key_hash.to_bytes(4, "little")
    found: list[int] = []
    at = page.find(needle, _HEAD_BYTES, end)
    if at < 0:
        return ()
    while at >= 0:
        if at & 7 == 4:  # a hash, not a slot nor parts of both
            found.append(int.from_bytes(page[at - 4 : at], "little"))
        at = page.find(needle, at + 1, end)
    return found


def set_filter(filters: bytearray, bucket: int, entries: Iterable[int]) -> None:
    """Mark the hashes of entries in the filter of their bucket."""
    base = bucket * FILTER_BYTES
    for entry in entries:
        filters[base + (entry >> 55)] |= 1 << (entry >> 52 & 7)


class Header:
    """The header page of a cleanly closed index."""

    __slots__ = ("bucket_count", "recent_count", "seed", "slots_crc", "store_uuid", "trailer_crc")

    def __init__(
        self,
        *,
        store_uuid: bytes,
        seed: bytes,
        slots_crc: int,
        bucket_count: int,
        recent_count: int,
        trailer_crc: int,
    ) -> None:
        self.store_uuid = store_uuid
        self.seed = seed
        self.slots_crc = slots_crc  # of the slot table at the close: the entries speak of no other
        self.bucket_count = bucket_count
        self.recent_count = recent_count
        self.trailer_crc = trailer_crc

    def pack(self) -> bytes:
        """Return the page."""
        head = _HEADER.pack(
            _MAGIC,
            VERSION,
            1,
            self.store_uuid,
            self.seed,
            self.slots_crc,
            self.bucket_count,
            self.recent_count,
            self.trailer_crc,
        ).ljust(_HEADER_CRC_OFFSET, b"\0")
        return head + crc32(head).to_bytes(4, "little")

    @classmethod
    def unpack(cls, page: bytes) -> "Header | None":
        """Return the header in a page; None if it is none, of another version or not clean."""
        if len(page) != PAGE_BYTES:
            return None
        crc = int.from_bytes(page[_HEADER_CRC_OFFSET:], "little")
        if crc32(page[:_HEADER_CRC_OFFSET]) != crc:
            return None
        magic, version, is_clean, store_uuid, seed, *numbers = _HEADER.unpack_from(page)
        if magic != _MAGIC or version != VERSION or is_clean != 1:
            return None
        slots_crc, bucket_count, recent_count, trailer_crc = numbers
        if not bucket_count:
            return None
        return cls(
            store_uuid=store_uuid,
            seed=seed,
            slots_crc=slots_crc,
            bucket_count=bucket_count,
            recent_count=recent_count,
            trailer_crc=trailer_crc,
        )

    def trailer_bytes(self) -> int:
        """How long the trailer is."""
        return (4 + FILTER_BYTES) * self.bucket_count + 4 * self.recent_count
