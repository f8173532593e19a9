"""What measures the admin side works: a small round of it."""

import pytest

from tests.admin import cost


def test_a_small_round_measures_everything(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--dead", "300", "--queues", "20", "--rounds", "1", "--follow", "0.2"]

    cost.main([*sizes, "--no-browser"])

    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    looks = {row[0]: [float(figure) for figure in row[1:]] for row in rows[1:] if len(row) == 6}
    assert len(looks) == 22
    assert all(cpu_ms > 0 for cpu_ms, *_ in looks.values())
    assert looks["page, newest"][-1] > looks["page, died before"][-1]  # KB, with rows and without
    assert [row[0] for row in rows if "of a core" in row[-1]] == [
        "20 queues, nobody looks",
        "20 queues, a dashboard follows 50",
        "20 queues, a stream of all",
    ]
