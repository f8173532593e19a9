"""A store finds its entries whether they are recent, in the index file, or neither yet."""

from typing import Any

import pytest

from segstore import Options, Store
from segstore.layout import INDEX_NAME
from tests.fakes.simvfs import SimVFS
from tests.segstore.crash import check_counts
from tests.segstore.worlds import DiskWorld, add, contents, key, put, remove, sim_world

FEW = Options(segment_bytes=65_536, cache_bytes=4096, recent_entries_max=50)
PATH = f"/store/{INDEX_NAME}"


async def settle(store: Store) -> None:
    """Do all maintenance of the index."""
    while not await store.maintain():
        pass


def trace_of(world: DiskWorld) -> list[str]:
    vfs = world.vfs
    assert isinstance(vfs, SimVFS)
    return [call.name for call in vfs.trace if call.path == PATH]


async def filled(world: DiskWorld, count: int = 1000) -> Store:
    store = await world.writer()
    for start in range(0, count, 100):
        await add(store, range(start, start + 100))
        await settle(store)
    return store


async def test_old_entries_are_found_in_the_index_file() -> None:
    world = sim_world(options=FEW)
    store = await filled(world)

    assert store.stats().recent_count <= 50
    assert store.stats().bucket_count > 0
    check_counts(store)
    await remove(store, range(0, 1000, 2))
    assert store.slots.find(1, key(0)) == -1
    assert store.slots.find(1, key(1)) >= 0
    check_counts(store)


async def test_a_store_with_few_entries_has_no_index_file() -> None:
    world = sim_world()
    store = await filled(world)
    await store.close()
    await (await world.writer()).close()

    assert set(trace_of(world)) <= {"exists"}


async def test_after_a_clean_close_the_index_file_is_used_again() -> None:
    world = sim_world(options=FEW)
    store = await filled(world)
    await store.close()

    store = await world.writer()

    assert not store.stats().is_building_index
    check_counts(store)
    await add(store, range(1000, 1200))
    await settle(store)
    check_counts(store)


async def test_an_open_that_only_reads_leaves_the_index_file_as_it_is() -> None:
    world = sim_world(options=FEW)
    store = await filled(world)
    await store.close()
    vfs = world.vfs
    assert isinstance(vfs, SimVFS)
    left = vfs.visible_files()["/store/index.hix"]

    store = await world.open()
    check_counts(store)
    await store.close()

    assert vfs.visible_files()["/store/index.hix"] == left
    assert not (await world.open()).stats().is_building_index


@pytest.mark.parametrize("what", ["killed", "deleted", "emptied"])
async def test_without_a_usable_index_file_entries_are_found_while_it_is_built(what: str) -> None:
    world = sim_world(options=FEW)
    store = await filled(world)
    if what == "killed":
        await world.kill(store)
    else:
        await store.close()
        if what == "deleted":
            world.vfs.unlink(PATH)
        else:
            world.vfs.open(PATH).truncate(0)

    store = await world.writer()

    assert store.stats().is_building_index
    assert store.locate_nowait(1, key(5)) == -2
    await store.locate([(1, key(5)), (1, key(5000))])
    assert store.slots.key(store.locate_nowait(1, key(5))) == key(5)
    assert store.locate_nowait(1, key(5000)) == -1
    assert store.slots.find(1, key(6)) >= 0
    await remove(store, [5, 6, 7])
    await add(store, [5])
    await settle(store)
    assert not store.stats().is_building_index
    check_counts(store)
    assert set(await contents(store)) == {(1, number) for number in range(1000)} - {(1, 6), (1, 7)}


async def test_entries_changed_last_are_recent_after_an_unclean_stop() -> None:
    world = sim_world(options=FEW)
    store = await filled(world)
    slots = [store.slots.find(1, key(number)) for number in range(10)]
    await store.commit(store.build({}, slots, (), clock_ms=1))
    await world.kill(store)

    store = await world.writer()

    for number in range(10):
        assert store.locate_nowait(1, key(number)) >= 0


async def test_a_flood_of_entries_waits_for_the_merge_instead_of_filling_ram() -> None:
    world = sim_world(options=FEW)
    store = await world.writer()

    for number in range(2000):
        await add(store, [number])  # and no maintenance

    assert store.stats().recent_count < 2 * 50 + 64  # it looks once for 64 records
    check_counts(store)


async def test_a_key_put_and_deleted_in_one_batch_over_an_old_one_is_the_old_one_s_end() -> None:
    world = sim_world(options=FEW)
    store = await filled(world)
    old = store.slots.find(1, key(3))
    new = put(store, 3)

    await store.commit(store.build({new: b"new"}, (), [old], clock_ms=1))

    assert store.slots.find(1, key(3)) == new
    await settle(store)
    check_counts(store)


async def test_closing_while_the_index_is_built_is_harmless() -> None:
    world = sim_world(options=FEW)
    store = await filled(world)
    await world.kill(store)
    store = await world.writer()
    await store._index._step()
    await store.close()

    store = await world.writer()
    await settle(store)

    check_counts(store)


def count_table(store: Any, table: int) -> int:
    return sum(store.slots.table(slot) == table for slot in store.scan())


async def test_small_tables_stay_recent_while_a_large_one_is_merged() -> None:
    world = sim_world(options=FEW)
    store = await world.writer()
    await add(store, range(5), table=4)
    for start in range(0, 500, 100):
        await add(store, range(start, start + 100))
        await settle(store)

    assert len(store.slots.recent[4]) == 5
    assert count_table(store, 4) == 5
