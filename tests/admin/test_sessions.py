"""Signing in, cookies, roles, and what ends a session."""

from pathlib import Path

import pytest

from sepp.admin import sessions
from sepp.admin.sessions import Sessions, Unauthorized
from tests.admin.conftest import Console
from tests.fakes.operators import CONFIG, FakeServer

NO_KEYS = "[limits]\ndefault_max_attempts = 5\n"


async def sign_in(console: Console, name: str = "ada", key: str = "admin-secret") -> str:
    answer = await console.call("POST", "/session", role=None, json={"name": name, "key": key})
    assert answer.status_code == 200, answer.text
    return answer.headers["set-cookie"]


def token_of(cookie: str) -> str:
    return cookie.partition("=")[2].partition(";")[0]


async def who(console: Console, token: str) -> dict[str, object]:
    answer = await console.call(
        "GET", "/session", role=None, headers={"cookie": f"sepp_admin={token}"}
    )
    found: dict[str, object] = answer.json()
    return found


async def test_signing_in_sets_a_strict_cookie_and_is_on_record(console: Console) -> None:
    cookie = await sign_in(console)

    assert len(token_of(cookie)) == 64
    for part in ("HttpOnly", "SameSite=strict", "Path=/", "Max-Age=43200"):
        assert part in cookie
    assert "Secure" not in cookie
    assert await who(console, token_of(cookie)) == {
        "name": "ada",
        "role": "admin",
        "auth_enabled": True,
    }
    entry = (await console.trail())[0]
    assert (entry["action"], entry["actor"], entry["role"]) == ("session.login", "ada", "admin")


async def test_the_cookie_is_secure_under_tls(console: Console) -> None:
    console.client.base_url = "https://localhost:9465"  # type: ignore[assignment]  # httpx parses it

    assert "Secure" in await sign_in(console)


@pytest.mark.parametrize(
    ("name", "key"), [("ada", "wrong"), ("eve", "admin-secret"), ("vera", "admin-secret"), ("", "")]
)
async def test_a_wrong_name_or_key_is_refused_and_on_record(
    console: Console, name: str, key: str
) -> None:
    answer = await console.call("POST", "/session", role=None, json={"name": name, "key": key})

    assert answer.status_code == 401
    assert answer.json() == {"error": "invalid name or key", "code": "unauthorized"}
    assert "set-cookie" not in answer.headers
    entry = (await console.trail())[0]
    assert (entry["action"], entry["actor"]) == ("session.login_failed", name)
    assert key == "" or key not in str(entry)


async def test_a_flood_of_wrong_sign_ins_is_recorded_by_sample(console: Console) -> None:
    for _attempt in range(sessions.FAILURES_A_MINUTE + 30):
        await console.call("POST", "/session", role=None, json={"name": "eve", "key": "x"})
    console.server.pass_ms(60_000)
    await console.call("POST", "/session", role=None, json={"name": "eve", "key": "x"})

    entries = await console.trail()
    assert len(entries) == sessions.FAILURES_A_MINUTE + 1
    assert entries[0]["details"]["unrecorded_before"] == 30


async def test_signing_out_ends_the_session(console: Console) -> None:
    token = token_of(await sign_in(console))

    answer = await console.call(
        "DELETE", "/session", role=None, headers={"cookie": f"sepp_admin={token}"}
    )

    assert answer.status_code == 204
    assert "Max-Age=0" in answer.headers["set-cookie"]
    assert (await who(console, token))["name"] is None


async def test_a_session_ends_after_its_time(console: Console) -> None:
    token = token_of(await sign_in(console))

    console.server.pass_ms(43_200_000 - 1)
    assert (await who(console, token))["name"] == "ada"
    console.server.pass_ms(1)
    assert (await who(console, token))["name"] is None


async def reload(console: Console, text: str) -> None:
    console.server.path.write_text(text)
    console.server.reloader.reload()


@pytest.mark.parametrize(
    "change",
    [('key = "admin-secret"', 'key = "other"'), ('name = "ada"', 'name = "bea"')],
)
async def test_a_session_is_void_when_its_key_changes(
    console: Console, change: tuple[str, str]
) -> None:
    token = token_of(await sign_in(console))

    await reload(console, CONFIG.replace(*change))

    assert (await who(console, token))["name"] is None


async def test_roles_are_read_live(console: Console) -> None:
    token = token_of(await sign_in(console, "otto", "operator-secret"))

    await reload(console, CONFIG.replace('role = "operator"', 'role = "viewer"'))

    assert (await who(console, token))["role"] == "viewer"
    answer = await console.call(
        "POST",
        "/queues/webhooks/jobs",
        role=None,
        headers={"cookie": f"sepp_admin={token}"},
        json={"job_type": "a"},
    )
    assert answer.status_code == 403


async def test_a_bearer_key_counts_before_the_cookie(console: Console) -> None:
    token = token_of(await sign_in(console))
    cookie = {"cookie": f"sepp_admin={token}"}

    right = await console.call("GET", "/session", role="viewer", headers=dict(cookie))
    wrong = await console.call(
        "GET", "/queues", role=None, headers={**cookie, "authorization": "Bearer nonsense"}
    )
    other = await console.call(
        "GET", "/queues", role=None, headers={**cookie, "authorization": "Basic YTpi"}
    )

    assert right.json()["name"] == "vera"
    assert wrong.status_code == 401
    assert other.status_code == 200


def test_at_most_1024_sessions_and_the_soonest_to_expire_makes_room(tmp_path: Path) -> None:
    server = FakeServer(tmp_path)
    found = Sessions(server.reloader)
    opened = [
        found.open("ada", "admin-secret", server.wall_ms + place)
        for place in range(sessions.SESSIONS_MAX + 1)
    ]
    tokens = [one[0] for one in opened if one is not None]

    assert isinstance(found.who(None, tokens[0], server.wall_ms), Unauthorized)
    assert all(
        not isinstance(found.who(None, token, server.wall_ms), Unauthorized) for token in tokens[1:]
    )


# Without keys


async def test_without_keys_on_loopback_everybody_is_the_local_admin(tmp_path: Path) -> None:
    console = Console(FakeServer(tmp_path, NO_KEYS))

    session = await console.call("GET", "/session", role=None)
    login = await console.call("POST", "/session", role=None, json={"name": "a", "key": "b"})
    await console.call("POST", "/queues/q/jobs", role=None, json={"job_type": "a"})

    assert session.json() == {"name": None, "role": "admin", "auth_enabled": False}
    assert login.status_code == 401
    trail = (await console.call("GET", "/audit", role=None)).json()["entries"]
    assert (trail[0]["actor"], trail[0]["role"]) == ("local", "admin")


async def test_keys_removed_under_a_public_address_lock_everybody_out(tmp_path: Path) -> None:
    public = CONFIG.replace("[admin]", '[admin]\nlisten_addr = "0.0.0.0:9465"')
    console = Console(FakeServer(tmp_path, public))

    # Back on loopback in the file, so that it is valid; the listener is where it was.
    await reload(console, NO_KEYS)
    answer = await console.call("GET", "/queues")

    assert answer.status_code == 401
    assert "restart required" in answer.json()["error"]


async def test_an_empty_list_of_keys_lets_nobody_in(tmp_path: Path) -> None:
    console = Console(FakeServer(tmp_path, "[admin]\nkeys = []\n"))

    assert (await console.call("GET", "/queues", role=None)).status_code == 401
    answer = await console.call("POST", "/session", role=None, json={"name": "a", "key": "b"})
    assert answer.status_code == 401
