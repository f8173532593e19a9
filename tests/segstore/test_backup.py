"""Backups: what is in one, what makes one start over, and that it opens like any store."""

import errno
from pathlib import Path
from random import Random

import pytest
import trio

from segstore import (
    Backup,
    Options,
    Store,
    TrioWorkers,
    backup,
    verify,
)
from segstore.manifest import decode_manifest
from tests.fakes.faults import Call
from tests.fakes.simvfs import SimVFS
from tests.segstore.surgery import (
    BODY,
    cut,
    files,
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
from tests.segstore.worlds import DiskWorld, add, contents, real_world, remove

TARGET = "/copy"


def target_of(world: DiskWorld) -> DiskWorld:
    """Return the world of the backup; it has a clock and entropy of its own."""
    return DiskWorld(TARGET, world.vfs, world.options)


def back_up(world: DiskWorld, *, is_linking: bool = True) -> Backup:
    """Make a backup, and see that it is sound and that the source is as it was."""
    before = {path: read(world.vfs, path) for path in files(world)}
    made = backup(world.path, TARGET, vfs=world.vfs, now_ms=77, is_linking=is_linking)
    assert {path: read(world.vfs, path) for path in files(world)} == before
    report = verify(TARGET, vfs=world.vfs)
    assert (report.damage_count, report.notes) == (0, [])
    assert report.manifest == made.manifest
    return made


@pytest.mark.parametrize("is_linking", [True, False])
async def test_a_backup_of_a_store_in_use_opens_with_all_that_was_committed(
    is_linking: bool,
) -> None:
    world = world_of(prealloc="zero")
    store = await world.writer()
    for number in range(12):
        await add(store, [number], BODY)
        await store.maintain()

    made = back_up(world, is_linking=is_linking)

    position = store.position()
    assert made.manifest.store_uuid == position.store_uuid
    assert (made.manifest.last_lsn, made.manifest.epoch) == (position.last_lsn, position.epoch)
    assert made.manifest.made_ms == 77
    assert (made.linked_bytes > 0) == is_linking
    assert made.linked_bytes + made.copied_bytes == made.manifest.byte_count
    await add(store, [50], BODY)
    await store.close()
    copy = await target_of(world).open()
    assert await contents(copy) == {(1, number): BODY for number in range(12)}
    assert copy.position() == position
    await copy.close()


async def test_an_opened_backup_is_none_any_more_and_harms_neither_its_source_nor_the_links() -> (
    None
):
    world = world_of(compact_bytes_s=1 << 30)
    store = await world.writer()
    for number in range(12):
        await add(store, [number], BODY)
    back_up(world)
    before = {path: read(world.vfs, path) for path in files(world)}

    copy = await target_of(world).writer()
    assert "BACKUP" not in world.vfs.list_dir(TARGET)
    await remove(copy, range(11))
    for _ in range(20):
        await copy.maintain(lambda: False)
    await add(copy, [70], BODY)
    await copy.close()

    assert {path: read(world.vfs, path) for path in files(world)} == before
    assert await contents(store) == {(1, number): BODY for number in range(12)}
    await store.close()
    assert verify(world.path, vfs=world.vfs).damage_count == 0


async def test_a_backup_survives_a_power_cut_once_it_is_made() -> None:
    world = world_of()
    await filled(world, 12)
    back_up(world)

    world.vfs = world.vfs.crash()  # type: ignore[attr-defined]  # SimVFS

    assert verify(TARGET, vfs=world.vfs).damage_count == 0
    assert await found(target_of(world)) == list(range(12))


async def test_a_backup_cut_short_by_a_crash_never_opens_as_an_older_state() -> None:
    world = world_of()
    await filled(world, 12)
    vfs = world.vfs
    assert isinstance(vfs, SimVFS)
    crashes: list[SimVFS] = []
    vfs.on_point = lambda _call: crashes.append(vfs.crash([1] * len(vfs.pending)))
    backup(world.path, TARGET, vfs=vfs, now_ms=1)
    vfs.on_point = None

    for crash in crashes:
        copy = DiskWorld(TARGET, crash, world.options)
        if crash.exists(f"{TARGET}/FORMAT"):
            assert await found(copy) == list(range(12))
        elif crash.exists(TARGET) and segments(copy):
            with pytest.raises(Exception, match="segments but no FORMAT"):
                await copy.open()
    assert len(crashes) > 20


async def test_derived_files_and_strange_ones_are_not_copied() -> None:
    world = world_of(recent_entries_max=4)
    store = await world.writer()
    await add(store, range(50), b"b")
    while store._index.has_work():
        await store.maintain()
    await store.close()
    assert world.vfs.exists("/store/index.hix")
    for name in ("snap-00000000000000000009.snap", "notes.txt", "seg-1.tmp"):
        write(world.vfs, f"/store/{name}", b"x")

    back_up(world)

    names = sorted(world.vfs.list_dir(TARGET))
    assert names == ["BACKUP", "FORMAT", *sorted(n for n in names if n.endswith(".seg"))]
    assert await found(target_of(world)) == list(range(50))


async def test_a_torn_tail_is_left_behind() -> None:
    world = world_of()
    await filled(world)
    cut(world.vfs, segment_path(world, 1), frames(world, 1)[-1].header.offset + 500)

    made = back_up(world)

    assert made.manifest.last_lsn == 3
    assert await found(target_of(world)) == [0, 1]


async def test_a_new_store_without_a_record_can_be_backed_up() -> None:
    world = world_of()
    await (await world.open()).close()

    made = back_up(world)

    assert (made.manifest.segments, made.manifest.last_lsn) == ((), 0)
    assert await found(target_of(world)) == []


# While the log moves on.


@pytest.mark.parametrize("is_linking", [True, False])
async def test_a_segment_dropped_before_it_was_copied_makes_it_start_over(is_linking: bool) -> None:
    world = world_of()
    store = await world.writer()
    for number in range(20):
        await add(store, [number], BODY)
    work = Backup(world.vfs, world.path, TARGET, now_ms=1, is_linking=is_linking)
    steps = work.steps()
    next(steps)
    newest = segments(world)[-1]

    await remove(store, range(19))
    await store.maintain()
    assert segments(world)[0] > 5

    for _ in steps:
        pass
    assert work.manifest.segments[-1][0] >= newest
    assert work.manifest.segments[0][0] > 5  # what was copied in vain is gone
    assert verify(TARGET, vfs=world.vfs).damage_count == 0
    assert await found(target_of(world)) == [19]
    await store.close()


@pytest.mark.parametrize("seed", range(40))
async def test_whatever_happens_between_two_steps_the_backup_is_a_state_of_the_store(
    seed: int,
) -> None:
    print(f"seed {seed}")
    random = Random(seed)
    world = world_of(compact_bytes_s=1 << 30, prealloc=random.choice(["none", "zero"]))
    store = await world.writer()
    live: dict[tuple[int, int], bytes] = {}
    number = 0

    async def change() -> None:
        nonlocal number
        if random.random() < 0.5 and live:
            gone = random.sample(sorted(live), min(len(live), 4))
            await remove(store, [each for _, each in gone])
            for each in gone:
                del live[each]
        else:
            body = random.randbytes(random.choice([0, 10, 900, 3000]))
            await add(store, [number], body)
            live[1, number] = body
            number += 1
        world.clock.now_ms += 1000
        await store.maintain(lambda: False)

    for _ in range(25):
        await change()
    states = [dict(live)]
    work = Backup(world.vfs, world.path, TARGET, now_ms=1, is_linking=random.random() < 0.5)
    for _ in work.steps():
        for _ in range(random.randrange(4)):
            await change()
            states.append(dict(live))

    report = verify(TARGET, vfs=world.vfs)
    assert (report.damage_count, report.notes) == (0, [])
    copy = await target_of(world).open()
    assert await contents(copy) in states
    await copy.close()
    await store.close()


async def test_a_frame_half_written_while_it_was_read_is_read_again() -> None:
    world = world_of()
    await filled(world)
    vfs, at = world.vfs, frames(world, 1)[1].header.canonical_at + 70
    assert isinstance(vfs, SimVFS)
    path = segment_path(world, 1)
    flip(vfs, path, at)
    looks: list[str] = []

    def mend(call: object) -> None:
        if getattr(call, "name", "") == "list_dir" and getattr(call, "path", "") == "/store":
            looks.append("")
            if len(looks) == 3:  # the second look at the end
                vfs.on_point = None
                flip(vfs, path, at)

    vfs.on_point = mend
    backup(world.path, TARGET, vfs=vfs, now_ms=1)

    assert await found(target_of(world)) == [0, 1, 2]


# The manifest.


async def test_a_backup_that_is_not_what_its_manifest_says_is_damaged() -> None:
    world = world_of()
    await filled(world, 12)
    back_up(world)
    copy = target_of(world)
    newest = segments(copy)[-1]
    whole = read(world.vfs, f"{TARGET}/BACKUP")

    cut(world.vfs, segment_path(copy, newest), frames(copy, newest)[-1].header.offset)
    problems = [str(each) for each in verify(TARGET, vfs=world.vfs).breaks]
    assert any("names LSN 13, the log ends with 12" in text for text in problems)
    assert any("bytes according to BACKUP" in text for text in problems)

    world.vfs.unlink(segment_path(copy, newest))
    (problem,) = verify(TARGET, vfs=world.vfs).breaks
    assert "names segments [1, 2, 3, 4], there are [1, 2, 3]" in str(problem)

    flip(world.vfs, f"{TARGET}/BACKUP", 30)
    (problem,) = verify(TARGET, vfs=world.vfs).breaks
    assert (problem.path, problem.problem) == (f"{TARGET}/BACKUP", "CRC mismatch")
    assert not isinstance(decode_manifest(whole), str)


async def test_the_end_of_a_backup_is_never_torn() -> None:
    world = world_of()
    await filled(world, 3)
    back_up(world)
    copy = target_of(world)
    last = frames(copy, 1)[-1].header
    flip(world.vfs, segment_path(copy, 1), last.canonical_at + 70)

    problems = [str(each) for each in verify(TARGET, vfs=world.vfs).breaks]

    assert f"{segment_path(copy, 1)}+{last.offset}: torn, in a backup" in problems


# From within.


async def test_a_store_backs_itself_up_and_drops_wait_for_it() -> None:
    world = world_of()
    store = await world.writer()
    for number in range(20):
        await add(store, [number], BODY)
    await remove(store, range(19))
    vfs = world.vfs
    assert isinstance(vfs, SimVFS)
    is_copying = trio.Event()

    def watch(call: Call) -> None:
        if call.name == "link":
            is_copying.set()

    vfs.on_point = watch
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.backup, TARGET)
        await is_copying.wait()
        await store.maintain()
        assert not vfs.exists(f"{TARGET}/BACKUP")  # it was still at work
        assert store.stats().drop_count == 0

    report = verify(TARGET, vfs=vfs)
    assert report.damage_count == 0
    assert report.manifest is not None
    assert report.manifest.last_lsn == store.position().last_lsn
    assert await found(target_of(world)) == [19]
    await store.maintain()
    assert store.stats().drop_count > 0
    await add(store, [30])
    await store.close()


async def test_a_store_under_load_backs_itself_up_on_a_real_disk(tmp_path: Path) -> None:
    options = Options(segment_bytes=65536, persist="buffer", prealloc="none")
    world = real_world(str(tmp_path / "store"), options=options)
    store = await world.writer(run_in_worker=TrioWorkers())
    target = str(tmp_path / "copy")
    last = 0
    is_warm, is_done = trio.Event(), trio.Event()

    async def work() -> None:
        nonlocal last
        while not is_done.is_set():
            await add(store, range(last, last + 20), BODY)
            if last >= 200:
                await remove(store, range(last - 200, last - 180))
            last += 20
            if last >= 1000:
                is_warm.set()
            await store.maintain(lambda: False)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(work)
        await is_warm.wait()
        before = last
        manifest = await store.backup(target)
        after = last
        is_done.set()

    assert verify(target, vfs=world.vfs).damage_count == 0
    copy = await DiskWorld(target, world.vfs, options).open()
    numbers = {number for _, number in await contents(copy)}
    assert max(numbers) >= before - 1
    assert max(numbers) < after + 20
    assert manifest.last_lsn >= 1000
    await copy.close()
    await store.close()


async def test_a_failed_store_gives_no_backup() -> None:
    world = world_of()
    store: Store = await world.writer()
    assert isinstance(world.vfs, SimVFS)
    world.vfs.fail(errno.EIO, names=["pwritev"])
    with pytest.raises(Exception, match="not acknowledging"):
        await add(store, [1])

    with pytest.raises(Exception, match="not acknowledging"):
        await store.backup(TARGET)

    assert not world.vfs.exists(TARGET)
