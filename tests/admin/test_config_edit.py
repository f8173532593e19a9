"""Editing the configuration: order of checks, comments kept, never a moment without a file."""

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from sepp.admin.config_text import Draft
from tests.admin.conftest import Console
from tests.fakes.operators import CONFIG, FakeServer


async def put(console: Console, *changes: tuple[str, Any], etag: str | None = None) -> Any:
    body = {
        "etag": etag or await console.etag(),
        "changes": [{"path": path, "value": value} for path, value in changes],
    }
    return await console.call("PUT", "/config", json=body)


async def test_one_change_touches_one_line(console: Console) -> None:
    answer = await put(console, ("limits.default_max_attempts", 9))

    assert answer.json()["applied"] is True
    assert answer.json()["etag"] == await console.etag()
    text = console.server.path.read_text()
    assert text == CONFIG.replace("default_max_attempts = 5 #", "default_max_attempts = 9 #")
    assert console.server.reloader.running.limits.default_max_attempts == 9


async def test_null_removes_a_key_and_new_keys_find_their_section(console: Console) -> None:
    await put(
        console,
        ("limits.default_max_attempts", None),
        ("limits.allowed_encodings", ["json", "msgpack"]),
        ("logging.format", "json"),
        ("queues.webhooks.retry_backoff", "exponential"),
        ("queues.a.b.default_priority", 3),
    )

    running = console.server.reloader.running
    assert running.limits.default_max_attempts == 3
    assert running.limits.allowed_encodings == ("json", "msgpack")
    assert running.logging.format == "json"
    assert {queue.name: queue.default_priority for queue in running.queues} == {
        "webhooks": None,
        "a.b": 3,
    }
    assert "# the busy one" in console.server.path.read_text()


async def test_all_or_nothing(console: Console) -> None:
    answer = await put(
        console, ("limits.default_max_attempts", 9), ("limits.max_attempts_ceiling", 2)
    )

    assert (answer.status_code, answer.json()["code"]) == (422, "invalid")
    assert console.server.path.read_text() == CONFIG
    assert await console.trail() == []


async def test_checks_come_in_order(tmp_path: Path) -> None:
    console = Console(FakeServer(tmp_path, environ={"SEPP_LIMITS__DEFAULT_PRIORITY": "1"}))
    everything: list[tuple[str, Any]] = [
        ("admin.keys", None),
        ("auth.api_keys", None),
        ("limits.default_priority", 2),
        ("limits.nonsense", 1),
        ("limits.default_max_attempts", 0),
    ]
    codes = []
    first = await put(console, *everything, etag="0" * 64)
    codes.append((first.status_code, first.json()["code"]))
    while everything:
        answer = await put(console, *everything)
        codes.append((answer.status_code, answer.json()["code"]))
        del everything[0]

    assert codes == [
        (412, "etag_mismatch"),
        (400, "admin_keys_immutable"),
        (400, "api_keys_immutable"),
        (400, "env_pinned"),
        (400, "invalid_change"),
        (422, "invalid"),
    ]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("limits", 1),
        ("nothing.at_all", 1),
        ("limits.allowed_encodings", "json"),
        ("limits.default_max_attempts", [1]),
        ("queues.webhooks.name", "other"),
        ("queues.webhooks.nonsense", 1),
        ("queues..default_priority", 1),
        ("", 1),
    ],
)
async def test_changes_that_make_no_sense(console: Console, path: str, value: Any) -> None:
    value = ["x"] if value == [1] else value

    answer = await put(console, (path, value))

    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_change")


async def test_an_error_names_no_secret(console: Console) -> None:
    answer = await console.call(
        "POST", "/auth/keys", json={"etag": await console.etag(), "name": "a", "key": "s3cr3t"}
    )
    assert answer.status_code == 200
    again = await console.call(
        "POST", "/auth/keys", json={"etag": await console.etag(), "name": "b", "key": "s3cr3t"}
    )

    assert (again.status_code, again.json()["code"]) == (400, "invalid_change")
    assert "s3cr3t" not in again.text
    config = await console.call("GET", "/config")
    assert "s3cr3t" not in config.text
    assert "admin-secret" not in config.text
    assert config.json()["effective"]["auth"]["api_keys"] == [{"name": "a"}]
    assert "s3cr3t" not in str(await console.trail())


async def test_restart_only_settings_are_told(console: Console) -> None:
    answer = await put(console, ("storage.sweep_interval_ms", 500), ("limits.default_priority", 1))

    assert answer.json()["requires_restart"] == ["storage.sweep_interval_ms"]
    config = (await console.call("GET", "/config")).json()
    assert config["pending_restart"] == ["storage.sweep_interval_ms"]
    assert console.server.reloader.boot.storage.sweep_interval_ms == 1000


async def test_pinned_settings_are_listed_and_refused(tmp_path: Path) -> None:
    console = Console(
        FakeServer(tmp_path, environ={"SEPP_STORAGE__SWEEP_LIMIT": "7", "SEPP_NO__SUCH": "1"})
    )

    config = (await console.call("GET", "/config")).json()

    assert config["env_pinned"] == ["no.such", "storage.sweep_limit"]
    assert config["effective"]["storage"]["sweep_limit"] == 7


async def test_a_change_without_a_watcher_is_saved_but_not_applied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sepp.admin.config_edit.APPLY_S", 0.01)
    console = Console(FakeServer(tmp_path))

    answer = await put(console, ("limits.default_max_attempts", 9))

    assert answer.json()["applied"] is False
    assert "default_max_attempts = 9" in console.server.path.read_text()


# The file


async def test_a_missing_file_is_made_private(console: Console) -> None:
    console.server.path.unlink()
    console.server.reloader.identity = None

    answer = await put(console, ("limits.default_max_attempts", 4))

    assert answer.status_code == 200
    assert console.server.path.read_text() == "[limits]\ndefault_max_attempts = 4\n"
    assert stat.S_IMODE(console.server.path.stat().st_mode) == 0o600


async def test_mode_and_link_stay(console: Console) -> None:
    path = console.server.path
    real = path.with_name("real.toml")
    os.rename(path, real)
    real.chmod(0o640)
    path.symlink_to(real)

    await put(console, ("limits.default_max_attempts", 4))

    assert path.is_symlink()
    assert "default_max_attempts = 4" in real.read_text()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert sorted(os.listdir(path.parent)) == ["real.toml", "sepp.toml"]


async def test_the_change_is_on_record_before_it_is_in_place(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, str]] = []
    original = os.replace

    def replace(source: Path, target: Path) -> None:
        seen.append((len(console.server.door.groups), console.server.path.read_text()))
        original(source, target)

    monkeypatch.setattr(os, "replace", replace)

    await put(console, ("limits.default_max_attempts", 4))

    assert seen == [(1, CONFIG)]


async def test_a_file_that_cannot_be_replaced_is_on_record_too(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    def replace(source: Path, target: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "replace", replace)

    answer = await put(console, ("limits.default_max_attempts", 4))

    assert (answer.status_code, answer.json()["code"]) == (409, "failed_precondition")
    assert "Permission denied" in answer.json()["error"]
    assert console.server.path.read_text() == CONFIG
    assert [entry["action"] for entry in await console.trail()] == [
        "config.put_failed",
        "config.put",
    ]
    assert os.listdir(console.server.path.parent) == ["sepp.toml"]


async def test_a_file_that_is_no_toml_is_left_alone(console: Console) -> None:
    console.server.path.write_text("[limits\n")

    answer = await put(console, ("limits.default_max_attempts", 4))

    assert (answer.status_code, answer.json()["code"]) == (409, "failed_precondition")
    assert console.server.path.read_text() == "[limits\n"


# Queues


async def put_queue(console: Console, name: str, **overrides: Any) -> Any:
    body = {"etag": await console.etag(), "overrides": overrides}
    return await console.call("PUT", f"/queues/{name}", json=body)


async def test_put_declares_also_without_overrides(console: Console) -> None:
    answer = await put_queue(console, "fresh")

    assert answer.json()["applied"] is True
    queue = (await console.call("GET", "/queues/fresh")).json()
    assert (queue["declared"], queue["overrides"]) == (True, {})
    entry = (await console.trail())[0]
    assert (entry["action"], entry["details"]) == ("queue.put", {"queue": "fresh", "overrides": []})


async def test_overrides_are_set_and_removed(console: Console) -> None:
    await put_queue(console, "webhooks", default_max_attempts=9, max_payload_bytes=None)

    queue = (await console.call("GET", "/queues/webhooks")).json()
    assert queue["overrides"] == {"default_max_attempts": 9}
    assert queue["effective"]["default_max_attempts"] == 9
    assert queue["effective"]["max_payload_bytes"] == 1_048_576


@pytest.mark.parametrize("name", ["..", "a%00b", "%2E", "q" * 513])
async def test_an_invalid_name_is_422(console: Console, name: str) -> None:
    answer = await put_queue(console, name.replace("..", "%2E%2E"))

    assert (answer.status_code, answer.json()["code"]) == (422, "invalid")


async def test_hostile_names_survive_the_file(console: Console) -> None:
    for name in ("q\"'\\", "🦊", "<b>", "a.b", "a]b", "# x"):
        path = "".join(f"%{byte:02X}" for byte in name.encode())
        assert (await put_queue(console, path, default_priority=1)).json()["applied"] is True
        assert (await console.call("GET", f"/queues/{path}")).json()["overrides"] == {
            "default_priority": 1
        }


# API keys


async def key_call(console: Console, method: str, path: str = "", **body: Any) -> Any:
    etag = await console.etag()
    if method == "POST":
        return await console.call("POST", "/auth/keys", json={"etag": etag, **body})
    return await console.call("DELETE", f"/auth/keys{path}", headers={"if-match": f'"{etag}"'})


async def test_the_life_of_api_keys(console: Console) -> None:
    def names() -> list[str] | None:
        keys = console.server.reloader.running.auth.api_keys
        return None if keys is None else [key.name for key in keys]

    assert names() is None
    await key_call(console, "POST", name="a", key="1")
    await key_call(console, "POST", name="b b", key="2")
    assert names() == ["a", "b b"]
    await key_call(console, "DELETE", "/a")
    assert names() == ["b b"]
    await key_call(console, "DELETE", "/b%20b")
    assert names() == [], "nobody gets in any more"
    await key_call(console, "POST", name="c", key="3")
    assert names() == ["c"]
    await key_call(console, "DELETE")
    assert names() is None
    assert (await key_call(console, "DELETE")).status_code == 404
    assert (await key_call(console, "DELETE", "/c")).status_code == 404
    assert [entry["action"] for entry in await console.trail()] == [
        "auth.disable",
        "auth_key.add",
        "auth_key.revoke",
        "auth_key.revoke",
        "auth_key.add",
        "auth_key.add",
    ]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"name": "", "key": "k"}, "invalid_argument"),
        ({"name": "n", "key": ""}, "invalid_argument"),
        ({"name": "..", "key": "k"}, "invalid_argument"),
        ({"name": "a/b", "key": "k"}, "invalid_argument"),
        ({"name": "a\nb", "key": "k"}, "invalid_argument"),
        ({"name": "n", "key": "with space"}, "invalid_argument"),
        ({"name": "n", "key": "é"}, "invalid_argument"),
        ({"name": "old", "key": "k"}, "invalid_change"),
        ({"name": "n", "key": "taken"}, "invalid_change"),
    ],
)
async def test_keys_that_are_refused(console: Console, body: Any, code: str) -> None:
    await key_call(console, "POST", name="old", key="taken")

    answer = await key_call(console, "POST", **body)

    assert (answer.status_code, answer.json()["code"]) == (400, code)


# The text


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ('[auth]\napi_keys = ["plain-1", "plain-2"] # old form\n', "strings"),
        ('[auth]\napi_keys = [{ name = "key-1", key = "plain-1" }]\n', "inline"),
        ('[[auth.api_keys]]\nname = "key-1"\nkey = "plain-1"\n', "tables"),
        ("[auth]\napi_keys = []\n", "empty"),
        ("", "nothing"),
    ],
)
def test_every_form_of_api_keys_can_be_edited(text: str, form: str) -> None:
    import tomllib

    draft = Draft(text)
    draft.add_api_key("new", "secret")
    keys = tomllib.loads(draft.text)["auth"]["api_keys"]

    assert keys[-1] == {"name": "new", "key": "secret"}
    assert all(isinstance(key, dict) for key in keys)
    draft = Draft(draft.text)
    draft.remove_api_key("new")
    left = tomllib.loads(draft.text)["auth"]["api_keys"]
    assert left == keys[:-1]


def test_a_queue_can_be_declared_and_removed_in_every_form() -> None:
    import tomllib

    for text in ("", '[[queues]]\nname = "a"\n', 'queues = [{ name = "a" }]\n', "[limits]\n"):
        draft = Draft(text)
        draft.declare("b.c")
        draft.set_override("b.c", "default_priority", 3)
        found = tomllib.loads(draft.text)["queues"]
        assert found[-1] == {"name": "b.c", "default_priority": 3}
        draft = Draft(draft.text)
        draft.undeclare("b.c")
        assert tomllib.loads(draft.text).get("queues", []) == tomllib.loads(text).get("queues", [])


def test_text_without_its_last_entry_is_not_empty() -> None:
    draft = Draft('[[queues]]\nname = "a"\n')
    draft.undeclare("a")

    assert draft.text == "\n"
    assert Draft("").text == ""
