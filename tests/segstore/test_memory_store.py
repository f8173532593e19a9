"""What the double adds to the contract: scripted delay, failure, damage and lack of room."""

import pytest
import trio
from trio.testing import MockClock

from segstore import BodyDamaged, Room, StoreFailed
from tests.fakes.memory_store import MemoryStore
from tests.segstore.worlds import MemoryWorld, add, contents, key, put


async def writer(world: MemoryWorld) -> MemoryStore:
    store = await world.open()
    await store.become_writer()
    return store


async def test_a_commit_takes_as_long_as_told(autojump_clock: MockClock) -> None:
    world = MemoryWorld()
    store = await writer(world)
    world.disk.delay_s = 3
    started = trio.current_time()

    await add(store, [1])

    assert trio.current_time() - started == 3
    await store.close()


async def test_commits_wait_at_the_gate(autojump_clock: MockClock) -> None:
    world = MemoryWorld()
    store = await writer(world)
    world.disk.gate = trio.Event()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(add, store, [1])
        await trio.testing.wait_all_tasks_blocked()
        assert store.position().last_lsn == 1
        world.disk.gate.set()

    assert store.position().last_lsn == 2
    await store.close()


@pytest.mark.parametrize("is_kept", [True, False])
async def test_a_scripted_failure_is_final_and_leaves_what_it_is_told_to(is_kept: bool) -> None:
    world = MemoryWorld()
    store = await writer(world)
    await add(store, [1])
    world.disk.fail_at_commit = 3
    world.disk.is_failing_kept = is_kept

    with pytest.raises(StoreFailed):
        await add(store, [2])
    with pytest.raises(StoreFailed):
        store.build({}, (), (), clock_ms=1)
    with pytest.raises(StoreFailed):
        await store.maintain()
    assert store.stats().is_failed

    await store.close()
    world.disk.fail_at_commit = None
    store = await world.open()
    assert sorted(await contents(store)) == ([(1, 1), (1, 2)] if is_kept else [(1, 1)])
    await store.close()


async def test_a_damaged_body_and_a_cold_one() -> None:
    world = MemoryWorld()
    store = await writer(world)
    await add(store, [1, 2], b"body")
    slots = [store.slots.find(1, key(number)) for number in (1, 2)]

    world.disk.is_cold = True
    world.disk.damaged.add((1, key(1)))

    assert store.read_bodies_nowait(slots) == [None, None]
    damaged, body = await store.read_bodies(slots)
    assert isinstance(damaged, BodyDamaged)
    assert (damaged.table, damaged.key) == (1, key(1))
    assert body == b"body"
    pending = put(store, 3)
    store.build({pending: b"in RAM"}, (), (), clock_ms=1)
    assert store.read_bodies_nowait([pending]) == [b"in RAM"]
    await store.close()


async def test_room_is_what_the_script_says() -> None:
    world = MemoryWorld()
    store = await world.open()
    assert store.room() is Room.OK

    world.disk.room = Room.NONE

    assert store.room() is Room.NONE
    await store.close()
