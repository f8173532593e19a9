"""The short forms of fuzz/recovery.py and fuzz/store_life.py; longer ones are a command away."""

import random
import subprocess
import sys

import pytest


@pytest.mark.parametrize("seconds", [6, pytest.param(600, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", ["recovery", "store_life"])
def test_no_harm_and_no_life_makes_a_store_lose_anything_untold(name: str, seconds: int) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    command = ["-m", f"fuzz.{name}", "--seconds", str(seconds), "--seed", str(seed)]

    done = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, timeout=seconds * 10 + 600
    )

    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
