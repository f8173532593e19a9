"""What `verify` names, and what it leaves as a note."""

import errno
from dataclasses import replace

import pytest

from segstore import FormatRefused, MarkerDamaged, NoStore, Report, StoreLocked, verify
from segstore.batch import FRAME_HEADER_BYTES
from segstore.layout import FormatMarker
from tests.segstore.surgery import (
    BODY,
    compacted,
    cut,
    filled,
    flip,
    frames,
    read,
    segment_path,
    segments,
    world_of,
    write,
)
from tests.segstore.worlds import DiskWorld, add, commit, key, put, remove


def checked(world: DiskWorld) -> Report:
    """Verify, and see that nothing was changed by it."""
    before = {path: read(world.vfs, path) for path in paths(world)}
    report = verify(world.path, vfs=world.vfs)
    assert {path: read(world.vfs, path) for path in paths(world)} == before
    return report


def paths(world: DiskWorld) -> list[str]:
    return [f"{world.path}/{name}" for name in world.vfs.list_dir(world.path) if name != "LOCK"]


def where(report: Report) -> list[tuple[str, int]]:
    return [(each.path, each.offset) for each in report.breaks]


async def test_a_sound_store_has_no_damage_and_its_counts_are_told() -> None:
    world = world_of()
    await filled(world, 12)
    seen: list[tuple[int, int]] = []

    report = verify(world.path, vfs=world.vfs, on_progress=lambda *step: seen.append(step))

    assert (report.breaks, report.bodies, report.notes) == ([], [], [])
    assert report.segment_count == len(segments(world)) == 4
    assert (report.entry_count, report.body_count, report.record_count) == (12, 12, 13)
    assert report.last_lsn == 13
    assert report.byte_count == sum(
        len(read(world.vfs, segment_path(world, n))) for n in (1, 2, 3, 4)
    )
    assert seen[-1][0] == seen[-1][1]
    assert seen == sorted(seen)


async def test_every_damage_is_named_not_only_the_first() -> None:
    world = world_of()
    await filled(world, 12)
    second, third = frames(world, 1)[2].header, frames(world, 3)[1].header
    flip(world.vfs, segment_path(world, 1), second.canonical_at + 70)
    flip(world.vfs, segment_path(world, 3), third.offset + 8)

    report = checked(world)

    assert where(report) == [
        (segment_path(world, 1), second.offset),
        (segment_path(world, 3), third.offset),
    ]
    first, last = report.breaks
    assert (first.lsn_first, first.lsn_last, first.keys) == (3, 3, ((1, key(1)),))
    assert (last.lsn_first, last.lsn_last, last.keys) == (9, 9, ())
    assert [each.length for each in report.breaks] == [second.frame_bytes, third.frame_bytes]


@pytest.mark.parametrize("place", ["header", "hints", "homes", "locals", "batch", "record", "body"])
async def test_a_flip_anywhere_in_a_frame_is_found(place: str) -> None:
    world = world_of()
    await filled(world, 12)
    header = frames(world, 2)[0].header
    at = {
        "header": header.offset + 50,
        "hints": header.offset + FRAME_HEADER_BYTES,
        "homes": header.offset + FRAME_HEADER_BYTES + 4,
        "locals": header.locals_at + 20,
        "batch": header.canonical_at + 20,
        "record": header.canonical_at + 64 + 30,
        "body": header.bodies_at + 500,
    }[place]

    flip(world.vfs, segment_path(world, 2), at)
    report = checked(world)

    if place == "body":
        (body,) = report.bodies
        assert (body.damage.path, body.damage.offset) == (segment_path(world, 2), header.bodies_at)
        assert (body.damage.key, body.is_live) == (key(3), True)
        assert report.breaks == []
    else:
        assert where(report)[0] == (segment_path(world, 2), header.offset)


async def test_the_damaged_body_of_an_entry_that_ended_is_told_as_such() -> None:
    world = world_of()
    store = await filled_and_open(world)
    header = frames(world, 1)[1].header
    await remove(store, [0])
    await world.kill(store)
    flip(world.vfs, segment_path(world, 1), header.bodies_at)

    (body,) = checked(world).bodies

    assert (body.damage.key, body.is_live) == (key(0), False)
    assert str(body).endswith("its entry ended since")


async def filled_and_open(world: DiskWorld):  # type: ignore[no-untyped-def]  # a Store
    store = await world.writer()
    for number in range(12):
        await add(store, [number], BODY)
    return store


async def test_a_missing_a_shortened_and_a_foreign_segment_are_damage() -> None:
    for harm in ("missing", "cut", "foreign", "zeros", "long"):
        world, other = world_of(), world_of()
        other.entropy = type(other.entropy)(2)
        await filled(world, 12)
        await filled(other, 12)
        path, last = segment_path(world, 2), frames(world, 2)[-1].header
        end = len(read(world.vfs, path))
        if harm == "missing":
            world.vfs.unlink(path)
        elif harm == "cut":
            cut(world.vfs, path, last.offset)
        elif harm == "foreign":
            write(world.vfs, path, read(other.vfs, path))
        elif harm == "zeros":
            write(world.vfs, path, bytes(end))
        else:
            write(world.vfs, path, b"x", end + 50)

        report = checked(world)

        offset = {"cut": last.offset, "long": end}.get(harm, 0)
        assert where(report)[0] == (path, offset), harm
        if harm != "long":
            assert report.breaks[0].lsn_last == 7, harm
            assert report.breaks[0].lsn_first == (7 if harm == "cut" else 5), harm


async def test_a_torn_tail_is_a_note() -> None:
    world = world_of()
    await filled(world)
    last = frames(world, 1)[-1].header
    cut(world.vfs, segment_path(world, 1), last.offset + 700)

    report = checked(world)

    assert report.damage_count == 0
    (note,) = report.notes
    assert note.startswith(f"{segment_path(world, 1)}+{last.offset}: torn tail of 700 bytes")


async def test_what_the_next_open_removes_is_a_note() -> None:
    world = world_of(prealloc="zero")
    store = await world.writer()
    await add(store, [1])
    await store.maintain()
    await world.kill(store)
    write(world.vfs, "/store/FORMAT.tmp", b"half")
    write(world.vfs, "/store/mine.txt", b"mine")

    report = checked(world)

    assert report.damage_count == 0
    assert sorted(note.removeprefix("/store/") for note in report.notes) == [
        "FORMAT.tmp: unfinished; the next open removes it",
        "mine.txt: no file of the store",
        f"seg-{2:020d}.seg: made ahead and not used; the next open removes it",
    ]


async def test_all_segment_headers_damaged_are_all_named() -> None:
    world = world_of()
    await filled(world, 12)
    for segment in segments(world):
        flip(world.vfs, segment_path(world, segment), 30)

    assert where(checked(world)) == [(segment_path(world, each), 0) for each in segments(world)]


async def test_a_sector_that_cannot_be_read_is_named() -> None:
    world = world_of()
    await filled(world, 12)
    path = segment_path(world, 2)
    world.vfs.fail(errno.EIO, names=["pread"], path_part=path, is_forever=True)

    report = verify(world.path, vfs=world.vfs)

    assert where(report)[:2] == [(path, 0), (path, 4096)]
    assert "cannot be read" in str(report.breaks[0])


async def test_a_damaged_marker_and_a_later_format_are_two_things() -> None:
    world = world_of()
    await filled(world)
    whole = read(world.vfs, "/store/FORMAT")

    flip(world.vfs, "/store/FORMAT", 20)
    with pytest.raises(MarkerDamaged, match="CRC mismatch"):
        verify(world.path, vfs=world.vfs)

    later = replace(FormatMarker(bytes(16), 1), min_reader=99).encode()
    cut(world.vfs, "/store/FORMAT", 0)
    write(world.vfs, "/store/FORMAT", later)
    with pytest.raises(FormatRefused, match="reader of version 99") as caught:
        verify(world.path, vfs=world.vfs)
    assert not isinstance(caught.value, MarkerDamaged)

    world.vfs.unlink("/store/FORMAT")
    with pytest.raises(MarkerDamaged, match="no FORMAT"):
        verify(world.path, vfs=world.vfs)
    write(world.vfs, "/store/FORMAT", whole)
    assert checked(world).damage_count == 0


async def test_where_there_is_no_store_that_is_said() -> None:
    world = world_of()

    with pytest.raises(NoStore, match="/store holds no store"):
        verify("/store", vfs=world.vfs)
    with pytest.raises(NoStore, match="/nowhere: No such file"):
        verify("/nowhere", vfs=world.vfs)


async def test_a_writer_and_a_reader_keep_each_other_out() -> None:
    world = world_of()
    store = await world.writer()

    with pytest.raises(StoreLocked, match=r"in use by process \d+; stop it first"):
        verify(world.path, vfs=world.vfs)
    await store.close()

    refusals: list[str] = []

    def try_to_open(_done: int, _total: int) -> None:
        with pytest.raises(StoreLocked) as caught:
            world.vfs.open("/store/LOCK").lock_nowait() or refuse()
        refusals.append(str(caught.value))

    def refuse() -> None:
        raise StoreLocked("refused")

    verify(world.path, vfs=world.vfs, on_progress=try_to_open)
    assert set(refusals) == {"refused"}


async def test_an_open_while_it_is_read_says_so() -> None:
    world = world_of()
    await (await world.writer()).close()
    reader = world.vfs.open("/store/LOCK", is_readonly=True)
    assert reader.lock_nowait(is_shared=True)
    assert world.vfs.open("/store/LOCK", is_readonly=True).lock_nowait(is_shared=True)

    with pytest.raises(StoreLocked, match="/store is being read"):
        await world.open()


async def test_compacted_and_moved_entries_verify() -> None:
    world, store = await compacted()
    await commit(store, states=[put(store, 99)])
    await store.close()

    report = checked(world)

    assert report.damage_count == 0
    assert report.entry_count == 11


# The index.


async def indexed() -> DiskWorld:
    """Return a cleanly closed store whose index file is in use."""
    world = world_of(recent_entries_max=8)
    store = await world.writer()
    await add(store, range(100), b"b")
    while store._index.has_work():
        await store.maintain(lambda: False)
    await store.close()
    assert world.vfs.exists("/store/index.hix")
    return world


async def test_a_clean_index_is_held_against_the_log() -> None:
    world = await indexed()

    report = checked(world)

    assert (report.damage_count, report.notes) == (0, [])


async def test_a_damaged_index_page_is_found_and_an_unclean_one_is_a_note() -> None:
    world = await indexed()
    flip(world.vfs, "/store/index.hix", 4096 + 17)
    assert where(checked(world)) == [("/store/index.hix", 4096)]

    world = await indexed()
    flip(world.vfs, "/store/index.hix", 2 * 4096 + 100)  # the trailer
    assert where(checked(world)) == [("/store/index.hix", 0)]

    world = await indexed()
    write(world.vfs, "/store/index.hix", bytes(4096))
    report = checked(world)
    assert report.damage_count == 0
    assert report.notes == ["/store/index.hix: not closed cleanly; the next open builds it anew"]
