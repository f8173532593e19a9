"""The bytes on disk stay what they are: golden files, and what FORMAT.md says about them.

If a test here fails, files that exist can no longer be read by those who wrote them. Never mend it
by making new golden files; see "To change it" in FORMAT.md. `python -m tests.segstore.test_format`
made them once.
"""

import re
from pathlib import Path
from zlib import crc32

import pytest
import trio

from segstore import FormatRefused, MarkerDamaged
from segstore.batch import BATCH_HEADER_BYTES, FRAME_HEADER_BYTES, PUT
from segstore.layout import FormatMarker, HeadLayout, decode_format
from segstore.local import (
    Compact,
    Local,
    Move,
    Note,
    Seal,
    SegmentDrop,
    SegmentEnd,
    SegmentList,
    decode_locals,
    encode_local,
)
from tests.segstore.surgery import frames, read, segment_path, segments, world_of, write
from tests.segstore.worlds import FIELDS, DiskWorld, commit, contents, heads, key, put

GOLDEN = Path(__file__).parent / "golden" / "v1"
FORMAT_MD = Path(__file__).parents[2] / "segstore" / "FORMAT.md"
NAMES = ("FORMAT", f"seg-{1:020d}.seg", f"seg-{2:020d}.seg")


async def make() -> dict[str, bytes]:
    """Write a store with every kind of record; return its files, the dropped segment with them."""
    world = world_of()
    store = await world.writer()
    one = put(store, 1, state=1, priority=2, attempt=3, at_ms=4)
    two = put(store, 2, table=2)
    await commit(store, {one: b"hello", two: b""}, clock_ms=1_700_000_000_001)
    store.slots.attempt[one] = 9
    await commit(store, states=[one], clock_ms=1_700_000_000_002)
    await commit(store, {put(store, 3): b"sealing" * 450})
    first = read(world.vfs, segment_path(world, 1))
    await commit(store, {one: b"again"}, deletes=[two, store.slots.find(1, key(3))])
    await store._flusher.flush(store._writer.local_frame(Compact(1)))
    store._usage.victim = 1
    writer = store._writer
    record = HeadLayout(FIELDS).record.pack(PUT, 1, 0, 5, crc32(b"again"), key(1), 1, 2, 9, 4)
    writer.pending_locals.append(Move(7, 2, one, 0, record))
    place = writer.reserve(0, 0, moved_bytes=8)
    await store._flusher.flush(writer.fill(place, bodies=[b"again\0\0\0"]))
    await store.maintain()
    assert segments(world) == [2, 3]
    await store.close()
    return {
        "FORMAT": read(world.vfs, "/store/FORMAT"),
        NAMES[1]: first,
        NAMES[2]: read(world.vfs, segment_path(world, 2)),
    }


def golden_world() -> DiskWorld:
    """Return a world whose disk holds the golden files."""
    world = world_of()
    for name in NAMES:
        write(world.vfs, f"/store/{name}", (GOLDEN / name).read_bytes())
    return world


async def test_the_same_records_make_the_golden_bytes() -> None:
    made = await make()

    for name in NAMES:
        assert made[name] == (GOLDEN / name).read_bytes(), name


async def test_the_golden_store_opens_to_what_was_put_there() -> None:
    world = golden_world()

    store = await world.open()

    assert await contents(store) == {(1, 1): b"again"}
    assert heads(store) == {(1, 1): (1, 2, 9, 4)}
    assert (store.position().epoch, store.position().last_lsn) == (1, 8)
    assert store.position().log_clock_ms == 1_700_000_000_002
    assert segments(world) == [2]  # the first was dropped
    await store.close()


def test_the_golden_store_has_every_kind_of_record() -> None:
    world = golden_world()
    found = [frame for segment in (1, 2) for frame in frames(world, segment)]

    local = {type(each) for frame in found for each in frame.locals}

    assert local == {SegmentList, Seal, Compact, SegmentDrop, Note, Move}
    assert sum(frame.header.record_count for frame in found) == 8


def test_the_worked_example_is_the_golden_frame() -> None:
    rows = re.findall(r"(?m)^([0-9a-f]{4})  ((?:[0-9a-f]{2} ?)+)", FORMAT_MD.read_text())
    shown = bytes.fromhex("".join(row for _, row in rows))
    start = int(rows[0][0], 16)

    data = (GOLDEN / NAMES[1]).read_bytes()

    frame = next(f for f in frames(golden_world(), 1) if f.header.offset == start)
    assert len(shown) == frame.header.frame_bytes
    assert data[start : start + len(shown)] == shown
    assert [int(at, 16) for at, _ in rows] == sorted({int(at, 16) for at, _ in rows})


def test_sizes_are_what_the_document_says() -> None:
    text = FORMAT_MD.read_text()

    assert f"| 6 | 2 | header_bytes, {FRAME_HEADER_BYTES} |" in text
    assert f"| 60 | 4 | canonical_crc = crc(header[:{BATCH_HEADER_BYTES - 4}] + records) |" in text
    assert "record_bytes is 28 + the head" in text
    assert HeadLayout(FIELDS).record_bytes == 28 + 16


@pytest.mark.parametrize(
    ("fields", "offsets", "head_bytes"),
    [
        ([("a", "B")], (0,), 8),
        ([("a", "B"), ("b", "Q")], (0, 8), 16),
        ([("a", "B"), ("b", "H"), ("c", "I"), ("d", "B")], (0, 2, 4, 8), 16),
        ([("a", "Q"), ("b", "I")], (0, 8), 16),
    ],
)
def test_heads_are_aligned_as_c_would(
    fields: list[tuple[str, str]], offsets: tuple[int, ...], head_bytes: int
) -> None:
    layout = HeadLayout(fields)

    assert (layout.offsets, layout.head_bytes) == (offsets, head_bytes)
    assert layout.record.size == layout.raw_record.size == layout.headless_record.size


@pytest.mark.parametrize(
    "fields", [[], [("a", "B"), ("a", "B")], [("a", "d")], [("not a name", "B")], [("lsn", "Q")]]
)
async def test_fields_that_cannot_be_are_refused(fields: list[tuple[str, str]]) -> None:
    with pytest.raises(ValueError, match="field"):
        await world_of().open(fields=fields)


@pytest.mark.parametrize(
    "local",
    [
        SegmentList(0, 1, 2, 3, 4, ()),
        SegmentList(9, 1 << 63, 2, 3, 4, (SegmentEnd(1, 2, 3), SegmentEnd(4, 5, 6))),
        Compact(1),
        SegmentDrop(1 << 63),
        Seal(1, 2),
        Note(3),
        Move(1, 2, 3, 4, b"r" * 44),
    ],
)
def test_local_records_round_trip(local: Local) -> None:
    data = encode_local(local)

    assert len(data) % 8 == 0
    assert decode_locals(data * 2, 2) == [local, local]
    assert isinstance(decode_locals(data[:-8], 1), str)
    assert isinstance(decode_locals(data + bytes(8), 1), str)


def test_an_unknown_local_record_is_not_skipped() -> None:
    data = bytearray(encode_local(Note(1)))
    data[0] = 99

    assert isinstance(decode_locals(bytes(data), 1), str)


MARKER = FormatMarker(b"u" * 16, 5)


@pytest.mark.parametrize(
    ("marker", "problem", "advice"),
    [
        (FormatMarker(b"u" * 16, 5, version=2, min_reader=2), "a reader of version 2", "release"),
        (FormatMarker(b"u" * 16, 5, version=2, min_writer=3), "a writer of version 3", "release"),
        (FormatMarker(b"u" * 15, 5), "not a format marker", "restore a backup, or salvage"),
        (FormatMarker(b"u" * 16, 5, version=0), "of format 0", "restore a backup, or salvage"),
    ],
)
def test_a_marker_that_does_not_fit_is_refused_with_numbers_and_a_way_out(
    marker: FormatMarker, problem: str, advice: str
) -> None:
    with pytest.raises(FormatRefused, match=f"{problem}.*; nothing was changed; .*{advice}"):
        decode_format(marker.encode(), "FORMAT")


def test_a_later_minor_format_is_read_as_long_as_it_allows() -> None:
    marker = FormatMarker(b"u" * 16, 5, version=2)

    assert decode_format(marker.encode(), "FORMAT") == marker


def test_every_flipped_byte_of_the_marker_is_noticed() -> None:
    data = MARKER.encode()

    for offset in range(len(data)):
        harmed = bytearray(data)
        harmed[offset] ^= 1
        with pytest.raises(FormatRefused):
            decode_format(bytes(harmed), "FORMAT")
    for length in range(len(data)):
        with pytest.raises(FormatRefused):
            decode_format(data[:length], "FORMAT")


async def test_segments_without_a_marker_are_refused() -> None:
    world = golden_world()
    world.vfs.unlink("/store/FORMAT")

    with pytest.raises(MarkerDamaged, match=r"holds segments but no FORMAT.*; restore a backup"):
        await world.open()


if __name__ == "__main__":
    for name, data in trio.run(make).items():
        (GOLDEN / name).write_bytes(data)
