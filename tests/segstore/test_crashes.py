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


def test_in_buffer_mode_a_crash_leaves_a_prefix() -> None:
    trace = Trace(options("buffer"), random_count=2)
    trio.run(rolling_life, trace)

    assert trace.check_all() > 100
