"""Packed keys are in order, however they come and go."""

from random import Random

import pytest

from sepp.core.packed import BLOCK_KEYS, PackedKeys


@pytest.mark.parametrize("seed", range(5))
def test_it_agrees_with_a_sorted_list(seed: int) -> None:
    print("seed", seed)
    random = Random(seed)
    expected = {random.randrange(40) << 32 | slot for slot in range(random.randrange(3000))}
    keys = PackedKeys(expected)
    for step in range(20_000):
        # Grow, then shrink, then grow: blocks are split, emptied and put together.
        if random.random() < (0.7 if step % 9000 < 4000 else 0.2) or not expected:
            value = random.choice((random.randrange(40), 1 << 41, step))
            key = value << 32 | random.randrange(1 << 32)
            if key not in expected:
                expected.add(key)
                keys.add(key)
        else:
            key = min(expected) if step % 2 else random.choice(sorted(expected))
            expected.remove(key)
            keys.remove(key)
        assert len(keys) == len(expected)
        if expected:
            assert keys.first() == min(expected)
        if step % 500 == 0:
            assert list(keys) == sorted(expected)
    assert list(keys) == sorted(expected)
    block_count = len(keys._blocks)
    assert block_count <= max(1, 8 * len(keys) // BLOCK_KEYS + 1)


def test_keys_that_come_in_order_fill_their_blocks() -> None:
    keys = PackedKeys()
    for slot in range(10 * BLOCK_KEYS):
        keys.add(5 << 32 | slot)

    assert [len(values) for values, _ in keys._blocks] == [BLOCK_KEYS] * 10


@pytest.mark.parametrize("key", [0, 5 << 32 | 1, 5 << 32 | 2, 9 << 32])
def test_a_key_that_is_not_there_cannot_be_removed(key: int) -> None:
    keys = PackedKeys([5 << 32, 5 << 32 | 3])

    with pytest.raises(ValueError, match="no key"):
        keys.remove(key)
    with pytest.raises(ValueError, match="no key"):
        PackedKeys().remove(key)
    assert list(keys) == [5 << 32, 5 << 32 | 3]


def test_the_first_of_none_is_an_error() -> None:
    with pytest.raises(IndexError):
        PackedKeys().first()
    assert not PackedKeys()
