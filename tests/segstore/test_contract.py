"""What every store promises, whatever is below it: the embedded one and the double, one suite."""

from pathlib import Path
from typing import Any

import pytest
import trio

from segstore import ABSENT, Room, StoreError, StoreLocked
from tests.segstore.worlds import (
    MemoryWorld,
    World,
    add,
    commit,
    contents,
    heads,
    key,
    put,
    real_world,
    remove,
    sim_world,
)


@pytest.fixture(params=["real", "simulated", "memory"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    if request.param == "real":
        return real_world(str(tmp_path / "store"))
    return sim_world() if request.param == "simulated" else MemoryWorld()


async def open_writer(world: World) -> Any:
    store = await world.open()
    await store.become_writer()
    return store


async def reopen(world: World, store: Any) -> Any:
    await store.close()
    return await open_writer(world)


async def test_a_new_store_is_empty_and_stands_at_the_start(world: World) -> None:
    store = await world.open()

    position = store.position()
    assert list(store.scan()) == []
    assert (position.epoch, position.last_lsn, position.log_clock_ms) == (0, 0, 0)
    assert len(position.store_uuid) == 16
    await store.close()


async def test_each_open_for_writing_is_a_new_epoch_with_a_record(world: World) -> None:
    store = await world.open()
    assert await store.become_writer() == 1
    assert (store.position().epoch, store.position().last_lsn) == (1, 1)
    uuid = store.position().store_uuid

    await store.close()
    store = await world.open()

    assert await store.become_writer() == 2
    position = store.position()
    assert (position.epoch, position.last_lsn, position.store_uuid) == (2, 2, uuid)
    await store.close()


async def test_becoming_the_writer_twice_is_refused(world: World) -> None:
    store = await open_writer(world)

    with pytest.raises(StoreError):
        await store.become_writer()
    await store.close()


async def test_what_was_put_is_there_after_a_reopen(world: World) -> None:
    store = await open_writer(world)
    slot = put(store, 7, state=3, priority=9, attempt=1 << 31, at_ms=1 << 63)
    other = put(store, 7, table=2, state=1)
    await commit(store, {slot: b"the body", other: b""})

    store = await reopen(world, store)

    assert heads(store) == {(1, 7): (3, 9, 1 << 31, 1 << 63), (2, 7): (1, 0, 0, 0)}
    assert await contents(store) == {(1, 7): b"the body", (2, 7): b""}
    await store.close()


async def test_a_killed_writer_lost_nothing_it_committed(world: World) -> None:
    store = await open_writer(world)
    await add(store, range(100), b"x" * 100)
    await remove(store, range(50))

    await world.kill(store)
    store = await open_writer(world)

    assert await contents(store) == {(1, number): b"x" * 100 for number in range(50, 100)}
    await store.close()


async def test_a_state_changes_the_head_and_keeps_the_body(world: World) -> None:
    store = await open_writer(world)
    slot = put(store, 1, state=1)
    await commit(store, {slot: b"kept"})
    store.slots.state[slot] = 2
    store.slots.attempt[slot] = 5

    await commit(store, states=[slot])
    store = await reopen(world, store)

    assert heads(store) == {(1, 1): (2, 0, 5, 0)}
    assert await contents(store) == {(1, 1): b"kept"}
    await store.close()


async def test_a_put_over_an_entry_replaces_its_body(world: World) -> None:
    store = await open_writer(world)
    slot = put(store, 1)
    await commit(store, {slot: b"old"})
    await commit(store, {slot: b"new and longer"})
    assert await store.read_bodies([slot]) == [b"new and longer"]

    store = await reopen(world, store)

    assert await contents(store) == {(1, 1): b"new and longer"}
    await store.close()


async def test_a_slot_has_one_record_and_the_put_wins_over_the_state(world: World) -> None:
    store = await open_writer(world)
    slot = put(store, 1)

    batch = await commit(store, {slot: b"body"}, states=[slot])

    assert batch.count == 1
    assert await store.read_bodies([slot]) == [b"body"]
    await store.close()


async def test_a_new_entry_named_only_as_a_state_has_an_empty_body(world: World) -> None:
    store = await open_writer(world)
    slot = put(store, 1, state=4)

    await commit(store, states=[slot])
    store = await reopen(world, store)

    assert heads(store) == {(1, 1): (4, 0, 0, 0)}
    assert await contents(store) == {(1, 1): b""}
    await store.close()


async def test_put_and_deleted_in_one_batch_leaves_nothing(world: World) -> None:
    store = await open_writer(world)
    slot = put(store, 1)

    batch = await commit(store, {slot: b"body"}, states=[slot], deletes=[slot])

    assert batch.count == 0
    assert store.position().last_lsn == 1
    assert store.slots.find(1, key(1)) == ABSENT
    store = await reopen(world, store)
    assert await contents(store) == {}
    await store.close()


async def test_replaced_and_deleted_in_one_batch_is_a_delete(world: World) -> None:
    store = await open_writer(world)
    slot = put(store, 1)
    await commit(store, {slot: b"body"})

    batch = await commit(store, {slot: b"other"}, states=[slot], deletes=[slot])

    assert batch.count == 1
    store = await reopen(world, store)
    assert await contents(store) == {}
    await store.close()


async def test_a_key_deleted_and_put_anew_in_one_batch_is_the_new_entry(world: World) -> None:
    store = await open_writer(world)
    old = put(store, 1)
    await commit(store, {old: b"old"})

    new = put(store, 1)
    assert new != old
    assert store.slots.find(1, key(1)) == new
    await commit(store, {new: b"new"}, deletes=[old])

    assert store.slots.find(1, key(1)) == new
    store = await reopen(world, store)
    assert await contents(store) == {(1, 1): b"new"}
    await store.close()


async def test_a_freed_slot_is_clean_when_it_is_used_again(world: World) -> None:
    store = await open_writer(world)
    slot = put(store, 1, state=9, priority=9, attempt=9, at_ms=9)
    await commit(store, {slot: b"a body"})
    await commit(store, deletes=[slot])

    again = put(store, 2)

    assert (again, store.slots.key(again)) == (slot, key(2))
    assert (store.slots.state[again], store.slots.at_ms[again]) == (0, 0)
    assert store.slots.body_length[again] == 0
    await commit(store, states=[again])
    assert await store.read_bodies([again]) == [b""]
    assert store.read_bodies_nowait([again]) == [b""]
    await store.close()


async def test_lsns_count_records_and_nothing_else(world: World) -> None:
    store = await open_writer(world)
    slots = [put(store, number) for number in range(3)]

    first = await commit(store, dict.fromkeys(slots, b"x"))
    await store.maintain()
    second = await commit(store, states=slots[:1], deletes=slots[1:])

    assert (first.first_lsn, first.count) == (2, 3)
    assert (second.first_lsn, second.count) == (5, 3)
    assert store.position().last_lsn == 7
    await store.close()


async def test_an_empty_batch_uses_no_lsn(world: World) -> None:
    store = await open_writer(world)

    assert (await commit(store)).count == 0
    assert store.position().last_lsn == 1
    await store.close()


async def test_the_position_moves_with_the_commit_not_the_build(world: World) -> None:
    store = await open_writer(world)
    slot = put(store, 1)

    batch = store.build({slot: b"x"}, [], [], clock_ms=5)

    assert store.position().last_lsn == 1
    await store.commit(batch)
    assert store.position().last_lsn == 2
    await store.close()


async def test_the_log_clock_never_goes_back(world: World) -> None:
    world.clock.now_ms = 1000
    store = await open_writer(world)
    await commit(store, {put(store, 1): b""}, clock_ms=5000)
    await commit(store, {put(store, 2): b""}, clock_ms=3000)
    assert store.position().log_clock_ms == 5000

    store = await reopen(world, store)

    assert store.position().log_clock_ms == 5000
    await store.close()


async def test_bodies_of_a_batch_not_committed_yet_can_be_read(world: World) -> None:
    store = await open_writer(world)
    slot = put(store, 1)
    batch = store.build({slot: b"pending"}, [], [], clock_ms=1)

    assert store.read_bodies_nowait([slot]) == [b"pending"]
    assert await store.read_bodies([slot]) == [b"pending"]

    await store.commit(batch)
    await store.close()


async def test_the_next_batch_may_be_built_while_one_is_being_committed(world: World) -> None:
    store = await open_writer(world)
    first, second = put(store, 1), put(store, 2)
    one = store.build({first: b"1"}, [], [], clock_ms=1)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.commit, one)
        two = store.build({second: b"2"}, [], [first], clock_ms=1)
    await store.commit(two)

    store = await reopen(world, store)
    assert await contents(store) == {(1, 2): b"2"}
    await store.close()


async def test_what_was_built_is_written_before_what_was_built_later(world: World) -> None:
    store = await open_writer(world)
    one = store.build({put(store, 1): b"1"}, [], [], clock_ms=1)
    two = store.build({put(store, 2): b"2"}, [], [], clock_ms=1)

    await store.commit(two)

    assert store.position().last_lsn == 3
    await store.commit(one)  # is there already
    await world.kill(store)
    store = await open_writer(world)
    assert await contents(store) == {(1, 1): b"1", (1, 2): b"2"}
    await store.close()


async def test_bodies_are_read_in_the_order_asked_for(world: World) -> None:
    store = await open_writer(world)
    slots = [put(store, number) for number in range(20)]
    bodies = {slot: bytes([slot]) * (1 + 3 * slot) for slot in slots}
    await commit(store, bodies)

    store = await reopen(world, store)
    asked = [store.slots.find(1, key(number)) for number in (3, 4, 5, 19, 0, 5, 18, 1, 2)]

    expected = [bytes([slots[n]]) * (1 + 3 * slots[n]) for n in (3, 4, 5, 19, 0, 5, 18, 1, 2)]
    assert await store.read_bodies(asked) == expected
    assert store.read_bodies_nowait(asked) == expected
    await store.close()


async def test_a_slot_may_be_reused_while_its_body_is_being_read(world: World) -> None:
    store = await open_writer(world)
    await add(store, [1], b"old")
    store = await reopen(world, store)
    slot = store.slots.find(1, key(1))

    reading = store.read_bodies([slot])
    await remove(store, [1])
    again = put(store, 2)
    await commit(store, {again: b"new"})

    assert again == slot
    assert await reading == [b"old"]
    await store.close()


async def test_the_directory_answers_for_keys_and_tables(world: World) -> None:
    store = await open_writer(world)
    await add(store, [1])
    await add(store, [2], table=2)

    await store.locate([(1, key(1)), (1, key(9))])

    assert store.locate_nowait(1, key(1)) == store.slots.find(1, key(1)) >= 0
    assert store.locate_nowait(1, key(2)) == ABSENT
    assert store.locate_nowait(2, key(2)) >= 0
    assert store.locate_nowait(1, key(9)) == ABSENT
    await store.close()


async def test_one_store_a_directory(world: World) -> None:
    store = await world.open()

    with pytest.raises(StoreLocked, match="is in use by process"):
        await world.open()

    await store.close()
    await (await world.open()).close()


async def test_closing_writes_what_was_built(world: World) -> None:
    store = await open_writer(world)
    store.build({put(store, 1): b"built"}, [], [], clock_ms=1)

    store = await reopen(world, store)

    assert await contents(store) == {(1, 1): b"built"}
    await store.close()


async def test_a_closed_store_does_nothing_any_more(world: World) -> None:
    store = await open_writer(world)
    await store.close()
    await store.close()

    with pytest.raises(StoreError, match="closed"):
        store.build({}, [], [], clock_ms=1)
    with pytest.raises(StoreError, match="closed"):
        store.read_bodies_nowait([])


async def test_maintenance_changes_nothing_that_is_seen(world: World) -> None:
    store = await open_writer(world)
    await add(store, range(30), b"z" * 3000)
    before = (heads(store), await contents(store), store.position())

    for _ in range(5):
        world.clock.now_ms += 1000
        assert await store.maintain() >= 0

    assert (heads(store), await contents(store), store.position()) == before
    assert store.room() is Room.OK
    await store.close()


async def test_progress_ends_with_all(world: World) -> None:
    store = await open_writer(world)
    await add(store, range(10))
    await store.close()
    seen: list[tuple[int, int]] = []

    store = await world.open(on_progress=lambda done, total: seen.append((done, total)))

    assert seen[-1][0] == seen[-1][1] > 0
    await store.close()
