"""Commits, maintenance and cancellation in each other's way."""

import errno
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from segstore import Lane, Store, StoreFailed, TrioWorkers
from tests.segstore.surgery import BODY, segments, world_of
from tests.segstore.worlds import SMALL, DiskWorld, add, commit, contents, put, real_world, remove

T = TypeVar("T")


class Gates:
    """Runs inline, but not before the gate of the lane is open."""

    def __init__(self) -> None:
        self.closed: dict[Lane, trio.Event] = {}

    async def __call__(self, function: Callable[[], T], lane: Lane) -> T:
        await trio.lowlevel.checkpoint()
        if lane in self.closed:
            await self.closed[lane].wait()
        return function()

    def close(self, lane: Lane) -> trio.Event:
        """Hold everything of a lane up until the returned event is set."""
        event = self.closed[lane] = trio.Event()
        return event

    def open(self) -> None:
        """Let everything through again."""
        for event in self.closed.values():
            event.set()
        self.closed.clear()


async def gated() -> tuple[DiskWorld, Store, Gates]:
    world, gates = world_of(), Gates()
    return world, await world.writer(run_in_worker=gates), gates


async def test_a_roll_while_a_drop_is_under_way_does_not_list_what_goes() -> None:
    world, store, gates = await gated()
    for number in range(5):
        await add(store, [number], BODY)
    await remove(store, range(5))
    await store.maintain()  # drops the first, makes a spare
    for number in range(4):
        await add(store, [number], BODY)
    await remove(store, range(4))
    gates.close(Lane.COMMIT)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.maintain)
        await wait_all_tasks_blocked()
        gone = [segment.id for segment in store._segments.values() if segment.is_leaving]
        assert gone
        batches = []
        rolls = store.stats().roll_count
        while store.stats().roll_count < rolls + 2:  # segment lists are made here
            slot = put(store, 100 + len(batches))
            batches.append(store.build({slot: BODY}, (), (), clock_ms=1))
        gates.open()
    for batch in batches:
        await store.commit(batch)
    assert set(gone).isdisjoint(segments(world))

    await world.kill(store)
    store = await world.open()

    assert sorted(await contents(store)) == [(1, 100 + n) for n in range(len(batches))]
    await store.close()


async def test_no_spare_is_made_before_the_file_of_the_segment_it_names() -> None:
    """A kill in between left a spare behind a segment that was never there: the open refused."""
    world, store, gates = await gated()
    gates.close(Lane.COMMIT)
    number, rolls = 0, store.stats().roll_count
    while store.stats().roll_count == rolls:  # into a segment that is only planned
        store.build({put(store, number): BODY}, (), (), clock_ms=1)
        number += 1
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.maintain)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()

    await world.kill(store)
    store = await world.open()

    assert await contents(store) == {}
    await store.close()


async def test_a_roll_waits_for_the_spare_that_is_being_made() -> None:
    world, store, gates = await gated()
    gates.close(Lane.MAINTENANCE)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.maintain)
        await wait_all_tasks_blocked()
        gates.open()  # past the look at the room
        gates.close(Lane.MAINTENANCE)
        await wait_all_tasks_blocked()
        batches = [store.build({put(store, n): BODY}, (), (), clock_ms=1) for n in range(5)]
        assert store.stats().roll_count == 2
        nursery.start_soon(store.commit, batches[-1])
        await wait_all_tasks_blocked()
        assert store.position().last_lsn == 1
        gates.open()

    assert store.position().last_lsn == 6
    assert segments(world) == [1, 2]
    await world.kill(store)
    store = await world.open()
    assert sorted(await contents(store)) == [(1, n) for n in range(5)]
    await store.close()


async def test_a_commit_cancelled_before_it_began_is_done_by_the_next() -> None:
    world, store, _ = await gated()
    first = store.build({put(store, 1): b"1"}, (), (), clock_ms=1)
    with trio.CancelScope() as scope:
        scope.cancel()
        await store.commit(first)
    assert scope.cancelled_caught
    assert store.position().last_lsn == 1

    await commit(store, {put(store, 2): b"2"})

    assert store.position().last_lsn == 3
    await world.kill(store)
    store = await world.open()
    assert await contents(store) == {(1, 1): b"1", (1, 2): b"2"}
    await store.close()


async def test_maintenance_cancelled_at_every_point_is_taken_up_again() -> None:
    for checkpoints in range(12):
        world, store, _ = await gated()
        for number in range(5):
            await add(store, [number], BODY)
        await remove(store, range(5))
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(cancel_after, checkpoints, scope)
                await store.maintain()
        await add(store, [50 + n for n in range(8)], BODY)  # rolls
        for _ in range(3):
            await store.maintain()
        assert 1 not in segments(world)
        assert store.stats().needed_count == 0
        await world.kill(store)
        store = await world.open()
        assert sorted(await contents(store)) == [(1, 50 + n) for n in range(8)]
        await store.close()


async def cancel_after(checkpoints: int, scope: trio.CancelScope) -> None:
    """Cancel the scope after so many turns of the loop."""
    for _ in range(checkpoints):
        await trio.lowlevel.checkpoint()
    scope.cancel()


@asynccontextmanager
async def held_up_commit() -> AsyncIterator[tuple[DiskWorld, Store, Gates, trio.Nursery]]:
    """A commit of entry 1 that waits for its sync; the nursery it runs in ends with the block."""
    world, store, gates = await gated()
    gates.close(Lane.COMMIT)
    batch = store.build({put(store, 1): b"1"}, (), (), clock_ms=1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.commit, batch)
        await wait_all_tasks_blocked()
        yield world, store, gates, nursery


async def test_a_commit_that_is_cancelled_is_written_once() -> None:
    async with held_up_commit() as (world, store, gates, nursery):
        nursery.cancel_scope.cancel()
        gates.open()

    await add(store, [2], b"2")

    await store.close()
    store = await world.open()
    assert await contents(store) == {(1, 1): b"1", (1, 2): b"2"}
    await store.close()


async def test_a_commit_left_by_ctrl_c_is_ended_by_the_next() -> None:
    """Trio raises it in the main task wherever that waits, behind a shield too."""
    is_pressed = False

    async def run(function: Callable[[], T], lane: Lane) -> T:
        nonlocal is_pressed
        await trio.lowlevel.checkpoint()
        if is_pressed:
            is_pressed = False
            raise KeyboardInterrupt
        return function()

    world = world_of()
    store = await world.writer(run_in_worker=run)
    batch = store.build({put(store, 1): b"1"}, (), (), clock_ms=1)
    is_pressed = True
    with pytest.raises(KeyboardInterrupt):
        await store.commit(batch)
    position = store.position()

    await add(store, [2], b"2")

    assert store.position().last_lsn == position.last_lsn + 2
    await store.close()
    store = await world.open()
    assert await contents(store) == {(1, 1): b"1", (1, 2): b"2"}
    await store.close()


async def test_closing_waits_for_a_commit_under_way() -> None:
    async with held_up_commit() as (world, store, gates, nursery):
        nursery.start_soon(store.close)
        await wait_all_tasks_blocked()
        gates.open()

    store = await world.open()
    assert await contents(store) == {(1, 1): b"1"}
    await store.close()


async def test_a_commit_beside_a_background_sync_that_fails_is_not_answered() -> None:
    """The system tells of lost pages once for each open file: the sync after that succeeds."""
    world, gates = world_of(), Gates()
    is_told = trio.Event()

    async def run(function: Callable[[], T], lane: Lane) -> T:
        await gates(lambda: None, lane)
        try:
            return function()
        except OSError:
            await is_told.wait()
            raise

    store = await world.writer(run_in_worker=run)
    await store._flusher.flush(store._writer.local_frame(), is_lazy=True)
    world.vfs.fail(errno.EIO, names=["fdatasync"])
    gates.close(Lane.COMMIT)
    background = gates.close(Lane.MAINTENANCE)

    async def commit_one() -> None:
        with pytest.raises(StoreFailed):
            await add(store, [1])

    async def settle() -> None:
        with pytest.raises(StoreFailed):
            await store._maintenance._settle(world.clock())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(settle)
        await wait_all_tasks_blocked()
        nursery.start_soon(commit_one)
        await wait_all_tasks_blocked()
        background.set()
        await wait_all_tasks_blocked()
        gates.open()
        await wait_all_tasks_blocked()
        is_told.set()
    await store.close()


async def test_real_threads_commit_read_and_maintain_side_by_side(tmp_path: Path) -> None:
    world = real_world(str(tmp_path / "store"), options=SMALL)
    store = await world.writer(run_in_worker=TrioWorkers())

    async def maintain_always() -> None:
        while True:
            await store.maintain()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(maintain_always)
        live: dict[int, int] = {}
        for number in range(150):
            slot = live[number] = put(store, number)
            ended = [live.pop(number - 20)] if number >= 20 else []
            batch = store.build({slot: bytes([number]) * 3000}, (), ended, clock_ms=1)
            async with trio.open_nursery() as inner:
                inner.start_soon(store.commit, batch)
                read = await store.read_bodies(list(live.values()))
            assert read == [bytes([each]) * 3000 for each in live]
        nursery.cancel_scope.cancel()
    assert store.stats().drop_count > 0
    await store.close()
    store = await world.open()
    assert await contents(store) == {(1, n): bytes([n]) * 3000 for n in range(130, 150)}
    await store.close()
