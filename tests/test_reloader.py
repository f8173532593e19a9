"""The configuration file is followed while the server runs."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from sepp.config.errors import ConfigError
from sepp.config.load import load
from sepp.config.model import Config
from sepp.reloader import POLL_S, Reloader, watch
from tests.fakes.logs import Entry, captured

BATCH_2 = "[limits]\nmax_enqueue_batch = 2\n"
BATCH_3 = "[limits]\nmax_enqueue_batch = 3\n"


class Server:
    """A file, a reloader over it, and what it was told to apply."""

    def __init__(self, directory: Path, text: str | None, **environ: str) -> None:
        self.path = directory / "sepp.toml"
        if text is not None:
            self.path.write_text(text)
        self.applied: list[Config] = []
        environ = {"SEPP_CONFIG": str(self.path), **environ}
        loaded = load(str(self.path) if text is not None else None, environ if text else {})
        self.reloader = Reloader(loaded, environ, self.applied.append)

    @property
    def batch(self) -> int:
        return self.reloader.running.limits.max_enqueue_batch


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Server]:
    monkeypatch.chdir(tmp_path)

    def make(text: str | None = "", **environ: str) -> Server:
        return Server(tmp_path, text, **environ)

    return make


def messages(entries: list[Entry]) -> list[tuple[str, str]]:
    return [(entry["level"], entry["message"]) for entry in entries]


def test_valid_change_is_applied_then_becomes_the_snapshot(serve: Callable[..., Server]) -> None:
    server = serve(BATCH_2)
    boot = server.reloader.boot
    server.path.write_text(BATCH_3)

    with captured() as entries:
        assert server.reloader.reload() == "applied"

    assert [config.limits.max_enqueue_batch for config in server.applied] == [3]
    assert server.batch == 3
    assert server.reloader.boot is boot
    assert server.reloader.reload_count == 1
    (entry,) = entries()
    assert (entry["level"], entry["message"]) == ("INFO", "configuration reloaded")
    assert (entry["path"], entry["changed"]) == (str(server.path), ["limits.max_enqueue_batch"])


def test_snapshot_is_still_the_old_one_while_it_is_applied(serve: Callable[..., Server]) -> None:
    server = serve(BATCH_2)
    seen = []
    loaded = load(str(server.path), {})
    reloader = Reloader(
        loaded, {}, lambda new: seen.append((new, reloader.running.limits.max_enqueue_batch))
    )
    server.path.write_text(BATCH_3)

    reloader.reload()

    assert [(new.limits.max_enqueue_batch, old) for new, old in seen] == [(3, 2)]


@pytest.mark.parametrize("text", ["[limits", "[limits]\nmax_enqueue_batch = 0", "[admin]\nx = 1"])
def test_invalid_file_keeps_the_running_configuration(
    serve: Callable[..., Server], text: str
) -> None:
    server = serve(BATCH_2)
    server.path.write_text(text)

    with captured() as entries:
        assert server.reloader.reload() == "failed"

    assert (server.applied, server.batch, server.reloader.reload_count) == ([], 2, 1)
    (entry,) = entries()
    assert entry["level"] == "ERROR"
    assert entry["message"] == "config reload failed; keeping the running configuration"
    assert entry["error"]


def test_vanished_file_keeps_the_running_configuration(serve: Callable[..., Server]) -> None:
    server = serve(BATCH_2)
    server.path.unlink()

    with captured() as entries:
        assert server.reloader.reload() == "failed"

    assert server.batch == 2
    assert "does not exist" in entries()[0]["error"]


def test_emptied_file_keeps_the_running_configuration(serve: Callable[..., Server]) -> None:
    server = serve("[[auth.api_keys]]\nname = 'ci'\nkey = 'secret'\n")
    server.path.write_text("")

    with captured() as entries:
        assert server.reloader.reload() == "failed"
    assert "is empty" in entries()[0]["error"]
    assert server.applied == []

    server.path.write_text("# nothing\n")
    assert server.reloader.reload() == "applied"


def test_file_that_was_empty_from_the_start_may_be_so(serve: Callable[..., Server]) -> None:
    server = serve("")

    assert server.reloader.reload() == "unchanged"


def test_pipe_in_place_of_the_file_is_not_waited_for(serve: Callable[..., Server]) -> None:
    server = serve(BATCH_2)
    server.path.unlink()
    os.mkfifo(server.path)

    with captured() as entries:
        assert server.reloader.reload() == "failed"

    assert server.batch == 2
    assert "is no regular file" in entries()[0]["error"]


def test_equal_configuration_changes_and_logs_nothing(serve: Callable[..., Server]) -> None:
    server = serve(BATCH_2)
    server.path.write_text(f"# a comment\n{BATCH_2}")

    with captured() as entries:
        assert server.reloader.reload() == "unchanged"

    assert (server.applied, entries(), server.reloader.reload_count) == ([], [], 1)


def test_restart_only_changes_are_named_and_wait(serve: Callable[..., Server]) -> None:
    server = serve("[storage]\nsweep_limit = 5\n")
    server.path.write_text("[storage]\nsweep_limit = 6\n[logging]\nformat = 'json'\n")

    with captured() as entries:
        assert server.reloader.reload() == "applied"

    assert messages(entries()) == [
        ("WARN", "changed settings need a restart and keep their running values"),
        ("INFO", "configuration reloaded"),
    ]
    assert entries()[0]["fields"] == ["storage.sweep_limit", "logging"]
    assert server.reloader.pending_restart() == ("storage.sweep_limit", "logging")
    assert server.reloader.boot.storage.sweep_limit == 5
    assert server.reloader.running.storage.sweep_limit == 6


def test_restart_only_change_taken_back_waits_no_more(serve: Callable[..., Server]) -> None:
    server = serve("[storage]\nsweep_limit = 5\n")
    server.path.write_text("[storage]\nsweep_limit = 6\n")
    server.reloader.reload()
    server.path.write_text("[storage]\nsweep_limit = 5\n")

    with captured() as entries:
        server.reloader.reload()

    assert messages(entries()) == [("INFO", "configuration reloaded")]
    assert server.reloader.pending_restart() == ()


def test_environment_stays_above_the_file(serve: Callable[..., Server]) -> None:
    server = serve(BATCH_2, SEPP_LIMITS__MAX_RESERVE_BATCH="9")
    server.path.write_text(f"{BATCH_3}max_reserve_batch = 4\n")

    server.reloader.reload()

    assert (server.batch, server.reloader.running.limits.max_reserve_batch) == (3, 9)
    assert server.reloader.pinned() == ("limits.max_reserve_batch",)


def test_candidate_is_checked_with_the_environment_and_applied_nowhere(
    serve: Callable[..., Server],
) -> None:
    server = serve(BATCH_2, SEPP_LIMITS__MAX_ATTEMPTS_CEILING="5")

    assert server.reloader.candidate(BATCH_3).limits.max_enqueue_batch == 3
    with pytest.raises(ConfigError, match="default_max_attempts: 6 is above"):
        server.reloader.candidate("[limits]\ndefault_max_attempts = 6")
    assert (server.batch, server.reloader.reload_count) == (2, 0)


def test_old_form_of_keys_is_warned_of_when_it_comes_and_not_again(
    serve: Callable[..., Server],
) -> None:
    server = serve("")
    server.path.write_text("[auth]\napi_keys = ['s3cret']\n")

    with captured() as entries:
        server.reloader.reload()
        server.path.write_text("[auth]\napi_keys = ['s3cret', 's3cret2']\n")
        server.reloader.reload()

    assert [level for level, _ in messages(entries())] == ["WARN", "INFO", "INFO"]
    assert "s3cret" not in str(entries())


async def test_cycle_wakes_whoever_waits_even_when_it_failed(
    serve: Callable[..., Server], autojump_clock: trio.testing.MockClock
) -> None:
    server = serve("")
    woken = []

    async def wait() -> None:
        await server.reloader.wait_reload(0)
        woken.append(server.reloader.reload_count)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        assert woken == []
        server.path.write_text("[")
        server.reloader.reload()
    assert woken == [1]
    await server.reloader.wait_reload(0)  # over already


# The watch.


async def test_change_is_read_once_two_looks_agree_on_it(
    serve: Callable[..., Server], autojump_clock: trio.testing.MockClock
) -> None:
    server = serve(BATCH_2)

    async with trio.open_nursery() as nursery:
        await nursery.start(watch, server.reloader)
        server.path.write_text(BATCH_3)
        await trio.sleep(POLL_S * 1.5)
        assert server.batch == 2
        await trio.sleep(POLL_S)
        assert server.batch == 3
        assert server.reloader.reload_count == 1

        await trio.sleep(POLL_S * 10)
        assert server.reloader.reload_count == 1
        nursery.cancel_scope.cancel()


async def test_file_that_is_cut_for_a_moment_is_not_read_empty(
    serve: Callable[..., Server], autojump_clock: trio.testing.MockClock
) -> None:
    server = serve("[[auth.api_keys]]\nname = 'ci'\nkey = 'secret'\n")

    async with trio.open_nursery() as nursery:
        await nursery.start(watch, server.reloader)
        server.path.write_text("")
        await trio.sleep(POLL_S * 1.5)
        server.path.write_text("[[auth.api_keys]]\nname = 'ci'\nkey = 'renewed'\n")
        await trio.sleep(POLL_S * 2.5)
        nursery.cancel_scope.cancel()

    assert [config.auth.api_keys is None for config in server.applied] == [False]
    assert server.reloader.reload_count == 1


async def test_save_by_rename_is_seen(
    serve: Callable[..., Server], autojump_clock: trio.testing.MockClock
) -> None:
    server = serve(BATCH_2)
    stamp = os.stat(server.path)

    async with trio.open_nursery() as nursery:
        await nursery.start(watch, server.reloader)
        for text, batch in ((BATCH_3, 3), (BATCH_2, 2)):
            other = server.path.with_suffix(".tmp")
            other.write_text(text)
            # Same size and same time: the inode alone tells.
            os.utime(other, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
            os.replace(other, server.path)
            await trio.sleep(POLL_S * 3)
            assert server.batch == batch
        nursery.cancel_scope.cancel()


async def test_swapped_link_of_a_mounted_config_map_is_seen(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    for name, text in (("v1", BATCH_2), ("v2", BATCH_3)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "sepp.toml").write_text(text)
    (tmp_path / "..data").symlink_to("v1")
    (tmp_path / "sepp.toml").symlink_to("..data/sepp.toml")
    reloader = Reloader(load(str(tmp_path / "sepp.toml"), {}), {}, lambda config: None)

    async with trio.open_nursery() as nursery:
        await nursery.start(watch, reloader)
        (tmp_path / "..next").symlink_to("v2")
        os.replace(tmp_path / "..next", tmp_path / "..data")
        await trio.sleep(POLL_S * 3)
        nursery.cancel_scope.cancel()

    assert reloader.running.limits.max_enqueue_batch == 3


async def test_file_that_appears_later_is_seen(
    serve: Callable[..., Server], autojump_clock: trio.testing.MockClock
) -> None:
    server = serve(None)

    with captured() as entries:
        async with trio.open_nursery() as nursery:
            await nursery.start(watch, server.reloader)
            await trio.sleep(POLL_S * 3)
            assert server.reloader.reload_count == 0
            server.path.write_text(BATCH_3)
            await trio.sleep(POLL_S * 3)
            nursery.cancel_scope.cancel()

    assert server.batch == 3
    assert messages(entries()) == [
        ("DEBUG", "no config file on disk; watching for one"),
        ("INFO", "configuration reloaded"),
    ]


async def test_vanished_and_invalid_files_are_told_once_each_and_a_good_one_recovers(
    serve: Callable[..., Server], autojump_clock: trio.testing.MockClock
) -> None:
    server = serve(BATCH_2)

    with captured() as entries:
        async with trio.open_nursery() as nursery:
            await nursery.start(watch, server.reloader)
            server.path.unlink()
            await trio.sleep(POLL_S * 10)
            server.path.write_text("[")
            await trio.sleep(POLL_S * 10)
            server.path.write_text(BATCH_3)
            await trio.sleep(POLL_S * 10)
            nursery.cancel_scope.cancel()

    failed = ("ERROR", "config reload failed; keeping the running configuration")
    assert messages(entries()) == [
        ("INFO", "watching config file for hot reload"),
        failed,
        failed,
        ("INFO", "configuration reloaded"),
    ]
    assert server.batch == 3


async def test_change_between_load_and_watch_is_not_lost(
    serve: Callable[..., Server], autojump_clock: trio.testing.MockClock
) -> None:
    server = serve(BATCH_2)
    server.path.write_text(BATCH_3)

    async with trio.open_nursery() as nursery:
        await nursery.start(watch, server.reloader)
        await trio.sleep(POLL_S * 3)
        nursery.cancel_scope.cancel()

    assert server.batch == 3


async def test_hangup_signal_reloads_at_once(
    serve: Callable[..., Server], autojump_clock: trio.testing.MockClock
) -> None:
    server = serve(BATCH_2)

    async with trio.open_nursery() as nursery:
        await nursery.start(watch, server.reloader)
        server.path.write_text(BATCH_3)
        os.kill(os.getpid(), signal.SIGHUP)
        await server.reloader.wait_reload(0)
        assert server.batch == 3
        await trio.sleep(POLL_S * 5)
        assert server.reloader.reload_count == 1
        nursery.cancel_scope.cancel()
