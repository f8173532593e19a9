"""What a backup refuses, and that nothing is left of one that failed."""

import errno
import itertools

import pytest

from segstore import (
    NoStore,
    StoreDamaged,
    TargetRefused,
    backup,
    verify,
)
from tests.fakes.simvfs import SimVFS
from tests.segstore.surgery import (
    filled,
    flip,
    frames,
    read,
    segment_path,
    world_of,
    write,
)
from tests.segstore.test_backup import TARGET, back_up, target_of


async def test_damage_at_the_end_of_the_log_is_refused_and_leaves_nothing() -> None:
    world = world_of()
    await filled(world)
    damaged = frames(world, 1)[1].header
    flip(world.vfs, segment_path(world, 1), damaged.canonical_at + 70)

    with pytest.raises(StoreDamaged) as caught:
        backup(world.path, TARGET, vfs=world.vfs, now_ms=1)

    assert (caught.value.path, caught.value.offset) == (segment_path(world, 1), damaged.offset)
    assert world.vfs.list_dir(TARGET) == []


async def test_damage_in_an_older_segment_is_copied_and_verify_finds_it() -> None:
    world = world_of()
    await filled(world, 12)
    header = frames(world, 1)[1].header
    flip(world.vfs, segment_path(world, 1), header.canonical_at + 70)

    backup(world.path, TARGET, vfs=world.vfs, now_ms=1)

    (damage,) = verify(TARGET, vfs=world.vfs).breaks
    assert (damage.path, damage.offset) == (segment_path(target_of(world), 1), header.offset)


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("/full", r"/full is not empty \(1 names\); name a new or empty directory"),
        ("/store/inner", "lie within each other"),
        ("/store", "lie within each other"),
        ("/", "lie within each other"),
        ("/full/file", "is no directory"),
    ],
)
async def test_a_target_that_is_not_new_is_refused_and_untouched(target: str, text: str) -> None:
    world = world_of()
    await filled(world)
    world.vfs.mkdir("/full")
    write(world.vfs, "/full/file", b"precious")

    with pytest.raises(TargetRefused, match=text):
        backup(world.path, target, vfs=world.vfs, now_ms=1)

    assert read(world.vfs, "/full/file") == b"precious"
    assert world.vfs.list_dir("/full") == ["file"]
    assert not world.vfs.exists("/store/inner")


async def test_a_source_without_a_store_is_refused_before_the_target_is_made() -> None:
    world = world_of()

    with pytest.raises(NoStore):
        backup("/store", TARGET, vfs=world.vfs, now_ms=1)

    assert not world.vfs.exists(TARGET)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
async def test_whichever_call_fails_nothing_is_left_that_could_be_taken_for_a_backup(
    error: int,
) -> None:
    for number in itertools.count(1):
        world = world_of()
        await filled(world, 8)
        vfs = world.vfs
        assert isinstance(vfs, SimVFS)
        vfs.fail(error, number=vfs.call_count + number)
        try:
            backup(world.path, TARGET, vfs=vfs, now_ms=1, is_linking=number % 2 == 0)
        except (OSError, StoreDamaged):
            vfs.faults.clear()
            assert not vfs.exists(TARGET) or vfs.list_dir(TARGET) == []
        else:
            is_last = bool(vfs.faults)  # there were not so many calls
            vfs.faults.clear()
            assert verify(TARGET, vfs=vfs).damage_count == 0
            if is_last:
                break
        await world.open()
    assert number > 30


async def test_where_no_link_can_be_made_segments_are_copied() -> None:
    for error in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP):
        world = world_of()
        await filled(world, 12)
        assert isinstance(world.vfs, SimVFS)
        world.vfs.fail(error, names=["link"], is_forever=True)

        made = back_up(world)

        assert made.linked_bytes == 0
