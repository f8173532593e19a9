"""Putting known bugs into a copy of the package, to see that a proof notices each.

A planted bug is a file `planted/NAME.patch`: a line that says what it plants, a line that names the
proof which is to catch it (`Caught by: `, as pytest takes it), and a unified diff. Line numbers do
not count: the old lines of a hunk must stand in the file exactly once, wherever that is.

As a program this file runs proofs against copies: it reads their directories from standard input
and answers each with the exit code of pytest. It imports nothing of ours itself and forks for each
copy, so that not every one has to load what all of them share.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from attrs import frozen

ROOT = Path(__file__).resolve().parents[2]
PLANTED = Path(__file__).parent / "planted"
PROOF_SECONDS_MAX = 300  # hang guard
FAILED = 1  # exit code of pytest: tests ran and some failed; others mean that they did not run

_CAUGHT_BY = "Caught by: "
_FILE = re.compile(r"\+\+\+ b/(\S+)\n")
_OPTIONS = ("-q", "-x", "--tb=short", "-p", "no:cacheprovider")
_OPTIONS += ("-W", "ignore::pytest.PytestAssertRewriteWarning")  # of what is loaded ahead


@frozen
class PlantedBug:
    """One file of `planted`."""

    name: str
    what: str
    proof: str
    hunks: tuple[tuple[str, str, str], ...]  # path, old lines, new lines


class PatchDoesNotApply(Exception):
    """The code a patch changes has changed; make the patch anew."""


def read_bugs() -> list[PlantedBug]:
    """Return all planted bugs by name."""
    return [_read(path) for path in sorted(PLANTED.glob("*.patch"))]


def _read(path: Path) -> PlantedBug:
    what, caught_by, *lines = path.read_text("utf-8").splitlines(keepends=True)
    assert caught_by.startswith(_CAUGHT_BY), f"{path.name} does not name its proof"
    hunks: list[tuple[str, str, str]] = []
    target = ""
    for line in lines:
        if match := _FILE.fullmatch(line):
            target = match[1]
        elif line.startswith("@@"):
            hunks.append((target, "", ""))
        elif hunks and line[0] in " +-" and not line.startswith("--- "):
            file, old, new = hunks[-1]
            mark, rest = line[0], line[1:]
            hunks[-1] = (file, old + rest * (mark != "+"), new + rest * (mark != "-"))
    assert hunks, f"{path.name} changes nothing"
    proof = caught_by.removeprefix(_CAUGHT_BY).strip()
    return PlantedBug(path.stem, what.strip(), proof, tuple(hunks))


def make_copy(target: Path, *proofs: str, changed: Sequence[str] = ()) -> Path:
    """Make a place to run proofs in: copies of the packages to be changed, links to the others."""
    target.mkdir()
    for name in ("segstore", "sepp", "tests"):
        if name in changed:
            shutil.copytree(ROOT / name, target / name)  # with what is compiled: spares the time
        else:
            (target / name).symlink_to(ROOT / name)
    shutil.copy2(ROOT / "pyproject.toml", target)
    (target / "proofs").write_text("\n".join(proofs), "utf-8")
    return target


def make_patched_copy(bug: PlantedBug, target: Path) -> Path:
    """Make a place to run the proof in that is to catch the bug.

    Raises:
        PatchDoesNotApply: see `plant`.
    """
    packages = {file.partition("/")[0] for file, _, _ in bug.hunks}
    plant(bug, make_copy(target, bug.proof, changed=sorted(packages)))
    return target


def plant(bug: PlantedBug, root: Path) -> None:
    """Change a copy.

    Raises:
        PatchDoesNotApply: A hunk does not fit, or fits more than once.
    """
    for file, old, new in bug.hunks:
        path = root / file
        assert not path.resolve().is_relative_to(ROOT), "a bug is planted in a copy alone"
        text = path.read_text("utf-8") if path.is_file() else ""
        count = text.count(old)
        if count != 1:
            raise PatchDoesNotApply(
                f"planted/{bug.name}.patch: these lines are {count} times in {file}, not once;"
                f" make the patch anew so that it still plants this: {bug.what}\n{old}"
            )
        path.write_text(text.replace(old, new), "utf-8")


class ProofRunner:
    """A process that runs proofs, one copy at a time."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )

    def run(self, copy: Path) -> tuple[int, str]:
        """Return the exit code of pytest, negative for a signal, and what it printed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{copy}\n")
        code = int(self._process.stdout.readline())
        return code, (copy / "output").read_text("utf-8")

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def _serve() -> None:
    """Answer each directory on standard input."""
    import hypothesis  # noqa: F401  loaded once for all
    import pytest
    import trio  # noqa: F401  so is this

    sys.path.remove(str(Path(__file__).parent))
    for line in sys.stdin:
        copy = Path(line.strip())
        child = os.fork()
        if not child:
            _become(copy)
            code = int(pytest.main([*_OPTIONS, *Path("proofs").read_text().splitlines()]))
            sys.stdout.flush()
            os._exit(code)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def _become(copy: Path) -> None:
    """Make this process one that works on a copy."""
    signal.alarm(PROOF_SECONDS_MAX)
    os.chdir(copy)
    os.environ["PYTHONPATH"] = str(copy)
    sys.path[:] = [str(copy), *(each for each in sys.path if each != str(ROOT))]
    output = os.open("output", os.O_WRONLY | os.O_CREAT, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(source, target)


if __name__ == "__main__":
    _serve()
