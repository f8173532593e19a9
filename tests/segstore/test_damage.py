"""What an open refuses, naming file and offset, and which damage stays with one body."""

import re
from dataclasses import replace

import pytest

from segstore.batch import FRAME_HEADER_BYTES, FrameHeader, encode_private
from tests.segstore.surgery import (
    BODY,
    cut,
    filled,
    flip,
    found,
    frames,
    quarantined,
    read,
    refusal,
    scan_of,
    segment_path,
    segments,
    world_of,
    write,
)
from tests.segstore.worlds import DiskWorld, add, contents


async def test_a_next_segment_without_a_header_is_damage() -> None:
    world = world_of()
    await filled(world)
    write(world.vfs, segment_path(world, 2), bytes(8192))

    damage = await refusal(world)

    assert (damage.path, damage.offset) == (segment_path(world, 2), 0)
    assert "segment header CRC mismatch" in str(damage)


@pytest.mark.parametrize(
    "where", ["frame header", "hints", "batch header", "record", "first frame", "segment header"]
)
async def test_damage_in_a_sealed_segment_is_refused_with_file_and_offset(where: str) -> None:
    world = world_of(salvage_command="rescue")
    await filled(world, 12)
    old = frames(world, 1)
    assert len(segments(world)) > 2
    header = old[2].header
    offset, at = {
        "frame header": (header.offset, header.offset + 8),
        "hints": (header.offset, header.offset + FRAME_HEADER_BYTES + 1),
        "batch header": (header.offset, header.canonical_at + 33),
        "record": (header.offset, header.canonical_at + 64 + 12),
        "first frame": (old[0].header.offset, old[0].header.offset + 90),
        "segment header": (0, 17),
    }[where]

    flip(world.vfs, segment_path(world, 1), at)
    damage = await refusal(world)

    assert (damage.path, damage.offset) == (segment_path(world, 1), offset)
    assert re.search(r"nothing was changed; salvage with: rescue", str(damage))
    if where == "record":
        assert old[2].batch is not None
        assert damage.lsn_expected == old[2].batch.first_lsn
        assert damage.lsn_found == damage.lsn_expected + 1
        assert f"expected LSN {damage.lsn_expected}" in str(damage)


async def test_damage_before_a_voucher_is_refused_in_the_last_segment_too() -> None:
    world = world_of()
    await filled(world)
    header = frames(world, 1)[1].header
    assert frames(world, 1)[-1].header.synced_off > header.offset

    flip(world.vfs, segment_path(world, 1), header.canonical_at + 70)
    damage = await refusal(world)

    assert damage.offset == header.offset


async def test_a_clean_end_vouches_for_every_batch() -> None:
    world = world_of()
    store = await world.writer()
    await add(store, [1], BODY)
    await store.close()
    last = frames(world, 1)[-2].header

    flip(world.vfs, segment_path(world, 1), last.canonical_at + 70)

    assert (await refusal(world)).offset == last.offset


async def test_a_damaged_body_in_a_sealed_segment_fails_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = world_of()
    await filled(world, 12)
    header = frames(world, 1)[1].header
    at = header.bodies_at
    flip(world.vfs, segment_path(world, 1), at + 10)

    store = await world.open()
    bodies = await contents(store)

    damaged = [body for body in bodies.values() if body != BODY]
    assert len(bodies) == 12
    assert len(damaged) == 1
    assert (damaged[0].path, damaged[0].offset, damaged[0].length) == (  # type: ignore[attr-defined]  # BodyDamaged
        segment_path(world, 1),
        at,
        len(BODY),
    )
    assert store.stats().body_damaged_count == 1
    assert f"body CRC mismatch at {segment_path(world, 1)}+{at}" in caplog.text
    await store.close()


async def test_a_damaged_body_that_is_vouched_for_is_kept_in_the_last_segment() -> None:
    world = world_of()
    await filled(world, 3)
    header = frames(world, 1)[1].header
    flip(world.vfs, segment_path(world, 1), header.bodies_at + 10)

    store = await world.open()

    assert store.stats().body_damaged_count == 1
    assert store.stats().entry_count == 3
    assert quarantined(world) == []
    await store.close()


async def test_a_damaged_body_for_which_only_a_torn_tail_vouches_is_refused() -> None:
    """If that tail were cut, the next open would take the frame of the body for torn as well."""
    world = world_of()
    await filled(world, 2)
    first, last = (frame.header for frame in frames(world, 1)[1:3])
    assert last.synced_off > first.offset
    flip(world.vfs, segment_path(world, 1), first.bodies_at + 10)
    flip(world.vfs, segment_path(world, 1), last.canonical_at + 70)

    damage = await refusal(world)

    assert damage.offset == first.offset


async def test_a_missing_segment_is_refused() -> None:
    for missing in (1, 2, 3):
        world = world_of()
        await filled(world, 12)
        newest = segments(world)[-1]
        assert newest > 3

        world.vfs.unlink(segment_path(world, missing))
        damage = await refusal(world)

        assert damage.path == segment_path(world, missing)
        assert "the file is missing" in str(damage)


async def test_the_newest_segment_is_missed_when_its_spare_is_there() -> None:
    world = world_of()
    store = await world.writer()
    for number in range(5):
        await store.maintain()
        await add(store, [number], BODY)
    await store.maintain()
    await world.kill(store)
    active = segments(world)[-2]

    world.vfs.unlink(segment_path(world, active))

    assert (await refusal(world)).path == segment_path(world, active)


async def test_a_shortened_segment_is_refused() -> None:
    world = world_of()
    await filled(world, 12)
    last = frames(world, 1)[-1].header

    cut(world.vfs, segment_path(world, 1), last.offset)
    damage = await refusal(world)

    assert (damage.path, damage.offset) == (segment_path(world, 1), last.offset)


async def test_bytes_behind_a_listed_end_are_refused() -> None:
    world = world_of()
    await filled(world, 12)
    end = len(read(world.vfs, segment_path(world, 1)))
    write(world.vfs, segment_path(world, 1), b"\0" * 100 + b"x", end)

    damage = await refusal(world)

    assert damage.offset == end
    assert "101 bytes behind the listed end" in str(damage)


async def test_a_segment_of_another_store_is_refused() -> None:
    world, other = world_of(), world_of()
    other.entropy = type(other.entropy)(2)
    await filled(world, 12)
    await filled(other, 12)

    write(world.vfs, segment_path(world, 2), read(other.vfs, segment_path(other, 2)))
    damage = await refusal(world)

    assert (damage.path, damage.offset) == (segment_path(world, 2), 0)
    assert "of store" in str(damage)


async def test_a_segment_under_the_name_of_another_is_refused() -> None:
    world = world_of()
    await filled(world, 12)

    write(world.vfs, segment_path(world, 2), read(world.vfs, segment_path(world, 1)))

    assert (await refusal(world)).path == segment_path(world, 2)


async def test_an_older_copy_of_a_segment_is_refused() -> None:
    world = world_of()
    store = await world.writer()
    await add(store, [0], BODY)
    older = read(world.vfs, segment_path(world, 1))
    for number in range(1, 12):
        await add(store, [number], BODY)
    await world.kill(store)

    cut(world.vfs, segment_path(world, 1), len(older))

    assert (await refusal(world)).path == segment_path(world, 1)


async def test_a_forged_frame_in_a_body_is_no_voucher() -> None:
    """A client sends a frame of its own as a body; without the salt it proves nothing."""
    world = world_of()
    store = await world.writer()
    await add(store, [1], BODY)
    body = forged(world)
    await add(store, [2], body)
    await world.kill(store)
    last = frames(world, 1)[-1].header
    claimed = int.from_bytes(body[36:40], "little") << 3
    assert claimed == last.bodies_at  # where it lies

    flip(world.vfs, segment_path(world, 1), last.offset + 20)  # as if torn

    assert await found(world) == [1]


def forged(world: DiskWorld) -> bytes:
    """Return a frame for the place where the next body will lie, right but for the salt."""
    last = frames(world, 1)[-1].header
    offset = last.offset + last.frame_bytes + last.bodies_at - last.offset
    header = FrameHeader(80, 0, 0, 0, 0, 0, 0, offset, 1, offset, 1, 0, 0)
    return encode_private(header, b"", 0)[0]


async def test_the_torn_first_batch_of_a_new_segment_is_no_spare() -> None:
    world = world_of()
    await filled(world)
    store = await world.writer()
    await world.kill(store)
    assert segments(world) == [1, 2]
    flip(world.vfs, segment_path(world, 2), 4096 + 30)

    assert await found(world) == [0, 1, 2]

    assert quarantined(world) == [f"seg-{2:020d}-4096.tail"]
    assert segments(world) == [1]


async def test_only_the_last_segment_with_content_may_be_torn() -> None:
    world = world_of()
    await filled(world)
    store = await world.writer()
    await world.kill(store)
    flip(world.vfs, segment_path(world, 2), 4096 + 30)
    last = frames(world, 1)[-1].header

    flip(world.vfs, segment_path(world, 1), last.offset + 20)

    assert (await refusal(world)).offset == last.offset


async def test_a_frame_that_follows_another_one_than_it_says_does_not_count() -> None:
    """The one before it is whole and in its place, but not the one that was there."""
    world = world_of()
    store = await world.writer()
    await add(store, [1], BODY)
    world.clock.now_ms += 1000
    await store.maintain()
    world.clock.now_ms += 1000
    await store.maintain()  # an empty frame
    await add(store, [2], BODY)
    await world.kill(store)
    empty = frames(world, 1)[-2].header
    assert empty.frame_bytes == FRAME_HEADER_BYTES

    other = replace(empty, synced_off=empty.synced_off - 8)
    salt = scan_of(world, 1).header.salt
    write(world.vfs, segment_path(world, 1), encode_private(other, b"", salt)[0], empty.offset)

    assert len(frames(world, 1)) == 4  # each frame alone is right
    assert await found(world) == [1]
