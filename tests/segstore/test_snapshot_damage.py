"""Whatever is wrong with a snapshot, the log is replayed without it, and the snapshot removed."""

from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from segstore import Report, StoreDamaged, verify
from segstore.slots import Slots
from segstore.snapshot_file import snapshot_lsn
from tests.segstore.crash import no_changes, whole_state
from tests.segstore.snapshots import EAGER, checked, closed_world, disk, snapshots
from tests.segstore.surgery import cut, flip, frames, read, segment_path, segments, write
from tests.segstore.worlds import DiskWorld, add, contents, remove, sim_world


async def test_any_flipped_byte_is_noticed_and_the_log_replayed() -> None:
    world = await closed_world()
    [*_, path] = snapshots(world)
    data = read(world.vfs, path)
    expected = whole_state(await DiskWorld("/store", disk(world).fork(), EAGER).open())

    for at in [*range(0, 400), *range(400, len(data), 37), *range(len(data) - 100, len(data))]:
        vfs = disk(world).fork()
        write(vfs, path, data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :])
        store = await DiskWorld("/store", vfs, EAGER).open()
        assert whole_state(store) == expected, at
        assert not vfs.exists(path), at


async def test_any_truncated_length_is_noticed() -> None:
    world = await closed_world()
    [*_, path] = snapshots(world)
    data = read(world.vfs, path)
    for length in [*range(0, len(data), 97), len(data) - 1]:
        vfs = disk(world).fork()
        cut(vfs, path, length)
        store = await DiskWorld("/store", vfs, EAGER).open()
        assert not vfs.exists(path), length
        await store.close()


async def test_the_older_one_serves_when_the_newer_is_damaged() -> None:
    world = await closed_world()
    store = await world.writer()
    await add(store, range(900, 920))
    await store.close(no_changes)
    old, new = snapshots(world)
    cut(world.vfs, new, len(read(world.vfs, new)) - 1)

    store = await checked(world)

    assert store.stats().snapshot_lsn == snapshot_lsn(old.rpartition("/")[2])
    assert snapshots(world) == [old]


async def test_a_snapshot_of_a_later_log_is_not_used_on_an_earlier_one() -> None:
    world = await closed_world()
    earlier = disk(world).fork()
    store = await world.writer()
    await add(store, range(900, 920))
    await store.close(no_changes)
    [*_, path] = snapshots(world)
    write(earlier, path, read(world.vfs, path))

    store = await DiskWorld("/store", earlier, EAGER).open()

    assert not earlier.exists(path)
    assert (1, 900) not in await contents(store)


async def test_a_snapshot_of_another_branch_of_the_log_is_not_used() -> None:
    world = await closed_world()
    branch = DiskWorld("/store", disk(world).fork(), EAGER)
    branch.entropy._next = 99  # other salts
    for each, body in ((world, b"one"), (branch, b"two")):
        store = await each.writer()
        await add(store, range(900, 940), body)
        await store.close(no_changes)
    [*_, path] = snapshots(world)
    assert path == snapshots(branch)[-1], "both stand at the same LSN"
    write(branch.vfs, path, read(world.vfs, path))

    store = await checked(branch)

    assert (await contents(store))[1, 900] == b"two"
    assert not disk(branch).exists(path)


async def test_a_damaged_head_before_the_snapshot_does_no_harm_and_stays_known_to_the_log() -> None:
    world = await closed_world()
    expected = await contents(await DiskWorld("/store", disk(world).fork(), EAGER).open())
    first = min(segment for segment in segments(world))
    path = segment_path(world, first)
    data = bytearray(read(world.vfs, path))
    data[frames(world, first)[1].header.canonical_at + 70] ^= 1
    write(world.vfs, path, bytes(data))
    without = DiskWorld("/store", disk(world).fork(), EAGER)
    for each in snapshots(without):
        without.vfs.unlink(each)

    assert await contents(await world.open()) == expected
    with pytest.raises(StoreDamaged):
        await without.open()


@pytest.mark.parametrize("damage", ["missing", "short", "header", "last frame", "longer"])
async def test_segments_before_the_snapshot_must_be_there_from_header_to_end(damage: str) -> None:
    world = await closed_world()
    segment = min(segments(world))
    path = segment_path(world, segment)
    data = bytearray(read(world.vfs, path))
    last = frames(world, segment)[-1].header
    if damage == "header":
        data[20] ^= 1
    elif damage == "last frame":
        data[last.offset + 40] ^= 1
    elif damage == "short":
        del data[last.offset + 8 :]
    elif damage == "longer":
        data[last.offset + last.frame_bytes :] = b"more    "
    world.vfs.unlink(path)
    if damage != "missing":
        disk(world).open(path, is_new=True).pwritev([bytes(data)], 0)

    with pytest.raises(StoreDamaged):
        await world.open()


def live_segments(world: DiskWorld) -> list[int]:
    names = [name for name in disk(world).list_dir("/store") if name.startswith("seg-")]
    return [int(name[4:24]) for name in names]


# What `verify` says.


def notes_of(report: Report) -> list[str]:
    return [note for note in report.notes if "made ahead" not in note]


async def test_sound_snapshots_and_an_index_over_their_slots_are_no_news() -> None:
    world = sim_world(options=replace(EAGER, recent_entries_max=20))
    store = await world.writer()
    await add(store, range(60))
    await remove(store, range(0, 40, 2))
    await store.close(no_changes)
    store = await world.writer()
    await add(store, range(60, 90))  # in slots that a replay of the log gives to others
    while store._index.has_work():
        await store.maintain(no_changes)
    await store.close(no_changes)
    assert disk(world).exists("/store/index.hix")

    report = verify("/store", vfs=world.vfs)

    assert (report.damage_count, notes_of(report)) == (0, [])
    for path in snapshots(world):
        world.vfs.unlink(path)
    [note] = notes_of(verify("/store", vfs=world.vfs))
    assert "index.hix: of another slot table" in note


async def test_a_damaged_snapshot_is_named_and_one_that_does_not_fit_is_noted() -> None:
    world = await closed_world()
    later = DiskWorld("/store", disk(world).fork(), EAGER)
    store = await later.writer()
    await add(store, range(900, 920))
    await store.close(no_changes)
    old, new = snapshots(later)
    write(world.vfs, new, read(later.vfs, new))
    flip(world.vfs, old, 4200)

    report = verify("/store", vfs=world.vfs)

    assert [each.path for each in report.breaks] == [old]
    [note] = notes_of(report)
    assert note.startswith(new)
    assert "the next open does without" in note


async def test_a_snapshot_that_says_something_else_than_the_log_is_found() -> None:
    def copy(slots: Slots, start: int, stop: int) -> list[Any]:
        columns = real(slots, start, stop)
        columns[-1][0] += 1
        return columns

    world = sim_world(options=EAGER)
    store = await world.writer()
    await add(store, range(20))
    real = Slots.copy
    with patch.object(Slots, "copy", copy):
        await store.close(no_changes)

    [damage] = verify("/store", vfs=world.vfs).breaks

    assert damage.path == snapshots(world)[0]
    assert damage.problem.startswith("2 entries are not as the log has them")
