"""Holding `index.hix` against the slot table it speaks of, without changing it."""

from collections.abc import Iterator

from segstore.index_file import IndexFile, slots_crc
from segstore.index_page import PAGE_BYTES, PAGE_HEAD, page_end, unpack_entries
from segstore.layout import INDEX_NAME
from segstore.slots import Slots
from segstore.vfs import VFS
from segstore.walk import Break

_STALE = frozenset({"not closed cleanly", "of another slot table", "of another store"})


def check_index(vfs: VFS, directory: str, slots: Slots, store_uuid: bytes) -> list[Break] | str:
    """Return what is wrong with the index file, or why the next open will not use it.

    Args:
        slots: As a replay of the log left them.
    """
    path = f"{directory}/{INDEX_NAME}"
    file = vfs.open(path, is_readonly=True)
    try:
        opened = IndexFile.open_clean(file, slots, store_uuid, slots_crc(slots))
        if isinstance(opened, str):
            if opened in _STALE:
                return opened
            return [Break(path, 0, 0, f"{opened}; it is derived and built anew by the next open")]
        index, recent = opened
        found = bytearray(slots.used_count())
        for slot in recent:
            found[slot : slot + 1] = b"\1"
        breaks = list(_check_pages(index, slots, found))
        missing = sum(1 for slot in slots.scan() if not found[slot])
        if missing and not breaks:
            problem = f"{missing} entries of the log are not in it; delete it, it is derived"
            breaks.append(Break(path, 0, 0, problem))
        return breaks
    finally:
        file.close()


def _check_pages(index: IndexFile, slots: Slots, found: bytearray) -> Iterator[Break]:
    """Mark the slots that the pages lead to; yield the pages that are damaged."""
    for bucket in range(index.bucket_count):
        (page,) = index.read([bucket])
        end = page_end(page, index.crcs[bucket])
        if not end:
            offset = (bucket + 1) * PAGE_BYTES
            problem = "page damaged; it is derived: delete the file, or let the server find out"
            yield Break(index.file.path, offset, PAGE_BYTES, problem)
            continue
        for entry in unpack_entries(page[PAGE_HEAD.size : end]):
            slot = entry & 0xFFFFFFFF
            if slot >= len(found) or not slots.lsn[slot]:
                continue  # of an entry that ended; lookups pass it over too
            key_hash = index.hash(slots.table(slot), slots.key(slot))
            if key_hash == entry >> 32 and index.bucket(key_hash) == bucket:
                found[slot] = 1
