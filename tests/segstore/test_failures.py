"""A failed write or sync is the end: nothing is written behind it, nobody is told OK, no retry."""

import contextlib
import errno
from collections.abc import Iterator
from typing import Any

import pytest
import trio

from segstore import Options, Room, StoreError, StoreFailed
from tests.fakes.crash_states import crash_images
from tests.fakes.faults import SHORT_WRITE
from tests.fakes.simvfs import SimVFS
from tests.segstore.crashing import Trace, content
from tests.segstore.test_crashes import rolling_life
from tests.segstore.worlds import DiskWorld, add, commit, contents, key, put, sim_world

WRITING = frozenset({"pwritev", "fsync", "fdatasync", "truncate", "rename", "unlink", "sync_dir"})


def options(persist: str, **changes: Any) -> Options:
    return Options(**{"segment_bytes": 8192, "persist": persist, "prealloc": "none"} | changes)  # type: ignore[arg-type]  # a dict of fields


def calls_of(persist: str) -> list[str]:
    """Return the names of the calls an undisturbed life makes."""
    trace = Trace(options(persist))
    trace.vfs.on_point = None
    trio.run(rolling_life, trace)
    return [call.name for call in trace.vfs.trace]


def broken_lives(persist: str, error: int, names: frozenset[str]) -> Iterator[Trace]:
    """Live the same life again and again, each time with another call failing."""
    for number, name in enumerate(calls_of(persist), 1):
        if name in names:
            trace = Trace(options(persist))
            trace.vfs.on_point = None
            trace.vfs.fail(error, number=number)
            yield trace


async def live(trace: Trace) -> None:
    """Run the life until the failure ends it, at the open with OSError."""
    with contextlib.suppress(StoreFailed, OSError):
        await rolling_life(trace)


async def check_what_is_left(trace: Trace) -> None:
    """Nothing acknowledged is lost, whatever of the rest the disk kept."""
    allowed = trace.states[trace.durable :]
    for image in crash_images(trace.vfs, random=trace._random, random_count=2):
        world = DiskWorld("/store", SimVFS.from_image(image), trace.options)
        store = await world.open()
        assert await content(store) in allowed
        await store.close()


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, SHORT_WRITE])
@pytest.mark.parametrize("persist", ["sync_all", "sync_data", "buffer"])
def test_whichever_call_fails_nothing_acknowledged_is_lost(persist: str, error: int) -> None:
    for trace in broken_lives(persist, error, WRITING):
        trio.run(live, trace)
        trio.run(check_what_is_left, trace)


@pytest.mark.parametrize("persist", ["sync_all", "sync_data"])
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EINTR, SHORT_WRITE])
async def test_nothing_is_written_behind_a_write_that_failed(persist: str, error: int) -> None:
    world = sim_world(options=options(persist))
    store = await world.writer()
    await add(store, [1])
    world.vfs.fail(error, names=["pwritev"])
    slot = put(store, 2)
    batch = store.build({slot: b"lost"}, (), (), clock_ms=1)
    later = store.build({put(store, 3): b"later"}, (), (), clock_ms=1)

    with pytest.raises(StoreFailed, match="not acknowledging 1 records"):
        await store.commit(batch)
    count = world.vfs.call_count

    with pytest.raises(StoreFailed):
        await store.commit(batch)
    with pytest.raises(StoreFailed):
        await store.commit(later)
    for call in (
        lambda: store.build({}, (), (), clock_ms=1),
        lambda: store.read_bodies_nowait([]),
        lambda: store.read_bodies([]),
    ):
        with pytest.raises(StoreFailed):
            call()
    with pytest.raises(StoreFailed):
        await store.maintain()
    assert world.vfs.call_count == count
    assert store.stats().is_failed
    assert store.room() is Room.NONE
    await store.close()
    assert {call.name for call in world.vfs.trace[count:]} <= {"close"}


async def test_a_failure_counts_the_records_of_all_segments_it_concerns() -> None:
    world = sim_world(options=options("sync_all"))
    store = await world.writer()
    rolls, count = store.stats().roll_count, 0
    while store.stats().roll_count == rolls:
        batch = store.build({put(store, count): bytes(1000)}, (), (), clock_ms=1)
        count += 1
    world.vfs.fail(errno.EIO, names=["fsync"], path_part="2.seg")

    with pytest.raises(StoreFailed, match=f"not acknowledging {count} records"):
        await store.commit(batch)

    await store.close()


@pytest.mark.parametrize(
    ("persist", "name"),
    [("sync_all", "fsync"), ("sync_data", "fdatasync"), ("buffer", "fdatasync")],
)
async def test_a_failed_sync_is_final_though_a_second_would_succeed(
    persist: str, name: str
) -> None:
    world = sim_world(options=options(persist))
    store = await world.writer()
    await store.maintain()
    await add(store, [1])
    world.vfs.fail(errno.EIO, names=[name], path_part=".seg")
    world.clock.now_ms += 5000

    async def add_and_sync() -> None:
        await add(store, [2])
        await store.maintain()  # syncs in buffer mode

    with pytest.raises(StoreFailed):
        await add_and_sync()

    with pytest.raises(StoreFailed):
        await add(store, [3])
    await store.close()
    # The failed sync took the pages for clean, so the cache shows what the disk does not have.
    store = await world.open()
    left = await contents(store)
    assert (1, 3) not in left
    if persist != "buffer":
        assert (1, 1) in left
        assert (1, 2) not in left
    await store.close()


async def test_a_full_disk_refuses_bodies_before_anything_is_written() -> None:
    world = sim_world(options=options("sync_data", prealloc="zero"))
    world.vfs.capacity = 60_000
    store = await world.writer()
    await store.maintain()
    assert store.room() is Room.OK

    number = 0
    while store.room() is Room.OK:
        await add(store, [number], b"x" * 1000)
        await store.maintain()
        number += 1

    assert store.room() is Room.ACKS_ONLY
    assert world.vfs.free_bytes("/store") < 2 * 8192
    for gone in range(number):  # acks go on and make room
        await commit(store, deletes=[store.slots.find(1, key(gone))])
        await store.maintain()
    assert store.room() is Room.OK
    await add(store, [number])
    await store.close()


async def test_a_spare_that_does_not_fit_is_no_failure() -> None:
    world = sim_world(options=options("sync_data", prealloc="zero"))
    store = await world.writer()
    world.vfs.fail(errno.ENOSPC, names=["pwritev"], path_part=".tmp", is_forever=True)

    await store.maintain()

    assert store.room() is Room.ACKS_ONLY
    assert [name for name in world.vfs.list_dir("/store") if name.endswith(".tmp")] == []
    await add(store, [1])
    world.vfs.faults.clear()
    await store.maintain()
    await store.maintain()
    assert store.room() is Room.OK
    await store.close()


async def test_without_a_spare_the_end_of_the_segment_is_the_end_of_room() -> None:
    world = sim_world(options=options("sync_data", prealloc="zero"))
    store = await world.writer()
    world.vfs.fail(errno.ENOSPC, names=["pwritev"], path_part=".tmp", is_forever=True)
    await store.maintain()

    number = 0
    while store.room() is Room.ACKS_ONLY:
        await add(store, [number], b"")
        number += 1

    assert store.room() is Room.NONE
    assert number > 10
    world.vfs.faults.clear()
    await store.maintain()
    await store.maintain()
    assert store.room() is Room.OK
    await store.close()


async def test_a_spare_whose_sync_fails_is_a_failure() -> None:
    world = sim_world(options=options("sync_data", prealloc="zero"))
    store = await world.writer()
    world.vfs.fail(errno.ENOSPC, names=["fsync"], path_part=".tmp")

    with pytest.raises(StoreFailed):
        await store.maintain()
    with pytest.raises(StoreFailed):
        await add(store, [1])
    await store.close()


@pytest.mark.parametrize("error", [errno.ENOENT, errno.ENOTCONN])
async def test_a_directory_that_was_taken_away_is_a_failure(error: int) -> None:
    world = sim_world(options=options("sync_all"))
    store = await world.writer()
    world.vfs.fail(error, names=["free_bytes"])

    with pytest.raises(StoreFailed, match="nothing is acknowledged any more"):
        await store.maintain()
    with pytest.raises(StoreFailed):
        await add(store, [1])
    await store.close()


async def test_nothing_goes_into_a_directory_that_took_our_place() -> None:
    world = sim_world(options=options("sync_data"))
    store = await world.writer()
    names = replace_directory(world)

    with pytest.raises(StoreFailed, match="taken away or replaced"):
        await store.maintain()
    await store.close()
    assert set(world.vfs.list_dir("/store")) == names


async def test_no_segment_goes_into_a_directory_that_took_our_place() -> None:
    world = sim_world(options=options("sync_data"))
    store = await world.writer()
    names = replace_directory(world)

    async def fill() -> None:
        for number in range(20):
            await add(store, [number], bytes(1000))

    with pytest.raises(StoreFailed, match="taken away or replaced"):
        await fill()
    await store.close()
    assert set(world.vfs.list_dir("/store")) == names


def replace_directory(world: Any) -> set[str]:
    """Put another LOCK in place of the one that is held; return the names there are now."""
    world.vfs.rename("/store/LOCK", "/store/LOCK.old")
    world.vfs.open("/store/LOCK", is_new=True).close()
    return set(world.vfs.list_dir("/store"))


async def test_room_has_hysteresis() -> None:
    world = sim_world(options=options("sync_data"))
    store = await world.writer()
    rooms = []

    for segments in (4.0, 1.9, 2.5, 3.0, 2.5, 1.9):
        world.vfs.free = int(segments * 8192)
        await store.maintain()
        rooms.append(store.room())

    ok, low = Room.OK, Room.ACKS_ONLY
    assert rooms == [ok, low, low, ok, ok, low]
    await store.close()


async def test_a_failure_while_opening_leaves_the_directory_unlocked() -> None:
    world = sim_world(options=options("sync_data"))
    store = await world.writer()
    await add(store, [1])
    await world.kill(store)
    world.vfs.fail(errno.EIO, names=["fsync"])

    with pytest.raises(OSError):
        await world.open()

    store = await world.open()
    assert await contents(store) == {(1, 1): b"body"}
    await store.close()


async def test_a_closed_writer_that_failed_can_be_opened_again() -> None:
    world = sim_world(options=options("sync_all"))
    store = await world.writer()
    await add(store, [1])
    world.vfs.fail(errno.EIO, names=["pwritev"])

    with pytest.raises(StoreError):
        await add(store, [2])
    await store.close()

    store = await world.writer()
    assert (1, 1) in await contents(store)
    await store.close()
