"""The slot table: everything about live entries that stays in RAM, in columns.

An entry lives in one slot, an integer below `count`. Its key, its place on disk and its head are
elements of flat arrays; no object exists per entry. A head field is an attribute of its own name.

Rules:
- A slot whose `lsn` is 0 was allocated but is in no batch yet.
- `head_segment` is 0 while the newest head lies in the PUT itself, else it is the segment of the
  newest STATE.
- A free slot is zero in every head field, in `tables`, `lsn`, `body_length` and `head_segment`.
- `recent` leads from table and key to slot; what it does not know, `index` does.
"""

from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import compress
from struct import Struct
from sys import byteorder
from typing import TYPE_CHECKING, Any, Final

from segstore.layout import KEY_BYTES, HeadLayout

if TYPE_CHECKING:  # it works on slots
    from segstore.hash_index import HashIndex

ABSENT: Final = -1
UNKNOWN: Final = -2

_GROWTH_SLOTS: Final = 4096
_SPARSE_MIN: Final = 65_536
_SPARSE_FACTOR: Final = 4


class Slots:
    """The columns; satisfies the slot tables of users structurally.

    Args:
        layout: Says which head fields there are.
    """

    def __init__(self, layout: HeadLayout) -> None:
        self.layout: Final = layout
        self.heads: list[array[int]] = [array(typecode) for _, typecode in layout.fields]
        self.keys = bytearray()
        self.tables = array("B")
        self.segment = array("I")  # of the body
        self.offset8 = array("I")  # of the body, in units of 8 bytes
        self.body_length = array("I")
        self.body_crc = array("I")
        self.lsn = array("Q")  # of the last change
        self.head_segment = array("I")
        self.recent: list[dict[bytes, int]] = [{} for _ in range(256)]
        self.index: HashIndex | None = None  # none during a replay
        self._free = array("I")
        self._unused = 0  # slots from here to `count` were never used
        self._count = 0
        for (name, _), column in zip(layout.fields, self.heads, strict=True):
            if hasattr(self, name):
                raise ValueError(f"a field must not be called {name!r}")
            setattr(self, name, column)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> "array[int]":
            """A head field."""
            ...

    def __len__(self) -> int:
        """Return how many slots are taken."""
        return self._unused - len(self._free)

    def allocate(self, table: int, key: bytes) -> int:
        """Return a free slot that now answers to `key`; its fields are all 0."""
        assert table
        assert len(key) == KEY_BYTES
        if self._free:
            slot = self._free.pop()
        else:
            slot = self._unused
            if slot == self._count:
                self._grow(_GROWTH_SLOTS)
            self._unused = slot + 1
        self.keys[slot << 4 : (slot << 4) + 16] = key
        self.tables[slot] = table
        if self.index is None:
            self.recent[table][key] = slot
        else:
            self.index.put(table, key, slot)
        return slot

    def allocate_run(self, table: int, keys: Sequence[bytes]) -> int:
        """Return the first of as many neighbouring slots as there are keys, all of them new.

        For a replay.
        """
        first, count = self._unused, len(keys)
        if first + count > self._count:
            self._grow(max(count, _GROWTH_SLOTS))
        self._unused += count
        self.keys[first << 4 : (first + count) << 4] = b"".join(keys)
        self.tables[first : first + count] = array("B", [table]) * count
        self.recent[table].update(zip(keys, range(first, first + count), strict=True))
        return first

    def find(self, table: int, key: bytes) -> int:
        """Return the slot of a live entry, or -1. Blocks if it takes a disk: `locate` it before."""
        slot = self.recent[table].get(key)
        if slot is not None:
            return slot
        return ABSENT if self.index is None else self.index.find_old_blocking(table, key)

    def expect(self, table: int, key: bytes, slot: int) -> None:
        """`find` will soon be asked for the key of `slot`."""
        if self.index is not None:
            self.index.expect(table, key, slot)

    def key(self, slot: int) -> bytes:
        """Return the 16-byte key of `slot`."""
        return bytes(self.keys[slot << 4 : (slot << 4) + 16])

    def table(self, slot: int) -> int:
        """Return the table number of `slot`."""
        return self.tables[slot]

    def free(self, slots: Sequence[int]) -> None:
        """Give slots back; their keys lead nowhere, or where they were given to meanwhile.

        All that the rules name is 0 on return.
        """
        keys, tables, key_tables = self.keys, self.tables, self.recent
        for slot in slots:
            key = bytes(keys[slot << 4 : (slot << 4) + 16])
            known = key_tables[tables[slot]]
            if known.get(key) == slot:
                del known[key]
        for column in (*self.heads, tables, self.lsn, self.body_length, self.head_segment):
            for slot in slots:
                column[slot] = 0
        self._free.extend(slots)

    def release(self, slot: int) -> None:
        """Free one slot during a replay; its key was removed, `settle_free` clears the rest."""
        self.lsn[slot] = 0
        self._free.append(slot)

    def settle_free(self) -> None:
        """Clear what `release` left, head fields aside."""
        for column in (self.tables, self.body_length, self.head_segment):
            for slot in self._free:
                column[slot] = 0

    def clear_free(self) -> None:
        """Make the keys of free slots zero, too."""
        keys = self.keys
        for slot in self._free:
            keys[slot << 4 : (slot << 4) + 16] = bytes(KEY_BYTES)

    def used_count(self) -> int:
        """Return how many slots were ever used."""
        return self._unused

    def free_slots(self) -> Sequence[int]:
        """Return the slots that were used and are free now."""
        return self._free

    def scan(self, table: int | None = None) -> Iterator[int]:
        """Yield the slots of all entries that are in a batch, in no order to rely on.

        Args:
            table: Only of this one.
        """
        if table is None:
            return compress(range(self._unused), self.lsn)
        slots = list(compress(range(self._unused), self.flags_of(table)))
        return compress(slots, map(self.lsn.__getitem__, slots))

    def body_sizes(self) -> dict[tuple[int, int], int]:
        """Return how many entries that are in a batch have which segment and body length."""
        pairs = array("Q", bytes(8)) * self._unused
        low, high = (0, 1) if byteorder == "little" else (1, 0)
        with memoryview(pairs).cast("B") as view, view.cast("I") as halves:
            halves[low::2] = memoryview(self.body_length)[: self._unused]
            halves[high::2] = memoryview(self.segment)[: self._unused]
        counts = Counter(compress(pairs, self.lsn))  # half the time it takes with tuples
        return {(pair >> 32, pair & 0xFFFFFFFF): count for pair, count in counts.items()}

    def changed_since(self, lsn: int) -> Iterator[int]:
        """Yield the slots whose last change has a higher LSN."""
        least = max(0, lsn)
        return (slot for slot, changed in enumerate(self.lsn) if changed > least)

    def copy(self, start: int, stop: int) -> "list[bytearray | array[int]]":
        """Return the part of each column from one slot to another, for a snapshot: keys first."""
        columns = self.columns()
        return [self.keys[start << 4 : stop << 4], *[column[start:stop] for column in columns]]

    def take_over(self, used_count: int, parts: Sequence[tuple[int, int, memoryview]]) -> None:
        """Fill an empty table from a snapshot; no entry is recent then.

        Args:
            used_count: How many slots were ever used.
            parts: First slot, number of slots, and what `copy` returned, one behind the other, each
                column from an 8-aligned offset on. Slots that no part speaks of are free.
        """
        self._grow(used_count)
        self._unused = used_count
        columns: list[bytearray | array[int]] = [self.keys, *self.columns()]
        sizes = [KEY_BYTES, *[column.itemsize for column in self.columns()]]
        for start, count, data in parts:
            at = 0
            for column, size in zip(columns, sizes, strict=True):
                with memoryview(column).cast("B") as view:
                    view[start * size : (start + count) * size] = data[at : at + count * size]
                at += (count * size + 7) & ~7
        if byteorder == "big":  # the disk is little-endian
            for column in columns[1:]:
                assert isinstance(column, array)
                column.byteswap()
        self.find_free()

    def find_free(self) -> None:
        """Find the free slots anew, the lowest to be given out first."""
        self._free = array("I", compress(range(self._unused), self.flags_of(0)))
        self._free.reverse()

    def is_sparse(self) -> bool:
        """Whether so much of the table is free that it is worth to give entries other slots."""
        return self._unused > _SPARSE_MIN and len(self) * _SPARSE_FACTOR < self._unused

    def renumber(self) -> None:
        """Give all entries the lowest slots, and memory back; for an open. None is recent then."""
        taken = self.tables[: self._unused].tobytes().translate(bytes(1) + b"\1" * 255)
        keys = [key for (key,) in Struct(f"{KEY_BYTES}s").iter_unpack(self.keys)]
        self.keys[:] = b"".join(compress(keys, taken))
        for column in self.columns():
            column[:] = array(column.typecode, compress(column, taken))
        self.recent[:] = [{} for _ in range(256)]
        self._unused = self._count = len(self.tables)
        self._free = array("I")

    def flags_of(self, table: int) -> bytes:
        """Return 1 for each slot that belongs to a table, 0 for each other; table 0: free."""
        flags = bytearray(256)
        flags[table] = 1
        return self.tables[: self._unused].tobytes().translate(flags)

    def heads_as_rows(self) -> bytearray:
        """Return packed heads as `load_heads` takes them."""
        stride = self.layout.head_bytes
        rows = bytearray(stride * self._unused)
        with memoryview(rows) as view:
            for index, offset in enumerate(self.layout.offsets):
                size = self.layout.item_bytes(index)
                column = self.heads[index][: self._unused]
                if byteorder == "big":  # the disk is little-endian
                    column.byteswap()
                typecode: Any = column.typecode
                with view.cast(typecode) as items:
                    items[offset // size :: stride // size] = memoryview(column)
        return rows

    def load_heads(self, rows: bytearray) -> None:
        """Set the head columns from packed heads, one for each slot ever used.

        Args:
            rows: Heads as they lie in records, by slot.
        """
        stride = self.layout.head_bytes
        assert len(rows) == stride * self._unused
        view = memoryview(rows)
        for index, offset in enumerate(self.layout.offsets):
            typecode: Any = self.layout.fields[index][1]
            size = self.layout.item_bytes(index)
            values = array(
                typecode, view.cast(typecode)[offset // size :: stride // size].tobytes()
            )
            if byteorder == "big":  # the disk is little-endian
                values.byteswap()
            self.heads[index][: self._unused] = values

    def columns(self) -> "list[array[int]]":
        """Return all columns but the keys, in the order of a snapshot (FORMAT.md)."""
        return [
            self.tables,
            self.segment,
            self.offset8,
            self.body_length,
            self.body_crc,
            self.lsn,
            self.head_segment,
            *self.heads,
        ]

    def _grow(self, count: int) -> None:
        self._count += count
        self.keys.extend(bytes(KEY_BYTES * count))
        for column in self.columns():
            column.frombytes(bytes(column.itemsize * count))
