"""tools/bench without any peer: statistics, accounts, tables, charts, orders, the command line."""

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tools.benchmark import chart, cli, latency, machine, ours, peers, procfs, report, rounds, sweep
from tools.benchmark.drivers.lines import Meter
from tools.benchmark.figures import median, microseconds_per_job, percentile, ratio, spread
from tools.benchmark.processes import Driver, Program, RunError, Server, free_port
from tools.benchmark.subjects import Result, Subject, jobs_of, running
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


# Accounts of the operating system


def test_stat_is_read_after_the_last_bracket_of_the_command() -> None:
    text = "42 (a) b) c) S 1 77 77 0 -1 0 0 0 0 0 150 50 9 9 20 0 1 0"

    group, seconds = procfs.parse_stat(text)

    assert group == 77
    assert seconds == pytest.approx(200 / procfs.TICKS_PER_SECOND)


def test_busy_time_leaves_out_idle_and_waiting() -> None:
    text = "cpu  10 1 20 5000 700 2 3 4 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n"

    assert procfs.parse_busy_seconds(text) == pytest.approx(40 / procfs.TICKS_PER_SECOND)


def test_peak_memory_is_read_in_bytes() -> None:
    assert procfs.parse_peak_bytes("Name:\tx\nVmPeak:\t 9 kB\nVmHWM:\t  2048 kB\n") == 2048 * 1024
    assert procfs.parse_peak_bytes("Name:\tkthread\n") == 0


def test_a_process_group_is_charged_for_its_children_too(tmp_path: Path) -> None:
    burn = "import os; os.fork(); sum(range(3_000_000)); os.write(1, b'{}\\n'); input()"

    with Driver("burner", [sys.executable, "-c", burn], folder=tmp_path) as driver:
        driver.answer(60)
        driver.answer(60)
        members = procfs.group_members(driver.process.pid)
        seconds = procfs.group_cpu_seconds(driver.process.pid)
        peak = procfs.group_peak_bytes(driver.process.pid)

    assert len(members) == 2
    assert driver.process.pid in members
    assert seconds > 0
    assert peak > 1 << 20


def test_the_file_system_is_the_one_of_the_deepest_mount(tmp_path: Path) -> None:
    mounts = (
        f"/dev/a / ext4 rw 0 0\n/dev/b {tmp_path} xfs rw 0 0\n/dev/c {tmp_path}x btrfs rw 0 0\n"
    )

    assert machine.file_system_of(tmp_path / "data", mounts) == "xfs on /dev/b"


def test_facts_hold_what_a_figure_needs(tmp_path: Path) -> None:
    facts = machine.facts(tmp_path)

    assert facts.cores >= 1
    assert facts.fdatasync_p50_ms <= facts.fdatasync_p99_ms
    assert "fdatasync" in "\n".join(facts.lines())
    assert list(tmp_path.iterdir()) == []  # the probe's file is gone
    json.dumps(facts.as_dict())


# Programs


def test_a_program_that_cannot_be_started_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="cannot start nothing-like-it"):
        Program("absent", ["nothing-like-it"], folder=tmp_path)


def test_a_server_that_ends_at_the_start_is_reported_with_its_last_words(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", "import sys; sys.exit('no such data folder')"]

    with (
        Server("server", argv, port=free_port(), folder=tmp_path) as server,
        pytest.raises(RunError, match="ended with 1 at the start\nno such data folder"),
    ):
        server.wait_listening()


def test_a_driver_that_ends_without_an_answer_is_reported(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", "import sys; input(); sys.exit('lost the connection')"]

    with (
        Driver("driver", argv, folder=tmp_path) as driver,
        pytest.raises(RunError, match="ended without an answer\nlost the connection"),
    ):
        driver.order({"phase": "enqueue"}, seconds_max=60)


def test_a_driver_that_says_something_else_is_reported(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", "print('hello'); input()"]

    with (
        Driver("driver", argv, folder=tmp_path) as driver,
        pytest.raises(RunError, match="said b'hello'"),
    ):
        driver.answer(60)


SERVER = """
import socket, sys
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    listener.accept()[0].close()
"""
DRIVER = """
import json, sys
options = json.loads(sys.argv[1])
print(json.dumps({"client": f"fake over {options['connections']}"}), flush=True)
while line := sys.stdin.readline():
    order = json.loads(line)
    print('{"prepared": true}', flush=True)
    sys.stdin.readline()
    jobs = order["jobs"] * order["batch"]
    print(json.dumps({"phase": order["phase"], "enqueued": jobs, "completed": jobs - 1,
                      "seconds": 0.5, "client_cpu_seconds": 0.0}), flush=True)
"""


def fake_subject(name: str) -> Subject:
    return Subject(
        name,
        name.upper(),
        "not at all",
        lambda folder, port: [sys.executable, "-c", SERVER, str(port)],
        lambda: [sys.executable, "-c", DRIVER],
        options={"connections": 2},
        order={"batch": 3},
    )


def test_a_session_measures_what_the_driver_answers(tmp_path: Path) -> None:
    plan = rounds.Plan()

    with running(fake_subject("fake"), tmp_path / "turn") as session:
        found = session.measure(plan.order("both", "line", jobs=7), 4)
        changed = session.measure(plan.order("both", "line", jobs=7, batch=1))

    assert session.client == "fake over 2"
    assert (found.enqueued, found.completed, found.jobs) == (21, 20, 20)
    assert found.round_index == 4
    assert found.jobs_per_second == 40
    assert found.server_peak_bytes > 0
    assert changed.enqueued == 7  # the order wins over the subject
    assert session.server.process.poll() is not None
    assert session.driver.process.poll() == 0


def test_rounds_are_interleaved_and_start_with_another_subject_each(tmp_path: Path) -> None:
    told: list[str] = []
    plan = rounds.Plan(rounds=2, jobs=10)

    results, clients = rounds.interleave(
        [fake_subject("one"), fake_subject("two")], plan, tmp_path, tell=told.append
    )

    turns = [(r.round_index, r.subject) for r in results if r.phase == "both"]
    assert turns == [(0, "one"), (0, "two"), (1, "two"), (1, "one")]
    assert clients == {"one": "fake over 2", "two": "fake over 2"}
    assert len(told) == 4
    assert list(tmp_path.iterdir()) == []
    # A drain takes what the enqueue before it stored.
    assert [r.jobs for r in results[:2]] == [30, 89]


def test_moving_no_job_at_all_is_no_figure(tmp_path: Path) -> None:
    with (
        running(fake_subject("fake"), tmp_path / "turn") as session,
        pytest.raises(RunError, match="drain moved no job"),
    ):
        session.measure(rounds.Plan().order("drain", "line", jobs=1, batch=1))


# Orders


def order(phase: str, **changes: object) -> dict[str, object]:
    return {"phase": phase, "jobs": 10, "seconds": 3600, **changes}


def test_a_meter_gives_out_no_more_jobs_than_ordered() -> None:
    meter = Meter(order("enqueue"))

    assert [meter.take(4), meter.take(4), meter.take(4), meter.take(4)] == [4, 4, 2, 0]


def test_a_meter_gives_out_nothing_once_the_time_is_over() -> None:
    assert Meter(order("enqueue", seconds=0)).take(1) == 0


def test_a_drain_is_over_when_all_ordered_jobs_are_done() -> None:
    meter = Meter(order("drain"))
    meter.completed = 9

    assert not meter.is_drained()
    meter.completed = 10
    assert meter.is_drained()


def test_both_at_once_has_no_goal_before_the_producers_have_ended() -> None:
    meter = Meter(order("both"))
    meter.completed = 1000

    assert not meter.is_drained()


def test_a_paced_phase_is_ahead_until_its_next_job_is_due() -> None:
    meter = Meter(order("both", pace=0.001))
    assert not meter.is_ahead_of_pace()  # the first job is due at once

    meter.take(4)

    assert meter.is_ahead_of_pace()


@pytest.mark.parametrize(("phase", "jobs"), [("enqueue", 5), ("drain", 3), ("both", 3)])
def test_a_phase_counts_the_jobs_that_went_its_whole_way(phase: str, jobs: int) -> None:
    assert jobs_of(phase, {"enqueued": 5, "completed": 3}) == jobs


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


def test_log_activity_counts_files_by_name() -> None:
    before = ({"1.seg", "2.seg"}, {"1.snap"})
    after = ({"2.seg", "3.seg", "4.seg"}, {"2.snap"})

    words = latency.log_activity(before, after)

    assert words == "2 segments begun, 1 of the earlier dropped, 1 snapshots new"


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
    assert filled == [10_000, 100_000, 1_000_000, 1, 100, 10_000, 1_000_000, 10_000]


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
