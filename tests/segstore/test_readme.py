"""The example of the README runs as it stands."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "segstore" / "README.md"


def test_the_example_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.S)
    monkeypatch.chdir(tmp_path)

    exec(compile(code, str(README), "exec"), {"__name__": "example"})

    assert capsys.readouterr().out.startswith("[b'the body'] [0] Position(store_uuid=")
    assert (tmp_path / "data" / "FORMAT").exists()
