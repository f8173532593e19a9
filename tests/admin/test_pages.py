"""The pages without script: who sees what, and how one gets in."""

import pytest

from sepp.admin.pages import routes
from sepp.admin.sessions import RANKS
from tests.admin.browsing import NASTY, SAME, check_page, get, post, urls
from tests.admin.conftest import Console
from tests.fakes.operators import SECRETS

PAGES = sorted({page.path for page in routes.TABLE if "GET" in page.methods})
POSTS = sorted({page.path for page in routes.TABLE if "POST" in page.methods})
ROLE_OF = {(m, page.path): page.role for page in routes.TABLE for m in page.methods}


@pytest.mark.parametrize("role", [None, "viewer", "operator", "admin"])
@pytest.mark.parametrize("path", PAGES)
async def test_each_page_for_each_role(console: Console, path: str, role: str | None) -> None:
    url = (await urls(console))[path]

    answer = await get(console, url, role)

    needed = ROLE_OF["GET", path]
    if needed is None or (role and RANKS[role] >= RANKS[needed]):
        assert answer.status_code in (200, 303), answer.text
        if answer.status_code == 200 and answer.headers["content-type"].startswith("text/html"):
            check_page(answer.text)
            assert NASTY not in answer.text
            assert len(answer.content) < 300_000
    elif role is None:
        assert answer.status_code == 303
        assert answer.headers["location"].startswith("/admin/login")
    else:
        assert answer.status_code == 403
        assert f"needs the role {needed}" in answer.text
        check_page(answer.text)


@pytest.mark.parametrize("role", ["viewer", "operator"])
@pytest.mark.parametrize("path", POSTS)
async def test_a_post_needs_its_role(console: Console, path: str, role: str) -> None:
    needed = ROLE_OF["POST", path]
    if needed is None or RANKS[role] >= RANKS[needed]:
        return
    url = path.replace("{name}", "webhooks")

    answer = await post(console, url, {"confirm": "1", "typed": "webhooks"}, role)

    assert answer.status_code == 403
    assert await console.trail() == []


@pytest.mark.parametrize("path", POSTS)
@pytest.mark.parametrize(
    "headers", [{}, {"origin": "http://evil.example"}, {"sec-fetch-site": "cross-site"}]
)
async def test_a_post_from_elsewhere_is_refused(
    console: Console, path: str, headers: dict[str, str]
) -> None:
    url = path.replace("{name}", "webhooks")
    sent = {"authorization": f"Bearer {SECRETS['admin']}", **headers}

    answer = await console.client.post(url, data={"confirm": "1"}, headers=sent)

    assert answer.status_code == 403


async def test_controls_above_a_role_are_not_rendered(console: Console) -> None:
    pages = await urls(console)
    viewer = (await get(console, pages["/admin/queues/{name}/jobs"], "viewer")).text
    operator = (await get(console, pages["/admin/queues/{name}/jobs"], "operator")).text

    assert "Requeue…" not in viewer
    assert 'name="key"' not in viewer
    assert "/danger" not in operator
    assert "Requeue…" in operator
    assert "/admin/audit" not in operator
    assert "New queue" not in (await get(console, "/admin/", "operator")).text


# Signing in


async def test_login_leads_back_to_where_one_wanted_to_go(console: Console) -> None:
    target = "/admin/queues/webhooks/jobs?state=dead_letter"
    asked = await console.client.get(target)
    form = await console.client.get(asked.headers["location"])
    answer = await console.client.post(
        "/admin/login",
        data={"name": "otto", "key": "operator-secret", "next": target},
        headers=SAME,
    )

    assert asked.status_code == 303
    assert "webhooks, dead letters" in form.text
    assert answer.status_code == 303
    assert answer.headers["location"] == target
    assert "sepp_admin=" in answer.headers["set-cookie"]
    page = await console.client.get(target)
    assert page.status_code == 200


async def test_a_wrong_key_keeps_name_and_target(console: Console) -> None:
    answer = await console.client.post(
        "/admin/login", data={"name": NASTY, "key": "x", "next": "/admin/config"}, headers=SAME
    )

    assert answer.status_code == 401
    assert "No admin key has this name and key" in answer.text
    assert 'value="/admin/config"' in answer.text
    assert NASTY not in answer.text


@pytest.mark.parametrize(
    "target",
    ["https://evil.example/", "//evil.example", "/\\evil.example", "/admin/\\..\\x", "javascript:x",
     "/admin//evil.example", "/other", "/admin/\r\nSet-Cookie: a=b"],
)  # fmt: skip
async def test_login_leads_nowhere_else(console: Console, target: str) -> None:
    answer = await console.client.post(
        "/admin/login",
        data={"name": "ada", "key": "admin-secret", "next": target},
        headers=SAME,
    )

    assert answer.headers["location"] == "/admin/"


async def test_a_link_from_elsewhere_loads_itself_again(console: Console) -> None:
    answer = await console.client.get("/admin/config", headers={"sec-fetch-site": "cross-site"})

    assert answer.status_code == 200
    assert 'http-equiv="refresh"' in answer.text


async def test_signing_out_ends_the_session(console: Console) -> None:
    await console.client.post(
        "/admin/login", data={"name": "ada", "key": "admin-secret"}, headers=SAME
    )
    assert (await console.client.get("/admin/")).status_code == 200

    await console.client.post("/admin/logout", headers=SAME)

    assert (await console.client.get("/admin/")).status_code == 303


# Choices


async def test_choices_are_fixed_values_in_one_cookie(console: Console) -> None:
    answer = await post(
        console, "/admin/prefs", {"theme": "dark", "clock": NASTY, "back": "/admin/help"}
    )

    assert answer.headers["location"] == "/admin/help"
    cookie = answer.headers["set-cookie"]
    assert "theme-dark.clock-utc" in cookie
    page = await get(console, "/admin/", cookie=cookie.partition(";")[0])
    assert '<html lang="en" data-theme="dark" data-clock="utc"' in page.text
    nonsense = await get(console, "/admin/", cookie='sepp_ui=theme-"><b>.clock-local')
    assert '<html lang="en" data-clock="local"' in nonsense.text
