"""Places to open stores in, for tests that do not care which: real disk, simulated disk, memory."""

from collections.abc import Sequence
from typing import Any, Protocol

from attrs import define, field

from segstore import VFS, Options, RealVFS, Store, run_inline
from tests.fakes.memory_store import MemoryDisk, MemoryStore
from tests.fakes.simvfs import SimVFS

FIELDS = (("state", "B"), ("priority", "B"), ("attempt", "I"), ("at_ms", "Q"))
SMALL = Options(segment_bytes=65_536, cache_bytes=4096)


def key(number: int) -> bytes:
    """Return the 16-byte key of a number."""
    return number.to_bytes(16, "big")


class Entropy:
    """Random bytes that are the same in each run."""

    def __init__(self, seed: int = 1) -> None:
        self._next = seed

    def __call__(self, count: int) -> bytes:
        self._next = (self._next * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        return (self._next.to_bytes(8, "big") * (count // 8 + 1))[:count]


@define
class Clock:
    """A wall clock that stands still."""

    now_ms: int = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now_ms


class World(Protocol):
    """Opens stores on one directory, one after the other."""

    clock: Clock

    async def open(self, **changes: Any) -> Any: ...
    async def kill(self, store: Any) -> None: ...


@define
class DiskWorld:
    """The embedded store on a VFS."""

    path: str
    vfs: VFS
    options: Options = SMALL
    fields: Sequence[tuple[str, str]] = FIELDS
    clock: Clock = field(factory=Clock)
    entropy: Entropy = field(factory=Entropy)

    async def open(self, **changes: Any) -> Store:
        arguments: dict[str, Any] = {
            "fields": self.fields,
            "options": self.options,
            "vfs": self.vfs,
            "clock_ms": self.clock,
            "entropy": self.entropy,
            "run_in_worker": run_inline,
        }
        return await Store.open(self.path, **arguments | changes)

    async def writer(self, **changes: Any) -> Store:
        """Open and become the writer."""
        store = await self.open(**changes)
        await store.become_writer()
        return store

    async def kill(self, store: Store) -> None:
        """End a store as SIGKILL does: what was written stays, nothing more comes."""
        store._directory.lock.close()


@define
class MemoryWorld:
    """The double."""

    clock: Clock = field(factory=Clock)
    disk: MemoryDisk = field(factory=MemoryDisk)

    async def open(self, **changes: Any) -> MemoryStore:
        arguments: dict[str, Any] = {"fields": FIELDS, "clock_ms": self.clock, "disk": self.disk}
        return await MemoryStore.open("/store", **arguments | changes)

    async def kill(self, store: MemoryStore) -> None:
        store.abandon()


def real_world(path: str, **changes: Any) -> DiskWorld:
    """Return a world in a directory of the real disk."""
    return DiskWorld(path, RealVFS(), **changes)


def sim_world(**changes: Any) -> DiskWorld:
    """Return a world on a disk in RAM."""
    return DiskWorld("/store", SimVFS(), **changes)


def put(store: Any, number: int, *, table: int = 1, **fields: int) -> int:
    """Allocate a slot for a key and set its fields; return it."""
    slot = int(store.slots.allocate(table, key(number)))
    for name, value in fields.items():
        getattr(store.slots, name)[slot] = value
    return slot


async def commit(
    store: Any, puts: Any = (), states: Any = (), deletes: Any = (), *, clock_ms: int = 1
) -> Any:
    """Build and commit one batch."""
    batch = store.build(dict(puts), states, deletes, clock_ms=clock_ms)
    await store.commit(batch)
    return batch


async def add(store: Any, numbers: Sequence[int], body: bytes = b"body", *, table: int = 1) -> None:
    """Put entries with the same body, in one batch."""
    await commit(store, {put(store, number, table=table): body for number in numbers})


async def remove(store: Any, numbers: Sequence[int], *, table: int = 1) -> None:
    """Delete entries, in one batch."""
    await commit(store, deletes=[store.slots.find(table, key(number)) for number in numbers])


def heads(store: Any) -> dict[tuple[int, int], tuple[int, ...]]:
    """Return table, key number and head of each live entry."""
    slots = store.slots
    return {
        (slots.table(slot), int.from_bytes(slots.key(slot), "big")): tuple(
            getattr(slots, name)[slot] for name, _ in FIELDS
        )
        for slot in store.scan()
    }


async def contents(store: Any) -> dict[tuple[int, int], bytes]:
    """Return table, key number and body of each live entry."""
    slots = store.slots
    live = list(store.scan())
    bodies = await store.read_bodies(live)
    return {
        (slots.table(slot), int.from_bytes(slots.key(slot), "big")): body
        for slot, body in zip(live, bodies, strict=True)
    }
