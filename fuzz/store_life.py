"""Invariant: a store on a disk that loses power shows what a store without a disk would show.

    python -m fuzz.store_life --seconds 60 --seed 7

Hypothesis drives the real store on a simulated disk and its double side by side: entries put,
written over, changed, deleted and put anew under few keys, in batches of any size; rolls, drops,
compactions and index merges; closing, kills, power cuts with any fate of what was not synced, lost
index files. After each step both show the same entries, heads, bodies and position, and what is
counted along equals a count from scratch. A failure is shrunk to a short life. Exit code 0 when it
held, 1 with the seed when it did not.
"""

import logging
import random
import time
from collections.abc import Callable, Coroutine
from typing import Any

import trio
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

from fuzz.command_line import seed_and_seconds
from segstore import Options
from tests.fakes.simvfs import SimVFS
from tests.segstore.crash import check_counts, no_changes
from tests.segstore.worlds import DiskWorld, MemoryWorld, commit, contents, heads, key

Name = tuple[int, int]  # table and number of the key
NAMES = st.tuples(st.integers(1, 2), st.integers(0, 7))
SIZES = st.sampled_from((0, 1, 511, 512, 1500, 3000, 9000))
LIVES = 20  # of one seed
STEPS = 40


class StoreLife(RuleBasedStateMachine):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        self.options = Options(
            segment_bytes=8192, persist="sync_data", prealloc="none", recent_entries_max=4
        )
        self.memory = MemoryWorld()
        self.disk = DiskWorld("/store", SimVFS(), self.options)
        self.double: Any = None
        self.store: Any = None
        self._in_trio(self._start)

    def _in_trio(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        trio.run(work)

    async def _start(self) -> None:
        self.double = await self.memory.open()
        await self.double.become_writer()
        self.store = await self.disk.writer()

    @rule(
        deletes=st.sets(NAMES, max_size=4),
        puts=st.dictionaries(NAMES, st.tuples(st.integers(0, 255), SIZES), max_size=3),
        states=st.dictionaries(NAMES, st.integers(0, 2**32 - 1), max_size=3),
    )
    def commit(
        self, deletes: set[Name], puts: dict[Name, tuple[int, int]], states: dict[Name, int]
    ) -> None:
        bodies = {name: bytes([byte]) * size for name, (byte, size) in puts.items()}

        async def both() -> None:
            for store in (self.double, self.store):
                await commit_named(store, bodies, states, deletes)

        self._in_trio(both)

    @rule(count=st.integers(1, 3))
    def fill_with_what_is_dead(self, count: int) -> None:
        filler = dict.fromkeys([(1, 1000 + number) for number in range(3)], bytes(1500))

        async def both() -> None:
            for _ in range(count):
                for store in (self.double, self.store):
                    await commit_named(store, filler, {}, set())
                    await commit_named(store, {}, {}, set(filler))

        self._in_trio(both)

    @rule(ms=st.sampled_from((10, 100, 1000, 5000)), count=st.integers(1, 4))
    def maintain(self, ms: int, count: int) -> None:
        async def work() -> None:
            for _ in range(count):
                self.disk.clock.now_ms += ms
                await self.store.maintain(no_changes)

        self._in_trio(work)

    @rule()
    def close(self) -> None:
        async def work() -> None:
            await self.double.close()
            await self.store.close()
            await self._start()

        self._in_trio(work)

    @rule()
    def kill(self) -> None:
        async def work() -> None:
            await self.memory.kill(self.double)
            await self.disk.kill(self.store)
            await self._start()

        self._in_trio(work)

    @rule(data=st.data(), is_index_lost=st.booleans())
    def cut_power(self, data: st.DataObject, is_index_lost: bool) -> None:
        vfs = self.disk.vfs
        assert isinstance(vfs, SimVFS)
        count = len(vfs.pending)
        fates = data.draw(st.lists(st.sampled_from((0, 1)), min_size=count, max_size=count))

        async def work() -> None:
            await self.memory.kill(self.double)
            self.disk.vfs = vfs.crash(fates)
            if is_index_lost and self.disk.vfs.exists("/store/index.hix"):
                self.disk.vfs.unlink("/store/index.hix")
            await self._start()

        self._in_trio(work)

    @invariant()
    def both_show_the_same(self) -> None:
        async def work() -> None:
            assert await contents(self.store) == await contents(self.double)
            assert heads(self.store) == heads(self.double)
            mine, its = self.store.position(), self.double.position()
            assert (mine.epoch, mine.last_lsn) == (its.epoch, its.last_lsn)
            check_counts(self.store)

        self._in_trio(work)


async def commit_named(
    store: Any,
    puts: dict[Name, bytes],
    states: dict[Name, int],
    deletes: set[Name],
) -> None:
    """Commit one batch; deletes come first, then puts, and states of what is there then."""
    ended, bodies, changed = [], {}, []
    for table, number in sorted(deletes):
        slot = store.slots.find(table, key(number))
        if slot >= 0:
            ended.append(slot)
    for (table, number), body in puts.items():
        slot = store.slots.find(table, key(number))
        if slot < 0 or slot in ended:
            slot = store.slots.allocate(table, key(number))
        bodies[slot] = body
    for (table, number), attempt in states.items():
        slot = store.slots.find(table, key(number))
        if slot >= 0 and slot not in ended:
            store.slots.attempt[slot] = attempt
            changed.append(slot)
    await commit(store, bodies, changed, ended)


def run(number: int, seconds: float) -> str:
    """Live for so long; return what was done."""
    logging.getLogger("segstore").setLevel(logging.CRITICAL)
    chosen = settings(
        max_examples=LIVES,
        stateful_step_count=STEPS,
        deadline=None,
        database=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
    rng = random.Random(number)
    give_up_at = time.monotonic() + seconds
    rounds = 0
    while time.monotonic() < give_up_at:
        machine = type("SeededLife", (StoreLife,), {})
        run_state_machine_as_test(seed(rng.randrange(2**32))(machine), settings=chosen)
        rounds += 1
    return f"{rounds * LIVES} lives of up to {STEPS} steps"


if __name__ == "__main__":
    print(run(*seed_and_seconds(__doc__)))
