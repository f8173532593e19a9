"""A server that dies under load from eight clients, in each way the machine allows."""

import re
import subprocess
import sys

import pytest

from tests.e2e.server_process import ROOT, clean_environment

SECONDS_MAX = 280


def killtest(mode: str, rounds: int, *options: str) -> str:
    """Run it; return what it printed. A mode that cannot be had here is a skip that says why."""
    shown = subprocess.run(
        [sys.executable, "tools/killtest", "--mode", mode, "--rounds", str(rounds), *options],
        cwd=ROOT,
        env=clean_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )
    print(shown.stdout)
    if shown.returncode == 1 and ": not run: " in shown.stdout:
        pytest.skip(shown.stdout.splitlines()[-1])
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert f"{mode}: lost 0, undone 0, repeated 0, refused 0" in shown.stdout
    return shown.stdout


def test_thirty_kills_lose_nothing_undo_nothing_and_repeat_no_attempt() -> None:
    assert "black: 30 kills" in killtest("black", 30, "--segment-bytes", "65536")


def test_death_as_a_thread_enters_a_chosen_call_loses_nothing() -> None:
    # With this seed half of the calls come early in the life of any server.
    shown = killtest("white", 8, "--segment-bytes", "65536", "--seed", "39")
    assert re.search(r"white: \d+ kills, .* [1-9]\d* at a chosen call", shown)


def test_power_cuts_lose_nothing() -> None:
    assert "6 power cuts" in killtest("power", 6, "--segment-bytes", "65536")


def test_a_copy_of_a_volume_taken_while_it_runs_opens_and_has_it_all() -> None:
    assert "1 snapshots" in killtest("snapshot", 1, "--load-s", "0.1")


def test_a_mode_that_cannot_be_had_is_an_error_that_says_why() -> None:
    shown = subprocess.run(
        [sys.executable, "tools/killtest", "--mode", "white", "--rounds", "1"],
        cwd=ROOT,
        env=clean_environment() | {"PATH": ""},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )

    assert shown.returncode == 1, shown.stdout + shown.stderr
    assert "white: not run: strace is missing" in shown.stdout
