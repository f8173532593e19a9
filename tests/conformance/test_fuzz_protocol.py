"""The short form of fuzz/protocol.py; a longer one is a command away."""

import random
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    "seconds", [5, pytest.param(90, marks=pytest.mark.long)], ids=["5 s", "90 s"]
)
def test_random_requests_meet_only_statuses_the_protocol_names(seconds: int) -> None:
    seed = random.SystemRandom().getrandbits(32)
    command = ["-m", "fuzz.protocol", "--seconds", str(seconds), "--seed", str(seed)]
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds + 240,
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"seed {seed}" in done.stdout
    for method in ("EnqueueBatch", "EnqueueAtomic", "Reserve", "Ack", "Nack", "Extend"):
        assert f"{method} OK" in done.stdout
        assert f"{method} INVALID_ARGUMENT" in done.stdout
        assert f"{method} INTERNAL" in done.stdout
