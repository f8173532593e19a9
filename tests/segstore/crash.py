"""Long random lives of a store, crashed at every call, and again in the middle of the recovery.

    python -m tests.segstore.crash --seed 1 --states 20000

What is left by each crash is opened by the real code and must hold all of these:

a. it opens;
b. every acknowledged operation is there (in `buffer` mode: every one synced in the background);
c. the rest is all or nothing by batch, and the whole a prefix in LSN order;
d. no removed entry is back;
e. bodies are equal byte by byte;
f. live bytes, needed deletes and the directory equal a count from scratch;
g. a second open changes nothing on disk, and a crash at any call of the first finds the same again;
h. it then lives on: twenty more operations, maintenance, a power cut or a kill, another open;
i. with a snapshot it opens to what it opens to without: each entry and its place, every count.

Beside power cuts there are kills: the page cache stays, and whoever opens the store then may serve
what never reached the disk, so a power cut after that must not take it back.
"""

import argparse
import itertools
import logging
from collections.abc import Iterator
from random import Random
from unittest.mock import patch

import trio
from attrs import define, field

from segstore import Options, Store
from segstore.snapshot_file import snapshot_lsn
from segstore.usage import Usage
from tests.fakes.crash_states import crash_images
from tests.fakes.faults import Call
from tests.fakes.simdisk import Image
from tests.fakes.simvfs import SimVFS
from tests.segstore.crashing import Content, Crash, Trace, content
from tests.segstore.worlds import Clock, DiskWorld, key, put

NUMBERS = range(24)  # few keys, so that they come back often
FULL = 64  # combinations up to which all are tried at a call
ROUNDS = 5  # of four operations, after a recovery


@define
class Tally:
    """What was tried, over all lives."""

    digests: set[bytes] = field(factory=set)
    check_count: int = 0
    nested_count: int = 0
    kill_count: int = 0
    moved_count: int = 0
    snapshot_count: int = 0

    def __str__(self) -> str:
        return (
            f"{len(self.digests)} distinct disks, {self.check_count} recoveries,"
            f" {self.nested_count} of them after a crash of a recovery, {self.kill_count} kills,"
            f" {self.moved_count} copies made by compactions,"
            f" {self.snapshot_count} opens with a snapshot and without"
        )


@define
class Life(Trace):
    """A random life; see the module.

    Args:
        tally: Counts.
        nested_share: How many of the recoveries are crashed at each of their own calls.
        compared_share: How many of those from a snapshot are held against one without.
    """

    tally: Tally = field(factory=Tally, kw_only=True)
    nested_share: float = field(default=0.05, kw_only=True)
    kill_share: float = field(default=0.2, kw_only=True)
    compared_share: float = field(default=0.4, kw_only=True)
    _moved_count: int = 0
    _kills: list[tuple[Call, SimVFS, int, int]] = field(factory=list)

    def _on_point(self, call: Call) -> None:
        super()._on_point(call)
        if self._random.random() < self.kill_share:
            self._kills.append((call, self.vfs.fork(), self.acknowledged, len(self.states) - 1))

    async def live(self, step_count: int) -> None:
        """Take so many steps; check the crashes of each."""
        random = self._random
        store = await self._earlier_life()
        for _ in range(step_count):
            dice = random.random()
            if dice < 0.5:
                await self._change(store)
            elif dice < 0.9:
                await self._maintain(store)
            else:
                if dice < 0.95:
                    await store.close(no_changes)
                else:
                    await self.world.kill(store)
                store = await self.world.writer()
                self._moved_count = 0
                assert await content(store) == self.states[-1]
                self.durable = self.acknowledged  # an open syncs what it read
            check_counts(store)
            await self._check_crashes()
        await store.close(no_changes)
        await self._check_crashes()

    async def _earlier_life(self) -> Store:
        """Return a writer with a past, without crashes: several segments, mostly dead ones too."""
        self.vfs.on_point = None
        store = await self.world.writer()
        for _ in range(self._random.randrange(20)):
            await self._change(store)
            if self._random.random() < 0.3:
                await store.maintain(no_changes)
        await store.close(no_changes if self._random.random() < 0.5 else None)
        store = await self.world.writer()
        self.durable = self.acknowledged
        self.vfs.on_point = self._on_point
        return store

    async def _change(self, store: Store) -> None:
        puts, states, deletes = _some_changes(self._random, self.states[-1])
        await self.step(store, puts, states=states, deletes=deletes)

    async def _maintain(self, store: Store) -> None:
        self.world.clock.now_ms += self._random.choice((10, 100, 1000, 5000))
        for _ in range(self._random.choice((1, 1, 3))):  # a snapshot takes more than one
            await store.maintain(self._random.choice((no_changes, None)))
        self.tally.moved_count += store.stats().moved_count - self._moved_count
        self._moved_count = store.stats().moved_count
        active = store._writer.active
        assert active is not None
        if active.synced == active.written:  # in `buffer` mode: it was synced just now
            self.durable = self.acknowledged

    async def _check_crashes(self) -> None:
        crashes, self.crashes = self.crashes, []
        for crash in crashes:
            try:
                await self._check(crash)
            except BaseException as problem:
                problem.add_note(f"{self.options}, seed {self.seed}, crash at {crash.call}")
                raise
        kills, self._kills = self._kills, []
        for call, vfs, first, last in kills:
            try:
                self.tally.kill_count += 1
                found = await self._open_and_close(vfs)
                assert found in self.states[first : last + 1]
                assert await self._open_and_close(vfs.crash()) == found
                await self._live_on(DiskWorld("/store", vfs, self.options, clock=Clock()), found)
            except BaseException as problem:
                problem.add_note(f"{self.options}, seed {self.seed}, killed at {call}")
                raise

    async def _check(self, crash: Crash) -> None:
        tally, options = self.tally, self.options
        tally.digests.add(crash.image.digest)
        vfs = SimVFS.from_image(crash.image)
        nested: dict[bytes, Image] = {}
        if self._random.random() < self.nested_share:
            vfs.on_point = lambda call: nested.update(self._crash_again(vfs, call))
        found = await self._open_and_close(vfs)
        vfs.on_point = None
        allowed = self.states[crash.first : crash.last + 1]
        assert found in allowed, (sorted(found), [sorted(state) for state in allowed])

        left = vfs.visible_files()
        for image in (vfs.image([0] * len(vfs.pending)), *nested.values()):
            tally.digests.add(image.digest)
            tally.nested_count += 1
            assert await self._open_and_close(SimVFS.from_image(image)) == found
        assert await self._open_and_close(vfs) == found
        assert vfs.visible_files() == left, "a second open changed something"

        await self._live_on(DiskWorld("/store", vfs, options, clock=Clock()), found)

    def _crash_again(self, vfs: SimVFS, call: Call) -> Iterator[tuple[bytes, Image]]:
        if call.name.startswith(("pread", "list", "size", "exists", "close")):
            return  # nothing new since the call before
        for image in crash_images(vfs, random=self._random, random_count=1, full_count_max=FULL):
            yield image.digest, image

    async def _open_and_close(self, vfs: SimVFS) -> Content:
        self.tally.check_count += 1
        bare = vfs.fork() if self._random.random() < self.compared_share else None
        store = await DiskWorld("/store", vfs, self.options).open()
        check_counts(store)
        found = await content(store)
        if bare is not None and store.stats().snapshot_bytes:
            self.tally.snapshot_count += 1
            assert whole_state(store) == await state_without_snapshots(bare, self.options)
        await store.close()
        return found

    async def _live_on(self, world: DiskWorld, found: Content) -> None:
        store = await world.writer()
        past = [found]
        durable = 0
        for _ in range(ROUNDS):
            past.append(dict(past[-1]))
            await apply(store, past[-1], *_some_changes(self._random, past[-1]))
            world.clock.now_ms += self._random.choice((10, 1000))
            await store.maintain(no_changes)
            active = store._writer.active
            assert active is not None
            if active.synced == active.written:
                durable = len(past) - 1
        check_counts(store)
        usage = store._usage
        vfs, expected = world.vfs, past[-1]
        assert isinstance(vfs, SimVFS)
        for fates in ([0] * len(vfs.pending), self._random.choices((0, 1), k=len(vfs.pending))):
            assert await self._open_and_close(vfs.crash(fates)) in past[durable:]
        await world.kill(store)
        again = await world.open()
        assert await content(again) == expected
        assert _some(again._usage.live_bytes) == _some(usage.live_bytes)
        assert again._usage.needed == usage.needed
        await again.close()


def _some_changes(
    random: Random, state: Content
) -> tuple[dict[int, bytes], dict[int, int], tuple[int, ...]]:
    """Choose about four operations: bodies and attempts by key number, keys to delete."""
    live = sorted(state)
    deletes = tuple(random.sample(live, min(len(live), random.randrange(3))))
    sizes = (0, 1, 30, 500, 511, 1500, 1500, 9000)
    puts = {
        number: random.randbytes(random.choice(sizes))
        for number in random.sample(NUMBERS, random.randrange(3))
    }
    kept = [number for number in live if number not in deletes]
    changed = random.sample(kept, min(len(kept), random.randrange(3)))
    return puts, {number: random.randrange(100) for number in changed}, deletes


async def apply(
    store: Store,
    expected: Content,
    puts: dict[int, bytes],
    states: dict[int, int],
    deletes: tuple[int, ...],
) -> None:
    """Commit one batch and change the model likewise."""
    ended = [store.slots.find(1, key(number)) for number in deletes]
    for number in deletes:
        del expected[number]
    bodies: dict[int, bytes] = {}
    for number, body in puts.items():
        slot = store.slots.find(1, key(number))
        if number not in expected:
            slot = put(store, number)
        bodies[slot] = body
        expected[number] = (body, store.slots.attempt[slot])
    changed = []
    for number, attempt in states.items():
        slot = store.slots.find(1, key(number))
        store.slots.attempt[slot] = attempt
        changed.append(slot)
        expected[number] = (expected[number][0], attempt)
    await store.commit(store.build(bodies, changed, ended, clock_ms=1))


def check_counts(store: Store) -> None:
    """Hold what is counted along against a count from scratch."""
    slots, usage = store.slots, store._usage
    fresh = Usage(store._layout.record_bytes)
    fresh.recount(slots, usage.needed, usage.live_bytes)
    assert fresh.live_bytes == usage.live_bytes
    assert fresh.needed == usage.needed
    live = list(store.scan())
    assert len(live) == len(slots)
    for slot in live:
        assert slots.find(slots.table(slot), slots.key(slot)) == slot


def whole_state(store: Store) -> dict[str, object]:
    """Return all that a replay makes, with entries by table and key: their slots are not kept."""
    slots, usage, writer = store.slots, store._usage, store._writer
    columns = slots.columns()
    return {
        "entries": {
            (slots.table(slot), slots.key(slot)): [column[slot] for column in columns]
            for slot in store.scan()
        },
        "live": _some(usage.live_bytes),
        "needed": usage.needed,
        "victim": usage.victim,
        "position": store.position(),
        "log": writer._state,
        "segments": [
            (segment.id, segment.end, segment.last_crc) for segment in writer.segments.values()
        ],
        "next": writer._next_segment,
    }


async def state_without_snapshots(vfs: SimVFS, options: Options) -> dict[str, object]:
    """Return what an open of this disk makes of the log alone."""
    for name in vfs.list_dir("/store"):
        if snapshot_lsn(name) is not None:
            vfs.unlink(f"/store/{name}")
    store = await DiskWorld("/store", vfs, options).open()
    assert not store.stats().snapshot_bytes
    state = whole_state(store)
    await store.close()
    return state


def no_changes() -> bool:
    """Tell a store that heads are as they were in the last batch."""
    return False


def _some(live_bytes: dict[int, int]) -> dict[int, int]:
    return {segment: count for segment, count in live_bytes.items() if count}


def run_lives(seed: int, *, state_count: int, step_count: int = 8, tally: Tally) -> None:
    """Run lives with all options in turn until so many distinct disks were tried."""
    modes = itertools.product(
        ("sync_all", "sync_data", "buffer"),
        ("none", "zero"),
        (131_072, 6),
        (False, True),
        (2048, 0),
    )
    for number, mode in enumerate(itertools.cycle(modes)):
        persist, prealloc, recent_max, is_ordered, snapshot_bytes = mode
        if len(tally.digests) >= state_count:
            return
        options = Options(
            persist=persist,
            prealloc=prealloc,
            segment_bytes=8192,
            recent_entries_max=recent_max,  # few: the index file is in use
            snapshot_log_bytes=snapshot_bytes,
        )
        life = Life(options, seed * 1000 + number, 2, is_ordered, FULL, tally=tally)
        with patch("segstore.snapshot.CHUNK_SLOTS", 4):
            trio.run(life.live, step_count)


def main() -> None:
    """Try crashes, and say how many."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--states", type=int, default=20_000, help="distinct disks")
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}")
    logging.getLogger("segstore").setLevel(logging.CRITICAL)
    tally = Tally()
    run_lives(arguments.seed, state_count=arguments.states, tally=tally)
    print(tally)


if __name__ == "__main__":
    main()
