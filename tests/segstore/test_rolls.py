"""Rolling to the next segment, dropping dead ones, and what keeps a segment."""

from typing import Any

import pytest

from segstore import Store
from segstore.local import Seal, SegmentDrop, SegmentList
from tests.segstore.surgery import BODY, frames, read, segment_path, segments, world_of
from tests.segstore.worlds import add, commit, contents, key, put, remove


async def test_a_full_segment_is_sealed_and_the_next_names_its_end() -> None:
    world = world_of()
    store = await world.writer()
    for number in range(5):
        await add(store, [number], BODY)
    await store.close()

    first, second = frames(world, 1), frames(world, 2)

    end = first[-1].header.offset + first[-1].header.frame_bytes
    assert first[-1].batch is not None
    assert first[-1].locals == [Seal(end, first[-1].batch.first_lsn)]
    assert [frame.locals for frame in first[1:-1]] == [[] for _ in first[1:-1]]
    listed = second[0].locals[0]
    assert isinstance(listed, SegmentList)
    assert [(each.segment, each.end, each.frame_crc) for each in listed.segments] == [
        (1, end, first[-1].header.crc)
    ]
    assert listed.last_lsn == first[-1].batch.first_lsn
    assert listed.epoch == 1


async def test_canonical_batches_go_on_across_segments() -> None:
    world = world_of()
    store = await world.writer()
    for number in range(9):
        await add(store, [number], BODY)
    await store.close()

    batches = [f.batch for segment in segments(world) for f in frames(world, segment) if f.batch]

    assert [batch.first_lsn for batch in batches] == list(range(1, 11))
    assert [batch.previous_crc for batch in batches] == [0, *(each.crc for each in batches[:-1])]


async def test_a_roll_to_a_spare_adds_no_sync_to_the_commit() -> None:
    world = world_of(prealloc="zero")
    store = await world.writer()
    await store.maintain()
    syncs = []

    for number in range(8):
        world.vfs.trace.clear()
        await add(store, [number], BODY)
        calls = [call for call in world.vfs.trace if "free_bytes" not in call.name]
        syncs.append([call.name for call in calls])
        await store.maintain()

    assert store.stats().roll_count > 2
    assert syncs == [["pwritev", "fdatasync"]] * 8
    await store.close()


async def test_a_spare_is_complete_before_it_has_its_name() -> None:
    world = world_of(prealloc="zero")
    store = await world.writer()
    world.vfs.trace.clear()

    await store.maintain()

    assert [call.name for call in world.vfs.trace if call.name != "free_bytes"] == [
        "exists",
        "open",
        "pwritev",
        "pwritev",
        "fsync",
        "rename",
        "sync_dir",
    ]
    data = read(world.vfs, segment_path(world, 2))
    assert len(data) == 8192
    assert data[4096:] == bytes(4096)
    await store.close()


async def test_the_log_goes_on_in_the_first_segment_made_ahead_with_the_next_commit() -> None:
    world = world_of(prealloc="zero")
    store = await world.writer()
    await add(store, [1])
    await store.maintain()
    assert store.stats().roll_count == 1

    await add(store, [2])
    await add(store, [3])

    assert store.stats().roll_count == 2
    assert len(list(frames(world, 2))) == 2
    await store.close()


async def test_the_first_segment_after_an_open_is_not_filled() -> None:
    world = world_of(prealloc="zero")

    store = await world.writer()

    assert len(read(world.vfs, segment_path(world, 1))) < 5000
    await store.close()


@pytest.mark.parametrize("prealloc", ["zero", "fallocate", "none"])
async def test_every_way_of_making_space_ahead_gives_the_same_store(prealloc: Any) -> None:
    world = world_of(prealloc=prealloc)
    store = await world.writer()
    for number in range(12):
        await store.maintain()
        await add(store, [number], BODY)
    await world.kill(store)

    store = await world.open()

    assert await contents(store) == {(1, number): BODY for number in range(12)}
    await store.close()


async def test_a_batch_larger_than_a_segment_makes_a_large_one() -> None:
    world = world_of(prealloc="zero")
    store = await world.writer()
    await store.maintain()
    large = bytes(range(256)) * 200

    await add(store, [1, 2], large)
    await add(store, [3], b"behind")
    assert segments(world) == [1, 2]
    await world.kill(store)

    store = await world.open()
    assert await contents(store) == {(1, 1): large, (1, 2): large, (1, 3): b"behind"}
    await store.close()


async def test_a_wholly_dead_segment_goes_and_the_drop_is_durable_first() -> None:
    world = world_of()
    store = await world.writer()
    for number in range(5):
        await add(store, [number], BODY)
    await remove(store, range(5))
    world.vfs.trace.clear()

    await store.maintain()

    assert 1 not in segments(world)
    assert store.stats().drop_count == 1
    named = [call.name for call in world.vfs.trace]
    assert named.index("unlink") > named.index("fdatasync") > named.index("pwritev")
    assert named[named.index("unlink") + 1] == "sync_dir"
    drops = [
        local
        for segment in segments(world)
        for frame in frames(world, segment)
        for local in frame.locals
        if isinstance(local, SegmentDrop)
    ]
    assert drops == [SegmentDrop(1)]
    await store.close()


async def test_a_live_state_keeps_its_segment_and_a_superseded_one_does_not() -> None:
    world = world_of()
    store = await world.writer()
    slot = put(store, 0)
    await commit(store, {slot: b""})
    for number in range(1, 4):
        await add(store, [number], BODY)
    await commit(store, states=[slot])
    assert segments(world) == [1, 2]
    for number in range(5, 13):
        await add(store, [number], BODY)
        await remove(store, [number])
    await store.maintain()
    assert {1, 2} <= set(segments(world))  # the body is in 1, the head in 2

    await commit(store, states=[slot])
    await store.maintain()

    assert 1 in segments(world)
    assert 2 not in segments(world)
    await store.close()


async def test_a_delete_keeps_its_segment_while_the_put_is_on_disk() -> None:
    world = world_of()
    store = await world.writer()
    await add(store, [100], b"stays")  # keeps segment 1
    for number in range(5):
        await add(store, [number], BODY)
    await remove(store, range(5))  # in segment 2; needed while segment 1 exists
    assert segments(world) == [1, 2]
    for number in range(5, 14):
        await add(store, [number], BODY)
        await remove(store, [number])
    await store.maintain()
    assert {1, 2} <= set(segments(world))
    assert store.stats().needed_count > 0

    await world.kill(store)
    store = await world.writer()
    assert await contents(store) == {(1, 100): b"stays"}
    await remove(store, [100])
    await store.maintain()  # segment 1 goes, and then what was held down by it

    assert {1, 2}.isdisjoint(segments(world))
    assert store.stats().needed_count == 0
    await store.close()


async def churn(store: Store, first: int, count: int = 10) -> None:
    """Put and delete entries one after the other: all dead, and a few segments further."""
    for number in range(first, first + count):
        await add(store, [number], BODY)
        await remove(store, [number])


async def test_a_put_over_an_entry_is_needed_like_a_delete() -> None:
    """Else the old body comes back once the segment of the new one, dead itself, is gone."""
    world = world_of()
    store = await world.writer()
    slot = put(store, 1)
    await commit(store, {slot: b"old"})
    pins = 100
    while segments(world) == [1]:  # live ones, so that the first segment stays
        await add(store, [pins], BODY)
        pins += 1
    await commit(store, {slot: b"new"})
    await remove(store, [pins - 1])
    assert segments(world) == [1, 2]
    await churn(store, 200)
    await remove(store, [1])
    await churn(store, 300)

    await store.maintain()

    assert {1, 2} <= set(segments(world))
    await world.kill(store)
    store = await world.open()
    assert await contents(store) == {(1, number): BODY for number in range(100, pins - 1)}
    await store.close()


async def test_reading_goes_on_from_a_segment_that_was_dropped_meanwhile() -> None:
    world = world_of(cache_bytes=0)
    store = await world.writer()
    for number in range(5):
        await add(store, [number], BODY)
    reading = store.read_bodies([store.slots.find(1, key(0))])
    await remove(store, range(5))
    await store.maintain()
    assert 1 not in segments(world)

    assert await reading == [BODY]

    await store.close()


async def test_usage_counted_on_the_way_is_what_a_replay_counts() -> None:
    world = world_of()
    store = await world.writer()
    for number in range(40):
        await add(store, [number], b"u" * (37 * number))
        if number % 3 == 0:
            await commit(store, states=[store.slots.find(1, key(number))])
        if number % 2:
            await remove(store, [number - 1] if number % 5 else [number - 1, number])
        if number % 7 == 0:
            await store.maintain()
    usage = store._usage
    live, needed = dict(usage.live_bytes), {a: dict(b) for a, b in usage.needed.items()}
    await world.kill(store)

    store = await world.open()

    assert store._usage.live_bytes == live
    assert store._usage.needed == needed
    await store.close()
