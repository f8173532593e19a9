"""What is read of a segment whose frames, header or sectors are damaged."""

import errno
from random import Random
from zlib import crc32

import pytest

from segstore.batch import FRAME_HEADER_BYTES
from segstore.rescue import crc_start
from tests.fakes.faults import Call, Fault
from tests.fakes.simvfs import SimVFS
from tests.segstore.surgery import (
    BODY,
    filled,
    flip,
    frames,
    read,
    segment_path,
    world_of,
    write,
)
from tests.segstore.test_salvage import rescue, rescued
from tests.segstore.worlds import add, remove


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
    vfs.faults.append(SectorFault(path, 4096, whole))

    result = await rescue(world)

    assert "cannot be read" in str(result.breaks[0])
    left = await rescued(world)
    assert set(left) == {n for n in range(12) if not 3 <= n < 6}


class SectorFault(Fault):
    """Reads over a range fail for ever, as on a disk with bad sectors."""

    def __init__(self, path: str, start: int, stop: int) -> None:
        super().__init__(errno.EIO, is_forever=True)
        self.path, self.start, self.stop = path, start, stop

    def matches(self, call: Call) -> bool:
        is_over = call.offset < self.stop and call.offset + call.length > self.start
        return call.name == "pread" and call.path == self.path and is_over


def test_a_crc_runs_backwards() -> None:
    random = Random(5)
    for _ in range(50):
        data, start = random.randbytes(random.randrange(300)), random.getrandbits(32)
        assert crc_start(data, crc32(data, start)) == start
