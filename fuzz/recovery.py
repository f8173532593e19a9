"""Invariant: whatever happens to the files of a store, an open tells, or nothing of it is missing.

    python -m fuzz.recovery --seconds 60 --seed 7

A store with a known history is harmed: bits flipped, sectors zeroed, swapped or taken from an older
copy, files cut, removed, put back to an older state, taken from another store. Then, always:

- the open ends, in bounded time, in a store or in a refusal of ours, and nothing else;
- a refusal names a file of the store and an offset in it, and has changed nothing;
- otherwise what is there is a state of the history, with every body right or told to be damaged,
  and not one older than what the frames that are still whole vouch for. What no frame vouches for
  may be missing, as after a power cut; that bytes were cut off is counted and they are kept;
- it lives on: one more entry, a kill, and the next open finds the same and that one.

The parsers are fed noise as well, and frames with right CRCs around wrong lengths: each gives a
value or says what is wrong. Exit code 0 when it held, 1 with the seed when it did not.
"""

import logging
import random
import signal
import time
from collections import Counter

import trio
from attrs import define, field

from fuzz.command_line import seed_and_seconds
from fuzz.harm import HARMS, History, make_history, parse_noise
from segstore import BodyDamaged, FormatRefused, Options, Store, StoreDamaged
from tests.fakes.simvfs import SimVFS
from tests.segstore.worlds import DiskWorld, add

OPEN_SECONDS_MAX = 60  # hang guard
HARMS_MAX = 3
NEW = 10_000  # number of an entry made afterwards
HISTORY_CASES = 60  # so many harms to one history

Found = dict[int, tuple[bytes | BodyDamaged, int]]


@define
class Tally:
    """What came of it."""

    refused: int = 0
    whole: int = 0
    shorter: int = 0  # an older state: what was missing was vouched for by nothing
    damaged: int = 0  # whole but for bodies that are told to be damaged
    parsed: int = 0
    harms: Counter[str] = field(factory=Counter)

    def __str__(self) -> str:
        opened = f"{self.whole} opened whole, {self.damaged} with damaged bodies told"
        return (
            f"{self.refused} refused, {opened}, {self.shorter} without an end that nothing vouched"
            f" for; {self.parsed} noises parsed; harms: {dict(sorted(self.harms.items()))}"
        )


async def look(vfs: SimVFS, options: Options) -> tuple[Found, int]:
    """Open and close; return body and attempt by number, and how many bytes were cut."""
    store = await DiskWorld("/store", vfs, options).open()
    found = await contents(store)
    cut_bytes = store.stats().cut_bytes
    await store.close()
    return found, cut_bytes


async def contents(store: Store) -> Found:
    """Return body or damage, and attempt, of each entry."""
    slots, live = store.slots, list(store.scan())
    bodies = await store.read_bodies(live)
    return {
        int.from_bytes(slots.key(slot), "big"): (body, slots.attempt[slot])
        for slot, body in zip(live, bodies, strict=True)
    }


def fits(found: Found, state: dict[int, tuple[bytes, int]]) -> bool:
    """Whether this is that state, but for bodies that are told to be damaged."""
    return found.keys() == state.keys() and all(
        attempt == state[number][1] and (body == state[number][0] or isinstance(body, BodyDamaged))
        for number, (body, attempt) in found.items()
    )


async def try_harm(history: History, rng: random.Random, tally: Tally) -> None:
    """Harm a copy once or a few times, open it, and hold what comes of it against the history."""
    vfs = history.disk()
    names = [rng.choice(list(HARMS)) for _ in range(rng.choice((1, 1, 1, 2, HARMS_MAX)))]
    told = [f"{name}: {HARMS[name](vfs, history, rng)}" for name in names]
    tally.harms.update(names)
    before = vfs.visible_files()
    signal.alarm(OPEN_SECONDS_MAX)
    try:
        found, cut_bytes = await look(vfs, history.options)
    except (StoreDamaged, FormatRefused) as refusal:
        check_refusal(refusal, vfs, before)
        tally.refused += 1
        return
    except BaseException as problem:
        problem.add_note("; ".join(told))
        raise
    finally:
        signal.alarm(0)
    floor = history.vouched_for(before)
    fitting = [
        index for index in range(floor, len(history.states)) if fits(found, history.states[index])
    ]
    assert fitting, f"{told}: {sorted(found)} is no state from {floor} on"
    is_last = fitting[-1] == len(history.states) - 1
    assert is_last or cut_bytes or history.is_shortened(before), (
        f"{told}: a state is missing untold"
    )
    is_damaged = any(isinstance(body, BodyDamaged) for body, _ in found.values())
    tally.damaged += is_last and is_damaged
    tally.whole += is_last and not is_damaged
    tally.shorter += not is_last
    await live_on(vfs, history.options)
    again, _ = await look(vfs, history.options)
    assert again.pop(NEW) == (b"new", 0), told
    assert {n: a for n, (_, a) in again.items()} == {n: a for n, (_, a) in found.items()}, told


async def live_on(vfs: SimVFS, options: Options) -> None:
    """Write one more entry, and die."""
    world = DiskWorld("/store", vfs, options)
    store = await world.writer()
    await add(store, [NEW], b"new")
    await world.kill(store)


def check_refusal(
    refusal: StoreDamaged | FormatRefused, vfs: SimVFS, before: dict[str, bytes]
) -> None:
    """A refusal names the place and leaves everything as it was; LOCK is for people."""
    after = vfs.visible_files()
    assert {**after, "/store/LOCK": b""} == {**before, "/store/LOCK": b""}, refusal
    assert "/store" in str(refusal), refusal
    if isinstance(refusal, StoreDamaged):
        assert refusal.path.startswith("/store/seg-"), refusal
        assert 0 <= refusal.offset <= len(before.get(refusal.path, b"")), refusal


async def run(seed: int, seconds: float) -> str:
    """Harm for so long; return what was done."""
    rng = random.Random(seed)
    logging.getLogger("segstore").setLevel(logging.CRITICAL)
    tally = Tally()
    give_up_at = time.monotonic() + seconds
    while time.monotonic() < give_up_at:
        history = await make_history(rng)
        for _ in range(HISTORY_CASES):
            await try_harm(history, rng, tally)
            tally.parsed += parse_noise(history, rng)
    return str(tally)


if __name__ == "__main__":
    print(trio.run(run, *seed_and_seconds(__doc__)))
