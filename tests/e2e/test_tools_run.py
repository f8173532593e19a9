"""The README's first command."""

import subprocess
import sys
from pathlib import Path

from tests.e2e.server_process import clean_environment

ROOT = Path(__file__).resolve().parents[2]


def test_the_demonstration_works_all_its_jobs_and_stops() -> None:
    shown = subprocess.run(
        [sys.executable, "tools/run", "--once"],
        cwd=ROOT,
        env=clean_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert shown.returncode == 0, shown.stdout + shown.stderr
    lines = [line.split(" ms  ", 1) for line in shown.stdout.splitlines()]
    told = [line[1].split()[0] for line in lines if len(line) == 2]
    assert told == ["enqueued"] * 4 + ["failed"] + ["worked"] * 5 + ["done"]
    assert "server stopped, exit code 0" in shown.stdout
