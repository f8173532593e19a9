"""The index file is a hint: stale, foreign, cut, flipped or lost, the answers stay the same."""

import errno
from random import Random

import pytest

from segstore.hash_index import ABSENT
from segstore.index_page import PAGE_BYTES
from segstore.layout import INDEX_NAME
from tests.fakes.columns import IndexRig
from tests.fakes.crash_states import crash_images
from tests.fakes.faults import Call
from tests.fakes.simdisk import Image
from tests.fakes.simvfs import SimVFS

PATH = f"/store/{INDEX_NAME}"


async def closed_rig(seed: int, count: int = 5000, **options) -> IndexRig:
    """Fill an index and close it cleanly."""
    rig = IndexRig(**options)
    keys = await rig.fill(count, Random(seed))
    for key in keys[::7]:
        rig.remove(1, key)
    rig.index.close()
    return rig


def reads(rig: IndexRig) -> int:
    """How many pages were read."""
    return sum(call.name in ("pread", "pread_nowait") for call in rig.vfs.trace)


async def test_a_clean_close_is_taken_over_without_building() -> None:
    rig = await closed_rig(1)
    recent = rig.index.recent_count()

    again = rig.reopen(rig.vfs.crash())

    assert again.index.discard_count == 0
    assert again.index.recent_count() == recent
    assert not again.index.has_work()
    assert reads(again) == 2  # header and trailer
    await again.check(Random(1))


async def test_a_file_taken_over_goes_on_growing() -> None:
    rig = (await closed_rig(2)).reopen()

    for seed in (3, 4):
        await rig.fill(5000, Random(seed))
        await rig.check(Random(seed))
        rig.index.close()
        rig = rig.reopen(rig.vfs.crash())

    assert rig.index.discard_count == 0
    await rig.check(Random(5))


async def test_after_an_unclean_stop_it_is_built_anew_while_answers_go_on() -> None:
    rig = IndexRig()
    random = Random(6)
    keys = await rig.fill(8000, random)

    again = rig.reopen(rig.vfs.crash([1] * len(rig.vfs.pending)))
    assert again.index.has_work()
    await again.check(random, absent_count=20)
    for key in keys[:1000]:
        again.remove(1, key)
    await again.check(random, absent_count=20)
    await again.settle()

    assert again.index._file is not None
    await again.check(random)
    await again.fill(2000, random)
    await again.check(random)


async def test_changes_while_it_is_built_are_not_lost() -> None:
    rig = IndexRig()
    random = Random(7)
    keys = await rig.fill(8000, random)

    async def change() -> None:
        rig.index._pause = rig._count_pause  # a search pauses too
        for _ in range(20):
            rig.remove(1, keys.pop(random.randrange(len(keys))))
            rig.put(2, random.randbytes(16))
            moved = keys[random.randrange(len(keys))]
            rig.remove(1, moved)
            rig.put(2, random.randbytes(16))
            rig.put(1, moved)
        [known] = random.sample(keys, 1)
        await rig.index.locate([(1, known), (1, b"absent" + bytes(10))])
        assert rig.index.find(1, known) == rig.columns.truth[1, known]
        assert rig.index.find(1, b"absent" + bytes(10)) == ABSENT
        rig.index._pause = change

    rig.index._discard(ValueError("tried"))
    rig.index._pause = change
    await rig.index.maintain()
    rig.index._pause = rig._count_pause

    assert rig.index._file is not None
    await rig.check(random)
    await rig.settle()
    await rig.check(random)


@pytest.mark.parametrize("uuid", [b"v" * 16, b"u" * 16])
async def test_a_file_of_another_store_or_another_slot_table_is_not_trusted(uuid: bytes) -> None:
    rig = await closed_rig(8)
    if uuid == b"u" * 16:
        first, second = list(rig.columns.truth)[:2]
        for each in (first, second):
            rig.columns.free(*each)
        for each in (first, second):  # now in each other's slots
            rig.columns.allocate(*each)

    again = rig.reopen(uuid=uuid)

    assert again.index.discard_count == 1
    await again.settle()
    await again.check(Random(8))


async def test_a_file_from_an_earlier_close_is_not_trusted() -> None:
    rig = await closed_rig(9)
    earlier = rig.vfs.visible_files()[PATH]
    rig = rig.reopen()
    await rig.fill(100, Random(10))
    rig.index.close()
    rig.vfs.open(PATH).truncate(0)
    rig.vfs.open(PATH).pwritev([earlier], 0)

    again = rig.reopen()

    assert again.index.discard_count == 1
    await again.check(Random(9), absent_count=20, count=20)


async def test_a_missing_file_is_built_anew() -> None:
    rig = await closed_rig(10)
    rig.vfs.unlink(PATH)

    again = rig.reopen()
    await again.settle()

    await again.check(Random(10))


async def test_every_flipped_byte_is_noticed_or_harmless() -> None:
    rig = await closed_rig(11, 1000)
    content = rig.vfs.visible_files()[PATH]
    seed = 11
    print("seed", seed)
    random = Random(seed)
    page_count = len(content) // (PAGE_BYTES + 512)
    trailer = (page_count + 1) * PAGE_BYTES
    assert len(content) > trailer
    spots = [
        *random.sample(range(112), 20),  # header
        *(random.randrange(112, PAGE_BYTES) for _ in range(3)),
        *(page * PAGE_BYTES + byte for page in (1, 2, page_count) for byte in range(0, 24, 3)),
        *(random.randrange(PAGE_BYTES, trailer) for _ in range(20)),
        *(random.randrange(trailer, len(content)) for _ in range(15)),
        *range(len(content) - 4, len(content)),
    ]

    for spot in spots:
        vfs = rig.vfs.crash()
        vfs.open(PATH).pwritev([bytes([content[spot] ^ 1 << random.randrange(8)])], spot)
        again = rig.reopen(vfs)
        is_page = PAGE_BYTES <= spot < trailer
        await again.check(Random(11), absent_count=2, count=None if is_page else 5)
        await again.settle()
        await again.check(Random(11), absent_count=2, count=200)
        assert again.index.discard_count == 1 or (is_page and not again.index.discard_count)


@pytest.mark.parametrize("length", [0, 1, 4095, 4096, 4097, 50_000, -1])
async def test_a_cut_file_is_built_anew(length: int) -> None:
    rig = await closed_rig(12)
    file = rig.vfs.open(PATH)
    file.truncate(length % file.size())

    again = rig.reopen()

    assert again.index.discard_count == 1
    await again.check(Random(12), absent_count=20, count=20)
    await again.settle()
    await again.check(Random(12))


async def test_a_page_whose_last_write_got_lost_is_noticed() -> None:
    rig = IndexRig()
    random = Random(13)
    await rig.fill(8000, random)
    file = rig.index._file.file
    older = file.pread(PAGE_BYTES, 5 * PAGE_BYTES)
    await rig.fill(1000, random)
    assert file.pread(PAGE_BYTES, 5 * PAGE_BYTES) != older

    file.pwritev([older], 5 * PAGE_BYTES)

    await rig.check(random)
    assert rig.index.discard_count == 1
    await rig.settle()
    await rig.check(random)


async def test_a_file_cut_or_unreadable_under_us_is_built_anew() -> None:
    rig = IndexRig()
    random = Random(14)
    await rig.fill(8000, random)

    rig.index._file.file.truncate(PAGE_BYTES)
    await rig.check(random, absent_count=20)
    await rig.settle()
    rig.vfs.fail(errno.EIO, names=["pread_nowait"])
    await rig.check(random)
    await rig.settle()
    rig.index._file.file.drop_cache()
    rig.vfs.fail(errno.EIO, names=["pread"])
    await rig.check(random)
    await rig.settle()

    assert rig.index.discard_count == 3
    await rig.check(random)


async def test_on_a_full_disk_entries_stay_in_ram_until_there_is_room() -> None:
    vfs = SimVFS(capacity=400_000)
    rig = IndexRig(vfs)
    random = Random(15)
    await rig.fill(8000, random)
    vfs.capacity = sum(map(len, vfs.visible_files().values()))

    keys = [random.randbytes(16) for _ in range(20_000)]
    for number, key in enumerate(keys):
        rig.put(1, key)
        if number % 100 == 0:
            await rig.index.maintain()
    await rig.check(random)
    assert 0 < rig.index.failure_count < 10
    vfs.capacity = None
    await rig.settle()

    assert rig.index.recent_count() <= 64
    await rig.check(random)


async def test_an_index_that_cannot_be_created_leaves_all_in_ram() -> None:
    rig = IndexRig()
    rig.vfs.fail(errno.EROFS, names=["open"], is_forever=True)
    random = Random(16)

    for _ in range(500):
        rig.put(1, random.randbytes(16))
        await rig.index.maintain()
    await rig.check(random)
    rig.vfs.faults.clear()
    await rig.settle()

    assert rig.index._file is not None
    await rig.check(random)


async def test_any_one_failing_call_changes_no_answer() -> None:
    tried = 0
    for number in range(1, 250, 8):
        rig = IndexRig()
        random = Random(17)
        rig.vfs.fail(errno.EIO, number=number)
        await rig.fill(1000, random)
        await rig.check(random, absent_count=10, count=100)
        tried += not rig.vfs.faults
        rig.vfs.faults.clear()
        rig.index.close()
        again = rig.reopen(rig.vfs.crash())
        await again.check(random, absent_count=10, count=100)
    assert tried > 8


async def test_after_a_crash_at_any_call_all_is_found() -> None:
    seed = 18
    print("seed", seed)
    random = Random(seed)
    rig = IndexRig(recent_max=32)
    images: dict[bytes, Image] = {}
    seen: set[bytes] = set()

    def gather(_: Call) -> None:
        for image in crash_images(rig.vfs, random=random, random_count=2, full_count_max=16):
            if image.digest not in seen:
                images[image.digest] = image

    async def check_crashes() -> None:
        for image in images.values():
            again = rig.reopen(SimVFS.from_image(image), recent_max=32)
            if again.index.is_building():
                await again.index.maintain()
            await again.check(random, absent_count=2, count=30)
        seen.update(images)
        images.clear()

    rig.vfs.on_point = gather
    for _ in range(3):
        keys = [random.randbytes(16) for _ in range(300)]
        for key in keys:
            rig.put(1, key)
        await rig.settle()
        await check_crashes()
        for key in keys[::2]:
            rig.remove(1, key)
        rig.index.close()
        await check_crashes()
        rig = rig.reopen(rig.vfs, recent_max=32)
        await check_crashes()
    assert len(seen) > 100
