"""The official client in its own environment: it imports as `sepp` too, so never in this one."""

import os
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from attrs import frozen

ROOT = Path(__file__).resolve().parents[2]
RUN_SECONDS_MAX = 240  # hang guard


@frozen
class Counts:
    """How the tests of one run ended."""

    passed: int
    failed: int
    skipped: int


@frozen
class Peer:
    """The second environment.

    Args:
        python: Its interpreter.
        sdist: The unpacked source release of the client, its own tests in it.
        directory: For reports, and to run in where nothing of ours can be imported.
    """

    python: Path
    sdist: Path
    directory: Path

    def run(self, *arguments: str, cwd: Path | None = None, address: str = "") -> str:
        """Run its Python; return what it printed, or fail with that."""
        done = self._run(*arguments, cwd=cwd, address=address)
        assert done.returncode == 0, done.stdout
        return done.stdout

    def run_tests(self, *arguments: str, cwd: Path | None = None, address: str = "") -> Counts:
        """Run its pytest; print what failed and return how many."""
        report = self.directory / "report.xml"
        options = ["-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
        done = self._run(*options, *arguments, cwd=cwd, address=address)
        print(done.stdout)
        assert report.is_file(), done.stdout
        suite = ET.parse(report).getroot().find("testsuite")
        assert suite is not None
        tests, failures, errors, skipped = (
            int(suite.get(name, "0")) for name in ("tests", "failures", "errors", "skipped")
        )
        failed = failures + errors
        return Counts(tests - failed - skipped, failed, skipped)

    def _run(
        self, *arguments: str, cwd: Path | None, address: str
    ) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(self.directory), "LC_ALL": "C.UTF-8"}
        if address:
            environment["SEPP_TEST_ADDR"] = address
        return subprocess.run(
            [str(self.python), *arguments],
            cwd=cwd or self.directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=RUN_SECONDS_MAX,
        )


def find_peer(directory: Path) -> Peer:
    """Return the peer that `tools/test` has made, or skip where it was never run."""
    python = Path(os.environ.get("SEPP_PEER_PYTHON", ROOT / ".venv-peer" / "bin" / "python"))
    sdist = Path(os.environ.get("SEPP_PEER_SDIST", ROOT / ".cache" / "sepp_py-0.1.0"))
    if "SEPP_PEER_PYTHON" not in os.environ and not (python.exists() and sdist.exists()):
        pytest.skip("the official client is not installed here; tools/test does that")
    return Peer(python, sdist, directory)
