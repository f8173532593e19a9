"""Single steps of a store crashed at each of their calls: short proofs, one rule each."""

from random import Random

import pytest
import trio

import segstore.compaction
from segstore import Options, Store
from segstore.pace import Pace
from tests.fakes.crash_states import crash_images
from tests.fakes.faults import Call
from tests.fakes.simdisk import Image
from tests.fakes.simvfs import SimVFS
from tests.segstore.crash import no_changes
from tests.segstore.crashing import Trace
from tests.segstore.surgery import BODY, filled, found, segments, world_of
from tests.segstore.worlds import DiskWorld, add, key, remove

SEED = 1


async def drop_dead_segments(trace: Trace) -> None:
    """Drop wholly dead segments while no commit comes to take that along; crash at each call."""
    trace.vfs.on_point = None
    store = await trace.world.writer()
    for number in range(6):
        await trace.step(store, {number: BODY})
    await trace.step(store, {6: b"stays"}, deletes=tuple(range(6)))
    trace.vfs.on_point = trace._on_point
    await store.maintain()
    assert store.stats().drop_count > 0
    await trace.step(store, {7: b"behind"})
    trace.vfs.on_point = None
    await trace.world.kill(store)


@pytest.mark.parametrize("persist", ["sync_all", "sync_data", "buffer"])
def test_a_drop_is_durable_before_the_file_is_gone(persist: str) -> None:
    options = Options(segment_bytes=8192, persist=persist, prealloc="none")  # type: ignore[arg-type]  # one of the modes
    trace = Trace(options, seed=SEED, random_count=2, full_count_max=64)
    trio.run(drop_dead_segments, trace)

    assert trace.check_all() > 20


@pytest.mark.parametrize("is_torn", [False, True])
async def test_what_an_open_served_survives_a_power_cut_right_after_it(is_torn: bool) -> None:
    """The killed writer synced nothing: all of it was in the page cache alone."""
    world = world_of(persist="buffer")
    store = await filled(world, 2)
    if is_torn:
        await torn_write(world, store._writer.segments[1].path)

    served = await found(world)

    assert served == [0, 1]
    assert await found(DiskWorld("/store", crashed(world), world.options)) == served


async def close_in_buffer_mode(trace: Trace) -> None:
    """Close with much that is not synced; crash at each call."""
    trace.vfs.on_point = None
    store = await trace.world.writer()
    for number in range(3):
        await trace.step(store, {number: bytes(1500)})
    trace.vfs.on_point = trace._on_point
    await store.close()


def test_a_clean_close_vouches_for_nothing_that_a_crash_may_still_take() -> None:
    options = Options(segment_bytes=65_536, persist="buffer", prealloc="none")
    trace = Trace(options, seed=SEED, random_count=50, full_count_max=64)
    trio.run(close_in_buffer_mode, trace)

    assert trace.check_all() > 20


@pytest.mark.parametrize("is_killed", [False, True], ids=["same writer", "next writer"])
async def test_while_a_victim_is_copied_no_other_segment_goes(
    monkeypatch: pytest.MonkeyPatch, is_killed: bool
) -> None:
    """Entry 1 has a PUT in the victim and a copy, and its delete is held by the copy alone.

    So if the segment of the copy went first, and then that of the delete, entry 1 would be back.
    """
    monkeypatch.setattr(segstore.compaction, "MOVE_BYTES_MAX", 1)  # one copy at a time
    world = world_of(segment_bytes=16_384, compact_bytes_s=1)
    store = await world.writer()
    await add(store, [1, 2, 3], BODY)
    await add(store, range(10, 16), BODY)
    await remove(store, range(10, 16))
    await seal(store, 20)
    await add(store, [4], b"")
    store._compactor._pace = Pace(1)
    while store.slots.segment[store.slots.find(1, key(1))] == 1:
        assert store.stats().moved_count == 0
        store._compactor._pace.saved = 1
        await store.maintain(no_changes)
    if is_killed:
        await world.kill(store)
        store = await world.writer()
    store._compactor._pace = Pace(0)
    await seal(store, 21)
    await remove(store, [1, 4, 21])
    await seal(store, 22)
    await remove(store, [22])

    for _ in range(3):
        await store.maintain(no_changes)
    await world.kill(store)

    assert await found(world) == [2, 3, 20]


async def seal(store: Store, number: int) -> None:
    """Fill the segment up with one entry."""
    active = store._writer.active
    assert active is not None
    await add(store, [number], bytes(active.seal_at - active.end))
    assert active.is_sealed


async def torn_write(world: DiskWorld, path: str) -> None:
    """Leave half a frame at the end of a segment, in the page cache alone."""
    file = world.vfs.open(path)
    file.pwritev([b"\xf5SF1" + bytes(20) + b"torn"], file.size())
    file.close()


async def test_unused_segments_are_removed_from_the_end_of_the_log() -> None:
    """Each names the one before it, which must not be gone first."""
    world = world_of(persist="buffer")
    store = await world.writer()
    number = 0
    while store.stats().roll_count < 2:
        await store.maintain()
        await add(store, [number], BODY)
        number += 1
    await store.maintain()  # a spare behind a segment whose first frame only the page cache has
    assert segments(world) == [1, 2, 3]
    left = crashed(world)
    left_world = DiskWorld("/store", left, world.options)
    assert segments(left_world) == [1, 2, 3]
    again: dict[bytes, Image] = {}

    def crash(call: Call) -> None:
        for image in crash_images(left, random=Random(SEED), random_count=2):
            again[image.digest] = image

    left.on_point = crash
    expected = await found(left_world)

    assert segments(left_world) == [1]
    assert len(again) > 3
    for image in again.values():
        disk = SimVFS.from_image(image)
        assert await found(DiskWorld("/store", disk, world.options)) == expected


def crashed(world: DiskWorld) -> SimVFS:
    """Return the disk after a power cut that loses all that was not synced."""
    assert isinstance(world.vfs, SimVFS)
    return world.vfs.crash()
