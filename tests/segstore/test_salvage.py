"""What is carried over from a damaged store, what is listed as lost, and that it is left alone."""

import errno
import json
from random import Random

import pytest

from segstore import (
    NoStore,
    Options,
    Salvaged,
    StoreLocked,
    TargetRefused,
    dump,
    salvage,
    verify,
)
from tests.fakes.simvfs import SimVFS
from tests.segstore.surgery import (
    BODY,
    cut,
    filled,
    flip,
    found,
    frames,
    read,
    segment_path,
    segments,
    world_of,
    write,
)
from tests.segstore.worlds import DiskWorld, add, commit, contents, heads, key, put, remove

TARGET = "/rescued"


def rescued_of(world: DiskWorld) -> DiskWorld:
    return DiskWorld(TARGET, world.vfs, world.options)


async def rescue(world: DiskWorld) -> Salvaged:
    """Salvage, see that the source is as it was byte by byte and that the new store is sound."""
    vfs = world.vfs
    assert isinstance(vfs, SimVFS)
    before = vfs.visible_files()
    options = Options(segment_bytes=65536, prealloc="none")
    result = await salvage("/store", TARGET, vfs=vfs, clock_ms=world.clock, options=options)
    after = vfs.visible_files()
    assert {path: after[path] for path in before} == before
    assert sorted(set(after) - set(before))[0].startswith(TARGET)
    assert verify(TARGET, vfs=vfs).damage_count == 0
    return result


async def rescued(world: DiskWorld) -> list[int]:
    """Return the numbers in the new store; each must have its body."""
    store = await rescued_of(world).open()
    left = await contents(store)
    await store.close()
    assert set(left.values()) <= {BODY}
    return sorted(number for _, number in left)


async def test_a_sound_store_is_carried_over_whole_with_heads_uuid_and_clock() -> None:
    world = world_of(compact_bytes_s=1 << 30)
    store = await world.writer()
    for number in range(12):
        slot = put(store, number, state=3, priority=number % 5, attempt=number, at_ms=1 << 40)
        await commit(store, {slot: BODY}, clock_ms=world.clock.now_ms + 5000)
    await remove(store, [2, 5])
    for _ in range(20):
        world.clock.now_ms += 100
        await store.maintain(lambda: False)
    before, position = heads(store), store.position()
    await store.close()

    result = await rescue(world)

    assert (result.entry_count, result.is_whole, result.orphans) == (10, True, [])
    again = await rescued_of(world).open()
    assert heads(again) == before
    assert again.position().store_uuid == position.store_uuid
    assert again.position().log_clock_ms == position.log_clock_ms
    await again.close()


async def test_a_flipped_batch_is_lost_alone_and_named_with_its_entries() -> None:
    world = world_of()
    await filled(world, 12)
    header = frames(world, 2)[1].header
    flip(world.vfs, segment_path(world, 2), header.canonical_at + 64 + 30)

    result = await rescue(world)

    (lost,) = result.breaks
    assert (lost.path, lost.offset) == (segment_path(world, 2), header.offset)
    assert (lost.lsn_first, lost.lsn_last) == (6, 6)
    assert lost.keys == ((1, key(4)),)
    assert await rescued(world) == [n for n in range(12) if n != 4]
    report = json.loads(read(world.vfs, f"{TARGET}/quarantine/salvage.json"))
    assert report["breaks"][0]["where"] == str(lost)
    assert report["breaks"][0]["entries"] == [f"table 1, key {key(4).hex()}"]


async def test_a_damaged_body_is_lost_alone_and_named() -> None:
    world = world_of()
    await filled(world, 12)
    header = frames(world, 2)[1].header
    flip(world.vfs, segment_path(world, 2), header.bodies_at + 7)

    result = await rescue(world)

    (body,) = result.bodies
    assert (body.key, body.path, body.offset) == (key(4), segment_path(world, 2), header.bodies_at)
    assert (result.breaks, result.is_whole) == ([], False)
    assert await rescued(world) == [n for n in range(12) if n != 4]


async def test_zeroed_sectors_cost_the_frames_they_are_in() -> None:
    world = world_of()
    await filled(world, 12)
    first = frames(world, 1)[1].header.offset
    write(world.vfs, segment_path(world, 1), bytes(512), first // 512 * 512 + 512)

    result = await rescue(world)

    left = await rescued(world)
    assert set(range(3, 12)) <= set(left)
    lost = [n for n in range(12) if n not in left]
    assert lost in ([0], [0, 1])
    assert len(result.breaks) + len(result.bodies) == 1


async def test_a_missing_segment_costs_what_was_in_it_and_says_which_lsns() -> None:
    for missing in (1, 2, 3):
        world = world_of()
        await filled(world, 12)
        world.vfs.unlink(segment_path(world, missing))

        result = await rescue(world)

        (lost,) = result.breaks
        assert (lost.path, lost.problem) == (segment_path(world, missing), "the file is missing")
        assert lost.lsn_last == {1: 4, 2: 7, 3: 10}[missing]
        assert lost.lsn_first == {1: None, 2: 5, 3: 8}[missing]
        gone = range(3 * missing - 3, 3 * missing)
        assert await rescued(world) == [n for n in range(12) if n not in gone]


async def test_a_truncated_segment_costs_its_end() -> None:
    world = world_of()
    await filled(world, 12)
    last = frames(world, 2)[-1].header
    for length in (last.offset, last.offset + 300):
        cut(world.vfs, segment_path(world, 2), length)
        world.vfs = world.vfs.fork()  # type: ignore[attr-defined]  # SimVFS

        result = await rescue(world)

        (lost,) = result.breaks
        assert (lost.path, lost.offset) == (segment_path(world, 2), last.offset)
        assert (lost.lsn_first, lost.lsn_last) == (7, 7)
        assert await rescued(world) == [n for n in range(12) if n != 5]
        for name in world.vfs.list_dir(TARGET):
            if name != "quarantine":
                world.vfs.unlink(f"{TARGET}/{name}")
        world = world_of()
        await filled(world, 12)


async def test_a_damaged_or_missing_marker_is_made_good_from_the_segments() -> None:
    for harm in ("flip", "missing"):
        world = world_of()
        store = await filled(world, 12)
        uuid = store.position().store_uuid
        if harm == "flip":
            flip(world.vfs, "/store/FORMAT", 40)
        else:
            world.vfs.unlink("/store/FORMAT")

        assert (await rescue(world)).is_whole

        again = await rescued_of(world).open()
        assert again.position().store_uuid == uuid
        await again.close()


async def test_what_was_dropped_and_lies_there_still_is_not_carried_over() -> None:
    world = world_of()
    store = await world.writer()
    for number in range(6):
        await add(store, [number], BODY)
    old = read(world.vfs, segment_path(world, 1))
    await remove(store, range(6))
    await add(store, [7], BODY)
    await store.maintain()
    assert 1 not in segments(world)
    await store.close()
    write(world.vfs, segment_path(world, 1), old)
    flip(world.vfs, segment_path(world, segments(world)[-1]), 30)

    await rescue(world)

    assert await rescued(world) == [7]


async def test_a_lost_delete_brings_its_entry_back_and_a_lost_put_leaves_an_orphan() -> None:
    world = world_of()
    store = await world.writer()
    await add(store, [1, 2], BODY)
    slot = store.slots.find(1, key(1))
    await remove(store, [2])
    await commit(store, states=[slot])
    await world.kill(store)
    put_frame, delete_frame = frames(world, 1)[1].header, frames(world, 1)[2].header

    flip(world.vfs, segment_path(world, 1), delete_frame.canonical_at + 70)
    result = await rescue(world)
    assert await rescued(world) == [1, 2]
    assert result.breaks[0].keys == ((1, key(2)),)
    assert result.orphans == []

    for name in world.vfs.list_dir(TARGET):
        if name != "quarantine":
            world.vfs.unlink(f"{TARGET}/{name}")
    world.vfs.unlink(f"{TARGET}/quarantine/salvage.json")
    world.vfs._names.pop(f"{TARGET}/quarantine")  # type: ignore[attr-defined]  # SimVFS has no rmdir
    flip(world.vfs, segment_path(world, 1), put_frame.canonical_at + 70)
    result = await rescue(world)
    assert await rescued(world) == []
    assert result.orphans == [(1, key(1))]


@pytest.mark.parametrize("seed", range(60))
async def test_whatever_is_damaged_all_that_is_found_was_once_stored(seed: int) -> None:
    """Every entry in the new store is one that was there once; none is there for nothing lost."""
    print(f"seed {seed}")
    random = Random(seed)
    world = world_of(compact_bytes_s=1 << 30, prealloc=random.choice(["none", "zero"]))
    store = await world.writer()
    bodies: dict[tuple[int, int], bytes] = {}
    live: set[int] = set()
    for number in range(40):
        bodies[1, number] = random.randbytes(random.choice([0, 30, 800, 2000]))
        await add(store, [number], bodies[1, number])
        live.add(number)
        if random.random() < 0.4:
            gone = random.choice(sorted(live))
            live.remove(gone)
            await remove(store, [gone])
        world.clock.now_ms += 500
        await store.maintain(lambda: False)
    await store.close()
    names = segments(world)
    for _ in range(random.randrange(1, 4)):
        path = segment_path(world, random.choice(names))
        if not world.vfs.exists(path):
            continue
        size = len(read(world.vfs, path))
        match random.randrange(4):
            case 0:
                flip(world.vfs, path, random.randrange(size))
            case 1:
                write(world.vfs, path, bytes(512), random.randrange(size // 512) * 512)
            case 2:
                cut(world.vfs, path, random.randrange(size))
            case _:
                if len(names) > 1:
                    world.vfs.unlink(path)

    try:
        result = await rescue(world)
    except NoStore:
        return  # the only segment was cut short before its first frame

    again = await rescued_of(world).open()
    left = await contents(again)
    await again.close()
    assert all(left[each] == bodies[each] for each in left)
    if result.is_whole and not result.notes:
        assert {number for _, number in left} == live
    assert list(dump(TARGET, vfs=world.vfs))


async def test_nothing_is_left_of_a_salvage_that_failed() -> None:
    world = world_of()
    await filled(world, 12)
    vfs = world.vfs
    assert isinstance(vfs, SimVFS)
    vfs.fail(errno.ENOSPC, names=["pwritev"], path_part=f"{TARGET}/seg", is_forever=True)

    with pytest.raises(Exception, match="No space left"):
        await salvage("/store", TARGET, vfs=vfs, clock_ms=world.clock)

    assert vfs.list_dir(TARGET) == []


async def test_without_a_marker_and_headers_nothing_is_known_and_a_backup_is_advised() -> None:
    world = world_of()
    await filled(world)
    write(world.vfs, "/store/FORMAT", b"harmed")
    for segment in segments(world):
        write(world.vfs, segment_path(world, segment), b"harmed")

    with pytest.raises(NoStore, match=r"no segment has a good header; restore a backup$"):
        await salvage("/store", TARGET, vfs=world.vfs, clock_ms=world.clock)


async def test_what_cannot_be_salvaged_is_refused() -> None:
    world = world_of()
    with pytest.raises(NoStore, match="holds no store"):
        await salvage("/store", TARGET, vfs=world.vfs, clock_ms=world.clock)
    store = await world.writer()
    with pytest.raises(StoreLocked):
        await salvage("/store", TARGET, vfs=world.vfs, clock_ms=world.clock)
    await store.close()
    with pytest.raises(TargetRefused):
        await salvage("/store", "/store/in", vfs=world.vfs, clock_ms=world.clock)
    assert not world.vfs.exists(TARGET)
    assert await found(world) == []
