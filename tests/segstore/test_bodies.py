"""Bodies in RAM: which are kept, which go, and how many calls the others cost."""

import errno
from typing import Any

from segstore import BodyDamaged
from segstore.bodies import BodyCache
from tests.segstore.surgery import BODY, flip, segment_path, world_of
from tests.segstore.worlds import DiskWorld, add, commit, key, put


def reads(world: DiskWorld) -> list[tuple[str, int]]:
    """Return which reads of bodies there were, and of how many bytes."""
    return [(c.name, c.length) for c in world.vfs.trace if c.name.startswith("pread")]


async def opened(count: int, body: bytes, **changes: Any) -> tuple[DiskWorld, Any, list[int]]:
    """Return a store just opened, so with an empty cache, and the slots in it."""
    world = world_of(**changes)
    store = await world.writer()
    await add(store, range(count), body)
    await store.close()
    store = await world.writer()
    slots = [store.slots.find(1, key(number)) for number in range(count)]
    world.vfs.trace.clear()
    return world, store, slots


async def test_a_body_just_written_costs_no_read() -> None:
    world = world_of()
    store = await world.writer()
    slots = [put(store, number) for number in range(3)]
    await commit(store, dict.fromkeys(slots, BODY))
    world.vfs.trace.clear()

    assert store.read_bodies_nowait(slots) == [BODY] * 3
    assert await store.read_bodies(slots) == [BODY] * 3

    assert world.vfs.trace == []
    assert (store.stats().body_hit_count, store.stats().body_read_count) == (6, 0)
    await store.close()


async def test_neighbours_are_read_with_one_call() -> None:
    world, store, slots = await opened(5, b"x" * 101)

    assert store.read_bodies_nowait(slots) == [b"x" * 101] * 5
    assert reads(world) == [("pread_nowait", 4 * 104 + 101)]

    world.vfs.trace.clear()
    assert await store.read_bodies(slots[1:4]) == [b"x" * 101] * 3
    assert reads(world) == [("pread", 2 * 104 + 101)]
    await store.close()


async def test_others_are_read_one_by_one() -> None:
    world, store, slots = await opened(5, b"x" * 104)

    assert store.read_bodies_nowait([slots[3], slots[0], slots[1]]) == [b"x" * 104] * 3

    assert reads(world) == [("pread_nowait", 104), ("pread_nowait", 208)]
    await store.close()


async def test_what_the_page_cache_lacks_is_left_to_the_caller() -> None:
    world, store, slots = await opened(2, BODY)
    store._segments[1].reading_file(world.vfs).drop_cache()

    assert store.read_bodies_nowait(slots) == [None, None]
    assert await store.read_bodies(slots) == [BODY, BODY]
    assert store.read_bodies_nowait(slots) == [BODY, BODY]
    await store.close()


async def test_a_damaged_body_is_never_handed_out_and_its_neighbours_are() -> None:
    world, store, slots = await opened(3, BODY)
    flip(world.vfs, segment_path(world, 1), (store.slots.offset8[slots[1]] << 3) + 999)

    assert store.read_bodies_nowait(slots) == [BODY, None, BODY]
    first, damaged, last = await store.read_bodies(slots)

    assert (first, last) == (BODY, BODY)
    assert isinstance(damaged, BodyDamaged)
    assert damaged.key == key(1)
    assert store.stats().body_damaged_count == 1
    await store.close()


async def test_an_unreadable_body_fails_alone() -> None:
    world, store, slots = await opened(3, BODY)
    # The read of all three fails, then the first of the three single ones.
    world.vfs.fail(errno.EIO, names=["pread"])
    world.vfs.fail(errno.EIO, names=["pread"])

    first, second, third = await store.read_bodies(slots)

    assert isinstance(first, BodyDamaged)
    assert (second, third) == (BODY, BODY)
    await store.close()


async def test_a_slot_just_allocated_shows_nothing_of_its_last_tenant() -> None:
    world = world_of()
    store = await world.writer()
    slot = put(store, 1)
    first = store.build({slot: b"old tenant"}, (), (), clock_ms=1)
    second = store.build({}, (), [slot], clock_ms=1)  # ends while the first is not on disk
    await store.commit(first)
    await store.commit(second)

    again = put(store, 2)

    assert again == slot
    assert store.read_bodies_nowait([again]) == [b""]
    assert await store.read_bodies([again]) == [b""]
    await store.close()


def test_the_oldest_committed_bodies_go_first_and_pending_ones_never() -> None:
    cache = BodyCache(3 * 250)
    batches = [{slot: bytes(100)} for slot in range(5)]
    for bodies in batches:
        cache.add_pending(bodies)
    assert [cache.get(slot) is not None for slot in range(5)] == [True] * 5

    for bodies in batches[:4]:
        cache.commit(bodies)

    assert [cache.get(slot) is not None for slot in range(5)] == [False, True, True, True, True]
    assert (len(cache), cache.byte_count) == (3, 750)
    cache.forget([1, 2, 0, 99])
    assert (len(cache), cache.byte_count) == (1, 250)


def test_a_newer_body_takes_the_place_of_an_older_one() -> None:
    cache = BodyCache(10_000)
    old, new = {1: b"old"}, {1: b"newer"}
    cache.add_pending(old)
    cache.add_pending(new)
    assert cache.get(1) == b"newer"

    cache.commit(old)
    assert cache.get(1) == b"newer"
    cache.commit(new)

    assert cache.get(1) == b"newer"
    assert (len(cache), cache.byte_count) == (1, 155)


def test_a_body_larger_than_the_cache_is_not_kept() -> None:
    cache = BodyCache(100)
    bodies = {1: bytes(1000)}
    cache.add_pending(bodies)
    assert cache.get(1) == bytes(1000)

    cache.commit(bodies)

    assert cache.get(1) is None
    assert (len(cache), cache.byte_count) == (0, 0)
