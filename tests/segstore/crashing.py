"""Crashing a store at every call and holding what is left against a model.

A `Trace` runs batches on a simulated disk and keeps, for each call, the disks a crash may leave
there and what the model allows on them: everything acknowledged, and of the rest a prefix in LSN
order.
"""

from random import Random

import trio
from attrs import define, field

from segstore import Options, Store
from tests.fakes.crash_states import FULL_COUNT_MAX, crash_images
from tests.fakes.faults import Call
from tests.fakes.simdisk import Image
from tests.fakes.simvfs import SimVFS
from tests.segstore.worlds import Clock, DiskWorld, key, put

Content = dict[int, tuple[bytes, int]]  # key number: body and attempt


@define
class Crash:
    """One disk a crash left: at which call, and which states of the model it may show."""

    call: Call
    image: Image
    first: int  # index of the oldest allowed state
    last: int


@define
class Trace:
    """See the module.

    Args:
        options: Of the store.
        seed: Of the random choices; printed when a check fails.
        random_count: Random disks tried at each call beside the planned ones.
    """

    options: Options
    seed: int = 1
    random_count: int = 4
    is_ordered: bool = False
    full_count_max: int = FULL_COUNT_MAX
    states: list[Content] = field(factory=lambda: [{}])
    acknowledged: int = 0  # index of the newest state the caller was told of
    durable: int = 0  # the same, but surviving a power cut
    crashes: list[Crash] = field(factory=list)
    world: DiskWorld = field(init=False)
    vfs: SimVFS = field(factory=SimVFS)
    _seen: set[bytes] = field(factory=set)
    _random: Random = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.world = DiskWorld("/store", self.vfs, self.options)
        self._random = Random(self.seed)
        self.vfs.on_point = self._on_point

    def _on_point(self, call: Call) -> None:
        for image in crash_images(
            self.vfs,
            random=self._random,
            random_count=self.random_count,
            is_ordered=self.is_ordered,
            full_count_max=self.full_count_max,
        ):
            # The same disk may come again with more acknowledged; then it must hold that too.
            mark = image.digest + bytes([self.durable % 256])
            if mark not in self._seen:
                self._seen.add(mark)
                self.crashes.append(Crash(call, image, self.durable, len(self.states) - 1))

    async def step(
        self,
        store: Store,
        puts: dict[int, bytes] | None = None,
        *,
        states: dict[int, int] | None = None,
        deletes: tuple[int, ...] = (),
    ) -> None:
        """Commit one batch: bodies and attempts by key number, keys to delete."""
        state = dict(self.states[-1])
        bodies, ended, changed = {}, [], []
        for number in deletes:
            del state[number]
            ended.append(store.slots.find(1, key(number)))
        for number, body in (puts or {}).items():
            slot = store.slots.find(1, key(number))
            if slot < 0 or number in deletes:
                slot = put(store, number)
            bodies[slot] = body
            state[number] = (body, store.slots.attempt[slot])
        for number, attempt in (states or {}).items():
            slot = store.slots.find(1, key(number))
            store.slots.attempt[slot] = attempt
            changed.append(slot)
            state[number] = (state[number][0], attempt)
        self.states.append(state)
        await store.commit(store.build(bodies, changed, ended, clock_ms=1))
        self.acknowledged = len(self.states) - 1
        if self.options.persist != "buffer":
            self.durable = self.acknowledged

    def check_all(self) -> int:
        """Open what every crash left and compare; return how many there were."""
        for crash in self.crashes:
            try:
                trio.run(self._check, crash)
            except BaseException as problem:
                problem.add_note(f"seed {self.seed}, crash at {crash.call}")
                raise
        return len(self.crashes)

    async def _check(self, crash: Crash) -> None:
        vfs = SimVFS.from_image(crash.image)
        world = DiskWorld("/store", vfs, self.options, clock=Clock())
        store = await world.open()
        found = await content(store)
        await store.close()
        allowed = self.states[crash.first : crash.last + 1]
        assert found in allowed, (sorted(found), [sorted(state) for state in allowed])

        left = vfs.visible_files()
        await self._check_same(SimVFS.from_image(vfs.image([0] * len(vfs.pending))), found)
        await self._check_same(vfs, found)
        assert vfs.visible_files() == left, "a second open changed something"

        store = await world.writer()
        again = put(store, 10_000)
        await store.commit(store.build({again: b"after"}, (), (), clock_ms=1))
        for _ in range(3):
            world.clock.now_ms += 1000
            await store.maintain()
        await world.kill(store)
        await self._check_same(vfs, found | {10_000: (b"after", 0)})

    async def _check_same(self, vfs: SimVFS, expected: Content) -> None:
        """Check that an open of the disk finds this."""
        store = await DiskWorld("/store", vfs, self.options).open()
        assert await content(store) == expected
        await store.close()


async def content(store: Store) -> Content:
    """Return body and attempt of each live entry of table 1."""
    slots = store.slots
    live = list(store.scan())
    bodies = await store.read_bodies(live)
    found: Content = {}
    for slot, body in zip(live, bodies, strict=True):
        assert isinstance(body, bytes), body
        found[int.from_bytes(slots.key(slot), "big")] = (body, slots.attempt[slot])
    return found
