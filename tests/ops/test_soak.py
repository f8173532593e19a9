"""The soak in the short form that every run can afford; `--long` takes the hour."""

import random
from pathlib import Path

import pytest

from tests.ops.soak import soak, summary

SHORT_S = 45


@pytest.mark.parametrize(
    "seconds",
    [
        SHORT_S,
        pytest.param(180, marks=pytest.mark.long),
        pytest.param(3600, marks=pytest.mark.long),
    ],
)
def test_work_goes_on_through_reloads_rotations_scrapes_and_dying_clients(
    tmp_path: Path, seconds: int
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")

    report = soak(tmp_path / "server", seconds, seed=seed)

    print(summary(report))
    assert report.faults == report.errors == []
    assert report.scrapes > seconds // 2
    assert report.reloads >= seconds // 10
    assert report.rotations >= 1
    assert report.kills >= seconds // 10
    assert report.acked > 0
