"""No deleted entry comes back, in whatever order puts, deletes, drops and crashes happen."""

import itertools
import random
from typing import Any
from zlib import crc32

import pytest

from segstore import Store
from segstore.batch import DEL, PUT, STATE
from segstore.layout import HeadLayout
from segstore.local import Move
from tests.segstore.surgery import BODY, world_of
from tests.segstore.worlds import FIELDS, DiskWorld, add, commit, contents, key, remove

LAYOUT = HeadLayout(FIELDS)


async def filler(store: Store, number: int) -> None:
    """Fill a good part of a segment with what is dead at once."""
    for each in range(3):
        await add(store, [1000 + 10 * number + each], BODY)
    await remove(store, [1000 + 10 * number + each for each in range(3)])


@pytest.mark.parametrize("order", sorted(set(itertools.permutations("ppddm"))), ids="".join)
async def test_every_order_of_put_delete_and_drop(order: tuple[str, ...]) -> None:
    """One key, a pin in each segment, and a model; reopened by a kill after each step."""
    world = world_of()
    store = await world.writer()
    model: dict[tuple[int, int], Any] = {}
    for number, step in enumerate(order):
        if step == "p":
            slot = store.slots.find(1, key(1))
            body = b"%d" % number
            await commit(store, {slot if slot >= 0 else store.slots.allocate(1, key(1)): body})
            model[1, 1] = body
        elif step == "d" and (1, 1) in model:
            await remove(store, [1])
            del model[1, 1]
        pin = 100 + number
        await add(store, [pin], b"pin")
        model[1, pin] = b"pin"
        await filler(store, number)
        if step == "m":
            for pinned in [pinned for _, pinned in model if pinned >= 100][::2]:
                await remove(store, [pinned])
                del model[1, pinned]
        await store.maintain()
        await world.kill(store)
        store = await world.writer()
        assert await contents(store) == model
    await store.close()


@pytest.mark.parametrize("compact_bytes_s", [0, 8 << 20])
@pytest.mark.parametrize("seed", range(5))
async def test_random_churn_of_few_keys(seed: int, compact_bytes_s: int) -> None:
    print(f"seed {seed}")
    choose = random.Random(seed)
    world = world_of(cache_bytes=500, compact_bytes_s=compact_bytes_s)
    store = await world.writer()
    model: dict[tuple[int, int], Any] = {}
    for step in range(200):
        bodies, ended = {}, []
        for number in choose.sample(range(12), choose.randrange(1, 5)):
            slot = store.slots.find(1, key(number))
            if slot >= 0 and choose.random() < 0.6:
                ended.append(slot)
                del model[1, number]
                if choose.random() < 0.3:
                    slot = store.slots.allocate(1, key(number))
                    model[1, number] = bodies[slot] = b"%d" % step * choose.randrange(300)
            else:
                slot = slot if slot >= 0 else store.slots.allocate(1, key(number))
                model[1, number] = bodies[slot] = b"%d" % step * choose.randrange(300)
        await commit(store, bodies, deletes=ended)
        if choose.random() < 0.3:
            world.clock.now_ms += 1000
            await store.maintain(lambda: False)
        if choose.random() < 0.1:
            await world.kill(store)
            store = await world.writer()
        assert await contents(store) == model, f"seed {seed}, step {step}"
    assert store.stats().segment_count < 20
    await store.close()


# Moves by hand: what a replay makes of each.


def record(kind: int, number: int, body: bytes = b"", *, attempt: int = 0) -> bytes:
    if kind == DEL:
        return LAYOUT.headless_record.pack(DEL, 1, 0, 0, 0, key(number))
    crc = crc32(body) if kind == PUT else 0
    length = len(body) if kind == PUT else 0
    return LAYOUT.record.pack(kind, 1, 0, length, crc, key(number), 0, 0, attempt, 0)


async def moved(world: DiskWorld, store: Store, *moves: tuple[Move, bytes]) -> Store:
    """Write moves in a frame of their own, as a compaction would, and reopen."""
    writer = store._writer
    writer.pending_locals.extend(move for move, _ in moves)
    bodies = b"".join(body.ljust(len(body) + -len(body) % 8, b"\0") for _, body in moves)
    place = writer.reserve(0, 0, moved_bytes=len(bodies))
    frame = writer.fill(place, bodies=[bodies])
    await store._flusher.flush(frame)
    await world.kill(store)
    return await world.writer()


async def test_a_moved_put_is_found_at_its_new_place() -> None:
    world = world_of()
    store = await world.writer()
    await add(store, [1, 2], b"first body")  # LSN 2, 3

    put = Move(2, 1, 0, 0, record(PUT, 1, b"first body", attempt=7))
    other = Move(3, 1, 0, 0, record(PUT, 2, b"first body"))
    store = await moved(world, store, (put, b"first body"), (other, b"first body"))

    assert await contents(store) == {(1, 1): b"first body", (1, 2): b"first body"}
    slot = store.slots.find(1, key(1))
    assert store.slots.attempt[slot] == 7
    assert store.slots.offset8[store.slots.find(1, key(2))] == store.slots.offset8[slot] + 2
    await store.close()


async def test_a_moved_record_older_than_the_entry_changes_nothing() -> None:
    world = world_of()
    store = await world.writer()
    await add(store, [1], b"old")  # LSN 2
    await remove(store, [1])  # 3
    await add(store, [1], b"new")  # 4

    stale = Move(2, 1, 0, 0, record(PUT, 1, b"old"))
    delete = Move(3, 1, 0, 1, record(DEL, 1))
    store = await moved(world, store, (stale, b"old"), (delete, b""))

    assert await contents(store) == {(1, 1): b"new"}
    await store.close()


async def test_a_moved_delete_still_holds_down_the_put_before_it() -> None:
    world = world_of()
    store = await world.writer()
    await add(store, [1], b"old")  # LSN 2; its delete, LSN 3, went with its segment

    store = await moved(world, store, (Move(3, 1, 0, 1, record(DEL, 1)), b""))

    assert await contents(store) == {}
    await store.close()


async def test_a_moved_state_changes_the_head_of_a_live_entry_only() -> None:
    world = world_of()
    store = await world.writer()
    await add(store, [1], b"body")  # LSN 2

    moves = [Move(4, 1, 0, 0, record(STATE, number, attempt=5)) for number in (1, 9)]
    store = await moved(world, store, *((move, b"") for move in moves))

    assert await contents(store) == {(1, 1): b"body"}
    assert store.slots.attempt[store.slots.find(1, key(1))] == 5
    await store.close()


async def test_a_moved_delete_ends_an_entry_that_a_state_of_a_later_life_was_applied_to() -> None:
    """The PUT of that life, and its end, are gone with their segments; its STATE is still there."""
    world = world_of()
    store = await world.writer()
    await add(store, [1], b"first life")  # LSN 2; ended by LSN 3

    stray = Move(9, 1, 0, 0, record(STATE, 1, attempt=5))
    delete = Move(3, 1, 0, 1, record(DEL, 1))
    store = await moved(world, store, (stray, b""), (delete, b""))

    assert await contents(store) == {}
    await store.close()


async def test_a_moved_delete_spares_a_later_life_that_was_moved_too() -> None:
    world = world_of()
    store = await world.writer()
    await add(store, [1], b"first life")  # LSN 2; ended by LSN 3

    put = Move(9, 1, 0, 0, record(PUT, 1, b"second life", attempt=5))
    delete = Move(3, 1, 0, 1, record(DEL, 1))
    store = await moved(world, store, (put, b"second life"), (delete, b""))

    assert await contents(store) == {(1, 1): b"second life"}
    await store.close()
