"""The bytes of a snapshot stay what FORMAT.md section 10 says, until its version is raised.

`python -m tests.segstore.test_snapshot_format` made the golden files once.
"""

from pathlib import Path

import pytest
import trio

from segstore import Options
from segstore.layout import SEGMENT_HEADER_BYTES, HeadLayout
from segstore.local import SegmentEnd
from segstore.scan import LogPoint, LogState
from segstore.slots import Slots
from segstore.snapshot_file import (
    END,
    HEADER_BYTES,
    SLOTS,
    Begin,
    decode,
    encode_block,
    encode_end,
    encode_header,
    encode_slots,
    snapshot_lsn,
    snapshot_name,
)
from tests.segstore.surgery import read, write
from tests.segstore.worlds import FIELDS, DiskWorld, commit, contents, heads, put, sim_world

GOLDEN = Path(__file__).parent / "golden" / "snapshot-v1"
NAMES = ("FORMAT", f"seg-{1:020d}.seg", snapshot_name(6))
OPTIONS = Options(segment_bytes=8192, prealloc="none", snapshot_log_bytes=4096)
UUID = b"u" * 16
FIELD_LIST = ",".join(f"{name}:{typecode}" for name, typecode in FIELDS)


async def make() -> dict[str, bytes]:
    """Write a store of two tables with a free slot between; return its files."""
    world = sim_world(options=OPTIONS)
    store = await world.writer()
    one = put(store, 1, state=1, priority=2, attempt=3, at_ms=4)
    gone = put(store, 2)
    two = put(store, 3, table=2)
    await commit(store, {one: b"hello", gone: b"", two: b"x" * 9}, clock_ms=1_700_000_000_001)
    store.slots.attempt[one] = 9
    await commit(store, states=[one], deletes=[gone], clock_ms=1_700_000_000_002)
    await store.close(lambda: False)
    return {name: read(world.vfs, f"/store/{name}") for name in NAMES}


async def test_the_same_records_make_the_golden_bytes() -> None:
    made = await make()

    for name in NAMES:
        assert made[name] == (GOLDEN / name).read_bytes(), name


async def test_the_golden_store_opens_from_its_snapshot() -> None:
    world = DiskWorld("/store", sim_world().vfs, OPTIONS)
    for name in NAMES:
        write(world.vfs, f"/store/{name}", (GOLDEN / name).read_bytes())

    store = await world.open()

    assert store.stats().snapshot_lsn == 6
    assert store.stats().recovered_record_count == 0
    assert await contents(store) == {(1, 1): b"hello", (2, 3): b"x" * 9}
    assert heads(store)[1, 1] == (1, 2, 9, 4)
    assert list(store.slots.free_slots()) == [1]


def encoded(begin: Begin, *, used_count: int = 3, block_count: int = 1) -> bytes:
    header = encode_header(UUID, FIELD_LIST, begin)
    salt = int.from_bytes(header[-4:], "little")
    slots = Slots(HeadLayout(FIELDS))
    for number in range(3):
        slots.allocate(1, number.to_bytes(16, "big"))
    blocks = encode_block(SLOTS, encode_slots(0, 3, slots.copy(0, 3)), salt)
    blocks += encode_block(END, encode_end(POINT, used_count, block_count), salt)
    return header + b"".join(blocks)


POINT = LogPoint(7, 5000, 1, LogState(9, 2, 3, 4, 5))
BEGIN = Begin(POINT, 3, (SegmentEnd(3, 8000, 77), SegmentEnd(5, 8008, 78)), {5: {3: 2}, 7: {5: 1}})


def test_what_is_encoded_is_read_back() -> None:
    found = decode(encoded(BEGIN), UUID, FIELD_LIST)

    assert not isinstance(found, str)
    assert (found.begin, found.end, found.used_count) == (BEGIN, POINT, 3)
    [(first, count, columns)] = found.parts
    assert (first, count) == (0, 3)
    assert bytes(columns[16:32]) == (1).to_bytes(16, "big")


def test_a_long_list_makes_the_header_longer() -> None:
    segments = tuple(SegmentEnd(each, 8000, each) for each in range(500))
    begin = Begin(POINT, 0, segments, {})

    found = decode(encoded(begin), UUID, FIELD_LIST)

    assert not isinstance(found, str)
    assert found.begin == begin


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "cut short"),
        (encoded(BEGIN)[:-8], "cut short"),
        (encoded(BEGIN)[:HEADER_BYTES], "cut short"),
        (encoded(BEGIN) + bytes(8), "not all of it"),
        (encoded(BEGIN, block_count=2), "not all of it"),
        (encoded(BEGIN, used_count=2), "more slots"),
        (b"SEGSNAP2" + encoded(BEGIN)[8:], "magic"),
        (encoded(BEGIN)[:8] + b"\2" + encoded(BEGIN)[9:], "version 2"),
        (encode_header(b"v" * 16, FIELD_LIST, BEGIN), "of store 76"),
        (encode_header(UUID, "other:B", BEGIN), "other fields"),
        (encode_header(UUID, FIELD_LIST, BEGIN) + encode_block(9, [], 0)[0], "CRC mismatch"),
    ],
)
def test_what_is_no_whole_snapshot_of_this_store_is_told(data: bytes, problem: str) -> None:
    found = decode(data, UUID, FIELD_LIST)

    assert isinstance(found, str)
    assert problem in found


def test_a_name_tells_where_it_begins() -> None:
    assert snapshot_lsn(snapshot_name(12)) == 12
    assert snapshot_lsn(snapshot_name(12) + ".tmp") is None
    assert snapshot_lsn("snap-12.snap") is None
    assert SEGMENT_HEADER_BYTES == HEADER_BYTES


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for name, data in trio.run(make).items():
        (GOLDEN / name).write_bytes(data)
