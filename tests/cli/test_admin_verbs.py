"""Verbs that speak to the admin API, against a real server with one."""

import json
import socket
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.cli.verbs import SECONDS_MAX, Verbs
from tests.e2e.conftest import StartServer, start_server

__all__ = ["start_server"]

pytestmark = pytest.mark.skipif(
    find_spec("sepp.admin") is None, reason="this server has no admin API yet"
)


class Both:
    """A server with both listeners, and the command line for each."""

    def __init__(
        self, start: StartServer, directory: Path, storage: dict[str, int] | None = None
    ) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{probe.getsockname()[1]}"
        settings: dict[str, Any] = {"admin": {"enabled": True, "listen_addr": address}}
        self.server = start(settings | ({} if storage is None else {"storage": storage}))
        self.admin = Verbs(directory, "--admin", f"http://{address}")
        self.data = Verbs(directory, "--addr", self.server.address)

    def kill_jobs(self, *job_types: str) -> list[str]:
        """Make dead letters of the queue q; return their ids."""
        ids = [self.data.json("enqueue", "q", name, "x")["job_id"] for name in job_types]
        count = str(len(ids))
        self.data.run("work", "q", "--exec", "sh -c 'exit 65'", "--max-jobs", count)
        return ids


@pytest.fixture
def both(start_server: StartServer, tmp_path: Path) -> Both:
    return Both(start_server, tmp_path)


def test_queues_and_jobs_are_shown(both: Both) -> None:
    first = both.data.json("enqueue", "q", "[bold]t", "body", "--priority", "3")["job_id"]
    both.data.run("enqueue", "q", "later", "--schedule-in", "1h")

    (queue,) = both.admin.json("queues")
    assert queue["depths"] == {"ready": 1, "scheduled": 1, "inflight": 0, "dead_lettered": 0}
    assert both.admin.run("queues").splitlines()[1].split()[:5] == ["q", "1", "1", "0", "0"]
    (ready,) = both.admin.lines("jobs", "q", "--json")
    assert (ready["id"], ready["priority"]) == (first, 3)
    assert "[bold]t" in both.admin.run("jobs", "q")
    (later,) = both.admin.lines("jobs", "q", "--state", "scheduled", "--json")
    assert later["job_type"] == "later"
    assert both.admin.json("job", first)["state"] == "ready"
    assert "enqueued at:" in both.admin.run("job", first)
    assert "404" in both.admin.run("job", "0" * 8 + "-0000-0000-0000-" + "0" * 12, code=1)


def test_a_list_longer_than_a_page_is_shown_whole(both: Both) -> None:
    lines = "\n".join(json.dumps({"job_type": f"{n}"}) for n in range(250))
    (both.data.directory / "jobs").write_text(lines)
    both.data.run("enqueue", "q", "--bulk", "jobs")

    found = both.admin.lines("jobs", "q", "--limit", "230", "--json")

    assert [job["job_type"] for job in found] == [f"{n}" for n in range(230)]


def test_dead_letters_are_listed_exported_requeued_and_deleted(both: Both) -> None:
    first, second, third = both.kill_jobs("a", "b", "c")

    assert [d["id"] for d in both.admin.lines("dead", "list", "q", "--json")] == [
        first,
        second,
        third,
    ]
    assert "exit status 65" in both.admin.run("dead", "list", "q", "--job-type", "b")
    assert both.admin.run("dead", "list", "q", "--cause", "admin").count("\n") == 1
    exported = both.admin.lines("dead", "export", "q")
    assert [d["job_type"] for d in exported] == ["a", "b", "c"]
    both.admin.run("dead", "export", "q", "--job-type", "c", "--output", "dead.jsonl")
    assert both.data.run("enqueue", "copies", "--bulk", "dead.jsonl").startswith("1 stored")

    assert both.admin.run("dead", "requeue", "q", first) == "1 requeued\n"
    both.admin.run("dead", "requeue", "q", first, code=1)  # it is none any more
    assert both.admin.json("dead", "requeue", "q", "--all", "--job-type", "b") == {
        "requeued": 1,
        "missing": 0,
    }
    assert "--yes" in both.admin.run("dead", "delete", "q", "--all", code=1)
    assert both.admin.run("dead", "delete", "q", "--all", "--yes") == "1 deleted\n"
    assert both.admin.json("queues")[-1]["depths"]["ready"] == 2


def test_a_queue_is_declared_emptied_and_deleted(both: Both) -> None:
    both.data.run("enqueue", "q", "t")

    both.admin.run("queue", "put", "q", "default_max_attempts=7", "retry_backoff=exponential")

    (queue,) = both.admin.json("queues")
    assert queue["declared"] is True
    assert queue["overrides"] == {"default_max_attempts": 7, "retry_backoff": "exponential"}
    assert "not" in both.admin.run("queue", "delete", "q", "--yes", code=1)
    assert both.admin.run("queue", "purge", "q", "--yes", "--reason", "why") == "1 deleted\n"
    both.data.run("enqueue", "q", "t")
    assert both.admin.json("queue", "delete", "q", "--purge", "--yes")["purged"] == 1
    did = [entry["action"] for entry in both.admin.lines("audit", "--action", "queue.", "--json")]
    assert did == ["queue.delete", "queue.purge", "queue.put"]
    assert "why" in both.admin.run("audit", "--limit", "2")


def test_who_looks_for_dead_letters_is_told_that_none_are_kept(
    start_server: StartServer, tmp_path: Path
) -> None:
    silent = Both(start_server, tmp_path)
    off = Both(start_server, tmp_path, {"dead_letter_retention_ms": 0})

    for both, count in ((silent, 0), (off, 1)):
        for verbs, *verb in ((both.admin, "dead", "list", "q"), (both.data, "dead", "drain")):
            with verbs.start(*verb) as process:
                _, err = process.communicate(timeout=SECONDS_MAX)
            assert (process.returncode, err.count("keeps no dead letters")) == (0, count), err


def test_the_wrong_one_of_both_ports_is_one_line_and_a_code(both: Both, tmp_path: Path) -> None:
    grpc_port = Verbs(tmp_path, "--admin", f"http://{both.server.address}")
    admin_port = Verbs(tmp_path, "--addr", both.admin.common[1].removeprefix("http://"))

    as_admin = grpc_port.run("queues", code=1)
    as_grpc = admin_port.run("enqueue", "q", "t", code=1)

    assert "is the admin listener there?" in as_admin
    assert "no HTTP/2 came from there" in as_grpc
    assert (as_admin + as_grpc).count("\n") == 2


def test_a_url_that_is_none_is_one_line_and_a_code(tmp_path: Path) -> None:
    shown = Verbs(tmp_path, "--admin", "http://[::").run("queues", code=1)

    assert "Invalid IPv6 URL" in shown
    assert shown.count("\n") == 1


def test_top_shows_what_is_there(both: Both) -> None:
    both.kill_jobs("a")
    wanted = ["q", "0", "0", "0", "1"]

    for _ in range(20):  # its figures may be a quarter of a second old
        shown = both.admin.run("top", "--once")
        assert shown.startswith("sepp-trio ")
        if any(line.split()[:5] == wanted for line in shown.splitlines()):
            break
    else:
        pytest.fail(f"no line {wanted} in {shown}")
    assert both.admin.json("top")["frame"]["queues"]["q"]["dead_lettered"] == 1
