"""Every planted bug is caught by the proof that is named for it: a proof that misses one is none.

To plant another: change the code, keep the difference as `planted/NAME.patch` with two lines before
it (see `planting.py`), and find or write the quickest proof that notices.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

import pytest

from tests.segstore.planting import (
    FAILED,
    PatchDoesNotApply,
    PlantedBug,
    ProofRunner,
    make_copy,
    make_patched_copy,
    plant,
    read_bugs,
)

BUGS = read_bugs()
PROCESSES = 2


@pytest.fixture
def runners() -> Iterator[SimpleQueue[ProofRunner]]:
    """Processes that run proofs, each for one thread at a time."""
    idle: SimpleQueue[ProofRunner] = SimpleQueue()
    started = [ProofRunner() for _ in range(PROCESSES)]
    for runner in started:
        idle.put(runner)
    yield idle
    for runner in started:
        runner.close()


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_patch_still_fits_the_code(bug: PlantedBug, tmp_path: Path) -> None:
    make_patched_copy(bug, tmp_path / "copy")


def test_every_planted_bug_is_caught_and_the_code_without_one_passes(
    runners: SimpleQueue[ProofRunner], tmp_path: Path
) -> None:
    def run(copy: Path) -> tuple[int, str]:
        runner = runners.get()
        try:
            return runner.run(copy)
        finally:
            runners.put(runner)

    proofs = sorted({bug.proof for bug in BUGS})
    copies = [make_copy(tmp_path / "as it is", *proofs)]
    copies += [make_patched_copy(bug, tmp_path / bug.name) for bug in BUGS]
    with ThreadPoolExecutor(PROCESSES) as pool:
        (code, output), *results = pool.map(run, copies)

    assert code == 0, output
    escaped = [
        f"{bug.name}: {bug.what} Exit code {code} of {bug.proof}\n{output}"
        for bug, (code, output) in zip(BUGS, results, strict=True)
        if code != FAILED or f"FAILED {bug.proof}" not in output
    ]
    print(f"planted bugs caught: {len(BUGS) - len(escaped)} of {len(BUGS)}")
    assert not escaped, "\n".join(escaped)
    assert len(BUGS) >= 40


def test_a_patch_that_fits_no_more_says_so(tmp_path: Path) -> None:
    copy = make_copy(tmp_path / "copy", changed=["segstore"])
    bug = next(bug for bug in BUGS if bug.name == "cut-mid-log")
    plant(bug, copy)

    with pytest.raises(PatchDoesNotApply, match=r"are 0 times in segstore/recovery\.py, not once"):
        plant(bug, copy)
