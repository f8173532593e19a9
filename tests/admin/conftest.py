"""The admin application on a server in memory, and a client for it."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio

from sepp import reloader
from sepp.admin import listing
from sepp.admin.app import application
from sepp.admin.site import Site
from tests.fakes.operators import SECRETS, FakeServer

API = "/admin/api/v1"


class Console:
    """One site with its server, and requests to it by role."""

    def __init__(self, server: FakeServer) -> None:
        self.server = server
        self.site = Site(server.backend)
        self.site.wrong_login_s = 0
        self.app = application(self.site)
        self.client = httpx.AsyncClient(
            transport=httpx.ASGITransport(app=self.app), base_url="http://localhost:9465"
        )

    async def call(
        self,
        method: str,
        path: str,
        *,
        role: str | None = "admin",
        headers: dict[str, str] | None = None,
        **options: Any,
    ) -> httpx.Response:
        """Send a request to the API with the key of a role; None: with none."""
        sent = dict(headers or {})
        if role is not None:
            sent.setdefault("authorization", f"Bearer {SECRETS[role]}")
        return await self.client.request(method, API + path, headers=sent, **options)

    async def etag(self) -> str:
        """Return the etag of the configuration."""
        return str((await self.call("GET", "/config")).json()["etag"])

    async def trail(self) -> list[dict[str, Any]]:
        """Return the newest audit entries."""
        return list((await self.call("GET", "/audit?limit=100")).json()["entries"])


@pytest.fixture
async def console(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Console]:
    """A console whose server follows its configuration file, looking at it every 5 ms.

    It has all the time it needs to look for jobs, so that a busy machine changes no answer.
    """
    monkeypatch.setattr(reloader, "POLL_S", 0.005)
    monkeypatch.setattr(listing, "LOOKING_S", 3600.0)
    found = Console(FakeServer(tmp_path))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(found.server.watch)
        yield found
        nursery.cancel_scope.cancel()
