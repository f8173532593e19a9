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
        self._lasts = [piece[-1] for piece in pieces]  # the last key of each block
        self._blocks = [
            (
                array("Q", [key >> 32 for key in piece]),
                array("I", [key & _SLOT_MASK for key in piece]),
            )
            for piece in pieces
        ]

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
        value, slot = key >> 32, key & _SLOT_MASK
        at = bisect_left(self._lasts, key)
        if at == len(self._lasts):  # behind all others, as nearly always
            if at and len(self._blocks[-1][0]) < BLOCK_KEYS:
                at -= 1
                self._lasts[at] = key
            else:
                self._lasts.append(key)
                self._blocks.append((array("Q"), array("I")))
        values, slots = self._blocks[at]
        place = _place(values, slots, value, slot)
        values.insert(place, value)
        slots.insert(place, slot)
        if len(values) > BLOCK_KEYS:
            half = BLOCK_KEYS // 2
            self._blocks.insert(at + 1, (values[half:], slots[half:]))
            del values[half:], slots[half:]
            self._lasts.insert(at, values[-1] << 32 | slots[-1])

    def remove(self, key: int) -> None:
        """Take a key away. ValueError: it is not there."""
        at = bisect_left(self._lasts, key)
        if at == len(self._lasts):
            raise ValueError(f"no key {key}")
        values, slots = self._blocks[at]
        place = _place(values, slots, key >> 32, key & _SLOT_MASK)
        if values[place] << 32 | slots[place] != key:
            raise ValueError(f"no key {key}")
        del values[place], slots[place]
        self._count -= 1
        if not values:
            del self._blocks[at], self._lasts[at]
            return
        self._lasts[at] = values[-1] << 32 | slots[-1]
        if at and len(values) < _SMALL and len(self._blocks[at - 1][0]) < _SMALL:
            before = self._blocks[at - 1]
            before[0].extend(values)
            before[1].extend(slots)
            del self._blocks[at], self._lasts[at - 1]


def _place(values: "array[int]", slots: "array[int]", value: int, slot: int) -> int:
    """Return where a key is in its block, or would be."""
    start = bisect_left(values, value)
    return bisect_left(slots, slot, start, bisect_right(values, value, start))
