"""Verbs that speak gRPC, against a real server."""

import json
import os
import signal
from pathlib import Path

import pytest

from sepp.cli.enqueue import read_payload
from tests.cli.verbs import SECONDS_MAX, Verbs
from tests.client.conftest import queue, shared
from tests.e2e.conftest import StartServer, start_server
from tests.e2e.server_process import ServerProcess

__all__ = ["queue", "shared", "start_server"]

SHOW = "sh -c 'cat; echo; env | grep ^SEPP_ | sort; exit {code}'"


@pytest.fixture
def verbs(shared: ServerProcess, tmp_path: Path) -> Verbs:
    return Verbs(tmp_path, "--addr", shared.address)


def test_a_job_goes_from_the_command_line_to_a_program(verbs: Verbs, queue: str) -> None:
    options = ["--encoding", "json", "--custom", "n=1", "--custom", "t=x=y", "--max-attempts", "4"]
    job_id = verbs.run("enqueue", queue, "greet", '{"a": 1}', *options).strip()

    shown = verbs.run("work", queue, "--exec", SHOW.format(code=0), "--max-jobs", "1").splitlines()

    assert shown == [
        '{"a": 1}',
        "SEPP_ATTEMPT=1",
        'SEPP_CUSTOM={"n": 1, "t": "x=y"}',
        "SEPP_ENCODING=json",
        f"SEPP_JOB_ID={job_id}",
        "SEPP_JOB_TYPE=greet",
        "SEPP_MAX_ATTEMPTS=4",
        f"SEPP_QUEUE={queue}",
    ]


def test_the_exit_status_says_what_becomes_of_the_job(verbs: Verbs, queue: str) -> None:
    program = "sh -c 'test $SEPP_JOB_TYPE = ok && exit 0; exit $SEPP_JOB_TYPE'"
    for job_type in ("ok", "65", "75", "1"):
        verbs.run("enqueue", queue, job_type, "--max-attempts", "1")

    work = verbs.start("work", queue, "--exec", program, "--max-jobs", "4", "--concurrency", "4")
    _, err = work.communicate(timeout=SECONDS_MAX)
    assert err.splitlines()[-1] == "1 done, 0 to retry, 3 dead"  # each had one attempt

    records = verbs.lines("dead", "drain", queue, "--max-records", "100")
    found = {r["job_type"]: (r["cause"], r["last_reason"]) for r in records}
    assert found == {
        "65": ("rejected", "exit status 65"),
        "75": ("attempts_exhausted", "exit status 75"),
        "1": ("attempts_exhausted", "exit status 1"),
    }
    assert verbs.run("dead", "drain", queue) == ""


def test_the_payload_comes_from_stdin_or_a_file(verbs: Verbs, queue: str, tmp_path: Path) -> None:
    (tmp_path / "body").write_text("from a file")
    verbs.run("enqueue", queue, "t", "-", stdin="from stdin")
    verbs.run("enqueue", queue, "t", "--file", "body")

    shown = verbs.run("work", queue, "--exec", "cat", "--max-jobs", "2")

    assert shown == "from stdinfrom a file"


def test_a_payload_that_is_no_utf_8_stays_as_it_is() -> None:
    assert read_payload(os.fsdecode(b"\xff"), None) == b"\xff"


def test_a_key_seen_before_is_told(verbs: Verbs, queue: str) -> None:
    first = verbs.json("enqueue", queue, "t", "--idempotency-key", "k")
    second = verbs.json("enqueue", queue, "t", "--idempotency-key", "k")

    assert first["deduplicated"] is False
    assert second == {"job_id": first["job_id"], "deduplicated": True}


def test_a_scheduled_job_waits(verbs: Verbs, queue: str) -> None:
    verbs.run("enqueue", queue, "late", "--schedule-in", "1h30m")
    verbs.run("enqueue", queue, "late", "--schedule-at", "2099-01-01T00:00", code=1)
    verbs.run("enqueue", queue, "now", "--schedule-at", "2020-01-01T00:00+02:00")

    shown = verbs.run("work", queue, "--exec", "sh -c 'echo $SEPP_JOB_TYPE'", "--max-jobs", "1")

    assert shown == "now\n"


def test_many_jobs_from_a_file(verbs: Verbs, queue: str, tmp_path: Path) -> None:
    lines = [
        {"job_type": "t", "payload": {"encoding": "text", "data_text": f"{n}"}} for n in range(600)
    ]
    lines[3]["payload"] = {"encoding": "", "data_text": "x"}
    lines.append({"priority": 9, "idempotency_key": "k"})
    lines.append({"idempotency_key": "k"})
    (tmp_path / "jobs.jsonl").write_text("\n".join(json.dumps(line) for line in lines) + "\n\n")

    shown = verbs.run("enqueue", queue, "other", "--bulk", "jobs.jsonl", code=1)

    assert "line 4: refused" in shown
    counted = verbs.run("enqueue", queue, "other", "--bulk", "-", stdin='{"idempotency_key": "k"}')
    assert counted == "0 stored, 1 were there already, 0 refused\n"
    first = verbs.run("work", queue, "--exec", "sh -c 'echo $SEPP_JOB_TYPE'", "--max-jobs", "1")
    assert first == "other\n"


def test_what_was_drained_can_be_enqueued_again(verbs: Verbs, queue: str, tmp_path: Path) -> None:
    verbs.run("enqueue", queue, "t", "body", "--custom", "n=1.5", "--max-attempts", "1")
    verbs.run("enqueue", queue, "none", "--max-attempts", "1")
    verbs.run("work", queue, "--exec", "false", "--max-jobs", "2")
    drained = verbs.run("dead", "drain", queue, "--max-records", "5")
    (tmp_path / "dead.jsonl").write_text(drained)

    counted = verbs.run("enqueue", queue, "--bulk", "dead.jsonl")

    assert counted == "2 stored, 0 were there already, 0 refused\n"
    shown = verbs.run("work", queue, "--exec", SHOW.format(code=0), "--max-jobs", "2")
    assert shown.startswith("body\n")
    assert 'SEPP_CUSTOM={"n": 1.5}' in shown
    assert "SEPP_JOB_TYPE=none" in shown


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["enqueue", "q"], 2, "needs a job type"),
        (["enqueue", "q", "t", "--nope"], 2, "unknown option"),
        (["enqueue", "q", "t", "a", "--file", "b"], 2, "not from both"),
        (["enqueue", "q", "t", "--file", "not-there"], 1, "cannot read"),
        (["enqueue", "q", "t", "--priority", "10"], 2, "0 to 9"),
        (["enqueue", "q", "t", "--custom", "x"], 2, "NAME=VALUE"),
        (["enqueue", "q", "t", "--schedule-in", "5"], 2, "no span"),
        (["enqueue", "q", "t", "--schedule-at", "soon"], 2, "no time"),
        (
            ["enqueue", "q", "t", "--schedule-in", "5s", "--schedule-at", "2020-01-01"],
            2,
            "two ways",
        ),
        (["enqueue", "a/b", "t"], 1, "malformed"),
        (["enqueue", "q", "t", "--bulk", "not-there"], 1, "cannot read"),
        (["work", "q", "--exec", "no-such-program"], 1, "no program"),
        (["work", "q", "--exec", "cat '"], 2, "No closing quotation"),
        (["work", "q", "--exec", "true", "--concurrency", "0"], 2, "from 1 to"),
    ],
)
def test_what_cannot_be_is_one_line_and_a_code(
    verbs: Verbs, arguments: list[str], code: int, text: str
) -> None:
    shown = verbs.run(*arguments, code=code)

    assert text in shown
    assert shown.count("\n") == 1


def test_no_server_is_one_line_and_a_code(tmp_path: Path) -> None:
    verbs = Verbs(tmp_path, "--addr", "127.0.0.1:1")

    assert "127.0.0.1:1" in verbs.run("enqueue", "q", "t", code=1)


def test_the_key_comes_from_the_environment(start_server: StartServer, tmp_path: Path) -> None:
    server = start_server({"auth": {"api_keys": [{"name": "one", "key": "secret"}]}})
    common = ("--addr", server.address)

    Verbs(tmp_path, *common, SEPP_KEY="secret").run("enqueue", "q", "t")
    for verb in (("enqueue", "q", "t"), ("work", "q", "--exec", "cat")):
        refused = Verbs(tmp_path, *common).run(*verb, "--key", "wrong", code=1)
        assert "give an API key with --key or SEPP_KEY" in refused
    # The program has no business with our key.
    shown = Verbs(tmp_path, *common, SEPP_KEY="secret").run(
        "work", "q", "--exec", SHOW.format(code=0), "--max-jobs", "1"
    )
    assert "secret" not in shown


def test_the_first_signal_waits_and_the_second_hands_back(verbs: Verbs, queue: str) -> None:
    verbs.run("enqueue", queue, "first")
    program = "sh -c 'echo started; read line < go; echo done'"
    (verbs.directory / "go").unlink(missing_ok=True)
    os.mkfifo(verbs.directory / "go")
    worker = verbs.start("work", queue, "--exec", program)
    assert worker.stdout is not None
    assert worker.stdout.readline() == "started\n"
    worker.send_signal(signal.SIGTERM)
    (verbs.directory / "go").write_text("go\n")
    out, err = worker.communicate(timeout=60)
    assert (worker.returncode, out) == (0, "done\n")
    assert "1 done" in err

    verbs.run("enqueue", queue, "second")
    worker = verbs.start("work", queue, "--exec", "sh -c 'echo started; exec sleep 1000'")
    assert worker.stdout is not None
    assert worker.stdout.readline() == "started\n"
    worker.send_signal(signal.SIGINT)
    worker.send_signal(signal.SIGTERM)
    worker.communicate(timeout=60)
    assert worker.returncode == 0
    shown = verbs.run("work", queue, "--exec", "sh -c 'echo $SEPP_ATTEMPT'", "--max-jobs", "1")
    assert shown == "2\n"
