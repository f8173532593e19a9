"""Every planted bug is caught by the proof that is named for it: a proof that misses one is none.

To plant another: change the code, keep the difference as `planted/NAME.patch` with two lines before
it (see `planting.py`), and find or write the quickest proof that notices.
"""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
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
AS_IT_IS = "as it is"

# By name of a bug: the exit code of its proof and what was printed.
Verdicts = dict[str, Future[tuple[int, str]]]


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Verdicts]:
    """Run all proofs side by side; each test waits for its own."""
    folder = tmp_path_factory.mktemp("planted")
    runners: SimpleQueue[ProofRunner] = SimpleQueue()
    started = [ProofRunner() for _ in range(PROCESSES)]
    for runner in started:
        runners.put(runner)

    def run(bug: PlantedBug | None) -> tuple[int, str]:
        if bug is None:
            copy = make_copy(folder / AS_IT_IS, *sorted({bug.proof for bug in BUGS}))
        else:
            copy = make_patched_copy(bug, folder / bug.name)
        runner = runners.get()
        try:
            return runner.run(copy)
        finally:
            runners.put(runner)

    with ThreadPoolExecutor(PROCESSES) as pool:
        found = {AS_IT_IS: pool.submit(run, None)}
        found |= {bug.name: pool.submit(run, bug) for bug in BUGS}
        yield found
        pool.shutdown(cancel_futures=True)
    for runner in started:
        runner.close()


def test_without_a_planted_bug_every_proof_passes(verdicts: Verdicts) -> None:
    code, output = verdicts[AS_IT_IS].result()

    assert code == 0, output


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_caught(bug: PlantedBug, verdicts: Verdicts) -> None:
    code, output = verdicts[bug.name].result()

    assert code == FAILED, f"{bug.what} {bug.proof} did not notice: exit code {code}\n{output}"
    assert f"FAILED {bug.proof}" in output, output


def test_the_count_of_planted_bugs_caught(verdicts: Verdicts) -> None:
    caught = sum(verdicts[bug.name].result()[0] == FAILED for bug in BUGS)

    print(f"planted bugs caught: {caught} of {len(BUGS)}")
    assert caught == len(BUGS) >= 40


def test_a_patch_that_fits_no_more_says_so(tmp_path: Path) -> None:
    copy = make_copy(tmp_path / "copy", changed=["segstore"])
    bug = next(bug for bug in BUGS if bug.name == "cut-mid-log")
    plant(bug, copy)

    with pytest.raises(PatchDoesNotApply, match=r"are 0 times in segstore/recovery\.py, not once"):
        plant(bug, copy)
