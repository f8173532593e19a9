"""The hash index answers as a dict would, whatever is recent, merged, split or removed."""

from random import Random

import trio

from segstore.hash_index import ABSENT, UNKNOWN
from segstore.index_page import ENTRIES_MAX
from segstore.layout import INDEX_NAME
from tests.fakes.columns import IndexRig

PATH = f"/store/{INDEX_NAME}"


async def test_short_lived_entries_never_touch_the_file() -> None:
    rig = IndexRig(recent_max=64)
    random = Random(1)
    calls = rig.vfs.call_count

    for _ in range(1000):
        keys = [random.randbytes(16) for _ in range(60)]
        for key in keys:
            rig.put(1, key)
        for key in keys:
            assert rig.index.find(1, key) == rig.columns.truth[1, key]
            rig.remove(1, key)
            assert rig.index.find(1, key) == ABSENT
        await rig.index.maintain()

    assert rig.vfs.call_count == calls
    assert not rig.vfs.exists(PATH)


async def test_the_oldest_entries_move_to_the_file_and_are_still_found() -> None:
    rig = IndexRig(recent_max=64)
    random = Random(2)

    keys = await rig.fill(3000, random)

    assert rig.index.recent_count() <= 64
    assert keys[-1] in rig.columns.recent[1]
    assert keys[0] not in rig.columns.recent[1]
    await rig.check(random)


async def test_buckets_split_as_entries_come() -> None:
    rig = IndexRig(recent_max=1000)
    random = Random(3)

    await rig.fill(30_000, random)

    file = rig.index._file
    assert file is not None
    assert 30_000 / 240 < file.bucket_count < 30_000 / 200
    assert rig.index.discard_count == 0
    await rig.check(random)


async def test_one_key_in_two_tables_is_two_entries() -> None:
    rig = IndexRig(recent_max=10)
    random = Random(4)
    keys = [random.randbytes(16) for _ in range(500)]

    for key in keys:
        rig.put(1, key)
        rig.put(2, key)
        await rig.settle()
    for key in keys[::2]:
        rig.remove(1, key)

    await rig.check(random)


async def test_a_removed_entry_of_the_file_is_absent_also_when_its_slot_is_reused() -> None:
    rig = IndexRig(recent_max=64)
    random = Random(5)
    keys = await rig.fill(2000, random)

    for key in keys[:1000]:
        rig.remove(1, key)
    await rig.fill(1000, random)

    for key in keys[:1000]:
        assert rig.index.find(1, key) == ABSENT
    await rig.check(random)


async def test_a_key_that_comes_back_leads_to_its_new_slot() -> None:
    rig = IndexRig(recent_max=64)
    random = Random(6)
    keys = await rig.fill(500, random)

    for key in keys[:100]:
        old = rig.columns.truth[1, key]
        rig.remove(1, key)
        rig.put(2, random.randbytes(16))  # takes the slot
        rig.put(1, key)
        assert rig.columns.truth[1, key] != old
    await rig.check(random)
    await rig.fill(500, random)
    await rig.check(random)


async def test_churn_at_a_steady_size_does_not_let_the_file_grow() -> None:
    rig = IndexRig(recent_max=200)
    random = Random(7)
    keys = await rig.fill(10_000, random)
    assert rig.index._file is not None
    before = rig.index._file.bucket_count

    for _ in range(10):
        for key in keys[:2500]:
            rig.remove(1, key)
        keys = keys[2500:] + await rig.fill(2500, random)

    assert rig.index._file.bucket_count <= before + 3
    assert rig.index.recent_count() <= 400
    await rig.check(random)


async def test_most_absent_keys_are_known_without_a_read() -> None:
    rig = IndexRig(recent_max=64)
    random = Random(8)
    await rig.fill(20_000, random)
    before = rig.vfs.call_count

    for _ in range(2000):
        assert rig.index.find(1, random.randbytes(16)) == ABSENT

    assert rig.vfs.call_count - before < 200


async def test_a_page_out_of_the_cache_makes_a_key_unknown_until_it_is_located() -> None:
    rig = IndexRig(recent_max=64)
    random = Random(9)
    keys = await rig.fill(5000, random)
    rig.index._file.file.drop_cache()
    absent = [random.randbytes(16) for _ in range(300)]

    assert rig.index.find(1, keys[0]) == UNKNOWN
    await rig.index.locate([(1, key) for key in [*keys[:1000], *absent]])
    rig.index._file.file.drop_cache()

    for key in keys[:1000]:
        assert rig.index.find(1, key) == rig.columns.truth[1, key]
    assert [rig.index.find(1, key) for key in absent] == [ABSENT] * 300


async def test_an_expected_key_takes_no_look_into_the_file_and_is_not_believed_for_ever() -> None:
    rig = IndexRig(recent_max=64)
    random = Random(9)
    keys = await rig.fill(3000, random)
    old, other = keys[0], random.randbytes(16)
    slot = rig.columns.truth[1, old]
    calls = rig.vfs.call_count
    assert rig.index.find(1, old) == slot
    assert rig.vfs.call_count == calls + 1

    rig.index.expect(1, old, slot)

    assert rig.index.find(1, old) == slot
    assert rig.vfs.call_count == calls + 1
    rig.remove(1, old)
    assert rig.index.find(1, old) == ABSENT
    rig.put(1, other)
    assert rig.columns.truth[1, other] == slot
    assert rig.index.find(1, old) == ABSENT
    rig.put(1, old)
    assert rig.index.find(1, old) == rig.columns.truth[1, old] != slot


async def test_a_located_answer_does_not_outlive_a_change() -> None:
    rig = IndexRig(recent_max=64)
    random = Random(10)
    keys = await rig.fill(5000, random)
    file = rig.index._file.file
    file.drop_cache()
    absent = [random.randbytes(16) for _ in range(300)]
    await rig.index.locate([(1, key) for key in [*keys[:300], *absent]])

    for key in keys[:300]:
        rig.remove(1, key)
    for key in absent:
        rig.put(1, key)
    await rig.fill(500, random)
    file.drop_cache()

    await rig.check(random)


async def test_keys_of_one_hash_fill_a_bucket_and_then_stay_in_ram() -> None:
    rig = IndexRig(recent_max=64)
    random = Random(11)
    await rig.fill(100, random)
    file = rig.index._file
    before = file.bucket_count
    file.hash = lambda table, key: 5

    keys = [random.randbytes(16) for _ in range(2000)]
    for key in keys:
        rig.put(1, key)
    for _ in range(10):
        await rig.index.maintain()

    assert not rig.index.has_work()  # not for now
    assert file.bucket_count <= before + 2000 // 64
    assert rig.index.recent_count() >= 2000 - ENTRIES_MAX
    for key in keys:
        assert rig.index.find(1, key) == rig.columns.truth[1, key]


async def test_growth_is_cut_into_small_steps() -> None:
    """Between two pauses few pages are made and few entries hashed, however large the file is."""
    rig = IndexRig(recent_max=1000)
    random = Random(12)
    await rig.fill(20_000, random)
    written: list[int] = []
    at_pause = [0]

    async def pause() -> None:
        pages = sum(call.length for call in rig.vfs.trace if call.name == "pwritev") // 4096
        written.append(pages - at_pause[0])
        at_pause[0] = pages

    await pause()
    rig._pause = pause
    await rig.fill(20_000, random)

    assert max(written[1:]) <= 32
    assert len(written) > 200


async def test_random_changes_with_slow_workers_and_cold_pages_agree_with_a_dict() -> None:
    seed = 13
    print("seed", seed)
    random = Random(seed)

    async def slow(function, lane):
        for _ in range(random.randrange(3)):
            await trio.lowlevel.checkpoint()
        result = function()
        for _ in range(random.randrange(3)):
            await trio.lowlevel.checkpoint()
        return result

    rig = IndexRig(recent_max=40, run_in_worker=slow, pause=trio.lowlevel.checkpoint)
    known = [random.randbytes(16) for _ in range(4000)]
    is_over = False

    async def maintain() -> None:
        while not is_over:
            await rig.index.maintain()
            await trio.lowlevel.checkpoint()

    async def look() -> None:
        while not is_over:
            wanted = [(random.randrange(1, 3), random.choice(known)) for _ in range(20)]
            await rig.index.locate(wanted)
            for each in wanted:
                assert rig.index.find(*each) == rig.columns.truth.get(each, ABSENT)
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(maintain)
        nursery.start_soon(look)
        for step in range(6000):
            each = random.randrange(1, 3), random.choice(known)
            if each in rig.columns.truth:
                rig.remove(*each)
            else:
                rig.put(*each)
            if random.random() < 0.02 and rig.index._file is not None:
                rig.index._file.file.drop_cache()
            if random.random() < 0.1:
                await trio.lowlevel.checkpoint()
            if step in (2000, 4000) and rig.index._file is not None:
                rig.index._discard(ValueError("tried"))
        is_over = True
    await rig.check(random)
    assert rig.index.discard_count <= 2  # no page read too early was taken for a damaged one
