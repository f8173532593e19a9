"""What may happen to the hash index in the middle of something else."""

from random import Random

import pytest
import trio

from segstore.hash_index import ABSENT
from segstore.index_page import ENTRIES_MAX, PAGE_BYTES, KeyHash
from segstore.layout import INDEX_NAME
from segstore.workers import Lane
from tests.fakes.columns import IndexRig


async def test_maintenance_may_be_cancelled_anywhere() -> None:
    seed = 1
    print("seed", seed)
    random = Random(seed)
    scopes: list[trio.CancelScope] = []
    cancelled_count = 0

    async def fragile(function, lane):
        if scopes and random.random() < 0.2:
            scopes[-1].cancel()
        await trio.lowlevel.checkpoint()
        return function()

    async def pause() -> None:
        if scopes and random.random() < 0.05:
            scopes[-1].cancel()
        await trio.lowlevel.checkpoint()

    async def settle(rig: IndexRig) -> None:
        nonlocal cancelled_count
        while rig.index.has_work():
            with trio.CancelScope() as scope:
                scopes.append(scope)
                await rig.index.maintain()
            scopes.clear()
            cancelled_count += scope.cancelled_caught

    rig = IndexRig(run_in_worker=fragile, pause=pause)
    for _ in range(6):
        for _ in range(700):
            rig.put(1, random.randbytes(16))
        await settle(rig)
        await rig.check(random)
    rig.index._discard(ValueError("tried"))
    await settle(rig)

    assert cancelled_count > 10
    await rig.check(random)
    await rig.fill(500, random)
    await rig.check(random)


async def test_a_key_put_while_it_is_looked_for_on_disk_is_not_taken_for_absent() -> None:
    async def put_in_between(function, lane):
        if lane is Lane.READ:
            rig.put(1, key)
        return function()

    rig = IndexRig(run_in_worker=put_in_between)
    random = Random(2)
    await rig.fill(3000, random)
    file = rig.index._file
    assert file is not None
    file.file.drop_cache()
    key = random.randbytes(16)
    while rig.index.find(1, key) == ABSENT:  # by the filter
        key = random.randbytes(16)

    await rig.index.locate([(1, key)])
    assert rig.index.find(1, key) == rig.columns.truth[1, key]
    await rig.fill(500, random)
    assert key not in rig.columns.recent[1]
    file.file.drop_cache()

    assert rig.index.find(1, key) != ABSENT
    assert rig.index.find_old_blocking(1, key) == rig.columns.truth[1, key]


async def test_the_file_stops_vouching_for_itself_before_its_first_change() -> None:
    rig = IndexRig()
    await rig.fill(3000, Random(3))
    rig.index.close()
    path = f"/store/{INDEX_NAME}"
    rig = rig.reopen()
    assert rig.vfs.crash().visible_files()[path][:8] == b"SEGIDX01"

    calls = rig.vfs.call_count
    await rig.fill(100, Random(4))

    writes = [call for call in rig.vfs.trace[calls:] if call.name in ("pwritev", "fdatasync")]
    assert [call.name for call in writes[:2]] == ["pwritev", "fdatasync"]
    assert writes[0].offset == 0
    assert all(call.offset >= PAGE_BYTES for call in writes[2:])
    assert rig.vfs.crash().visible_files()[path][:PAGE_BYTES] == bytes(PAGE_BYTES)


async def test_entries_that_find_no_room_in_a_new_file_stay_recent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = IndexRig()
    random = Random(5)
    await rig.fill(3000, random)
    monkeypatch.setattr(KeyHash, "__call__", lambda self, table, key: 7)  # all to one bucket

    rig.index._discard(ValueError("tried"))
    while rig.index.is_building():
        await rig.index.maintain()

    assert rig.index.recent_count() == 3000 - ENTRIES_MAX
    for each in list(rig.columns.truth):
        assert rig.index.find(*each) == rig.columns.truth[each]


async def test_where_keys_crowd_buckets_are_split_early(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = KeyHash.__call__
    monkeypatch.setattr(KeyHash, "__call__", lambda *arguments: plain(*arguments) & ~3)
    rig = IndexRig()
    random = Random(6)

    await rig.fill(6000, random)
    for _ in range(20):
        await rig.index.maintain()

    assert rig.index.recent_count() <= 64
    assert 6000 / 224 * 1.5 < rig.index.bucket_count() < 6000 / 64
    await rig.check(random)
