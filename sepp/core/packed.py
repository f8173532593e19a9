"""An ordering in 12 bytes a slot, for those that are long and seldom touched.

It behaves as a SortedList of `sort value << 32 | slot` does, as far as that is needed, but holds no
Python int a key (56 bytes with its place): keys lie in blocks of two arrays, sort values and slots,
and each read makes the int anew.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import Final

BLOCK_KEYS: Final = 512
_SMALL: Final = BLOCK_KEYS // 4
_SLOT_MASK: Final = 0xFFFF_FFFF


class PackedKeys:
    """See the module. Keys are below 2 ** 96 and distinct."""

    __slots__ = ("_blocks", "_count", "_lasts")

    def __init__(self, keys: Iterable[int] = ()) -> None:
        ordered = sorted(keys)
        self._count = len(ordered)
        pieces = [ordered[at : at + BLOCK_KEYS] for at in range(0, len(ordered), BLOCK_KEYS)]
        self._blocks = [_block(piece) for piece in pieces]
        # The last key of each block. Not a list: its integers would each keep a page of memory.
        self._lasts = _block([piece[-1] for piece in pieces])

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[int]:
        """Yield all keys, lowest first."""
        for values, slots in self._blocks:
            for value, slot in zip(values, slots, strict=True):
                yield value << 32 | slot

    def first(self) -> int:
        """Return the lowest key. IndexError: there is none."""
        values, slots = self._blocks[0]
        return values[0] << 32 | slots[0]

    def add(self, key: int) -> None:
        """Add a key that is not there."""
        self._count += 1
        blocks, lasts = self._blocks, self._lasts
        at = _place(lasts, key)
        if at == len(blocks):  # behind all others, as nearly always
            if at and len(blocks[-1][0]) < BLOCK_KEYS:
                at -= 1
                _insert(blocks[at], len(blocks[at][0]), key)
                lasts[0][at], lasts[1][at] = key >> 32, key & _SLOT_MASK
            else:
                blocks.append(_block([key]))
                _insert(lasts, at, key)
            return
        block = values, slots = blocks[at]
        _insert(block, _place(block, key), key)
        if len(values) > BLOCK_KEYS:
            half = BLOCK_KEYS // 2
            blocks.insert(at + 1, (values[half:], slots[half:]))
            del values[half:], slots[half:]
            _insert(lasts, at, values[-1] << 32 | slots[-1])

    def remove(self, key: int) -> None:
        """Take a key away. ValueError: it is not there."""
        blocks, (last_values, last_slots) = self._blocks, self._lasts
        at = _place(self._lasts, key)
        if at == len(blocks):
            raise ValueError(f"no key {key}")
        block = values, slots = blocks[at]
        place = _place(block, key)
        if values[place] << 32 | slots[place] != key:
            raise ValueError(f"no key {key}")
        del values[place], slots[place]
        self._count -= 1
        if values and not (at and len(values) < _SMALL and len(blocks[at - 1][0]) < _SMALL):
            last_values[at], last_slots[at] = values[-1], slots[-1]
            return
        if values:  # put it behind the one before, under its own last key
            blocks[at - 1][0].extend(values)
            blocks[at - 1][1].extend(slots)
            last_values[at - 1], last_slots[at - 1] = values[-1], slots[-1]
        del blocks[at], last_values[at], last_slots[at]


def _block(keys: list[int]) -> "tuple[array[int], array[int]]":
    """Return sort values and slots."""
    return array("Q", [key >> 32 for key in keys]), array("I", [key & _SLOT_MASK for key in keys])


def _place(block: "tuple[array[int], array[int]]", key: int) -> int:
    """Return where a key is in a block, or would be."""
    values, slots = block
    value = key >> 32
    start = bisect_left(values, value)
    return bisect_left(slots, key & _SLOT_MASK, start, bisect_right(values, value, start))


def _insert(block: "tuple[array[int], array[int]]", place: int, key: int) -> None:
    block[0].insert(place, key >> 32)
    block[1].insert(place, key & _SLOT_MASK)
