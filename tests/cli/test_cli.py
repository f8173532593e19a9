"""The command line: verbs, exit codes, one line for an error, nothing else on stderr."""

import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

import sepp
from sepp import __version__
from sepp.cli.app import run
from sepp.config.example import render
from sepp.config.load import Loaded, load
from sepp.config.model import Config
from sepp.exits import StartError
from tests.house.sources import ROOT

Out = tuple[int, str, str]


@pytest.fixture
def cli(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., Out]:
    """Run a command line in an empty directory and environment; return code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    for name in [*os.environ]:
        if name.upper().startswith(("SEPP_", "RUST_LOG")):
            monkeypatch.delenv(name)

    def call(*tokens: str) -> Out:
        code = run(tokens)
        out, err = capfd.readouterr()
        return code, out, err

    return call


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Stand in for the server; remembers what it was started with."""
    seen = SimpleNamespace(config=None, path=None, code=0, fault=None)
    module = ModuleType("sepp.server")

    def run_server(loaded: Loaded) -> int:
        seen.config, seen.path = loaded.config, loaded.path
        if seen.fault is not None:
            raise seen.fault
        return seen.code

    module.run = run_server  # type: ignore[attr-defined]  # a module made here
    monkeypatch.setitem(sys.modules, "sepp.server", module)
    monkeypatch.setattr(sepp, "server", module, raising=False)
    return seen


VERBS = ["serve", "health", "config", "config example", "config check", "config init"]
RUNNABLE = [verb for verb in VERBS if verb != "config"]


@pytest.mark.parametrize("tokens", [(), ("--help",), ("-h",)])
def test_no_verb_and_help_show_the_verbs(cli: Callable[..., Out], tokens: tuple[str, ...]) -> None:
    code, out, err = cli(*tokens)

    assert (code, err) == (0, "")
    assert "Usage: sepp-trio COMMAND" in out
    for verb in ("serve", "config", "--version"):
        assert verb in out


def test_group_without_a_verb_shows_its_verbs(cli: Callable[..., Out]) -> None:
    code, out, err = cli("config")

    assert (code, err) == (0, "")
    for verb in ("example", "check", "init"):
        assert verb in out


@pytest.mark.parametrize("verb", RUNNABLE)
def test_help_of_each_verb_has_one_example(cli: Callable[..., Out], verb: str) -> None:
    code, out, err = cli(*verb.split(), "--help")

    assert (code, err) == (0, "")
    assert len(re.findall(rf"Example: sepp-trio {verb}\b", out)) == 1


def test_version_names_package_format_and_protocol(cli: Callable[..., Out]) -> None:
    code, out, err = cli("--version")

    assert (code, err) == (0, "")
    pattern = rf"sepp-trio {re.escape(__version__)} \(store format \d+, protocol sepp\.v1\)\n"
    assert re.fullmatch(pattern, out)


@pytest.mark.parametrize(
    "tokens",
    [
        ("bogus",),
        ("config", "bogus"),
        ("--config", "x.toml"),
        ("--bogus",),
        ("serve", "--bogus"),
        ("serve", "--config"),
        ("serve", "--config", "a", "--config", "b"),
        ("serve", "extra"),
        ("serve", "--config", "a", "extra\nline"),
        ("config", "check"),
        ("config", "check", "a", "b"),
        ("config", "check", "a", "--bogus"),
        ("config", "init", "a", "b"),
        ("config", "example", "x"),
    ],
)
def test_command_line_that_is_not_understood_is_code_2_and_one_line(
    cli: Callable[..., Out], server: SimpleNamespace, tokens: tuple[str, ...]
) -> None:
    code, out, err = cli(*tokens)

    assert (code, out) == (2, "")
    assert re.fullmatch(r"sepp-trio: .*\n", err)
    assert "--help" in err
    assert server.config is None


@pytest.mark.parametrize(
    ("tokens", "text"),
    [
        (("serve", "sepp.toml"), "unexpected: 'sepp.toml'. See sepp-trio serve --help."),
        (("config", "check"), "See sepp-trio config check --help."),
        (("bogus",), "See sepp-trio --help."),
        (("enqueue", "config"), "a job needs a job type. See sepp-trio enqueue --help."),
    ],
)
def test_the_help_named_is_that_of_the_verb(
    cli: Callable[..., Out], tokens: tuple[str, ...], text: str
) -> None:
    _, _, err = cli(*tokens)

    assert err.endswith(f"{text}\n")


# config


def test_example_is_printed_whole(cli: Callable[..., Out]) -> None:
    assert cli("config", "example") == (0, render(), "")


def test_check_of_a_valid_file(cli: Callable[..., Out]) -> None:
    Path("ok.toml").write_text("[limits]\nmax_enqueue_batch = 3\n")

    assert cli("config", "check", "ok.toml") == (0, '"ok.toml": valid\n', "")


@pytest.mark.parametrize(
    ("text", "gist"),
    [
        ("[limits]\nmax_enqueue_batch = 0", "limits.max_enqueue_batch: 0 is too small"),
        ("[", "is not valid TOML"),
        ("[admin]\nport = 1", "admin.port: unknown key"),
    ],
)
def test_check_of_an_invalid_file_is_code_1_and_one_line(
    cli: Callable[..., Out], text: str, gist: str
) -> None:
    Path("bad.toml").write_text(text)

    code, out, err = cli("config", "check", "bad.toml")

    assert (code, out) == (1, "")
    assert re.fullmatch(r"sepp-trio: .*\n", err)
    assert gist in err


def test_check_of_a_missing_file_is_code_1(cli: Callable[..., Out]) -> None:
    assert cli("config", "check", "none.toml") == (
        1,
        "",
        'sepp-trio: config file "none.toml" does not exist\n',
    )


def test_check_points_out_what_is_ignored_or_old_without_failing(
    cli: Callable[..., Out], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("old.toml").write_text("[limit]\nx = 1\n[auth]\napi_keys = ['s3cret']\n")
    monkeypatch.setenv("SEPP_LIMITS__MAX_ENQUEUE_BATCH", "4")

    code, out, err = cli("config", "check", "old.toml")

    assert (code, out) == (0, '"old.toml": valid\n')
    lines = err.splitlines()
    assert lines[0] == "warning: limit: unknown key, ignored"
    assert lines[1].startswith("warning: auth.api_keys holds plain strings")
    assert lines[2] == "note: limits.max_enqueue_batch: set by the environment"
    assert "s3cret" not in err


def test_check_can_leave_the_environment_out(
    cli: Callable[..., Out], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("ok.toml").write_text("")
    monkeypatch.setenv("SEPP_LIMITS__MAX_ENQUEUE_BATCH", "0")

    assert cli("config", "check", "ok.toml")[0] == 1
    assert cli("config", "check", "ok.toml", "--no-environment") == (0, '"ok.toml": valid\n', "")


@pytest.mark.parametrize("umask", [0, 0o777])
def test_init_writes_a_file_for_its_owner_alone_and_shows_the_key_once(
    cli: Callable[..., Out], umask: int
) -> None:
    old = os.umask(umask)
    try:
        code, out, err = cli("config", "init", "new.toml")
    finally:
        os.umask(old)

    assert (code, err) == (0, "")
    assert stat.S_IMODE(Path("new.toml").stat().st_mode) == 0o600
    (entry,) = load("new.toml", {}).config.admin.keys or ()
    assert (entry.name, entry.role) == ("admin", "admin")
    assert len(entry.key) >= 43
    assert out.count(entry.key) == 1
    assert Path("new.toml").read_text().count(entry.key) == 1
    assert Path("new.toml").read_text() == render(entry.key)


def test_init_makes_another_key_each_time_at_the_default_path(cli: Callable[..., Out]) -> None:
    cli("config", "init")
    first = Path("sepp.toml").read_text()
    Path("sepp.toml").unlink()
    cli("config", "init")

    assert Path("sepp.toml").read_text() != first


def test_init_leaves_an_existing_file_alone(cli: Callable[..., Out]) -> None:
    Path("sepp.toml").write_text("# mine")
    Path("link.toml").symlink_to("nowhere")

    for path in ("sepp.toml", "link.toml", "."):
        code, out, err = cli("config", "init", path)
        assert (code, out) == (1, "")
        assert re.fullmatch(r"sepp-trio: .* exists; it was left as it is\n", err)

    assert Path("sepp.toml").read_text() == "# mine"
    assert not Path("nowhere").exists()


@pytest.mark.parametrize("path", ["no/such/dir.toml", "a\0b", "x" * 300, ""])
def test_init_where_no_file_can_be_is_one_line(cli: Callable[..., Out], path: str) -> None:
    code, out, err = cli("config", "init", path)

    assert (code, out) == (1, "")
    assert re.fullmatch(r"sepp-trio: cannot write .*\n", err)


# serve


def test_serve_runs_the_server_with_what_was_read(
    cli: Callable[..., Out], server: SimpleNamespace
) -> None:
    Path("my.toml").write_text("[limits]\nmax_enqueue_batch = 3\n")

    assert cli("serve", "--config", "my.toml") == (0, "", "")
    assert server.config.limits.max_enqueue_batch == 3
    assert server.path == "my.toml"
    assert cli("serve", "--config=my.toml") == (0, "", "")


def test_serve_takes_path_and_fields_from_the_environment(
    cli: Callable[..., Out], server: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("my.toml").write_text("[limits]\nmax_enqueue_batch = 3\n")
    monkeypatch.setenv("SEPP_CONFIG", "my.toml")
    monkeypatch.setenv("SEPP_LIMITS__MAX_RESERVE_BATCH", "4")

    assert cli("serve")[0] == 0
    assert server.config.limits.max_enqueue_batch == 3
    assert server.config.limits.max_reserve_batch == 4


def test_serve_without_any_file_uses_the_defaults(
    cli: Callable[..., Out], server: SimpleNamespace
) -> None:
    assert cli("serve") == (0, "", "")
    assert server.config == Config()


@pytest.mark.parametrize("code", [0, 1, 74, 143])
def test_exit_code_of_the_server_is_ours(
    cli: Callable[..., Out], server: SimpleNamespace, code: int
) -> None:
    server.code = code

    assert cli("serve") == (code, "", "")


def test_server_that_cannot_start_is_code_1_and_one_line(
    cli: Callable[..., Out], server: SimpleNamespace
) -> None:
    server.fault = StartError("port 1 is in use")

    assert cli("serve") == (1, "", "sepp-trio: port 1 is in use\n")


def test_wrong_configuration_never_reaches_the_server(
    cli: Callable[..., Out], server: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli("serve", "--config", "none.toml")[0] == 1
    monkeypatch.setenv("RUST_LOG", "loud")
    code, out, err = cli("serve")

    assert (code, out) == (1, "")
    assert re.fullmatch(r"sepp-trio: RUST_LOG: .*\n", err)
    assert server.config is None


def test_start_is_refused_beside_the_official_client(
    cli: Callable[..., Out],
    server: SimpleNamespace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    metadata = tmp_path / "site" / "sepp_py-0.1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: sepp-py\nVersion: 0.1.0\n")
    monkeypatch.syspath_prepend(str(metadata.parent))

    code, out, err = cli("serve")

    assert (code, out, server.config) == (1, "", None)
    assert re.fullmatch(r"sepp-trio: the distribution sepp-py is installed .*\n", err)
    assert cli("config", "example")[0] == 0


# As a process.


BARE_LOCALE = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def process(
    arguments: list[str], extra: dict[str, str] | None = None
) -> "subprocess.CompletedProcess[bytes]":
    """Run a command in a process of its own, without our variables."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("SEPP_")}
    environ |= {"PYTHONPATH": str(ROOT), **(extra or {})}
    return subprocess.run(arguments, env=environ, capture_output=True, timeout=60, check=False)


def test_module_is_the_command_and_writes_utf8_whatever_the_locale() -> None:
    done = process([sys.executable, "-m", "sepp", "config", "example"], BARE_LOCALE)

    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode() == render()


def test_process_exits_with_the_code() -> None:
    done = process([sys.executable, "-m", "sepp", "bogus"])

    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.startswith(b"sepp-trio: ")


def test_reader_that_goes_away_is_no_traceback() -> None:
    line = f"{sys.executable} -m sepp config example | head -c 1"
    done = process(["sh", "-c", line], {"PYTHONUNBUFFERED": "1"})

    assert done.stdout == b"#"
    assert done.stderr == b""


def test_common_verbs_do_not_import_the_server() -> None:
    code = """
import sys, sepp.cli.app
sepp.cli.app.run(["config", "example"])
sys.exit(any(module in sys.modules for module in ("sepp.server", "trio", "ngh2", "jinja2")))
"""

    assert process([sys.executable, "-c", code]).returncode == 0
