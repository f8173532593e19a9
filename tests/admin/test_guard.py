"""What a request must pass before anything else: host, origin, size and pace of the body."""

from pathlib import Path

import pytest
from starlette.datastructures import Headers

from sepp.admin import guard
from sepp.admin.guard import is_own_host, is_same_origin
from tests.admin.conftest import Console
from tests.fakes.operators import FakeServer

NO_KEYS = "[limits]\ndefault_max_attempts = 5\n"
JOB = {"job_type": "a"}


@pytest.mark.parametrize(
    ("host", "is_own"),
    [
        ("localhost", True),
        ("localhost:9465", True),
        ("LOCALHOST:1", True),
        ("localhost.:9465", True),
        ("queue.localhost", True),
        ("127.0.0.1:9465", True),
        ("127.9.9.9", True),
        ("[::1]:9465", True),
        ("[::1]", True),
        ("evil.example", False),
        ("evil.example:9465", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("10.0.0.1:9465", False),
        ("", False),
        ("evil.example@localhost", False),
    ],
)
def test_own_hosts_are_loopback_names(host: str, is_own: bool) -> None:
    assert is_own_host(host) is is_own


@pytest.mark.parametrize(
    ("headers", "is_ours"),
    [
        ({"sec-fetch-site": "same-origin"}, True),
        ({"sec-fetch-site": "same-origin", "origin": "null"}, True),
        ({"sec-fetch-site": "same-site", "origin": "http://a:1"}, False),
        ({"sec-fetch-site": "cross-site"}, False),
        ({"sec-fetch-site": "cross-site", "origin": "http://a:1"}, False),
        ({"sec-fetch-site": "none", "origin": "http://a:1"}, True),
        ({"sec-fetch-site": "none", "origin": "http://b"}, False),
        ({"origin": "http://a:1"}, True),
        ({"origin": "https://A:1"}, True),
        ({"origin": "http://a:2"}, False),
        ({"origin": "http://a"}, False),
        ({"origin": "null"}, False),
        ({"origin": ""}, False),
    ],
)
def test_only_pages_of_this_origin_pass(headers: dict[str, str], is_ours: bool) -> None:
    found = Headers({"host": "a:1", **headers})

    assert is_same_origin(found, may_be_no_browser=True) is is_ours
    assert is_same_origin(found, may_be_no_browser=False) is is_ours


def test_a_request_of_no_browser_passes_only_where_it_may() -> None:
    found = Headers({"host": "a:1"})

    assert is_same_origin(found, may_be_no_browser=True)
    assert not is_same_origin(found, may_be_no_browser=False)


async def test_a_foreign_host_is_refused_while_no_keys_are_set(tmp_path: Path) -> None:
    console = Console(FakeServer(tmp_path, NO_KEYS))

    for method, path in (("GET", "/queues"), ("GET", "/openapi.json"), ("POST", "/queues/q/jobs")):
        answer = await console.call(method, path, role=None, headers={"host": "evil.example:9465"})
        assert answer.status_code == 403
        assert answer.json()["code"] == "forbidden"
    page = await console.client.get("/admin/", headers={"host": "evil.example"})
    assert page.status_code == 403


async def test_any_host_passes_while_keys_are_set(console: Console) -> None:
    answer = await console.call("GET", "/queues", headers={"host": "queue.example"})

    assert answer.status_code == 200


@pytest.mark.parametrize("config", [NO_KEYS, None])
async def test_a_cross_site_post_is_refused_with_and_without_keys(
    tmp_path: Path, config: str | None
) -> None:
    server = FakeServer(tmp_path) if config is None else FakeServer(tmp_path, config)
    console = Console(server)
    role = "admin" if config is None else None

    for headers in ({"origin": "http://evil.example"}, {"sec-fetch-site": "cross-site"}):
        answer = await console.call(
            "POST", "/queues/q/jobs", role=role, headers=dict(headers), json=JOB
        )
        assert answer.status_code == 403
    assert server.backend.queue("q").ready == 0
    ours = await console.call(
        "POST", "/queues/q/jobs", role=role, headers={"origin": "http://localhost:9465"}, json=JOB
    )
    assert ours.status_code == 200
    assert server.backend.queue("q").ready == 1


async def test_answers_carry_the_headers_that_keep_pages_safe(console: Console) -> None:
    for path in ("/admin/api/v1/queues", "/admin/nothing", "/nothing", "/admin/healthz"):
        headers = (await console.client.get(path)).headers
        assert headers["content-security-policy"] == guard.CSP, path
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "same-origin"
        assert "access-control-allow-origin" not in headers


async def test_health_answers_without_a_key(console: Console) -> None:
    answer = await console.client.get("/admin/healthz")

    assert (answer.status_code, answer.text) == (200, "ok\n")


async def test_the_root_leads_to_the_pages(console: Console) -> None:
    answer = await console.client.get("/")

    assert (answer.status_code, answer.headers["location"]) == (307, "/admin/")
    assert (await console.client.get("/elsewhere")).status_code == 404
