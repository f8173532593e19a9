"""`index.hix` in use: linear hashing over pages of the file, with little known of each in RAM.

Bucket b is page b + 1. There are no overflow pages, so each lookup reads one page: what does not
fit into a full bucket stays with the caller, and buckets are split early when that is much. One
bucket is split at a time, the next in line, so growth is always the same small step.

Rules:
- The crc of each page, as last written, is kept in RAM: a page that is damaged, torn, or old
  because a write got lost behind our back is noticed when it is read (`IndexDamaged`).
- A filter of 512 bytes a bucket says of most absent keys that they are absent, without any read.
- Only `read` and `write` are called on other threads; they touch the file and nothing else here.
- An image in `pending` is the truth about its page until the write of it has returned.
"""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol
from zlib import crc32

from segstore.index_page import (
    ENTRIES_MAX,
    ENTRY_BYTES,
    FILTER_BYTES,
    PAGE_BYTES,
    PAGE_HEAD,
    Header,
    KeyHash,
    find_slots,
    pack_entries,
    pack_page,
    pack_u32,
    page_crc,
    page_end,
    set_filter,
    unpack_entries,
    unpack_u32,
)
from segstore.vfs import File

# Entries a bucket on average; just before its split a bucket holds twice as many, which still fits.
ENTRIES_TARGET: Final = 224
_PAGES_A_WRITE: Final = 64


class Columns(Protocol):
    """What is read of the slot table."""

    keys: bytearray  # 16 bytes a slot
    tables: "array[int]"  # 0: the slot is free
    recent: list[dict[bytes, int]]  # by table: keys and slots that need no entry in the file

    def __len__(self) -> int:
        """How many slots are taken."""
        ...

    def clear_free(self) -> None:
        """Make the keys of free slots zero."""
        ...


class IndexDamaged(Exception):
    """A page is not what was last written there. Delete the file and build it anew."""


class IndexFile:
    """The buckets.

    Args:
        file: Open for reading and writing.
        columns: Tell which entries still count.
        seed: Of the hash.
        bucket_count: How many buckets; each must be filled before it is used.
    """

    __slots__ = (
        "_columns",
        "_half",
        "bucket_count",
        "crcs",
        "file",
        "filters",
        "hash",
        "is_clean",
        "is_discarded",
        "pending",
        "seed",
    )

    def __init__(self, file: File, columns: Columns, seed: bytes, bucket_count: int) -> None:
        self.file = file
        self._columns = columns
        self.seed = seed
        self.hash = KeyHash(seed)
        self.bucket_count = bucket_count
        self._half = 1 << (bucket_count.bit_length() - 1)
        self.crcs = array("I", bytes(4 * bucket_count))
        self.filters = bytearray(FILTER_BYTES * bucket_count)
        self.pending: dict[int, bytes] = {}
        self.is_discarded = False
        self.is_clean = False  # on disk: a header vouches for the pages

    # Looking up.

    def bucket(self, key_hash: int) -> int:
        """Return the bucket of a hash."""
        bucket = key_hash & (2 * self._half - 1)
        return bucket if bucket < self.bucket_count else bucket & (self._half - 1)

    def candidates_nowait(self, key_hash: int) -> Sequence[int] | None:
        """Return the slots that may have a key of this hash; None if the disk must be asked.

        Raises:
            IndexDamaged: Delete the file.
            OSError: The page cannot be read; delete the file.
        """
        # `bucket` and `_offset` in line: most finds of an old key end here.
        bucket = key_hash & (2 * self._half - 1)
        if bucket >= self.bucket_count:
            bucket &= self._half - 1
        marks = self.filters[bucket * FILTER_BYTES + (key_hash >> 23)]
        if not marks >> (key_hash >> 20 & 7) & 1:
            return ()
        page = self.pending.get(bucket) or self.file.pread_nowait(PAGE_BYTES, (bucket + 1) << 12)
        if page is None:
            return None
        end = page_end(page, self.crcs[bucket])
        return find_slots(page, end, key_hash) if end else self.candidates(page, bucket, key_hash)

    def candidates(self, page: bytes, bucket: int, key_hash: int) -> Sequence[int]:
        """Return the slots that a page just read has under a hash.

        Raises:
            IndexDamaged: Delete the file.
        """
        end = page_end(page, self.crcs[bucket])
        if not end:
            raise IndexDamaged(f"page {bucket + 1} of {self.file.path} is damaged or old")
        return find_slots(page, end, key_hash)

    def page_nowait(self, bucket: int) -> bytes | None:
        """Return the page of a bucket, whatever is in it, unless the disk must be asked.

        Raises:
            OSError: The page cannot be read; delete the file.
        """
        return self.pending.get(bucket) or self.file.pread_nowait(PAGE_BYTES, _offset(bucket))

    def read(self, buckets: Iterable[int]) -> list[bytes]:
        """Read pages, whatever is in them. Blocks; safe on any thread."""
        return [self.file.pread(PAGE_BYTES, _offset(bucket)) for bucket in buckets]

    # Changing.

    def add(self, bucket: int, page: bytes, entries: list[int]) -> list[int]:
        """Make the image of a bucket with more entries; when room is short, old ones go first.

        Args:
            bucket: Whose.
            page: As it is on disk or pending.
            entries: To add, each `hash << 32 | slot`. Some may be there already.

        Returns:
            Those that found no room.

        Raises:
            IndexDamaged: Delete the file.
        """
        held = self._entries(page, bucket)
        room = ENTRIES_MAX - len(held) // ENTRY_BYTES
        if len(entries) > room:
            kept = {each for each in unpack_entries(held) if self._is_current(each)}
            entries = [each for each in entries if each not in kept]
            held = pack_entries(kept)
            room = ENTRIES_MAX - len(kept)
            self._put(bucket, held, kept)
        added = entries[:room]
        self._set_image(bucket, pack_page(bucket, held + pack_entries(added)))
        set_filter(self.filters, bucket, added)
        return entries[room:]

    def next_split(self) -> int:
        """Return the bucket that is split next."""
        return self.bucket_count - self._half

    def split(self, page: bytes) -> None:
        """Split the bucket that is next; both images are pending then.

        Args:
            page: Of that bucket, as it is on disk or pending.

        Raises:
            IndexDamaged: Delete the file.
        """
        old, new = self.next_split(), self.bucket_count
        tables = self._columns.tables
        entries = unpack_entries(self._entries(page, old))
        live = [each for each in entries if tables[each & 0xFFFFFFFF]]
        bit = self._half << 32
        self.bucket_count = new + 1
        self._half = 1 << (self.bucket_count.bit_length() - 1)
        self.crcs.append(0)
        self.filters.extend(bytes(FILTER_BYTES))
        self.fill(old, [each for each in live if not each & bit])
        self.fill(new, [each for each in live if each & bit])

    def fill(self, bucket: int, entries: list[int]) -> int:
        """Make the image of a bucket with these entries alone; return how many fit."""
        entries = entries[:ENTRIES_MAX]
        self._put(bucket, pack_entries(entries), entries)
        return len(entries)

    def take_writes(self) -> dict[int, bytes]:
        """Return the images to hand to `write`."""
        return dict(self.pending)

    def write(self, images: Mapping[int, bytes]) -> None:
        """Write pages. Blocks; safe on any thread.

        Raises:
            OSError: Some may be written. They stay pending; try again or delete the file.
        """
        if self.is_clean:
            _write_all(self.file, [bytes(PAGE_BYTES)], -1)
            self.file.fdatasync()
            self.is_clean = False
        run: list[bytes] = []
        start = 0
        for bucket in sorted(images):
            if run and (bucket != start + len(run) or len(run) == _PAGES_A_WRITE):
                _write_all(self.file, run, start)
                run = []
            if not run:
                start = bucket
            run.append(images[bucket])
        if run:
            _write_all(self.file, run, start)

    def written(self, images: Mapping[int, bytes]) -> None:
        """Say that `write` has returned."""
        for bucket, image in images.items():
            if self.pending.get(bucket) is image:
                del self.pending[bucket]

    # Closing and opening.

    def close_clean(self, store_uuid: bytes, slots_crc: int, recent: "array[int]") -> None:
        """Write what `open_clean` needs, sync and close. Blocks.

        Args:
            store_uuid: Of the store.
            slots_crc: Of the slot table that the entries speak of.
            recent: The slots of entries that are in no bucket.
        """
        self.write(self.pending)
        trailer = pack_u32(self.crcs) + self.filters + pack_u32(recent)
        _write_all(self.file, [trailer], self.bucket_count)
        self.file.truncate(_offset(self.bucket_count) + len(trailer))
        self.file.fdatasync()
        header = Header(
            store_uuid=store_uuid,
            seed=self.seed,
            slots_crc=slots_crc,
            bucket_count=self.bucket_count,
            recent_count=len(recent),
            trailer_crc=crc32(trailer),
        )
        _write_all(self.file, [header.pack()], -1)
        self.file.fdatasync()
        self.file.close()

    @classmethod
    def open_clean(
        cls, file: File, columns: Columns, store_uuid: bytes, slots_crc: int
    ) -> "tuple[IndexFile, array[int]] | str":
        """Return what a clean close left and the recent slots, or why this is not it. Blocks.

        The file stays clean on disk until the first write.
        """
        header = Header.unpack(file.pread(PAGE_BYTES, 0))
        if header is None:
            return "not closed cleanly"
        if header.store_uuid != store_uuid:
            return "of another store"
        if header.slots_crc != slots_crc:
            return "of another slot table"
        length = header.trailer_bytes()
        offset = _offset(header.bucket_count)
        if file.size() != offset + length:
            return "of another length than it should be"
        trailer = file.pread(length, offset)
        if len(trailer) != length or crc32(trailer) != header.trailer_crc:
            return "damaged"
        index = cls(file, columns, header.seed, header.bucket_count)
        index.is_clean = True
        crcs_end = 4 * header.bucket_count
        filters_end = crcs_end + FILTER_BYTES * header.bucket_count
        index.crcs = unpack_u32(trailer[:crcs_end])
        index.filters = bytearray(trailer[crcs_end:filters_end])
        return index, unpack_u32(trailer[filters_end:])

    def _is_current(self, entry: int) -> bool:
        """Whether the slot of an entry still holds a key of its hash."""
        slot = entry & 0xFFFFFFFF
        table = self._columns.tables[slot]
        key = bytes(self._columns.keys[slot << 4 : (slot << 4) + 16])
        return table != 0 and self.hash(table, key) == entry >> 32

    def _entries(self, page: bytes, bucket: int) -> bytes:
        end = page_end(page, self.crcs[bucket])
        if not end:
            raise IndexDamaged(f"page {bucket + 1} of {self.file.path} is damaged or old")
        return page[PAGE_HEAD.size : end]

    def _set_image(self, bucket: int, image: bytes) -> None:
        self.pending[bucket] = image
        self.crcs[bucket] = page_crc(image)

    def _put(self, bucket: int, packed: bytes, entries: Iterable[int]) -> None:
        """Set image, crc and filter of a bucket from scratch."""
        self._set_image(bucket, pack_page(bucket, packed))
        base = bucket * FILTER_BYTES
        self.filters[base : base + FILTER_BYTES] = bytes(FILTER_BYTES)
        set_filter(self.filters, bucket, entries)


def set_recent(columns: Columns, slots: Iterable[int]) -> None:
    """Make the entries of these slots the recent ones."""
    keys, tables = bytes(columns.keys), columns.tables
    recent: list[dict[bytes, int]] = [{} for _ in range(256)]
    for slot in slots:
        recent[tables[slot]][keys[slot << 4 : (slot << 4) + 16]] = slot
    columns.recent[:] = recent


def slots_crc(columns: Columns) -> int:
    """Return a CRC over which slot holds which key."""
    columns.clear_free()
    tables = columns.tables.tobytes().rstrip(b"\0")
    with memoryview(columns.keys) as keys:
        return crc32(keys[: 16 * len(tables)], crc32(tables))


def _offset(bucket: int) -> int:
    return (bucket + 1) * PAGE_BYTES


def _write_all(file: File, buffers: list[bytes], bucket: int) -> None:
    length = sum(map(len, buffers))
    if file.pwritev(buffers, _offset(bucket)) != length:
        raise OSError(f"short write to {file.path}")
