"""tools/bench without any peer: statistics, tables, charts, subjects, the command line."""

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tools.benchmark import chart, cli, latency, ours, peers, report, rounds, sweep
from tools.benchmark.figures import median, microseconds_per_job, percentile, ratio, spread
from tools.benchmark.processes import RunError
from tools.benchmark.subjects import Result, Subject
from tools.benchmark.table import comparison, lay_out, ratios

ROOT = Path(__file__).resolve().parents[2]
SVG = "{http://www.w3.org/2000/svg}"


def result(subject: str, phase: str, jobs: int, round_index: int = 0) -> Result:
    return Result(
        subject=subject,
        phase=phase,
        round_index=round_index,
        jobs=jobs,
        enqueued=jobs,
        completed=jobs,
        seconds=2.0,
        server_cpu_seconds=0.5,
        client_cpu_seconds=0.25,
        elsewhere_cores=0.1,
        server_peak_bytes=3 << 20,
    )


def subject(name: str) -> Subject:
    return Subject(name, name.upper(), "synced", lambda folder, port: [], list)


# Figures


def test_median_of_an_odd_count_is_the_middle_value() -> None:
    assert median([9, 1, 5]) == 5


def test_median_of_an_even_count_lies_between_the_two_middle_values() -> None:
    assert median([1, 2, 4, 100]) == 3


def test_median_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="median of nothing"):
        median([])


@pytest.mark.parametrize(
    ("share", "expected"), [(0, 1), (0.01, 1), (0.07, 7), (0.5, 50), (0.99, 99), (1, 100)]
)
def test_percentile_is_a_measured_value_by_nearest_rank(share: float, expected: int) -> None:
    assert percentile(list(range(1, 101)), share) == expected


def test_percentile_of_few_values_is_the_largest_for_a_high_share() -> None:
    assert percentile([3.0, 4.0], 0.999) == 4.0


def test_percentile_refuses_a_share_above_one() -> None:
    with pytest.raises(ValueError, match="99 is not within"):
        percentile([1.0], 99)


def test_spread_is_the_distance_of_the_extremes_as_a_share_of_the_median() -> None:
    assert spread([90, 100, 120]) == pytest.approx(0.3)
    assert spread([5]) == 0


def test_no_ratio_and_no_cost_without_something_to_divide_by() -> None:
    assert ratio(3, 0) is None
    assert ratio(3, 2) == 1.5
    assert microseconds_per_job(1.0, 0) is None
    assert microseconds_per_job(0.5, 10_000) == pytest.approx(50)


# Summaries, tables, charts


def test_a_summary_is_the_median_of_the_rounds() -> None:
    results = [result("ours", "both", jobs, i) for i, jobs in enumerate((100, 400, 200))]

    found = rounds.summarize(results)["ours", "both"]

    assert found.rounds == 3
    assert found.jobs_per_second == 100
    assert found.spread == pytest.approx(1.5)
    assert found.server_us_per_job == pytest.approx(2500)
    assert found.server_peak_bytes == 3 << 20


def test_every_round_and_its_rate_is_in_the_json() -> None:
    results = [result("ours", "both", jobs) for jobs in (100, 200)]

    data = json.loads(json.dumps(rounds.as_json(results, rounds.summarize(results))))

    assert [entry["jobs_per_second"] for entry in data["rounds"]] == [50, 100]
    assert data["summary"][0]["jobs_per_second"] == 75


def test_table_columns_are_aligned_and_figures_stand_to_the_right() -> None:
    assert lay_out(["", "rate"], [["a", "1,000"], ["longer", "7"]]).splitlines() == [
        "         rate",
        "------  -----",
        "a       1,000",
        "longer      7",
    ]


def test_a_row_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="has 1 cells, the header 2"):
        lay_out(["", "rate"], [["a"]])


def test_a_phase_not_measured_is_a_dash_and_not_a_zero() -> None:
    found = rounds.summarize([result("ours", "both", 4000)])

    text = comparison([subject("ours")], found)

    assert text.splitlines()[-1].split() == [
        *("OURS", "-", "-", "2,000", "±0%", "125", "62", "3", "synced")
    ]


def test_ratios_say_how_many_times_the_peer_ours_is() -> None:
    found = rounds.summarize([result("ours", "both", 3000), result("peer", "both", 2000)])

    text = ratios([subject("ours")], [subject("peer")], found)

    assert text.splitlines()[-1].split() == ["OURS", ":", "PEER", "-", "-", "1.50", "×"]


def test_a_chart_is_well_formed_and_draws_a_bar_a_value() -> None:
    rows = [
        chart.Row("ours <&>", [30_000, 12.5], is_ours=True),
        chart.Row("peer", [24_400, None]),
    ]

    text = chart.bars("A & B", [("enqueue", "jobs a second"), ("cost", "µs")], rows, ["a note"])

    tree = ElementTree.fromstring(text)
    words = [element.text for element in tree.iter(f"{SVG}text")]
    drawn = [element for element in tree.iter(f"{SVG}rect") if "bar" in element.get("class", "")]
    assert {"A & B", "ours <&>", "jobs a second", "µs", "a note", "not measured"} <= set(words)
    assert [element.get("class") for element in drawn] == ["bar ours", "bar", "bar ours"]
    assert float(drawn[0].get("width", 0)) > float(drawn[1].get("width", 0)) > 0


def test_all_of_a_chart_lies_within_its_frame() -> None:
    rows = [chart.Row("all", [value, value / 7]) for value in (1, 999_999, 0)]
    tree = ElementTree.fromstring(chart.bars("t", [("a", "x"), ("b", "y")], rows, ["n"] * 4))

    width, height = float(tree.get("width", 0)), float(tree.get("height", 0))
    for element in tree.iter(f"{SVG}rect"):
        assert float(element.get("x", 0)) + float(element.get("width", 0)) <= width
    for element in tree.iter(f"{SVG}text"):
        assert float(element.get("y", 0)) < height


def test_a_chart_needs_a_value_for_each_panel() -> None:
    with pytest.raises(ValueError, match="ours: 1 values for 2 panels"):
        chart.bars("t", [("a", "x"), ("b", "y")], [chart.Row("ours", [1])])


@pytest.mark.parametrize(
    ("largest", "step"), [(0, 1), (3, 1), (9, 5), (30_400, 10_000), (0.7, 0.2), (100, 50)]
)
def test_axis_steps_are_round(largest: float, step: float) -> None:
    assert chart.axis_step(largest) == pytest.approx(step)


def test_latencies_are_pooled_sorted_and_compared_with_a_sync() -> None:
    times = [float(i) for i in range(1, 101)]
    found = latency.Latencies("quiet", dict.fromkeys(latency.STEPS, times), "2 segments begun")

    text = latency.table([found], fdatasync_ms=25)

    assert found.at("trip", 0.5) == 50
    assert "2.0 ×" in text
    assert "0.025" not in text
    assert "quiet: 2 segments begun" in text
    assert found.as_dict()["steps_ms"]["trip"]["max"] == 100
    ElementTree.fromstring(latency.chart([found], []))


def test_log_activity_counts_files_by_name_over_all_looks() -> None:
    activity = latency.LogActivity()

    activity.add({"1.seg", "2.seg", "1.snap"}, {"2.seg", "3.seg", "4.seg", "2.snap", "LOCK"})
    activity.add({"4.seg"}, {"5.seg"})

    assert str(activity) == "3 segments begun, 2 dropped, 1 snapshots taken"


def test_a_report_leaves_table_json_and_chart(tmp_path: Path) -> None:
    text = report.page(["a\n", "", "b"])

    paths = report.write(tmp_path / "out", "run", text=text, data={"a": 1}, svg="<svg/>")

    assert [path.suffix for path in paths] == [".txt", ".json", ".svg"]
    assert paths[0].read_text() == "a\n\nb\n"
    assert json.loads(paths[1].read_text()) == {"a": 1}


# Subjects


def test_each_peer_says_what_makes_it_durable() -> None:
    durable = {peer.subject.name: peer.subject.durable for peer in peers.PEERS}

    assert durable == {
        "bullmq": "appendonly yes, appendfsync always",
        "beanstalkd": "-b DIR -f0: a sync after each write",
        "nats": "file storage, sync_interval: always",
    }


def test_peers_are_started_with_the_setting_they_claim(tmp_path: Path) -> None:
    argv = {peer.subject.name: peer.subject.serve(tmp_path, 7) for peer in peers.PEERS}

    assert " ".join(argv["bullmq"]).endswith("--appendonly yes --appendfsync always --save ")
    assert argv["beanstalkd"][-1] == "-f0"
    assert "sync_interval: always" in (tmp_path / "nats.conf").read_text()
    assert "listen: 127.0.0.1:7" in (tmp_path / "nats.conf").read_text()


def test_our_server_runs_with_its_defaults_but_for_addresses_and_mode(tmp_path: Path) -> None:
    text = ours.write_config(tmp_path, 7, persist_mode="sync_all").read_text()

    assert text.splitlines() == [
        "[server]",
        'listen_addr = "127.0.0.1:7"',
        f'db_path = "{tmp_path / "data"}"',
        "[admin]",
        'listen_addr = "127.0.0.1:0"',
        "[storage]",
        'persist_mode = "sync_all"',
    ]


def test_sweep_groups_have_distinct_subjects_and_orders_that_add_up() -> None:
    cases = [case for make in sweep.GROUPS.values() for case in make("python")]
    names = [case.subject.name for case in cases]

    assert len(set(names)) == len(names)
    assert len({case.label for case in cases}) == len(cases)
    filled = [order["jobs"] for case in cases for order in case.prepare]
    queues = [1, 1, 100, 100, 10_000, 10_000]
    assert filled == [10_000, 100_000, 1_000_000, *queues, 1_000_000, 10_000]


# The command line


def test_the_command_runs_by_itself_and_names_its_verbs() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "bench"), "--help"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )

    for verb in ("run", "compare", "sweep", "latency", "peers"):
        assert verb in done.stdout


@pytest.mark.parametrize("verb", ["run", "compare", "sweep", "latency", "peers"])
def test_each_verb_has_help_with_an_example(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main([verb, "--help"])

    assert ended.value.code == 0
    assert f"example: tools/bench {verb}" in capsys.readouterr().out


def test_wrong_usage_ends_with_two() -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["run", "--rounds", "0"])

    assert ended.value.code == 2


def test_an_unknown_subject_ends_with_one_line_and_code_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["compare", "--only", "kafka"]) == 1

    assert "no subject 'kafka' here" in capsys.readouterr().err


def test_a_second_run_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    with (
        cli.working_folder(tmp_path) as folder,
        pytest.raises(RunError, match="another run is under way"),
        cli.working_folder(tmp_path),
    ):
        pass

    assert not folder.exists()
