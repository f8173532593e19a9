"""Core's world on the real store: same words, but what survives is what a simulated disk kept."""

from collections.abc import Mapping
from random import Random
from typing import Any

import trio

from segstore import Batch, Options, Store, run_inline
from sepp.core.commands import Command
from sepp.core.limits import QueueLimits
from sepp.core.outcomes import Outcome
from sepp.core.slots import FIELDS
from sepp.journal import Journal
from tests.core.world import START_MS, FixedPolicy, World
from tests.fakes.crash_states import crash_images
from tests.fakes.faults import Call
from tests.fakes.simdisk import Image
from tests.fakes.simvfs import SimVFS

OPTIONS = Options(segment_bytes=65_536, cache_bytes=1)


class DiskWorld(World):
    """One machine, its clock, a journal and a store. `commit` is one batch, synced."""

    def __init__(
        self, *, retention_ms: int = 0, queues: Mapping[str, QueueLimits] | None = None
    ) -> None:
        self.policy = FixedPolicy(None, queues)
        self.retention_ms = retention_ms
        self.audit_retention_ms = 0
        self.wall_ms = self.log_ms = self.steady_ms = START_MS
        self.disk = SimVFS()
        self._next_job = 1
        self._open()

    def _open(self) -> None:
        """Open what the disk holds and rebuild the machine from it."""
        trio.run(self._open_store)

    async def _open_store(self) -> None:
        self.store = await Store.open(
            self.disk.directory,
            fields=FIELDS,
            options=OPTIONS,
            vfs=self.disk,
            clock_ms=lambda: self.wall_ms,
            run_in_worker=run_inline,
        )
        await self.store.become_writer()
        self.log_ms = max(self.wall_ms, self.store.position().log_clock_ms)
        self.steady_ms = self.wall_ms
        self.slots: Any = self.store.slots  # the machine sees what the protocol of core says
        self.machine = self._new_machine()
        self.journal = Journal(self.store, self.machine)
        await self.journal.restore(self.now())
        self.machine.check()

    def do(self, command: Command) -> Outcome:
        """Handle one command; the machine must be sound afterwards."""
        outcome = self.machine.handle(command, self.now())
        self.machine.check()
        return outcome

    def commit(self) -> None:
        """Write the open group and sync it."""
        if self.has_writes():
            trio.run(self.store.commit, self.journal.build(self.now()))

    def maintain(self) -> None:
        """Let the store do what it does in the background."""
        trio.run(self.store.maintain)

    def restart(self, *, skew_ms: int = 0) -> None:
        """Stop in order and start again."""
        self.commit()
        trio.run(self.store.close)
        self.step_wall(skew_ms)
        self._open()

    def crash(self, dice: Random) -> bool:
        """Lose power while the open group is being written, or with nothing under way.

        Returns whether the open group survived; before its sync that is up to the disk, after it
        there is no choice.
        """
        if not self.has_writes():
            self.reopen(dice.choice(self._images(dice)))
            return True
        before = self.store.position().last_lsn
        batch = self.journal.build(self.now())
        moments = self._commit_with_moments(batch, dice)
        after = self.store.position().last_lsn
        # What was put and deleted in one group leaves nothing to write.
        is_synced = not moments or dice.random() < 0.2
        self.reopen(dice.choice(self._images(dice) if is_synced else moments))
        found = self.found_lsn
        assert found in (before, after), "a part of a batch, or not even what was acknowledged"
        assert found == after or not is_synced
        return found == after

    def _commit_with_moments(self, batch: Batch, dice: Random) -> list[Image]:
        """Commit; return disks as crashes at each moment of that might leave them."""
        moments: list[Image] = []

        def look(_: Call) -> None:
            self.disk.on_point = None
            moments.extend(self._images(dice))
            self.disk.on_point = look

        self.disk.on_point = look
        trio.run(self.store.commit, batch)
        self.disk.on_point = None
        return moments

    def _images(self, dice: Random) -> list[Image]:
        images = list(crash_images(self.disk, random=dice, random_count=4))
        return dice.sample(images, min(4, len(images)))

    def reopen(self, image: Image) -> None:
        """Go on with another disk. `found_lsn` is what the log then ended with."""
        self.disk = SimVFS.from_image(image, directory=self.disk.directory)
        trio.run(self._look)
        self._open()

    async def _look(self) -> None:
        store = await Store.open(
            self.disk.directory,
            fields=FIELDS,
            options=OPTIONS,
            vfs=self.disk.crash(),
            clock_ms=lambda: self.wall_ms,
            run_in_worker=run_inline,
        )
        self.found_lsn = store.position().last_lsn
        await store.close()

    def bodies(self, slots: list[int]) -> list[Any]:
        """Read bodies of live slots, those of the open group too."""

        async def read() -> list[Any]:
            puts = self.machine.puts
            rest = [slot for slot in slots if slot not in puts]
            found = dict(zip(rest, await self.store.read_bodies(rest), strict=True))
            return [puts[slot] if slot in puts else found[slot] for slot in slots]

        return trio.run(read)
