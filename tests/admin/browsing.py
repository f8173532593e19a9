"""Reading pages and sending forms as a browser without script does."""

import re
import uuid
from html import unescape
from html.parser import HTMLParser
from typing import Any

import httpx

from tests.admin.conftest import Console
from tests.admin.samples import key_of, quoted
from tests.fakes.operators import SECRETS, FakeServer

NASTY = "<img src=x onerror=alert(1)>\"'&"
SAME = {"sec-fetch-site": "same-origin"}


async def get(
    console: Console, url: str, role: str | None = "admin", **more: str
) -> httpx.Response:
    """Open a page with the key of a role."""
    headers = {"authorization": f"Bearer {SECRETS[role]}"} if role else {}
    return await console.client.get(url, headers={**headers, **more})


async def post(
    console: Console, url: str, fields: dict[str, Any], role: str = "admin", **more: str
) -> httpx.Response:
    """Send a form as a browser would."""
    headers = {"authorization": f"Bearer {SECRETS[role]}", **SAME, **more}
    return await console.client.post(url, data=fields, headers=headers)


async def follow(console: Console, answer: httpx.Response) -> str:
    """Open the page a post leads to, with the cookies it set, and return its text."""
    assert answer.status_code == 303, answer.text
    cookie = answer.headers["set-cookie"].partition(";")[0]
    return (await get(console, answer.headers["location"], cookie=cookie)).text


def toast(text: str) -> str:
    """Return the sentence that tells the result of the action before."""
    found = re.search(r'<div class="toast[^>]*>.*?<span>(.*?)</span>', text, re.DOTALL)
    return unescape(re.sub(r"<[^>]+>", "", found[1])).strip() if found else ""


def hidden(text: str) -> dict[str, Any]:
    """Return the hidden fields of the question on a page."""
    part = text[text.index('id="ask"') :]
    found: dict[str, Any] = {}
    for tag in re.findall(r'<input type="hidden"[^>]*>', part):
        name = unescape(re.search(r'name="([^"]*)"', tag)[1])  # type: ignore[index]  # each has one
        found.setdefault(name, []).append(unescape(re.search(r'value="([^"]*)"', tag)[1]))  # type: ignore[index]  # as above
    return found


class Tags(HTMLParser):
    """Collects what a strict policy would refuse, and what leads elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.faults: list[str] = []
        self.ids: list[str] = []
        self.headings: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "style" or name.startswith("on"):
                self.faults.append(f"{tag} {name}")
            if name in ("src", "href", "action", "formaction") and re.match(
                r"\w+:|//", value or ""
            ):
                self.faults.append(f"{tag} {name}={value}")
            if name == "id":
                self.ids.append(value or "")
        if tag == "style" or (tag == "script" and "src" not in dict(attrs)):
            self.faults.append(f"inline {tag}")
        if re.fullmatch(r"h[1-6]", tag):
            self.headings.append(tag)


def check_page(text: str) -> None:
    """Check what must hold for every page."""
    tags = Tags()
    tags.feed(text)
    assert tags.faults == []
    assert tags.headings.count("h1") == 1
    twice = {one for one in tags.ids if tags.ids.count(one) > 1}
    assert twice == set()
    assert "<title>" in text


def fill(server: FakeServer) -> dict[str, str]:
    """Give a server something of everything to show; return a URL for each GET page."""
    (ready,) = server.enqueue(custom={NASTY: NASTY})
    (scheduled,) = server.enqueue(delay_ms=60_000)
    (leased,) = server.enqueue(priority=9)
    server.reserve()
    (dead, _older) = server.kill(count=2, reason=NASTY, job_type=NASTY)
    server.enqueue(NASTY)
    dead_url = f"/admin/queues/webhooks/dead/{quoted(key_of(dead, server.wall_ms))}"
    return {
        "/admin/login": "/admin/login?next=/admin/config",
        "/admin/": "/admin/",
        "/admin/declare": "/admin/declare",
        "/admin/queues/{name}": "/admin/queues/webhooks",
        "/admin/queues/{name}/jobs": "/admin/queues/webhooks/jobs?state=dead_letter&reason=img",
        "/admin/queues/{name}/settings": "/admin/queues/webhooks/settings",
        "/admin/queues/{name}/enqueue": "/admin/queues/webhooks/enqueue",
        "/admin/queues/{name}/danger": "/admin/queues/webhooks/danger",
        "/admin/queues/{name}/dead/{key:path}": dead_url,
        "/admin/queues/{name}/dead/{key:path}/payload": f"{dead_url}/payload",
        "/admin/jobs": f"/admin/jobs?id={uuid.UUID(bytes=ready)}",
        "/admin/jobs/{id}": f"/admin/jobs/{uuid.UUID(bytes=leased)}",
        "/admin/jobs/{id}/payload": f"/admin/jobs/{uuid.UUID(bytes=scheduled)}/payload",
        "/admin/config": "/admin/config",
        "/admin/config/file": "/admin/config/file",
        "/admin/config/keys": "/admin/config/keys",
        "/admin/config/admins": "/admin/config/admins",
        "/admin/audit": "/admin/audit",
        "/admin/audit/export": "/admin/audit/export",
        "/admin/server": "/admin/server",
        "/admin/help": "/admin/help",
        "/admin/help/keys": "/admin/help/keys",
        "/admin/help/api": "/admin/help/api",
        "/admin/help/operating": "/admin/help/operating",
    }


async def urls(console: Console) -> dict[str, str]:
    """Fill the server and return its pages, as `fill` does, with figures of the moment."""
    found = fill(console.server)
    await console.site.stats.sample()
    return found
