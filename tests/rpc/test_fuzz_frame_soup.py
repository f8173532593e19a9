"""The short form of fuzz/frame_soup.py; a longer one is a command away."""

import random
import subprocess
import sys

import pytest


@pytest.mark.parametrize("seconds", [5, pytest.param(120, marks=pytest.mark.long)])
def test_no_soup_of_frames_hurts_the_server_or_another_peer(seconds):
    seed = random.randrange(2**32)
    print("seed", seed)
    command = ["-m", "fuzz.frame_soup", "--seconds", str(seconds), "--seed", str(seed)]

    done = subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        timeout=seconds * 10 + 60,
        check=False,
    )

    print(done.stdout)
    assert done.returncode == 0, done.stderr
