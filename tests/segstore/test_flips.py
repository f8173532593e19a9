"""A flipped byte, wherever it is, is refused with its place, told as one body's, or harmless.

The store was closed cleanly, so its note vouches for every frame, and nothing may pass for torn.
"""

from collections import Counter
from collections.abc import Iterator

import pytest

from segstore import BodyDamaged, StoreDamaged
from segstore.batch import BATCH_HEADER_BYTES, FRAME_HEADER_BYTES, PUT
from segstore.layout import SEGMENT_HEADER_BYTES, aligned
from segstore.local import Move, Note
from segstore.scan import Frame
from tests.fakes.simdisk import Image
from tests.fakes.simvfs import SimVFS
from tests.segstore.crash import no_changes
from tests.segstore.surgery import (
    FLIP,
    frames,
    read,
    scan_of,
    segment_path,
    segments,
    world_of,
    write,
)
from tests.segstore.worlds import DiskWorld, add, commit, contents, key, remove

# Which end each class of bytes has.
REFUSED, BODY_TOLD, WHOLE = "refused", "body told", "whole"
ENDS = {
    "segment header": REFUSED,
    "frame header": REFUSED,
    "hints and homes": REFUSED,
    "local records": REFUSED,
    "batch header": REFUSED,
    "records": REFUSED,
    "padding of records": WHOLE,
    "body": BODY_TOLD,
    "padding of bodies": WHOLE,
    "moved body": BODY_TOLD,
    "padding of moved bodies": WHOLE,
    "last note": WHOLE,  # nothing vouches for it; cut, and nothing was in it
    "behind the end of a sealed segment": REFUSED,
    "behind the end of the log": WHOLE,
}


async def lived() -> DiskWorld:
    """Return a store with every kind of record in it, closed."""
    world = world_of(segment_bytes=8192, prealloc="zero", compact_bytes_s=8 << 20)
    store = await world.writer()
    await add(store, [1, 2], b"kept, and copied")
    await add(store, [3], b"odd length")
    for number in range(10, 16):
        await add(store, [number], b"d" * 900)
    await commit(store, states=[store.slots.find(1, key(3))])
    await remove(store, range(10, 16))
    for number in range(20, 24):
        await add(store, [number], b"l" * 1201)
        world.clock.now_ms += 1000
        await store.maintain(no_changes)
    assert store.stats().moved_count > 0
    over, changed = (store.slots.find(1, key(number)) for number in (20, 1))
    await commit(store, {over: b"over"}, states=[changed])
    await store.close()
    if not list(frames(world, segments(world)[-1])):  # made ahead, and not used
        world.vfs.unlink(segment_path(world, segments(world)[-1]))
    newest = segment_path(world, segments(world)[-1])
    write(world.vfs, newest, bytes(64), len(read(world.vfs, newest)))  # as space kept ahead
    return world


def places(world: DiskWorld, segment: int) -> Iterator[tuple[int, int, str, int]]:
    """Yield ranges of a segment: start, end, class, and the offset that a refusal names."""
    yield 0, SEGMENT_HEADER_BYTES, "segment header", 0
    scan = scan_of(world, segment)
    end = SEGMENT_HEADER_BYTES
    is_last_segment = segment == segments(world)[-1]
    for frame in frames(world, segment):
        header = frame.header
        end = header.offset + header.frame_bytes
        if any(isinstance(local, Note) for local in frame.locals) and is_last_segment:
            yield header.offset, end, "last note", 0
            continue
        yield header.offset, header.offset + FRAME_HEADER_BYTES, "frame header", header.offset
        parts = [(header.locals_at, "hints and homes"), (header.canonical_at, "local records")]
        at = header.offset + FRAME_HEADER_BYTES
        if frame.batch is not None:
            records = header.canonical_at + BATCH_HEADER_BYTES
            parts.append((records, "batch header"))
            parts.append((records + frame.batch.count * frame.batch.record_bytes, "records"))
            parts.append((header.bodies_at, "padding of records"))
        for stop, name in parts:
            yield at, stop, name, header.offset
            at = stop
        records_of = scan.record_bytes_of(frame) if frame.batch else b""
        for length, name in body_lengths(world, records_of, frame):
            yield at, at + length, name, 0
            at += aligned(length)
            yield at - aligned(length) + length, at, f"padding of {plural(name)}", 0
    size = len(read(world.vfs, segment_path(world, segment)))
    behind = "the log" if is_last_segment else "a sealed segment"
    yield end, size, f"behind the end of {behind}", end


def plural(name: str) -> str:
    """Return "bodies" for "body"."""
    return name.replace("body", "bodies")


def body_lengths(
    world: DiskWorld, records: memoryview | bytes, frame: Frame
) -> Iterator[tuple[int, str]]:
    """Yield length and class of each body in a frame, in order."""
    unpack = scan_of(world, frame.header.segment).layout.raw_record.iter_unpack
    for kind, _, _, length, *_ in unpack(records):
        if kind == PUT:
            yield length, "body"
    for local in frame.locals:
        if isinstance(local, Move):
            for kind, _, _, length, *_ in unpack(local.record):
                if kind == PUT:
                    yield length, "moved body"


async def end_of(image: Image, path: str, at: int, offset: int, expected: object) -> str:
    """Open with one byte flipped; return which end it had."""
    world = DiskWorld("/store", SimVFS.from_image(image), world_of().options)
    data = read(world.vfs, path)
    file = world.vfs.open(path)
    file.pwritev([bytes([data[at] ^ FLIP])], at)
    file.close()
    place = None
    try:
        store = await world.open()
    except StoreDamaged as damage:
        place = (damage.path, damage.offset)
    if place is not None:
        assert place == (path, offset), at
        return REFUSED
    found = await contents(store)
    damaged = [body for body in found.values() if isinstance(body, BodyDamaged)]
    if damaged:
        assert [(each.path, each.offset <= at) for each in damaged] == [(path, True)]
        assert store.stats().body_damaged_count > 0
    else:
        assert found == expected
    await store.close()
    return BODY_TOLD if damaged else WHOLE


@pytest.mark.parametrize("step", [61, pytest.param(1, marks=pytest.mark.long)])
async def test_every_class_of_bytes_has_its_end(step: int) -> None:
    world = await lived()
    assert isinstance(world.vfs, SimVFS)
    image = world.vfs.image([1] * len(world.vfs.pending))
    ranges = {segment: list(places(world, segment)) for segment in segments(world)}
    store = await world.open()
    expected = await contents(store)
    live = {(s, o) for s, o in zip(store.slots.segment, store.slots.offset8, strict=True)}
    await store.close()
    counts: Counter[str] = Counter()

    for segment, classes in ranges.items():
        for start, stop, name, offset in classes:
            is_dead = ENDS[name] == BODY_TOLD and (segment, start >> 3) not in live
            for at in range(start, stop, step):
                end = await end_of(image, segment_path(world, segment), at, offset, expected)
                assert end == (WHOLE if is_dead else ENDS[name]), (segment, at, name)
                counts[name] += 1

    print(dict(counts), "undetected 0")
    assert counts.keys() == ENDS.keys()
