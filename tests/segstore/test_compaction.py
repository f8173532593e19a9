"""Mostly dead segments go: what counts in them is copied, and nothing but the place changes."""

from dataclasses import replace
from typing import Any

import pytest

import segstore.compaction
from segstore import BodyDamaged, Options, Store
from segstore.batch import DEL, PUT, STATE
from segstore.local import Compact, Move, Note, SegmentDrop
from segstore.pace import Pace
from tests.segstore.crash import check_counts
from tests.segstore.surgery import BODY, flip, frames, segment_path, segments
from tests.segstore.worlds import (
    DiskWorld,
    add,
    commit,
    contents,
    heads,
    key,
    put,
    remove,
    sim_world,
)

OPTIONS = Options(segment_bytes=16_384, persist="sync_data", prealloc="none", cache_bytes=0)


def unchanged() -> bool:
    """Say that the columns hold nothing that is in no batch yet."""
    return False


def world_of(**changes: Any) -> DiskWorld:
    return sim_world(options=replace(OPTIONS, **changes))


async def maintain(world: DiskWorld, store: Store, count: int = 1) -> None:
    for _ in range(count):
        world.clock.now_ms += 1000
        await store.maintain(unchanged)


async def roll(store: Store) -> None:
    """Go on to the next segment, with what is dead at once."""
    number = 10_000
    active = store._writer.active
    assert active is not None
    while not active.is_sealed:
        await add(store, [number], BODY)
        await remove(store, [number])
        number += 1


async def half_dead(world: DiskWorld) -> Store:
    """Return a writer whose segment 1 holds entries 1, 2, 3 and much that is dead."""
    store = await world.writer()
    await commit(store, {put(store, number, attempt=number): BODY for number in (1, 2, 3)})
    await roll(store)
    await add(store, [4], b"in segment 2")
    return store


def locals_of(world: DiskWorld, kind: type) -> list[Any]:
    return [
        local
        for segment in segments(world)
        for frame in frames(world, segment)
        for local in frame.locals
        if isinstance(local, kind)
    ]


LIVE = {(1, 1): BODY, (1, 2): BODY, (1, 3): BODY, (1, 4): b"in segment 2"}


async def test_a_mostly_dead_segment_is_copied_and_dropped() -> None:
    world = world_of()
    store = await half_dead(world)
    before = heads(store)

    await maintain(world, store)

    assert segments(world)[0] == 2
    assert locals_of(world, Compact) == [Compact(1)]
    assert locals_of(world, SegmentDrop) == [SegmentDrop(1)]
    assert [move.source for move in locals_of(world, Move)] == [1, 1, 1]
    assert (store.stats().moved_count, store.stats().drop_count, store.stats().victim) == (3, 1, 0)
    assert await contents(store) == LIVE
    assert heads(store) == before
    check_counts(store)
    await world.kill(store)
    store = await world.open()
    assert await contents(store) == LIVE
    assert heads(store) == before
    check_counts(store)
    await store.close()


async def test_copies_keep_their_lsn_and_use_none() -> None:
    world = world_of()
    store = await half_dead(world)
    lsns = {store.slots.key(slot): store.slots.lsn[slot] for slot in store.scan()}
    position = store.position()

    await maintain(world, store)

    assert {store.slots.key(slot): store.slots.lsn[slot] for slot in store.scan()} == lsns
    assert store.position() == position
    await store.close()


async def test_a_segment_that_is_more_than_half_alive_stays() -> None:
    world = world_of()
    store = await world.writer()
    while segments(world) == [1]:
        await add(store, [len(store.slots)], BODY)
    await remove(store, [0, 1])

    await maintain(world, store, 5)

    assert segments(world)[0] == 1
    assert store.stats().moved_count == 0
    await store.close()


async def test_a_superseded_state_is_garbage_and_the_newest_is_copied_alone() -> None:
    world = world_of()
    store = await world.writer()
    while store.stats().segment_count == 1:  # a segment full of bodies that stay
        await add(store, [len(store.slots)], BODY)
    before = contents_of_segment(store, 1)
    while store.stats().segment_count == 2:  # and one of heads, mostly superseded
        slot = store.slots.find(1, key(store.position().last_lsn % 3))
        store.slots.attempt[slot] += 1
        await commit(store, states=[slot])
    expected = heads(store)

    await maintain(world, store, 2)

    assert contents_of_segment(store, 1) == before
    assert 2 not in segments(world)
    kinds = [move.record[0] for move in locals_of(world, Move)]
    assert (kinds.count(PUT), kinds.count(STATE)) == (1, 2)  # the first PUT of segment 2, too
    await world.kill(store)
    store = await world.open()
    assert heads(store) == expected
    check_counts(store)
    await store.close()


def contents_of_segment(store: Store, segment: int) -> list[int]:
    return [slot for slot in store.scan() if store.slots.segment[slot] == segment]


async def test_a_moved_body_takes_the_newest_head_along() -> None:
    world = world_of()
    store = await half_dead(world)
    slot = store.slots.find(1, key(1))
    store.slots.attempt[slot] = 77
    await commit(store, states=[slot])
    assert store.slots.head_segment[slot] == 2

    await maintain(world, store)

    assert store.slots.head_segment[slot] == 0
    await world.kill(store)
    store = await world.open()
    assert heads(store)[1, 1][2] == 77
    check_counts(store)
    await store.close()


async def test_a_head_that_changed_after_its_body_was_read_is_copied_as_it_is_now() -> None:
    world = world_of()
    store = await half_dead(world)
    await store.maintain()  # reads ahead, and waits for a batch to ride on
    assert store.stats().victim == 1
    slot = store.slots.find(1, key(1))
    store.slots.attempt[slot] = 78
    await commit(store, states=[slot])
    await maintain(world, store, 3)
    assert 1 not in segments(world)

    await world.kill(store)
    store = await world.open()

    assert heads(store)[1, 1][2] == 78
    await store.close()


async def test_a_delete_is_copied_while_what_it_deleted_is_on_disk() -> None:
    world = world_of()
    store = await world.writer()
    while segments(world) == [1]:  # segment 1 stays
        await add(store, [len(store.slots)], BODY)
    await remove(store, [0])
    await roll(store)

    await maintain(world, store, 3)

    assert segments(world)[0] == 1
    assert 2 not in segments(world)
    deletes = [move for move in locals_of(world, Move) if move.record[0] == DEL]
    assert [(move.home, move.record[12:28]) for move in deletes] == [(1, key(0))]
    assert store.stats().needed_count == 1
    await world.kill(store)
    store = await world.open()
    assert store.slots.find(1, key(0)) == -1
    assert store.stats().needed_count == 1
    await store.close()


async def test_what_a_put_over_an_entry_ended_stays_ended() -> None:
    """The PUT is dead itself and goes; a delete is copied for it."""
    world = world_of()
    store = await world.writer()
    while segments(world) == [1]:  # segment 1 stays, with the first body of entry 0
        await add(store, [len(store.slots)], BODY)
    await commit(store, {store.slots.find(1, key(0)): b"second body"})
    await roll(store)
    await remove(store, [0])
    await roll(store)

    await maintain(world, store, 5)

    assert segments(world)[0] == 1
    assert not {2, 3} & set(segments(world))
    await world.kill(store)
    store = await world.open()
    assert store.slots.find(1, key(0)) == -1
    await store.close()


async def test_nothing_else_is_dropped_before_the_victim_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Entry 1 has a PUT in the victim and one in segment 2, and only the second is its home."""
    monkeypatch.setattr(segstore.compaction, "MOVE_BYTES_MAX", 1)  # one copy at a time
    world = world_of(compact_bytes_s=1)
    store = await half_dead(world)
    store._compactor._pace = Pace(1)
    while store.slots.segment[store.slots.find(1, key(1))] == 1:
        store._compactor._pace.saved = 1
        await store.maintain(unchanged)
    assert store.stats().victim == 1
    await remove(store, [1, 4])
    for _ in range(3):
        await roll(store)

    await store.maintain(unchanged)

    assert store._usage.live_bytes[2] == 0
    assert segments(world)[:2] == [1, 2]
    await world.kill(store)
    store = await world.writer()  # also the next one knows the victim
    assert store.stats().victim == 1
    await store.maintain()
    assert segments(world)[:2] == [1, 2]
    assert sorted(number for _, number in await contents(store)) == [2, 3]
    store._compactor._pace = Pace(1 << 20)
    await maintain(world, store, 3)
    assert not {1, 2} & set(segments(world))
    assert sorted(number for _, number in await contents(store)) == [2, 3]
    await store.close()


async def test_an_entry_that_ended_before_its_copy_is_made_is_passed_over() -> None:
    world = world_of()
    store = await half_dead(world)
    await store.maintain()  # reads ahead, and waits for a batch to ride on
    assert store.stats().victim == 1
    await remove(store, [2])  # takes the copies along

    await maintain(world, store)

    assert {move.record[12:28] for move in locals_of(world, Move)} == {key(1), key(3)}
    assert 1 not in segments(world)
    assert sorted(number for _, number in await contents(store)) == [1, 3, 4]
    await store.close()


async def test_many_small_segments_become_one() -> None:
    world = world_of(segment_bytes=65_536)
    for number in range(12):
        store = await world.writer()
        await add(store, [number])
        await store.close()
    store = await world.writer()
    assert len(segments(world)) == 13

    for _ in range(20):
        await maintain(world, store)

    assert len(segments(world)) < 12
    assert sorted(number for _, number in await contents(store)) == list(range(12))
    await store.close()


async def test_a_damaged_body_is_copied_as_it_is_and_harms_no_other() -> None:
    world = world_of()
    store = await half_dead(world)
    slot = store.slots.find(1, key(2))
    flip(world.vfs, segment_path(world, 1), (store.slots.offset8[slot] << 3) + 10)

    await maintain(world, store)

    assert 1 not in segments(world)
    await world.kill(store)
    store = await world.open()  # the copy is in the last frames, and no torn write
    found = await contents(store)
    assert isinstance(found.pop((1, 2)), BodyDamaged)
    assert found == {name: body for name, body in LIVE.items() if name != (1, 2)}
    await store.close()


async def test_a_segment_of_local_records_alone_is_dropped_like_any_other() -> None:
    world = world_of(segment_bytes=8192)
    store = await world.writer()
    writer, flusher = store._writer, store._flusher
    for _ in range(400):  # a segment and more of nothing but local records
        await flusher.flush(writer.local_frame(Note(writer.last_lsn)), is_durable=True)
    assert store.stats().segment_count >= 3

    for _ in range(3):
        world.clock.now_ms += 1000
        await store.maintain(lambda: False)

    assert store.stats().segment_count <= 2
    await store.close()
