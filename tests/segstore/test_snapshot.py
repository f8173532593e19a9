"""A snapshot makes an open fast and changes nothing else: with it and without, the same state.

Crashes at every call, with snapshots under way, are in `crash.py`.
"""

import errno
from dataclasses import replace
from random import Random
from typing import Any
from unittest.mock import patch

import pytest
import trio
import trio.testing

from segstore import Options, Store, StoreFailed, run_inline
from segstore.slots import Slots
from segstore.snapshot_file import snapshot_lsn
from segstore.workers import Lane
from tests.segstore.crash import no_changes, whole_state
from tests.segstore.snapshots import (
    EAGER,
    checked,
    closed_world,
    disk,
    has_changes,
    lived,
    slots_of,
    snapshots,
    turn,
)
from tests.segstore.worlds import DiskWorld, add, commit, contents, key, put, remove, sim_world


async def test_after_a_clean_stop_nothing_is_replayed_and_every_slot_is_what_it_was() -> None:
    world = sim_world(options=EAGER)
    store = await lived(world)
    slots = slots_of(store)
    await store.close(no_changes)

    store = await checked(world)

    assert store.stats().snapshot_bytes > 0
    assert store.stats().recovered_record_count == 0
    assert slots_of(store) == slots


async def test_a_clean_index_file_is_used_again_whatever_the_order_of_slots() -> None:
    options = Options(segment_bytes=65_536, recent_entries_max=50, snapshot_log_bytes=65_536)
    world = sim_world(options=options)
    store = await world.writer()
    for start in range(0, 1000, 100):
        await add(store, range(start, start + 100))
        while not await store.maintain(no_changes):
            pass
    await remove(store, range(0, 300, 3))
    await add(store, range(2000, 2050))
    slots = slots_of(store)
    await store.close(no_changes)

    store = await world.writer()

    assert not store.stats().is_building_index
    assert slots_of(store) == slots
    assert all(store.slots.find(*name) == slot for slot, name in slots.items())


async def test_deletes_before_a_snapshot_that_are_needed_stay_so() -> None:
    world = sim_world(options=replace(EAGER, compact_bytes_s=0))
    store = await world.writer()
    await add(store, range(20), b"x" * 500)
    await add(store, [20])  # in the next segment, as are the deletes
    await remove(store, range(5))
    await store.close(no_changes)

    store = await checked(world)

    assert store.stats().snapshot_bytes > 0
    assert store.stats().needed_count == 5


async def test_what_is_committed_after_a_snapshot_is_replayed_on_it() -> None:
    world = sim_world(options=EAGER)
    store = await lived(world)
    await store.close(no_changes)
    store = await world.writer()
    await add(store, [500, 501])
    await remove(store, [500, 8])
    await commit(store, states=[store.slots.find(1, key(9))])
    await world.kill(store)

    store = await checked(world)

    assert store.stats().recovered_record_count == 6  # with the epoch
    assert (1, 8) not in await contents(store)


async def test_a_fuzzy_snapshot_is_right_though_everything_moves_while_it_is_copied() -> None:
    world = sim_world(options=EAGER)
    random = Random(2)
    with patch("segstore.snapshot.CHUNK_SLOTS", 4):
        store = await lived(world)
        live = set(range(300, 340))
        await add(store, sorted(live), b"x" * 50)
        for number in range(60):
            gone = random.sample(sorted(live), 4)
            await remove(store, gone)
            await add(store, gone[:3], random.randbytes(80))  # the same keys in other slots
            live -= set(gone[3:])
            await add(store, [400 + number])
            live.add(400 + number)
            world.clock.now_ms += 1000
            await turn(store, 2)
            used = await checked(DiskWorld("/store", disk(world).fork(), EAGER))
            assert contents_match(used, live)
        assert store.stats().snapshot_count > 3
        assert store.stats().drop_count > 3


def contents_match(store: Store, live: set[int]) -> bool:
    found = {int.from_bytes(name, "big") for table, name in slots_of(store).values()}
    return live <= found


async def test_only_the_newest_two_are_kept() -> None:
    world = sim_world(options=EAGER)
    store = await lived(world)
    for _ in range(4):
        await store.close(no_changes)
        store = await world.writer()
        await add(store, [store.position().last_lsn + 1000])

    assert len(snapshots(world)) == 2
    assert store.stats().snapshot_lsn == snapshot_lsn(snapshots(world)[-1].rpartition("/")[2])


@pytest.mark.parametrize("is_used", [True, False])
async def test_a_close_leaves_a_snapshot_only_if_all_changes_are_in_batches(is_used: bool) -> None:
    world = sim_world(options=EAGER)
    store = await world.writer()
    await add(store, range(20))
    await store.close(no_changes if is_used else has_changes)

    assert bool(snapshots(world)) is is_used


async def test_without_leave_a_chunk_is_copied_in_the_turn_of_a_batch_alone() -> None:
    world = sim_world(options=EAGER)
    store = await world.writer()
    await add(store, range(20), b"x" * 150)
    await turn(store, 9, has_changes=has_changes)
    assert not snapshots(world)
    assert not [name for name in disk(world).list_dir("/store") if name.endswith(".tmp")]

    await add(store, [20])
    await turn(store, 9, has_changes=has_changes)

    assert len(snapshots(world)) == 1
    await world.kill(store)
    await checked(world)


async def test_no_turn_copies_more_than_one_chunk() -> None:
    world = sim_world(options=EAGER)
    with patch("segstore.snapshot.CHUNK_SLOTS", 4):
        store = await world.writer()
        await add(store, range(30), b"x" * 150)
        copied = 0
        real = Slots.copy
        with patch.object(Slots, "copy", autospec=True, side_effect=real) as copy:
            for _ in range(20):
                await store.maintain(no_changes)
                assert copy.call_count <= copied + 1
                copied = copy.call_count
        assert copied == 8  # 30 slots


async def test_it_has_no_name_before_the_log_is_durable_up_to_its_end() -> None:
    world = sim_world()
    world.options = Options(
        segment_bytes=65_536, persist="buffer", snapshot_log_bytes=2048, prealloc="none"
    )
    store = await world.writer()
    await turn(store, 1)
    await add(store, range(20), b"x" * 150)
    await turn(store, 9)
    assert not snapshots(world)

    world.clock.now_ms += 1000
    await turn(store, 2)

    assert snapshots(world)


async def test_a_store_that_wants_none_has_none() -> None:
    world = sim_world(options=Options(segment_bytes=8192, snapshot_log_bytes=0))
    store = await lived(world)
    await turn(store, 9)
    await store.close(no_changes)

    assert not snapshots(world)


async def test_records_that_are_slow_to_replay_make_one_due_too() -> None:
    world = sim_world(options=Options(segment_bytes=65_536))
    with patch("segstore.snapshot._COST_MIN", 100):
        store = await world.writer()
        for number in range(20):
            await add(store, [number])
        await turn(store, 9)
        assert not snapshots(world)
        for number in range(20, 30):
            await add(store, [number])
        await turn(store, 9)

    assert len(snapshots(world)) == 1


# Trouble while writing one.


async def test_a_disk_without_room_for_it_is_no_failure_of_the_store() -> None:
    world = sim_world(options=EAGER)
    store = await world.writer()
    await add(store, range(20), b"x" * 150)
    disk(world).fail(errno.ENOSPC, names=["pwritev"], path_part="snap-")
    await turn(store, 5)

    assert not [name for name in disk(world).list_dir("/store") if name.startswith("snap-")]
    await add(store, [20])
    world.clock.now_ms += 60_000
    await turn(store, 5)
    assert len(snapshots(world)) == 1


async def test_a_directory_that_cannot_be_synced_ends_the_store() -> None:
    world = sim_world(options=EAGER)
    store = await world.writer()
    await turn(store, 1)  # a spare
    await add(store, range(20), b"x" * 150)
    disk(world).fail(errno.EIO, names=["sync_dir"])

    with pytest.raises(StoreFailed):
        await turn(store, 5)


async def test_a_kill_leaves_a_file_in_the_making_that_the_next_open_removes() -> None:
    world = sim_world(options=EAGER)
    with patch("segstore.snapshot.CHUNK_SLOTS", 4):
        store = await world.writer()
        await add(store, range(20), b"x" * 150)
        await turn(store, 2)
    assert [name for name in disk(world).list_dir("/store") if name.endswith(".snap.tmp")]
    await world.kill(store)

    await checked(world)

    assert not [name for name in disk(world).list_dir("/store") if name.endswith(".tmp")]


async def test_free_slots_at_the_end_of_a_chunk_are_given_out_again() -> None:
    world = await closed_world()
    store = await world.writer()
    count = store.slots.used_count()
    free = len(store.slots.free_slots())
    assert free > 0

    for number in range(free):
        put(store, 10_000 + number)

    assert store.slots.used_count() == count


@pytest.mark.parametrize("has_snapshot", [True, False])
async def test_an_open_gives_the_memory_of_many_free_slots_back(has_snapshot: bool) -> None:
    world = sim_world(options=EAGER)
    store = await world.writer()
    await add(store, range(100))
    await remove(store, range(1, 98))
    await commit(store, states=[store.slots.find(1, key(98))])
    expected = whole_state(store)["entries"]
    await store.close(no_changes if has_snapshot else None)

    with patch("segstore.slots._SPARSE_MIN", 50):
        store = await world.open()

    assert bool(store.stats().snapshot_bytes) is has_snapshot
    assert store.slots.used_count() == 3
    assert whole_state(store)["entries"] == expected
    assert [store.slots.find(1, key(number)) for number in (0, 1, 98, 99)] == [0, -1, 1, 2]


async def test_commits_go_on_while_the_disk_takes_its_time_over_a_snapshot() -> None:
    may_go_on = trio.Event()

    async def run(function: Any, lane: Lane) -> Any:
        if lane is Lane.SNAPSHOT:
            await may_go_on.wait()
        return await run_inline(function, lane)

    world = sim_world(options=replace(EAGER, recent_entries_max=10))
    store = await world.writer(run_in_worker=run)
    await add(store, range(20), b"x" * 150)
    with trio.fail_after(60):  # hang guard
        await commit_beside(store, may_go_on)

    assert store.stats().bucket_count > 0
    await turn(store, 9)
    assert store.stats().snapshot_count == 2  # another was due by then


async def commit_beside(store: Store, may_go_on: trio.Event) -> None:
    """Commit more than may be recent while a snapshot waits for the disk."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.maintain, no_changes)
        await trio.testing.wait_all_tasks_blocked()
        assert store._snapshots._work is not None
        for number in range(20, 60):  # these commits have to merge some themselves
            await add(store, [number])
        may_go_on.set()
