"""Random lives of a store survive power cuts and kills at every call (see `crash.py`)."""

import logging
from collections.abc import Iterator

import pytest

from tests.segstore.crash import Tally, run_lives

SEED = 1


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Thousands of torn tails are cut; nobody wants to read of each."""
    logger = logging.getLogger("segstore")
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(logging.NOTSET)


def test_random_lives_survive_crashes_at_every_call() -> None:
    tally = Tally()
    run_lives(SEED, state_count=2500, tally=tally)

    print("seed", SEED, tally)
    assert len(tally.digests) >= 2500
    assert tally.nested_count > 500
    assert tally.kill_count > 50
    assert tally.snapshot_count > 1000


_LONG = Tally()


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 8))
def test_twenty_thousand_crashes_and_more_lose_nothing(seed: int) -> None:
    wanted = len(_LONG.digests) + 4000
    run_lives(seed, state_count=wanted, step_count=30, tally=_LONG)

    print("seed", seed, _LONG)
    assert len(_LONG.digests) >= wanted
