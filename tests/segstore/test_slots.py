"""The slot table: columns, keys, and how slots are given out and taken back."""

import pytest

from segstore import ABSENT, Slots
from segstore.layout import HeadLayout
from tests.segstore.worlds import FIELDS, key


def table() -> Slots:
    return Slots(HeadLayout(FIELDS))


def test_every_field_is_a_column_of_its_typecode() -> None:
    slots = table()

    columns = [getattr(slots, name).typecode for name, _ in FIELDS]

    assert columns == [typecode for _, typecode in FIELDS]


def test_a_key_leads_to_its_slot_within_its_table() -> None:
    slots = table()
    one, two = slots.allocate(1, key(7)), slots.allocate(2, key(7))

    assert (slots.find(1, key(7)), slots.find(2, key(7))) == (one, two)
    assert (slots.key(one), slots.table(one), slots.table(two)) == (key(7), 1, 2)
    assert slots.find(1, key(8)) == slots.find(3, key(7)) == ABSENT
    assert isinstance(slots.key(one), bytes)


def test_slots_are_dense_and_reused() -> None:
    slots = table()
    first = [slots.allocate(1, key(number)) for number in range(10_000)]
    assert first == list(range(10_000))
    slots.at_ms[42] = 1 << 63

    slots.free([42, 41])

    assert len(slots) == 9_998
    assert slots.find(1, key(42)) == ABSENT
    again = [slots.allocate(1, key(20_000 + number)) for number in range(3)]
    assert again == [41, 42, 10_000]
    assert slots.at_ms[42] == 0


def test_a_freed_slot_does_not_take_a_key_that_moved_on() -> None:
    slots = table()
    old = slots.allocate(1, key(1))
    new = slots.allocate(1, key(1))

    slots.free([old])

    assert slots.find(1, key(1)) == new


def test_only_slots_in_a_batch_are_scanned() -> None:
    slots = table()
    made = [slots.allocate(1, key(number)) for number in range(5)]
    for slot in made[:3]:
        slots.lsn[slot] = slot + 1

    assert list(slots.scan()) == made[:3]


def test_a_run_of_new_slots_is_as_good_as_one_by_one() -> None:
    slots = table()
    slots.allocate(1, key(0))

    first = slots.allocate_run(3, [key(number) for number in range(1, 6000)])

    assert first == 1
    assert slots.find(3, key(5999)) == 5999
    assert slots.key(17) == key(17)
    assert slots.table(5999) == 3
    assert slots.allocate(1, key(9000)) == 6000


def test_packed_heads_become_columns() -> None:
    slots, layout = table(), HeadLayout(FIELDS)
    rows = bytearray()
    for number in range(3):
        slots.allocate(1, key(number))
        rows += layout.record.pack(1, 1, 0, 0, 0, key(0), number, 255, 1 << 31, number << 60)[28:]

    slots.load_heads(rows)

    assert list(slots.state[:4]) == [0, 1, 2, 0]
    assert list(slots.priority[:3]) == [255] * 3
    assert list(slots.attempt[:3]) == [1 << 31] * 3
    assert list(slots.at_ms[:3]) == [0, 1 << 60, 2 << 60]


def test_a_value_that_does_not_fit_its_field_is_refused() -> None:
    slots = table()
    slot = slots.allocate(1, key(1))

    with pytest.raises(OverflowError):
        slots.state[slot] = 256
