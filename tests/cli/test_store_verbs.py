"""`sepp-trio store …` on directories: what is printed, exit codes, what is refused, what stays."""

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from segstore import Options, Store
from segstore.layout import FormatMarker
from sepp.cli.app import run
from sepp.clock import wall_ms
from sepp.core import slots as tables
from sepp.wire import encode_body, id_text, new_job_id
from tests.e2e.server_process import ROOT, clean_environment

Out = tuple[int, list[str], str]
OPTIONS = Options(segment_bytes=8192, persist="buffer", prealloc="none")
JOBS = 40


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str]) -> Callable[..., Out]:
    """Run a verb; return code, lines of stdout, and stderr."""

    def call(*tokens: object) -> Out:
        code = run(["store", *map(str, tokens)])
        out, err = capfd.readouterr()
        return code, out.splitlines(), err

    return call


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory with one queue and its jobs, closed clean."""
    path = tmp_path / "data"
    trio.run(fill, str(path))
    return path


async def fill(path: str) -> None:
    store = await Store.open(path, fields=tables.FIELDS, options=OPTIONS, clock_ms=wall_ms)
    await store.become_writer()
    queue = store.slots.allocate(tables.QUEUES, (1).to_bytes(16, "big"))
    store.slots.state[queue] = tables.LIVE
    puts = {queue: b"mails"}
    for number in range(JOBS):
        job_id = new_job_id()
        slot = store.slots.allocate(tables.JOBS, job_id)
        store.slots.state[slot] = tables.DEAD if number == 0 else tables.READY
        store.slots.order[slot] = number + 1
        puts[slot] = encode_body(id_text(job_id), "mails", "welcome", 0, 3, None, None, None, None)
        await store.commit(store.build(puts, (), (), clock_ms=wall_ms()))
        puts = {}
    await store.close()


def segments(path: Path) -> list[Path]:
    return sorted(path.glob("seg-*.seg"))


def flip(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 0xFF
    path.write_bytes(data)


def content(path: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in path.iterdir() if each.is_file()}


def test_a_sound_directory_verifies_with_0_and_is_left_as_it_was(
    cli: Callable[..., Out], data: Path
) -> None:
    before = content(data)

    code, lines, err = cli("verify", data)

    assert (code, err) == (0, "")
    assert lines[-1].startswith(f"{data}: {len(segments(data))} segments, ")
    assert lines[-1].endswith(f"{JOBS + 1} entries, up to LSN {JOBS + 2}: sound")
    assert content(data) == before
    code, lines, err = cli("verify", data, "--json")
    (found,) = map(json.loads, lines)
    assert (found["entries"], found["damage"], found["last_lsn"]) == (JOBS + 1, [], JOBS + 2)


def test_damage_is_3_and_names_file_and_offset(cli: Callable[..., Out], data: Path) -> None:
    path = segments(data)[0]
    flip(path, 4096 + 300)

    code, lines, err = cli("verify", data)

    assert (code, err) == (3, "")
    assert lines[0].startswith(f"damage: {path}+4")
    assert lines[-1].endswith(": 1 damage")
    code, lines, err = cli("verify", data, "--json")
    assert code == 3
    (damage,) = json.loads(lines[0])["damage"]
    assert damage["path"] == str(path)
    assert 4096 <= damage["offset"] <= 4396


def test_dump_prints_records_as_json_lines_and_narrows_them_down(
    cli: Callable[..., Out], data: Path
) -> None:
    code, lines, err = cli("dump", data)
    found = [json.loads(line) for line in lines]
    jobs = [each for each in found if each.get("table") == "jobs"]
    assert (code, err, len(jobs)) == (0, "", JOBS)
    assert jobs[0]["state"] == "dead"
    assert (jobs[1]["queue_name"], jobs[1]["job_type"]) == ("mails", "welcome")
    assert [each["text"] for each in found if each.get("table") == "queues"] == ["mails"]

    code, lines, err = cli("dump", data, "--id", jobs[5]["id"])
    assert [json.loads(line)["id"] for line in lines] == [jobs[5]["id"]]
    code, lines, err = cli("dump", data, "--lsn", "4..6")
    assert [json.loads(line)["lsn"] for line in lines] == [4, 5, 6]
    code, lines, err = cli("dump", data, "--segment", 1, "--payloads")
    assert {json.loads(line)["segment"] for line in lines} == {1}

    flip(segments(data)[0], 4096 + 300)
    code, lines, err = cli("dump", data)
    assert (code, err) == (0, "")
    assert any("damage" in json.loads(line) for line in lines)


def test_stats_counts_jobs_by_state(cli: Callable[..., Out], data: Path) -> None:
    code, lines, err = cli("stats", data, "--json")

    (found,) = map(json.loads, lines)
    assert (code, err) == (0, "")
    assert found["jobs"] == {"ready": 39, "scheduled": 0, "leased": 0, "dead": 1, "aside": 0}
    assert found["entries"]["queues"] == 1
    assert len(found["segments"]) == len(segments(data))
    code, lines, err = cli("stats", data)
    assert code == 0
    assert any(line.split() == ["jobs", "ready", "39"] for line in lines)


def test_backup_restore_and_back_to_the_same_jobs(
    cli: Callable[..., Out], data: Path, tmp_path: Path
) -> None:
    before = content(data)

    code, lines, err = cli("backup", data, tmp_path / "copy")
    assert (code, err) == (0, "")
    assert lines[0].endswith(f"up to LSN {JOBS + 2}")
    assert lines[-1].endswith(": sound")
    assert "BACKUP" in content(tmp_path / "copy")
    code, lines, err = cli("restore", tmp_path / "copy", tmp_path / "again")
    assert (code, err) == (0, "")
    assert " 0 bytes linked" in lines[0]

    assert content(data) == before
    ids = [
        [json.loads(line).get("id") for line in cli("dump", path)[1]]
        for path in (data, tmp_path / "copy", tmp_path / "again")
    ]
    assert ids[1] == ids[2]
    assert [each for each in ids[0] if each] == [each for each in ids[1] if each]


def test_backup_as_json_and_by_copying(cli: Callable[..., Out], data: Path, tmp_path: Path) -> None:
    code, lines, err = cli("backup", data, tmp_path / "copy", "--copy", "--json")

    (found,) = map(json.loads, lines)
    assert (code, err) == (0, "")
    assert (found["linked_bytes"], found["damage"]) == (0, [])
    assert found["backup"]["last_lsn"] == JOBS + 2
    assert found["copied_bytes"] == found["bytes"]


def test_a_damaged_directory_is_backed_up_with_3_where_it_can_be(
    cli: Callable[..., Out], data: Path, tmp_path: Path
) -> None:
    flip(segments(data)[0], 4096 + 300)

    code, lines, err = cli("backup", data, tmp_path / "copy")
    assert (code, err) == (3, "")
    assert lines[1].startswith(f"damage: {tmp_path}/copy/seg-")

    code, lines, err = cli("restore", tmp_path / "copy", tmp_path / "again")
    assert code == 3
    assert "was not restored; what is provable in it can be had with" in err
    assert f"sepp-trio store salvage {tmp_path}/copy {tmp_path}/again" in err
    assert not (tmp_path / "again").exists()


def test_salvage_lists_what_is_lost_and_writes_a_sound_directory(
    cli: Callable[..., Out], data: Path, tmp_path: Path
) -> None:
    first = segments(data)[0]
    (record,) = map(json.loads, cli("dump", data, "--lsn", 7)[1])
    flip(first, first.read_bytes().index(bytes.fromhex(record["id"].replace("-", ""))) + 20)
    before = content(data)

    code, lines, err = cli("salvage", data, tmp_path / "rescued")

    assert (code, err) == (3, "")
    assert lines[0].startswith(f"lost: {first}+{record['frame']}: batch CRC mismatch")
    assert lines[0].endswith("; LSN 7 to 7")
    assert lines[1] == f"  there, as far as it can be read: jobs {record['id']}"
    assert lines[2].startswith(f"{tmp_path}/rescued: {JOBS} entries salvaged; 1 stretches")
    assert content(data) == before
    assert cli("verify", tmp_path / "rescued")[0] == 0
    assert (tmp_path / "rescued" / "quarantine" / "salvage.json").exists()


def test_salvage_of_a_sound_directory_is_0(
    cli: Callable[..., Out], data: Path, tmp_path: Path
) -> None:
    code, lines, err = cli("salvage", data, tmp_path / "rescued", "--json")

    (found,) = map(json.loads, lines)
    assert (code, err) == (0, "")
    assert (found["entries"], found["breaks"], found["bodies"]) == (JOBS + 1, [], [])


@pytest.mark.parametrize("verb", ["verify", "dump", "stats", "salvage"])
def test_a_directory_in_use_is_refused_with_1_and_names_the_way_out(
    cli: Callable[..., Out], data: Path, tmp_path: Path, verb: str
) -> None:
    async def hold() -> None:
        store = await Store.open(str(data), fields=tables.FIELDS, clock_ms=wall_ms)
        target = [tmp_path / "t"] if verb == "salvage" else []
        results.append(await trio.to_thread.run_sync(lambda: cli(verb, data, *target)))
        results.append(await trio.to_thread.run_sync(lambda: cli("backup", data, tmp_path / "b")))
        await store.close()

    results: list[Out] = []
    trio.run(hold)

    (code, lines, err), (backup_code, _, _) = results
    assert (code, lines) == (1, [])
    assert f"is in use by process {os.getpid()}; stop it first, or look at a backup" in err
    assert backup_code == 0


@pytest.mark.parametrize(
    ("tokens", "code", "text"),
    [
        (("verify", "nowhere"), 1, "nowhere: No such file or directory"),
        (("verify", "empty"), 1, "empty holds no store"),
        (("verify", ""), 2, "the name of a directory is empty"),
        (("verify",), 2, "requires an argument"),
        (("backup", "data", "full"), 1, "full is not empty (1 names); name a new or empty"),
        (("backup", "data", "data/in"), 1, "lie within each other"),
        (("backup", "data", "link/in"), 1, "lie within each other"),
        (("backup", "data"), 2, "requires an argument"),
        (("restore", "data", "full"), 1, "full is not empty"),
        (("salvage", "data", "full"), 1, "full is not empty"),
        (("dump", "data", "--id", "17"), 2, "--id '17' is no job id"),
        (("dump", "data", "--lsn", "x..9"), 2, "--lsn 'x..9' is no LSN; say 1200"),
        (("dump", "data", "--segment", "x"), 2, "--segment"),
        (("verify", "newer"), 1, "needs a reader of version 9"),
        (("verify", "odd"), 3, "restore a backup, or salvage what is provable"),
        (("backup", "odd", "new"), 3, "not an intact format marker"),
        (("stats", "flipped"), 3, "nothing was changed"),
        (("bogus",), 2, "bogus"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_a_code(
    cli: Callable[..., Out],
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    tokens: tuple[str, ...],
    code: int,
    text: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("precious")
    (tmp_path / "link").symlink_to(data)
    for name in ("newer", "odd", "flipped"):
        (tmp_path / name).mkdir()
        for each in data.iterdir():
            (tmp_path / name / each.name).write_bytes(each.read_bytes())
    later = replace(FormatMarker(bytes(16), 1), min_reader=9)
    (tmp_path / "newer" / "FORMAT").write_bytes(later.encode())
    flip(tmp_path / "odd" / "FORMAT", 30)
    flip(segments(tmp_path / "flipped")[0], 4096 + 300)

    found, lines, err = cli(*tokens)

    assert found == code, err
    assert text in err
    assert err.startswith("sepp-trio: ")
    assert err.count("\n") == 1
    assert lines == []
    assert (tmp_path / "full" / "file").read_text() == "precious"
    assert not (tmp_path / "new").exists() or not list((tmp_path / "new").iterdir())


def test_a_full_disk_is_told_and_leaves_nothing(
    cli: Callable[..., Out], data: Path, tmp_path: Path
) -> None:
    """A limit on the size of files, which a process has for itself, stands in for the disk."""
    command = f"ulimit -f 4; exec {sys.executable} -m sepp store backup --copy {data} {tmp_path}/c"
    shown = subprocess.run(
        ["bash", "-c", f"trap '' XFSZ; {command}"],
        cwd=ROOT,
        env={**clean_environment(), "PYTHONDONTWRITEBYTECODE": "1"},  # it would be cut short
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert shown.returncode == 1, shown.stdout + shown.stderr
    assert shown.stderr.count("\n") == 1
    assert list((tmp_path / "c").iterdir()) == []


def test_progress_is_shown_on_a_terminal_only(data: Path) -> None:
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "sepp", "store", "verify", str(data)]
    environment = {**clean_environment(), "TERM": "xterm"}
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=slave
    ) as process:
        out, _ = process.communicate(timeout=60)
    os.close(slave)
    shown = os.read(master, 65536)
    os.close(master)

    assert process.returncode == 0
    assert b"verifying" in shown
    assert out.decode().startswith(str(data))
    assert b"\x1b" not in out
