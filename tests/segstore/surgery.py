"""Looking into the files of a store, harming them, and opening what is left."""

from dataclasses import replace
from typing import Any

import pytest

from segstore import VFS, Options, Store, StoreDamaged
from segstore.layout import HeadLayout, decode_header, segment_name
from segstore.scan import Frame, LogState, SegmentScan
from tests.segstore.worlds import DiskWorld, add, contents, remove, sim_world

FLIP = 0xFF
OPTIONS = Options(segment_bytes=8192, persist="sync_data", prealloc="none", compact_bytes_s=0)
BODY = b"b" * 1000


def read(vfs: VFS, path: str) -> bytes:
    """Return the content of a file."""
    file = vfs.open(path, is_readonly=True)
    data = file.pread(file.size(), 0)
    file.close()
    return data


def write(vfs: VFS, path: str, data: bytes, offset: int = 0) -> None:
    """Write into a file, durably; a missing one is made."""
    file = vfs.open(path, is_new=not vfs.exists(path))
    file.pwritev([data], offset)
    file.fsync()
    file.close()


def flip(vfs: VFS, path: str, offset: int) -> None:
    """Turn one byte over."""
    (byte,) = read(vfs, path)[offset : offset + 1]
    write(vfs, path, bytes([byte ^ FLIP]), offset)


def cut(vfs: VFS, path: str, length: int) -> None:
    """Shorten a file."""
    file = vfs.open(path)
    file.truncate(length)
    file.fsync()
    file.close()


def segment_path(world: DiskWorld, segment: int) -> str:
    """Return the path of a segment."""
    return f"{world.path}/{segment_name(segment)}"


def segments(world: DiskWorld) -> list[int]:
    """Return the ids of the segment files there, rising."""
    names = sorted(name for name in world.vfs.list_dir(world.path) if name.endswith(".seg"))
    return [int(name[4:24]) for name in names]


def scan_of(world: DiskWorld, segment: int) -> SegmentScan:
    """Return a scan at the start of a segment."""
    data = read(world.vfs, segment_path(world, segment))
    header = decode_header(data)
    assert not isinstance(header, str), header
    return SegmentScan(data, header, HeadLayout(world.fields), LogState())


def frames(world: DiskWorld, segment: int) -> list[Frame]:
    """Return the intact frames of a segment, whatever their order in the log."""
    scan = scan_of(world, segment)
    found = []
    while not isinstance(frame := scan.parse(scan.offset), str):
        found.append(frame)
        scan.offset += frame.header.frame_bytes
    return found


def world_of(**changes: Any) -> DiskWorld:
    """Return a simulated disk and small segments; `changes` are options."""
    return sim_world(options=replace(OPTIONS, **changes))


async def filled(world: DiskWorld, count: int = 3) -> Store:
    """Return a writer killed after `count` batches of one entry each."""
    store = await world.writer()
    for number in range(count):
        await add(store, [number], BODY)
    await world.kill(store)
    return store


async def found(world: DiskWorld) -> list[int]:
    """Open, return which numbers are there, close."""
    store = await world.open()
    numbers = sorted(number for _, number in await contents(store))
    await store.close()
    return numbers


async def refusal(world: DiskWorld) -> StoreDamaged:
    """Open, which must be refused, and check that nothing was changed by it."""
    before = {path: read(world.vfs, path) for path in files(world)}
    with pytest.raises(StoreDamaged) as caught:
        await world.open()
    assert {path: read(world.vfs, path) for path in files(world)} == before
    return caught.value


def files(world: DiskWorld) -> list[str]:
    """Return the paths of everything in the directory of a store."""
    return [f"{world.path}/{name}" for name in world.vfs.list_dir(world.path) if "." in name]


def quarantined(world: DiskWorld) -> list[str]:
    """Return the names of the tails that were cut."""
    folder = f"{world.path}/quarantine"
    return world.vfs.list_dir(folder) if world.vfs.exists(folder) else []


async def compacted() -> tuple[DiskWorld, Store]:
    """Return a world and its writer after entries were copied out of a mostly dead segment."""
    world = world_of(compact_bytes_s=1 << 30)
    store = await world.writer()
    for number in range(30):
        await add(store, [number], BODY)
    await remove(store, [number for number in range(30) if number % 3])
    for _ in range(50):
        world.clock.now_ms += 1000
        await store.maintain(lambda: False)
    assert store.stats().moved_count > 0
    return world, store
