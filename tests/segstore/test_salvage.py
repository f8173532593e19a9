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
from segstore.batch import FRAME_HEADER_BYTES
from segstore.rescue import crc_start
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


async def test_batches_whose_frame_is_damaged_around_them_are_carried_over() -> None:
    world = world_of()
    await filled(world, 12)
    _first, second, third = frames(world, 2)
    flip(world.vfs, segment_path(world, 2), second.header.offset + 50)
    flip(world.vfs, segment_path(world, 2), third.header.offset + FRAME_HEADER_BYTES + 1)

    result = await rescue(world)

    assert await rescued(world) == list(range(12))
    assert [each.lsn_first for each in result.breaks] == [None, None]


async def test_a_batch_in_a_body_is_no_batch_of_the_log() -> None:
    """A client that knows the uuid sends a copy of a batch as a body, and the frame is damaged."""
    world = world_of()
    store = await world.writer()
    await add(store, [1], BODY)
    header = frames(world, 1)[1].header
    whole = read(world.vfs, segment_path(world, 1))
    forged = whole[header.canonical_at : header.offset + header.frame_bytes]
    await remove(store, [1])
    await add(store, [2], forged)
    await add(store, [3], BODY)
    await world.kill(store)
    carrier = frames(world, 1)[3].header
    flip(world.vfs, segment_path(world, 1), carrier.canonical_at + 70)

    result = await rescue(world)

    assert await rescued(world) == [3]
    assert [(each.lsn_first, each.lsn_last) for each in result.breaks] == [(4, 4)]


@pytest.mark.parametrize("harm", ["flip", "salt", "sector", "all"])
async def test_a_segment_whose_header_is_damaged_is_read_by_its_frames(harm: str) -> None:
    world = world_of()
    await filled(world, 12)
    path = segment_path(world, 2)
    if harm == "flip":
        flip(world.vfs, path, 30)
    elif harm == "salt":
        flip(world.vfs, path, 57)
    else:
        write(world.vfs, path, bytes(512 if harm == "sector" else 4096))

    result = await rescue(world)

    assert await rescued(world) == list(range(12))
    assert result.breaks == []
    assert result.notes[0].startswith(f"{path}+0: segment header CRC mismatch; its frames")


async def test_where_header_and_first_frame_are_damaged_batches_are_found_by_their_chain() -> None:
    world = world_of()
    await filled(world, 12)
    path = segment_path(world, 2)
    first = frames(world, 2)[0].header
    write(world.vfs, path, bytes(512))
    flip(world.vfs, path, first.offset + 60)

    result = await rescue(world)

    assert {each.path for each in result.breaks} == {path}
    assert [each.lsn_first for each in result.breaks] == [None] * len(result.breaks)
    assert await rescued(world) == list(range(12))


async def test_where_that_chain_is_broken_too_the_rest_of_the_segment_is_lost() -> None:
    world = world_of()
    await filled(world, 12)
    path = segment_path(world, 2)
    first, second, _third = (frame.header for frame in frames(world, 2))
    write(world.vfs, path, bytes(512))
    flip(world.vfs, path, first.offset + 60)
    flip(world.vfs, path, second.canonical_at + 70)

    result = await rescue(world)

    assert (result.breaks[-1].lsn_first, result.breaks[-1].lsn_last) == (6, 7)
    assert await rescued(world) == [n for n in range(12) if n not in (4, 5)]


async def test_a_sector_that_cannot_be_read_is_passed_over() -> None:
    world = world_of()
    await filled(world, 12)
    path, vfs = segment_path(world, 2), world.vfs
    assert isinstance(vfs, SimVFS)
    whole = len(read(vfs, path))
    # Whole reads of the file fail, and so does the piece behind the header.
    vfs.fail(errno.EIO, names=["pread"], path_part=path, is_forever=True)
    original = vfs.faults[0].matches
    vfs.faults[0] = SectorFault(path, 4096, whole)  # type: ignore[call-overload]  # like a Fault
    assert original

    result = await rescue(world)

    assert "cannot be read" in str(result.breaks[0])
    left = await rescued(world)
    assert set(left) == {n for n in range(12) if not 3 <= n < 6}


class SectorFault:
    """Reads over one offset fail for ever, as on a disk with a bad sector."""

    error = errno.EIO
    is_forever = True

    def __init__(self, path: str, start: int, stop: int) -> None:
        self.path, self.start, self.stop = path, start, stop

    def matches(self, call) -> bool:  # type: ignore[no-untyped-def]  # a Call
        end = call.offset + call.length
        is_over = call.offset < self.stop and end > self.start
        return call.name == "pread" and call.path == self.path and is_over


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


def test_a_crc_runs_backwards() -> None:
    from zlib import crc32

    random = Random(5)
    for _ in range(50):
        data, start = random.randbytes(random.randrange(300)), random.getrandbits(32)
        assert crc_start(data, crc32(data, start)) == start
