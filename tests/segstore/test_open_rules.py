"""What an open cuts, what it removes, and what it leaves alone."""

import pytest

from segstore import FormatRefused
from tests.segstore.surgery import (
    BODY,
    cut,
    filled,
    flip,
    found,
    frames,
    quarantined,
    read,
    scan_of,
    segment_path,
    segments,
    world_of,
    write,
)
from tests.segstore.worlds import DiskWorld, add, remove


async def test_a_torn_tail_is_cut_kept_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    world = world_of()
    await filled(world)
    last = frames(world, 1)[-1].header
    whole = read(world.vfs, segment_path(world, 1))
    cut(world.vfs, segment_path(world, 1), last.offset + 700)

    assert await found(world) == [0, 1]

    assert world.vfs.list_dir("/store/quarantine") == [f"seg-{1:020d}-{last.offset}.tail"]
    tail = read(world.vfs, f"/store/quarantine/seg-{1:020d}-{last.offset}.tail")
    assert tail == whole[last.offset : last.offset + 700]
    assert len(read(world.vfs, segment_path(world, 1))) == last.offset
    (line,) = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert line.startswith("torn tail cut off and kept in quarantine path=/store/seg-")
    assert f"offset={last.offset} bytes=700" in line
    assert "may_be_damage=False" in line


async def test_after_a_cut_new_entries_and_old_ones_are_there() -> None:
    world = world_of()
    await filled(world)
    cut(world.vfs, segment_path(world, 1), frames(world, 1)[-1].header.offset + 100)

    store = await world.writer()
    await add(store, [7], BODY)
    await world.kill(store)

    assert await found(world) == [0, 1, 7]
    assert segments(world) == [1, 2]
    store = await world.writer()
    assert store.position().epoch == 3
    await store.close()


async def test_a_cut_tail_is_one_suspicion_when_no_sector_is_missing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = world_of()
    await filled(world)
    flip(world.vfs, segment_path(world, 1), frames(world, 1)[-1].header.offset + 500)

    assert await found(world) == [0, 1]

    assert "may_be_damage=True" in caplog.text


async def test_every_byte_of_the_last_batch_may_be_missing_or_wrong() -> None:
    world = world_of()
    await filled(world)
    last = frames(world, 1)[-1].header
    whole = read(world.vfs, segment_path(world, 1))
    end = last.offset + last.frame_bytes
    marker = read(world.vfs, "/store/FORMAT")
    covered = set(range(last.offset, end)) - padding(world, last.offset)

    for offset in range(last.offset, end, 7):
        for data in (whole[:offset], whole[:offset] + b"\xa5" + whole[offset + 1 :]):
            again = world_of()
            write(again.vfs, "/store/FORMAT", marker)
            write(again.vfs, segment_path(again, 1), data)
            is_lost = offset in covered and data != whole
            assert await found(again) == ([0, 1] if is_lost else [0, 1, 2]), offset


def padding(world: DiskWorld, offset: int) -> set[int]:
    """Return the offsets in a frame that nothing covers: zeros up to the next multiple of 8."""
    scan = scan_of(world, 1)
    frame = scan.parse(offset)
    assert not isinstance(frame, str)
    header = frame.header
    assert frame.batch is not None
    records = header.canonical_at + 64 + frame.batch.count * 44
    bodies = header.bodies_at
    return set(range(records, bodies)) | set(range(bodies + len(BODY), offset + header.frame_bytes))


async def test_zeros_behind_the_log_are_its_end(caplog: pytest.LogCaptureFixture) -> None:
    world = world_of()
    await filled(world)
    path = segment_path(world, 1)
    write(world.vfs, path, bytes(4096), len(read(world.vfs, path)))

    assert await found(world) == [0, 1, 2]

    assert quarantined(world) == []
    assert caplog.records == []


async def test_a_next_segment_full_of_zeros_is_an_unused_spare() -> None:
    world = world_of(prealloc="zero")
    store = await world.writer()
    await add(store, [1])
    await store.maintain()
    await world.kill(store)
    assert segments(world) == [1, 2]

    assert await found(world) == [1]

    assert segments(world) == [1]


async def test_synced_off_is_not_zero_once_something_was_synced() -> None:
    world = world_of()
    await filled(world, 3)

    values = [frame.header.synced_off for frame in frames(world, 1)]

    ends = [frame.header.offset for frame in frames(world, 1)]
    assert values == ends  # each was built when the one before was durable


async def test_frames_behind_a_torn_one_are_cut_with_it_and_never_come_back() -> None:
    world = world_of(persist="buffer")  # where the system may write a later frame first
    await filled(world)
    torn = frames(world, 1)[1].header.offset
    write(world.vfs, segment_path(world, 1), bytes(64), torn)

    store = await world.writer()
    await add(store, [8], BODY)
    await store.close()

    assert await found(world) == [8]
    assert len(read(world.vfs, segment_path(world, 1))) == torn


async def test_unfinished_files_are_removed_and_strange_ones_left(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = world_of()
    await filled(world)
    write(world.vfs, f"{segment_path(world, 9)}.tmp", b"half")
    write(world.vfs, "/store/notes.txt", b"mine")

    assert await found(world) == [0, 1, 2]

    names = world.vfs.list_dir("/store")
    assert "notes.txt" in names
    assert not [name for name in names if name.endswith(".tmp")]
    assert "unknown file left alone path=/store/notes.txt" in caplog.text


async def test_a_dropped_segment_that_is_still_there_is_removed() -> None:
    world = world_of()
    store = await world.writer()
    for number in range(6):
        await add(store, [number], BODY)
    old = read(world.vfs, segment_path(world, 1))
    await remove(store, range(6))
    await store.maintain()
    assert 1 not in segments(world)
    await world.kill(store)

    write(world.vfs, segment_path(world, 1), old)  # the unlink was lost

    assert await found(world) == []
    assert 1 not in segments(world)


async def test_an_open_drops_the_cache_of_the_last_two_segments() -> None:
    world = world_of()
    await filled(world, 12)
    newest = segments(world)[-2:]
    world.vfs.trace.clear()

    await (await world.open()).close()

    dropped = [call.path for call in world.vfs.trace if call.name == "drop_cache"]
    assert dropped == [segment_path(world, segment) for segment in newest]
    names = [(call.name, call.path) for call in world.vfs.trace]
    assert ("fsync", segment_path(world, newest[-1])) in names
    assert names.index(("sync_dir", "/store")) > names.index(
        ("fsync", segment_path(world, newest[-1]))
    )


async def test_other_fields_are_refused() -> None:
    world = world_of()
    await filled(world)

    with pytest.raises(FormatRefused, match=r"has head fields state:B.*name its directory"):
        await world.open(fields=[("state", "B")])


async def test_each_open_for_writing_starts_a_segment_and_appends_to_no_other() -> None:
    world = world_of()
    await filled(world)
    before = read(world.vfs, segment_path(world, 1))

    store = await world.writer()
    await add(store, [9], BODY)
    await store.close()

    assert read(world.vfs, segment_path(world, 1)) == before
    assert segments(world) == [1, 2]


async def test_missing_directories_are_made_and_durable() -> None:
    world = world_of()
    world.path = "/store/a/b"

    store = await world.writer()
    await add(store, [1])
    await world.kill(store)

    world.vfs = world.vfs.crash()
    assert await found(world) == [1]
