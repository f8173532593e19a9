"""Stores that write snapshots often, and what is in them."""

from random import Random
from typing import Any

from segstore import Options, Store
from segstore.snapshot_file import snapshot_lsn
from tests.fakes.simvfs import SimVFS
from tests.segstore.crash import no_changes, state_without_snapshots, whole_state
from tests.segstore.worlds import DiskWorld, add, commit, remove, sim_world

EAGER = Options(segment_bytes=8192, cache_bytes=4096, snapshot_log_bytes=2048, prealloc="none")


def has_changes() -> bool:
    return True


def disk(world: DiskWorld) -> SimVFS:
    assert isinstance(world.vfs, SimVFS)
    return world.vfs


def snapshots(world: DiskWorld) -> list[str]:
    """Return the paths of the snapshots, oldest first."""
    names = sorted(disk(world).list_dir("/store"))
    return [f"/store/{name}" for name in names if snapshot_lsn(name) is not None]


def slots_of(store: Store) -> dict[int, tuple[int, bytes]]:
    return {slot: (store.slots.table(slot), store.slots.key(slot)) for slot in store.scan()}


async def turn(store: Store, count: int, **settings: Any) -> None:
    """Call `maintain` so often."""
    for _ in range(count):
        await store.maintain(settings.get("has_changes", no_changes))


async def lived(world: DiskWorld, *, rounds: int = 12) -> Store:
    """Return a store with a past: segments dropped, entries changed, slots used again."""
    random = Random(1)
    store = await world.writer()
    for number in range(rounds):
        await add(store, range(10 * number, 10 * number + 10), random.randbytes(100), table=1)
        await commit(store, states=random.sample(list(store.scan()), 3))
        await remove(store, range(10 * number, 10 * number + 7))
        world.clock.now_ms += 100
        await turn(store, 2)
    return store


async def checked(world: DiskWorld) -> Store:
    """Open; the state is what the log alone says."""
    bare = disk(world).fork()
    store = await world.open()
    assert whole_state(store) == await state_without_snapshots(bare, world.options)
    return store


async def closed_world() -> DiskWorld:
    world = sim_world(options=EAGER)
    store = await lived(world)
    await store.close(no_changes)
    return world
