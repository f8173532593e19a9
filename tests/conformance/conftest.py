"""Servers that many tests share, a client on each, and a queue name for each test."""

import json
from collections.abc import AsyncIterator, Iterator
from itertools import count
from signal import SIGTERM
from typing import Any

import pytest

from tests.conformance.client import SocketClient, connected
from tests.e2e.server_process import ServerProcess

# Small, so that a stop does not wait for a large one that is being made ahead.
SEGMENT_BYTES = 2 << 20

_numbers = count(1)


class Servers:
    """One running process for each configuration asked for; all stop with the test run."""

    def __init__(self, factory: pytest.TempPathFactory) -> None:
        self._factory = factory
        self._shared: dict[str, ServerProcess] = {}
        self._all: list[ServerProcess] = []

    def get(self, settings: dict[str, Any]) -> ServerProcess:
        """Return the server of these settings, started by the first who asks."""
        name = json.dumps(settings, sort_keys=True)
        server = self._shared.get(name)
        if server is None:
            server = self._shared[name] = self.new(settings)
        return server

    def new(self, settings: dict[str, Any]) -> ServerProcess:
        """Start one that nobody else gets; it is stopped at the end if it still runs."""
        storage = {"segment_bytes": SEGMENT_BYTES} | settings.get("storage", {})
        server = ServerProcess(self._factory.mktemp("server"), settings | {"storage": storage})
        self._all.append(server)
        server.start()
        return server

    def stop(self) -> None:
        """Stop all; each must go with exit code 0 and without having met a bug of its own."""
        try:
            running = [server for server in self._all if server.is_running]
            for server in running:
                server.send(SIGTERM)
            assert [server.wait() for server in running] == [0] * len(running)
        finally:
            for server in self._all:
                if server.is_running:
                    server.kill()
        for server in self._all:
            assert "bug:" not in server.output, server.output
            assert "Traceback" not in server.output, server.output


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """The processes of this run."""
    found = Servers(tmp_path_factory)
    try:
        yield found
    finally:
        found.stop()


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest, servers: Servers) -> ServerProcess:
    """A server with the `SETTINGS` of the test's module; its state is shared."""
    return servers.get(getattr(request.module, "SETTINGS", {}))


@pytest.fixture
async def rpc(server: ServerProcess) -> AsyncIterator[SocketClient]:
    """A client on a connection of the test's own."""
    async with connected(server.port) as client:
        yield client


@pytest.fixture
def queue() -> str:
    """A queue nobody else uses."""
    return f"queue-{next(_numbers)}"
