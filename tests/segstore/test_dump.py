"""What `dump` yields, and how it is narrowed down; `summarize` beside it."""

import pytest

from segstore import Break, Dumped, DumpedLocal, StoreDamaged, StoreLocked, Wanted, dump, summarize
from tests.segstore.surgery import (
    BODY,
    compacted,
    filled,
    flip,
    frames,
    segment_path,
    segments,
    world_of,
)
from tests.segstore.worlds import DiskWorld, add, commit, key, put, remove


def records(world: DiskWorld, **wanted: object) -> list[Dumped]:
    found = dump(world.path, vfs=world.vfs, wanted=Wanted(**wanted))  # type: ignore[arg-type]  # its fields
    return [each for each in found if isinstance(each, Dumped)]


async def test_every_record_is_there_in_order_with_head_home_and_body() -> None:
    world = world_of()
    store = await world.writer()
    slot = put(store, 1, state=2, attempt=7, at_ms=99)
    await commit(store, {slot: b"first"})
    store.slots.attempt[slot] = 8
    await commit(store, states=[slot])
    await remove(store, [1])
    await store.close()

    epoch, first, second, third = records(world)

    assert (epoch.kind, epoch.lsn) == ("epoch", 1)
    assert (first.kind, first.lsn, first.table, first.key) == ("put", 2, 1, key(1))
    assert first.head == {"state": 2, "priority": 0, "attempt": 7, "at_ms": 99}
    assert (first.body, first.is_body_damaged, first.home) == (b"first", False, 0)
    assert (second.kind, second.head["attempt"], second.body) == ("state", 8, None)
    assert (third.kind, third.head, third.home) == ("delete", {}, 1)
    assert [frame.header.offset for frame in frames(world, 1)][:4] == [
        each.frame_offset for each in (epoch, first, second, third)
    ]


async def test_local_records_are_told_unless_records_are_asked_for() -> None:
    world = world_of()
    await filled(world, 4)

    kinds = [each.kind for each in dump(world.path, vfs=world.vfs) if isinstance(each, DumpedLocal)]

    assert kinds == ["segmentlist", "seal", "segmentlist"]
    narrow = list(dump(world.path, vfs=world.vfs, wanted=Wanted(lsn_first=1)))
    assert all(isinstance(each, Dumped) for each in narrow)


async def test_segment_lsn_and_key_narrow_it_down() -> None:
    world = world_of()
    await filled(world, 12)

    assert [each.lsn for each in records(world, segment=2)] == [5, 6, 7]
    assert [each.lsn for each in records(world, lsn_first=4, lsn_last=6)] == [4, 5, 6]
    assert [each.lsn for each in records(world, lsn_last=2)] == [1, 2]
    assert [each.lsn for each in records(world, key=key(7))] == [9]
    assert records(world, segment=99) == []


async def test_copies_of_compaction_are_told_as_moved() -> None:
    world, store = await compacted()
    await store.close()

    moved = [each for each in records(world) if each.is_moved]

    puts = [each for each in moved if each.kind == "put"]
    assert puts
    assert all(each.body == BODY and not each.is_body_damaged for each in puts)


async def test_damage_is_one_of_what_is_yielded_and_the_rest_follows() -> None:
    world = world_of()
    await filled(world, 12)
    header = frames(world, 1)[1].header
    body = frames(world, 2)[1].header
    flip(world.vfs, segment_path(world, 1), header.canonical_at + 70)
    flip(world.vfs, segment_path(world, 2), body.bodies_at)
    flip(world.vfs, segment_path(world, 3), 20)

    found = list(dump(world.path, vfs=world.vfs))

    breaks = [each for each in found if isinstance(each, Break)]
    assert [(each.path, each.offset) for each in breaks] == [
        (segment_path(world, 1), header.offset),
        (segment_path(world, 3), 0),
    ]
    assert [each.lsn for each in found if isinstance(each, Dumped) and each.is_body_damaged] == [6]
    assert [each.lsn for each in records(world, lsn_first=11)] == [11, 12, 13]


async def test_a_summary_counts_what_an_open_would_find() -> None:
    world = world_of()
    store = await world.writer()
    for number in range(12):
        await add(store, [number], BODY)
    await remove(store, [1, 2])
    stats, position = store.stats(), store.position()
    with pytest.raises(StoreLocked):
        summarize(world.path, vfs=world.vfs)
    await world.kill(store)

    summary = summarize(world.path, vfs=world.vfs)

    assert summary.slots is not None
    assert len(summary.slots) == stats.entry_count == 10
    assert summary.position == position
    assert [each.segment for each in summary.segments] == segments(world)
    assert sum(each.log_bytes for each in summary.segments) == stats.log_bytes
    assert summary.needed_count == stats.needed_count == 2
    live = sum(each.live_bytes for each in summary.segments)
    assert live == stats.live_bytes + 2 * 44

    flip(world.vfs, segment_path(world, 1), frames(world, 1)[1].header.canonical_at + 70)
    with pytest.raises(StoreDamaged):
        summarize(world.path, vfs=world.vfs)
