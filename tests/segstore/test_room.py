"""Room on the disk: what is set aside for short records, and that a commit never finds it full."""

import errno
from random import Random
from typing import Any

import pytest

from segstore import NoRoom, Options, Room, Store, StoreFailed
from tests.fakes.simvfs import SimVFS
from tests.segstore.surgery import read, segment_path, segments
from tests.segstore.worlds import DiskWorld, add, commit, contents, key, remove, sim_world

SEGMENT = 16_384


def world_of(capacity: int, **changes: Any) -> tuple[DiskWorld, SimVFS]:
    """Return a world on a disk of so many bytes."""
    values = {"segment_bytes": SEGMENT, "persist": "sync_data", "prealloc": "zero"} | changes
    world = sim_world(options=Options(**values))
    assert isinstance(world.vfs, SimVFS)
    world.vfs.capacity = capacity
    return world, world.vfs


def take_the_rest(vfs: SimVFS) -> None:
    """Let somebody else fill the disk to the last byte."""
    file = vfs.open("/store/hog", is_new=True)
    file.pwritev([bytes(vfs.free_bytes("/store"))], 0)
    file.close()
    assert vfs.free_bytes("/store") == 0


async def filled_up(world: DiskWorld) -> tuple[Store, int]:
    """Return a writer that took entries until it said no, and how many."""
    store = await world.writer()
    await store.maintain()
    number = 0
    while store.room() is Room.OK:
        await add(store, [number], b"x" * 500)
        await store.maintain()
        number += 1
    return store, number


async def maintain(world: DiskWorld, store: Store) -> None:
    """Let some time pass, and the store do what is due."""
    world.clock.now_ms += 100
    await store.maintain(lambda: False)


async def acks_until_none(store: Store, number: int) -> int:
    """Change the head of an entry again and again while there is room; return how often."""
    count = 0
    slot = store.slots.find(1, key(number))
    while store.room() is not Room.NONE:
        await commit(store, states=[slot])
        await store.maintain()
        count += 1
    return count


async def test_when_others_take_the_last_byte_short_records_go_on_and_then_nothing_fails() -> None:
    world, vfs = world_of(400_000)
    store, _ = await filled_up(world)
    take_the_rest(vfs)
    await store.maintain()

    count = await acks_until_none(store, 0)

    assert count > 30
    assert store.room() is Room.NONE
    for _ in range(3):
        await store.maintain()  # and that does not make it fail
    vfs.unlink("/store/hog")
    await store.maintain()
    await store.maintain()
    assert store.room() is not Room.NONE
    await ack_all(world, store)
    assert store.room() is Room.OK
    await store.close()


async def ack_all(world: DiskWorld, store: Store) -> None:
    """End all entries; there must be room for each."""
    for slot in list(store.scan()):
        assert store.room() is not Room.NONE
        await remove(store, [int.from_bytes(store.slots.key(slot), "big")])
        await maintain(world, store)
    for _ in range(5):
        await maintain(world, store)


async def test_the_first_segment_has_no_space_of_its_own_so_a_full_disk_goes_on_in_the_second() -> (
    None
):
    world, vfs = world_of(10 * SEGMENT)
    store = await world.writer()
    await store.maintain()
    await add(store, [1])
    take_the_rest(vfs)
    assert segments(world) == [1, 2]
    await store.maintain()
    assert store.room() is Room.ACKS_ONLY

    count = await acks_until_none(store, 1)

    assert count > 30
    active = store._writer.active
    assert active is not None
    assert active.id == 2
    await store.close()


@pytest.mark.parametrize("is_clean", [True, False])
async def test_an_open_on_a_full_disk_sets_aside_what_it_can_and_goes_on(is_clean: bool) -> None:
    world, vfs = world_of(400_000)
    store, number = await filled_up(world)
    take_the_rest(vfs)
    if is_clean:
        await store.close()
    else:
        await world.kill(store)

    store = await world.writer()

    active = store._writer.active
    assert active is not None
    assert active.allocated == SEGMENT  # where the one set aside before was
    assert len(read(vfs, segment_path(world, active.id))) == SEGMENT
    assert store.room() is Room.ACKS_ONLY
    assert await acks_until_none(store, number - 1) > 30
    await store.close()
    left = await world.open()
    assert len(await contents(left)) == number
    await left.close()


async def test_an_open_without_any_space_says_so_changes_nothing_and_can_be_tried_again() -> None:
    world, vfs = world_of(400_000)
    store, number = await filled_up(world)
    await world.kill(store)
    while True:  # use up also what a restart would find
        take_the_rest(vfs)
        store = await world.open()
        if vfs.free_bytes("/store") == 0:
            break
        await store.close()
        vfs.rename("/store/hog", f"/store/hog{vfs.call_count}")

    for _ in range(3):
        with pytest.raises(NoRoom, match="/store: no room for 1"):
            await store.become_writer()
    assert [name for name in vfs.list_dir("/store") if name.endswith(".tmp")] == []
    for name in vfs.list_dir("/store"):
        if name.startswith("hog"):
            vfs.unlink(f"/store/{name}")
    await store.become_writer()
    await add(store, [900])
    assert len(await contents(store)) == number + 1
    await store.close()


async def test_a_sync_that_fails_while_the_first_segment_is_made_is_final() -> None:
    world, vfs = world_of(3 * SEGMENT)
    store = await world.open()
    vfs.capacity = SEGMENT + 1000
    vfs.fail(errno.ENOSPC, names=["fsync"], path_part=".tmp")

    with pytest.raises(StoreFailed):
        await store.become_writer()
    with pytest.raises(StoreFailed):
        await store.become_writer()
    await store.close()


async def test_more_than_two_segments_are_kept_free_if_a_batch_may_take_more() -> None:
    world, vfs = world_of(1 << 30, batch_bytes_max=100_000)
    vfs.capacity = None
    store = await world.writer()
    rooms = []

    for free in (120_000, 99_999, 110_000, 116_384):
        vfs.free = free
        await store.maintain()
        rooms.append(store.room())

    assert rooms == [Room.OK, Room.ACKS_ONLY, Room.ACKS_ONLY, Room.OK]
    await store.close()


async def test_an_open_gives_back_the_space_behind_the_end_of_the_log() -> None:
    world, vfs = world_of(1 << 30)
    store = await world.writer()
    await store.maintain()
    for number in range(30):
        await add(store, [number], b"x" * 500)
        await store.maintain()
    active = store._writer.active
    assert active is not None
    assert len(read(vfs, active.path)) == SEGMENT
    await world.kill(store)

    await (await world.open()).close()

    assert len(read(vfs, active.path)) == active.end < SEGMENT
    store = await world.open()
    assert len(await contents(store)) == 30
    await store.close()


@pytest.mark.parametrize("seed", range(30))
async def test_whoever_asks_for_room_first_never_finds_the_disk_full(seed: int) -> None:
    """A random life beside somebody who fills the disk and frees it, at any moment but one.

    That one is between a look at the free space and a write that relies on it.
    """
    print(f"seed {seed}")
    random = Random(seed)
    pace = random.choice([1 << 30, 20_000])
    world, vfs = world_of(random.choice([200_000, 400_000]), compact_bytes_s=pace)
    store = await world.writer()
    await store.maintain()
    live: dict[int, bytes] = {}
    number = 0
    rooms = set()
    for _ in range(1500):
        if random.random() < 0.02:
            if vfs.exists("/store/hog"):
                vfs.unlink("/store/hog")
            elif random.random() < 0.5:
                take_the_rest(vfs)
            await maintain(world, store)
        room = store.room()
        rooms.add(room)
        if room is Room.OK and random.random() < 0.6:
            live[number] = random.randbytes(random.choice([0, 100, 700]))
            await add(store, [number], live[number])
            number += 1
        elif room is not Room.NONE and live:
            some = random.sample(sorted(live), min(len(live), random.randrange(1, 8)))
            if random.random() < 0.5:
                await remove(store, some)
                for each in some:
                    del live[each]
            else:
                slots = [store.slots.find(1, key(each)) for each in some]
                await commit(store, states=slots)
        await maintain(world, store)
        if random.random() < 0.005:
            if random.random() < 0.5:
                await store.close()
            else:
                await world.kill(store)
            store = await reopened(world, vfs)

    assert rooms >= {Room.OK, Room.ACKS_ONLY}
    assert {number: body for (_, number), body in (await contents(store)).items()} == live
    await store.close()


async def reopened(world: DiskWorld, vfs: SimVFS) -> Store:
    """Return a new writer; where there is no space at all, once somebody made some."""
    store = await world.open()
    try:
        await store.become_writer()
    except NoRoom:
        vfs.unlink("/store/hog")
        await store.become_writer()
    return store


async def test_copies_that_are_ready_wait_while_space_is_short() -> None:
    world, _ = world_of(1 << 30, compact_bytes_s=1 << 30)
    store = await world.writer()
    for number in range(90):
        await add(store, [number], b"x" * 500)
    await remove(store, [number for number in range(90) if number % 5])
    compactor = store._compactor
    world.clock.now_ms += 1000
    await store.maintain(lambda: True)  # reads copies ahead, and writes none
    world.clock.now_ms += 1000
    await store.maintain(lambda: True)  # may write some by now
    assert store.stats().victim
    assert store.stats().moved_count == 0

    compactor.space = lambda: 1000
    for number in (900, 902, 903):  # none of them is taken along by a frame that seals
        await add(store, [number])
    await maintain(world, store)
    assert store.stats().moved_count == 0

    compactor.space = lambda: -1
    await add(store, [901])
    assert store.stats().moved_count > 0
    await store.close()
