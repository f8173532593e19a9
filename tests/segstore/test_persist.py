"""What each persist mode does to the disk, and what survives in it."""

from typing import Any

import pytest

from segstore.local import Note
from tests.fakes.simvfs import SimVFS
from tests.segstore.surgery import BODY, frames, world_of
from tests.segstore.worlds import DiskWorld, add, contents


async def calls_of_a_commit(persist: Any) -> list[str]:
    world = world_of(persist=persist)
    store = await world.writer()
    world.vfs.trace.clear()
    await add(store, [1])
    calls = [call.name for call in world.vfs.trace]
    await store.close()
    return calls


@pytest.mark.parametrize(
    ("persist", "calls"),
    [
        ("sync_all", ["pwritev", "fsync"]),
        ("sync_data", ["pwritev", "fdatasync"]),
        ("buffer", ["pwritev"]),
    ],
)
async def test_a_commit_is_one_write_and_the_sync_its_mode_asks_for(
    persist: str, calls: list[str]
) -> None:
    assert await calls_of_a_commit(persist) == calls


@pytest.mark.parametrize("persist", ["sync_all", "sync_data"])
async def test_an_acknowledged_batch_survives_a_power_cut(persist: Any) -> None:
    world = world_of(persist=persist)
    store = await world.writer()
    await add(store, [1])

    after = DiskWorld("/store", world.vfs.crash(), world.options)

    store = await after.open()
    assert await contents(store) == {(1, 1): b"body"}


async def test_in_buffer_mode_a_power_cut_may_take_the_last_second() -> None:
    world = world_of(persist="buffer")
    store = await world.writer()
    world.clock.now_ms += 1000
    await store.maintain()
    await add(store, [1])
    await store.maintain()
    assert await left(world.vfs) == []

    world.clock.now_ms += 999
    await store.maintain()
    assert await left(world.vfs) == []
    world.clock.now_ms += 1
    await store.maintain()

    assert await left(world.vfs) == [1]
    await store.close()


async def left(vfs: SimVFS) -> list[int]:
    """Return which entries a power cut leaves."""
    store = await DiskWorld("/store", vfs.crash()).open()
    return sorted(number for _, number in await contents(store))


async def test_in_buffer_mode_a_full_segment_is_durable_before_the_next_begins() -> None:
    world = world_of(persist="buffer")
    store = await world.writer()
    number = 0
    while store.stats().roll_count < 2:
        await add(store, [number], BODY)
        number += 1

    kept = await left(world.vfs)

    assert kept == list(range(number - 1))  # all but the first batch of the new segment
    await store.close()


async def test_in_buffer_mode_a_clean_close_is_durable() -> None:
    world = world_of(persist="buffer")
    store = await world.writer()
    await add(store, [1])

    await store.close()

    assert await left(world.vfs) == [1]


@pytest.mark.parametrize("persist", ["sync_all", "sync_data", "buffer"])
async def test_a_clean_close_ends_with_a_note_that_vouches_for_all(persist: Any) -> None:
    world = world_of(persist=persist)
    store = await world.writer()
    await add(store, [1])

    await store.close()

    world.vfs = world.vfs.crash()  # and the note is durable too
    last = frames(world, 1)[-1]
    assert last.locals == [Note(2)]
    assert last.header.synced_off == last.header.offset
    assert last.header.record_count == 0


async def test_after_a_pause_an_empty_frame_notes_how_far_the_log_is_durable() -> None:
    world = world_of()
    store = await world.writer()
    await add(store, [1])
    count = len(frames(world, 1))

    assert await store.maintain() == 50
    world.clock.now_ms += 49
    await store.maintain()
    assert len(frames(world, 1)) == count
    world.clock.now_ms += 1
    await store.maintain()
    world.clock.now_ms += 5000
    await store.maintain()
    await store.maintain()

    found = frames(world, 1)
    assert len(found) == count + 1  # once, not again and again
    assert (found[-1].header.record_count, found[-1].header.local_count) == (0, 0)
    assert found[-1].header.synced_off == found[-1].header.offset
    assert store.position().last_lsn == 2
    await store.close()


async def test_a_clock_that_steps_back_delays_no_sync_for_ever() -> None:
    world = world_of(persist="buffer")
    store = await world.writer()
    world.clock.now_ms += 10_000
    await store.maintain()
    world.clock.now_ms -= 3_600_000
    await add(store, [1])

    await store.maintain()

    assert await left(world.vfs) == [1]
    await store.close()
