"""The hot keys of the admin side, flipped while a server runs, by what its API then says."""

import re
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from attrs import frozen

from tests.e2e.server_process import ServerProcess
from tests.ops.test_reload_matrix import ADMIN_KEYS, APPLIED

StartServer = Callable[..., ServerProcess]
SIGNED_IN = {"name": "ada", "key": "a-secret-of-ada"}
OTHER = {"name": "bob", "key": "a-secret-of-bob"}
LONG_S = 60  # hang guard


def base(*keys: dict[str, str]) -> dict[str, Any]:
    """Admin settings with these keys, each an admin's."""
    admins = [{**key, "role": "admin"} for key in keys or (SIGNED_IN,)]
    return {"enabled": True, "listen_addr": "127.0.0.1:0", "keys": admins}


def bearer(key: dict[str, str]) -> dict[str, str]:
    return {"authorization": f"Bearer {key['key']}"}


def session_s(http: httpx.Client) -> int:
    """How long a new session lasts, in whole minutes as seconds."""
    answer = http.post("/session", json=SIGNED_IN).json()
    http.cookies.clear()
    return round((answer["expires_at_ms"] / 1000 - time.time()) / 60) * 60


def history_s(http: httpx.Client) -> int:
    """How far back the chart of the server's page goes."""
    points = http.get("/overview?points=360", headers=bearer(SIGNED_IN)).json()["server_history"]
    span_ms: int = points[-1]["ts_ms"] - points[0]["ts_ms"]
    return round(span_ms / 60_000) * 60


def lets_bob_in(http: httpx.Client) -> bool:
    return http.get("/queues", headers=bearer(OTHER)).status_code == 200


def has_old_entry(http: httpx.Client) -> bool:
    """Whether the first sign-in is on record, once it could be gone."""
    deadline_s = time.monotonic() + LONG_S
    while True:
        entries = http.get("/audit?limit=100", headers=bearer(SIGNED_IN)).json()["entries"]
        found = any(entry["seq"] == 1 for entry in entries)
        kept = http.get("/config", headers=bearer(SIGNED_IN)).json()["effective"]["admin"]
        if not found or not kept["audit_retention_ms"] or time.monotonic() > deadline_s:
            return found


@frozen
class Case:
    """What `probe` tells before and after the keys of `after` hold."""

    after: dict[str, Any]
    probe: Callable[[httpx.Client], Any]
    told: tuple[Any, Any]


CASES: dict[str, Case] = {
    "admin.session_ttl_ms": Case({"session_ttl_ms": 120_000}, session_s, (43_200, 120)),
    "admin.stats_history_ms": Case({"stats_history_ms": 60_000}, history_s, (3600, 60)),
    "admin.audit_retention_ms": Case({"audit_retention_ms": 1}, has_old_entry, (True, False)),
    "admin.keys": Case({"keys": base(SIGNED_IN, OTHER)["keys"]}, lets_bob_in, (False, True)),
}


def test_the_matrix_leaves_these_keys_to_us() -> None:
    assert CASES.keys() == ADMIN_KEYS


@pytest.mark.parametrize("path", sorted(CASES))
def test_a_hot_key_of_the_admin_side_takes_effect(start_server: StartServer, path: str) -> None:
    case = CASES[path]
    server = start_server({"admin": base()})
    server.wait_until_says("watching config file")
    server.wait_until_says("admin UI listening at")
    (port,) = re.findall(r"admin UI listening at http://127\.0\.0\.1:(\d+)", server.output)
    with httpx.Client(base_url=f"http://127.0.0.1:{port}/admin/api/v1", trust_env=False) as http:
        for _entry in range(2):  # the newest one stays for good
            http.post("/session", json=SIGNED_IN).raise_for_status()
        http.cookies.clear()
        before = case.probe(http)

        server.configure({"admin": {**base(), **case.after}})
        server.wait_until_says(APPLIED)

        assert (before, case.probe(http)) == case.told
    assert server.output.count(APPLIED) == 1
