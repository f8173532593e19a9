"""Every code block of README and guides runs as it stands, against a real server."""

from pathlib import Path

import pytest

from tests.docs.blocks import Block, blocks_of, run_block
from tests.e2e.conftest import StartServer, start_server
from tests.house.sources import repository_files

__all__ = ["start_server"]

DOCUMENTS = [
    "README.md",
    *(path for path in repository_files() if path.startswith("sepp/guides/")),
]
# Blocks that other tests run, by a text in them.
REFERENCE = "sepp/guides/API.md"
ELSEWHERE = {"tools/run": "tests/e2e/test_tools_run.py"}


def runnable(path: str) -> list[Block]:
    return [b for b in blocks_of(path) if not any(text in b.code for text in ELSEWHERE)]


@pytest.mark.parametrize("path", DOCUMENTS)
def test_its_programs_run(path: str, start_server: StartServer, tmp_path: Path) -> None:
    server = start_server()
    directory = tmp_path / "reader"
    directory.mkdir()

    for block in runnable(path):
        run_block(block, server.address, directory)


def test_whoever_takes_dead_letters_is_told_that_a_server_keeps_none_by_default() -> None:
    takers = [
        path
        for path in DOCUMENTS
        if any("drain" in block.code for block in blocks_of(path) if block.kind in ("python", "sh"))
    ]
    assert len(takers) == 3
    silent = [p for p in takers if "dead_letter_retention_ms" not in Path(p).read_text("utf-8")]
    assert silent == []


def test_every_guide_has_a_program_and_a_place_in_the_readme() -> None:
    readme = Path("README.md").read_text("utf-8")
    guides = [path for path in DOCUMENTS if path not in ("README.md", REFERENCE)]
    assert len(guides) == 9
    assert [path for path in guides if not runnable(path)] == []
    assert [path for path in guides if path not in readme] == []
