"""The example of the README runs as it stands."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "segstore" / "README.md"


def test_the_examples_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store, tools = re.findall(r"```python\n(.*?)```", README.read_text(), re.S)
    monkeypatch.chdir(tmp_path)

    exec(compile(store, str(README), "exec"), {"__name__": "example"})

    assert capsys.readouterr().out.startswith("[b'the body'] [0] Position(store_uuid=")
    assert (tmp_path / "data" / "FORMAT").exists()

    exec(compile(tools, str(README), "exec"), {"__name__": "example"})

    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("0 4 (SegmentSummary(segment=1,")
    assert lines[-1] == "0 [] []"
