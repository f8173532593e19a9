"""SIGKILL at random moments under load from eight clients."""

import subprocess
import sys

from tests.e2e.server_process import ROOT, clean_environment

ROUNDS = 30
SECONDS_MAX = 280


def test_thirty_kills_lose_nothing_undo_nothing_and_repeat_no_attempt() -> None:
    shown = subprocess.run(
        [sys.executable, "tools/killtest", "--rounds", str(ROUNDS), "--segment-bytes", "65536"],
        cwd=ROOT,
        env=clean_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )

    print(shown.stdout)
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert "lost 0, undone 0, repeated 0, refused 0" in shown.stdout
    assert f"{ROUNDS} kills" in shown.stdout
