"""tools/bench without any peer: what it reads, starts and orders, against small fakes."""

import json
import sys
from pathlib import Path

import pytest

from tools.benchmark import machine, procfs, rounds
from tools.benchmark.drivers.lines import Meter
from tools.benchmark.processes import Driver, Program, RunError, Server, free_port
from tools.benchmark.subjects import Subject, jobs_of, running

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
