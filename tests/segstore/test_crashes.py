"""A crash at any call loses nothing acknowledged, undoes nothing, and never makes the store refuse.

For traces like these each legal disk is tried where they are few, else the telling ones.
"""

from typing import Any

import pytest
import trio

from segstore import Options
from tests.segstore.crashing import Trace


def options(persist: str, **changes: Any) -> Options:
    return Options(**{"segment_bytes": 8192, "persist": persist, "prealloc": "none"} | changes)  # type: ignore[arg-type]  # a dict of fields


async def short_life(trace: Trace) -> None:
    store = await trace.world.writer()
    await trace.step(store, {1: b"one"})
    await trace.step(store, {2: b"two" * 300, 3: b""}, states={1: 4})
    await trace.step(store, {1: b"again"}, deletes=(2,))
    await trace.step(store, {2: b"back"}, states={2: 9}, deletes=(3, 1))
    await store.close()


async def rolling_life(trace: Trace) -> None:
    """Bodies of 1.5 KiB in segments of 8 KiB: rolls, drops, spares and idle frames."""
    store = await trace.world.writer()
    for number in range(9):
        trace.world.clock.now_ms += 1000
        deletes = (number - 2,) if number >= 2 else ()
        await trace.step(store, {number: bytes([number]) * 1500}, deletes=deletes)
        if number % 2:
            await store.maintain()
    trace.world.clock.now_ms += 1000
    await store.maintain()
    assert store.stats().drop_count > 0
    await store.close()


async def compacting_life(trace: Trace) -> None:
    """Three of nine entries of a segment live on; a delete and a PUT over an entry are needed."""
    trace.vfs.on_point = None
    store = await trace.world.writer()
    for number in range(9):
        await trace.step(store, {number: bytes([number]) * 700})
    await trace.step(store, {1: b"again"}, states={2: 5}, deletes=(0, 3))
    await trace.step(store, {10: b"ten" * 500}, deletes=(4, 5, 6))
    await trace.step(store, {11: b"eleven" * 300}, states={8: 6}, deletes=(10,))
    trace.vfs.on_point = trace._on_point
    for number, ended in ((12, 7), (13, 8), (14, 11)):
        trace.world.clock.now_ms += 1000
        await store.maintain(lambda: False)
        await trace.step(store, {number: b"new"}, deletes=(ended,))
    trace.world.clock.now_ms += 1000
    await store.maintain(lambda: False)
    assert store.stats().moved_count > 3
    assert store.stats().drop_count > 0
    await store.close()


@pytest.mark.parametrize("is_ordered", [True, False], ids=["ordered", "weak"])
@pytest.mark.parametrize("persist", ["sync_all", "sync_data"])
def test_a_short_life_survives_a_crash_at_every_call(persist: str, is_ordered: bool) -> None:
    trace = Trace(options(persist), is_ordered=is_ordered)
    trio.run(short_life, trace)

    assert trace.check_all() > 100


@pytest.mark.parametrize(("persist", "prealloc"), [("sync_all", "none"), ("sync_data", "zero")])
def test_rolls_and_drops_survive_a_crash_at_every_call(persist: str, prealloc: str) -> None:
    trace = Trace(options(persist, prealloc=prealloc), random_count=2)
    trio.run(rolling_life, trace)

    assert trace.check_all() > 300


@pytest.mark.parametrize("persist", ["sync_data", "buffer"])
def test_compaction_survives_a_crash_at_every_call(persist: str) -> None:
    trace = Trace(options(persist), random_count=1, full_count_max=64)
    trio.run(compacting_life, trace)

    assert trace.check_all() > 100


def test_in_buffer_mode_a_crash_leaves_a_prefix() -> None:
    trace = Trace(options("buffer"), random_count=2)
    trio.run(rolling_life, trace)

    assert trace.check_all() > 100
