"""Kill and restart between any two steps of any life: the same answers afterwards.

The random lives of core's model test, run on journal and store over a simulated disk that loses
power at any moment of any commit. What was acknowledged is there afterwards, the group under way is
there whole or not at all, and every later answer is what the plain model says.
"""

import copy
from random import Random
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from sepp.core.commands import Enqueue
from sepp.core.outcomes import Outcome
from sepp.core.slots import REASON_IS_FINAL
from tests.core.compared import LIMITS
from tests.core.model import Model
from tests.core.test_model import Lives, spans
from tests.core.world import job_id
from tests.spine.disk_world import DiskWorld


def body(number: bytes) -> bytes:
    """The body of a job: its own, and now and then one that fills a good part of a segment."""
    size = int.from_bytes(number, "big")
    return number * (300 if size % 7 == 0 else 1 + size % 3)


class LivesOnDisk(Lives):
    """The world is on disk; the model knows what of it was acknowledged."""

    world: Any  # a DiskWorld, which has all that the rules use of a World

    @initialize(retention_ms=st.sampled_from([0, 300, 300]), seed=st.integers(0, 2**32 - 1))
    def start(self, retention_ms: int, seed: int) -> None:
        self.dice = Random(seed)
        self.world = DiskWorld(retention_ms=retention_ms, queues=LIMITS)
        self.model = Model(LIMITS, retention_ms)
        self.count = 0
        self.acknowledged = copy.deepcopy(self.model)

    def do(self, command: Any) -> Outcome:
        if isinstance(command, Enqueue):
            for job in command.jobs:
                job.body = body(job.job_id)
        return super().do(command)

    def acknowledge(self) -> None:
        """Note that all up to now is durable; waits are not."""
        waiters, served = self.model.waiters, self.model.served
        self.model.waiters, self.model.served = [], []
        self.acknowledged = copy.deepcopy(self.model)
        self.model.waiters, self.model.served = waiters, served

    @rule()
    def commit(self) -> None:
        self.world.commit()
        self.acknowledge()

    @rule()
    def restart(self) -> None:
        self.world.restart()
        self.model.restart()
        self.acknowledge()

    @rule(down_ms=spans)
    def crash(self, down_ms: int) -> None:
        """Lose power now, or while the open group is being written; stay down for a while."""
        if not self.world.crash(self.dice):
            self.model = copy.deepcopy(self.acknowledged)
        self.model.restart()
        self.model.served = []
        self.acknowledge()
        self.world.pass_ms(down_ms)

    @invariant()
    def between_two_steps(self) -> None:
        """Half of all steps are a group of their own, and the power fails behind every fifth."""
        fate = self.dice.random()
        if fate < 0.5:
            self.commit()
        if fate < 0.1 or fate > 0.9:
            self.crash(0)

    @rule()
    def maintain(self) -> None:
        """Segments are made ahead, compacted and dropped."""
        self.world.maintain()

    @invariant()
    def same_bodies_and_reasons(self) -> None:
        machine = self.world.machine
        slots, expected = [], []
        for job in self.model.jobs.values():
            row = machine.job_row(job.job_id)
            assert row is not None
            slots.append(row.slot)
            expected.append(body(job.job_id))
            if job.reason is not None:
                assert row.flags & REASON_IS_FINAL
                slots.append(row.reason_slot)
                expected.append(job.reason)
        assert self.world.bodies(slots) == expected

    @invariant()
    def no_job_of_a_lost_group_is_left(self) -> None:
        for number in range(1, self.count + 1):
            if job_id(number) not in self.model.jobs:
                assert self.world.machine.job_row(job_id(number)) is None


# Without shrinking, which takes minutes here: the blob that is printed repeats a failure.
LivesOnDisk.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    print_blob=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
)
TestLivesOnDisk = LivesOnDisk.TestCase


class ManyLivesOnDisk(LivesOnDisk):
    """The same for as long as it takes."""


ManyLivesOnDisk.TestCase.settings = settings(LivesOnDisk.TestCase.settings, max_examples=500)
TestManyLivesOnDisk = pytest.mark.long(ManyLivesOnDisk.TestCase)
