"""When copies are made: along with commits, lazily while there are none, at a limited pace."""

import errno
import random
from dataclasses import replace
from typing import Any

import pytest
import trio

import segstore.compaction
from segstore import TrioWorkers
from segstore.local import Compact
from segstore.pace import Pace
from tests.segstore.crash import check_counts
from tests.segstore.surgery import segments
from tests.segstore.test_compaction import (
    LIVE,
    OPTIONS,
    half_dead,
    maintain,
    unchanged,
    world_of,
)
from tests.segstore.worlds import (
    DiskWorld,
    add,
    commit,
    contents,
    key,
    put,
    real_world,
    remove,
)


async def test_copies_ride_on_commits_without_a_call_of_their_own() -> None:
    world = world_of()
    store = await half_dead(world)
    await store.maintain()
    world.vfs.trace.clear()

    await add(store, [5])

    assert [call.name for call in world.vfs.trace] == ["pwritev", "fdatasync"]
    assert store.stats().moved_count == 3
    await store.maintain()
    assert 1 not in segments(world)
    await store.close()


async def test_without_commits_copies_are_not_synced_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(segstore.compaction, "MOVE_BYTES_MAX", 1)
    world = world_of()
    store = await half_dead(world)
    store._compactor._pace = Pace(1 << 20)
    await store.maintain()
    world.vfs.trace.clear()

    await maintain(world, store)

    calls = [call for call in world.vfs.trace if call.path.endswith(".seg")][:5]
    assert [call.name for call in calls] == ["pwritev"] * 3 + ["pwritev", "fdatasync"]  # SEGDROP
    await store.close()


async def test_a_commit_behind_unsynced_copies_syncs_them_too() -> None:
    world = world_of()
    store = await half_dead(world)
    segment = store._writer.active
    assert segment is not None
    frame = store._writer.local_frame(Compact(1))
    await store._flusher.flush(frame, is_lazy=True)
    assert segment.synced < segment.written
    world.vfs.trace.clear()

    await add(store, [5])

    assert [call.name for call in world.vfs.trace] == ["pwritev", "fdatasync"]
    assert segment.synced == segment.written
    vfs = world.vfs.crash()
    left = await DiskWorld("/store", vfs, world.options).open()
    assert (1, 5) in await contents(left)
    await left.close()
    await store.close()


async def test_moved_bodies_are_readable_before_they_are_written() -> None:
    world = world_of()
    store = await half_dead(world)
    await store.maintain()
    batch = store.build({put(store, 5): b"five"}, (), (), clock_ms=1)
    assert store.stats().moved_count == 3

    assert await contents(store) == LIVE | {(1, 5): b"five"}

    await store.commit(batch)
    assert await contents(store) == LIVE | {(1, 5): b"five"}
    await store.close()


async def test_idle_maintenance_ends() -> None:
    print("seed 1")
    choose = random.Random(1)
    world = world_of()
    store = await world.writer()
    for number in range(200):
        await add(store, [number], b"x" * choose.randrange(800))
        if number % 3:
            await remove(store, [number - 1])
            slot = store.slots.find(1, key(number))
            await commit(store, states=[slot])
    quiet = 0
    for _ in range(200):
        count = world.vfs.call_count
        await maintain(world, store)
        quiet = quiet + 1 if world.vfs.call_count == count + 1 else 0  # looks at the free space

    assert quiet > 100
    statistics = store.stats()
    held = statistics.log_bytes - 4096 * statistics.segment_count
    assert held < 2 * statistics.live_bytes + 2 * 16_384
    await store.close()


async def test_a_victim_that_cannot_be_read_is_left_for_a_while() -> None:
    world = world_of()
    store = await half_dead(world)
    world.vfs.fail(errno.EIO, names=["pread"], path_part="seg-")

    await maintain(world, store)
    assert segments(world)[0] == 1
    await maintain(world, store, 30)
    assert segments(world)[0] == 1
    world.clock.now_ms += 60_000
    await maintain(world, store)

    assert segments(world)[0] != 1
    assert await contents(store) == LIVE
    await store.close()


async def test_a_slow_pace_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segstore.compaction, "MOVE_BYTES_MAX", 1)
    world = world_of(compact_bytes_s=1000)
    store = await half_dead(world)
    store._compactor._pace = Pace(1)
    counts = []

    for _ in range(12):
        wait_ms = await store.maintain(unchanged)
        counts.append(store.stats().moved_count)
        world.clock.now_ms += min(wait_ms, 1000)

    assert counts[0] <= 1
    assert counts[-1] == 3
    assert counts == sorted(counts)
    await store.close()


def test_the_pace_is_so_many_bytes_a_second() -> None:
    pace = Pace(1000)
    pace.fill(0, 100)
    assert pace.wait_ms(100) == 0
    pace.spend(1100)
    assert pace.wait_ms(100) == 1001
    pace.fill(900, 100)
    assert pace.saved == -10
    pace.fill(1000, 100)
    pace.fill(500, 100)  # the clock was set back
    pace.fill(10_000, 100)  # and far ahead
    assert pace.saved == 100


async def test_real_threads_compact_beside_commits(tmp_path: Any) -> None:
    world = real_world(str(tmp_path / "store"), options=replace(OPTIONS, segment_bytes=65_536))
    store = await world.writer(run_in_worker=TrioWorkers())
    expected = {}
    async with trio.open_nursery() as nursery:

        async def keep_up() -> None:
            while True:
                world.clock.now_ms += 100
                await store.maintain()
                await trio.lowlevel.checkpoint()

        nursery.start_soon(keep_up)
        for number in range(400):
            await add(store, [number], bytes([number % 256]) * 2000)
            if number % 4:
                await remove(store, [number])
            else:
                expected[1, number] = bytes([number % 256]) * 2000
        nursery.cancel_scope.cancel()
    assert store.stats().moved_count > 20
    assert await contents(store) == expected
    check_counts(store)
    await world.kill(store)
    store = await world.open()
    assert await contents(store) == expected
    await store.close()
