"""Long loads on a real disk: how large the directory gets, how long commits take, what idling
costs.

    python -m tests.segstore.soak churn DIRECTORY --count 2000000
    python -m tests.segstore.soak rewrite DIRECTORY --count 100000 --rounds 60

`churn`: entries are put, changed and deleted around two that stay. `rewrite`: the heads of the same
entries are changed for ever. Both print the largest size of the directory on the way, the size
after a pause, what was written in another pause, and commit latencies with and without copies under
way.
"""

import argparse
import os
import time
from array import array
from collections.abc import Callable, Coroutine
from typing import Any

import trio
from attrs import define, field

from segstore import Options, Store
from tests.segstore.worlds import key

FIELDS = (
    ("state", "B"), ("priority", "B"), ("cause", "B"), ("flags", "B"), ("attempt", "I"),
    ("max_attempts", "I"), ("queue", "I"), ("at_ms", "Q"), ("order", "Q"), ("enqueued_ms", "Q"),
)  # fmt: skip
GROUP = 64
BODY = os.urandom(256)


def now_ms() -> int:
    """Return the wall clock."""
    return time.time_ns() // 1_000_000


def disk_bytes(path: str) -> int:
    """Return what the files of a directory take on the disk."""
    return sum(entry.stat().st_blocks for entry in os.scandir(path) if entry.is_file()) * 512


def written_bytes() -> int:
    """Return what this process has handed to the operating system so far."""
    with open("/proc/self/io") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("wchar"))


@define
class Load:
    """A store under load, and what is seen on the way."""

    path: str
    store: Store
    largest: int = 0
    quiet: array = field(factory=lambda: array("d"))  # seconds of commits without copies
    copying: array = field(factory=lambda: array("d"))
    has_changes: bool = False

    async def commit(self, puts: dict[int, bytes], states: list[int], deletes: list[int]) -> None:
        """Commit one batch, and look at the clock and the disk."""
        started = time.perf_counter()
        moved = self.store.stats().moved_bytes
        batch = self.store.build(puts, states, deletes, clock_ms=now_ms())
        self.has_changes = False
        await self.store.commit(batch)
        took = time.perf_counter() - started
        is_copying = self.store.stats().victim or self.store.stats().moved_bytes > moved
        (self.copying if is_copying else self.quiet).append(took)
        if len(self.quiet) % 500 == 0:
            self.largest = max(self.largest, disk_bytes(self.path))

    async def keep_up(self) -> None:
        """Maintain the store."""
        while True:
            wait_ms = await self.store.maintain(lambda: self.has_changes)
            await trio.sleep(wait_ms / 1000)

    def report(self) -> None:
        """Print the figures so far."""
        stats = self.store.stats()
        print(
            f"largest {self.largest >> 20} MiB, now {disk_bytes(self.path) >> 20} MiB,"
            f" live {stats.live_bytes >> 20} MiB, {stats.segment_count} segments,"
            f" {stats.drop_count} dropped, {stats.moved_count} copies, {stats.record_count} records"
        )
        for name, seconds in (("without", self.quiet), ("with", self.copying)):
            if seconds:
                ordered = sorted(seconds)
                p50, p99 = (ordered[int(len(ordered) * share)] * 1000 for share in (0.5, 0.99))
                print(
                    f"  {len(ordered)} commits {name} copies: p50 {p50:.2f} ms, p99 {p99:.2f} ms,"
                    f" longest {ordered[-1] * 1000:.1f} ms"
                )


async def churn(load: Load, arguments: argparse.Namespace) -> None:
    """Put, change and delete entries around two that stay."""
    slots = load.store.slots
    stay = [slots.allocate(1, key(number)) for number in (1, 2)]
    await load.commit(dict.fromkeys(stay, BODY), [], [])
    for first in range(10, 10 + arguments.count, GROUP):
        group = [slots.allocate(1, key(number)) for number in range(first, first + GROUP)]
        await load.commit(dict.fromkeys(group, BODY), [], [])
        await load.commit({}, group, [])
        await load.commit({}, [], group)


async def rewrite(load: Load, arguments: argparse.Namespace) -> None:
    """Change the heads of the same entries again and again."""
    slots = load.store.slots
    live = []
    for first in range(0, arguments.count, GROUP):
        group = [slots.allocate(1, key(number)) for number in range(first, first + GROUP)]
        await load.commit(dict.fromkeys(group, BODY), [], [])
        live += group
    for number in range(arguments.rounds):
        for first in range(0, len(live), GROUP):
            load.has_changes = True
            for slot in live[first : first + GROUP]:
                slots.attempt[slot] = number
            await load.commit({}, live[first : first + GROUP], [])


async def run(
    kind: Callable[[Load, argparse.Namespace], Coroutine[Any, Any, None]],
    arguments: argparse.Namespace,
) -> None:
    """Load a store, then let it rest."""
    options = Options(
        persist=arguments.persist,
        segment_bytes=arguments.segment_bytes,
        compact_bytes_s=arguments.compact_bytes_s,
    )
    store = await Store.open(arguments.path, fields=FIELDS, options=options, clock_ms=now_ms)
    await store.become_writer()
    load = Load(arguments.path, store)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(load.keep_up)
        started = time.perf_counter()
        await kind(load, arguments)
        print(f"{time.perf_counter() - started:.1f} s")
        load.report()
        await trio.sleep(arguments.pause_s)
        load.report()
        before = written_bytes()
        await trio.sleep(5)
        print(f"written in 5 s of idleness: {written_bytes() - before} bytes")
        nursery.cancel_scope.cancel()
    await store.close()


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kind", choices=("churn", "rewrite"))
    parser.add_argument("path")
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--persist", default="sync_data")
    parser.add_argument("--segment-bytes", type=int, default=64 << 20)
    parser.add_argument("--compact-bytes-s", type=int, default=8 << 20)
    parser.add_argument("--pause-s", type=float, default=20)
    arguments = parser.parse_args()
    trio.run(run, churn if arguments.kind == "churn" else rewrite, arguments)


if __name__ == "__main__":
    main()
