"""A real server and the official client, as fixtures."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.peer_process import Peer, find_peer
from tests.e2e.server_process import ServerProcess

StartServer = Callable[..., ServerProcess]


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[StartServer]:
    """Start servers, each on a directory of its own; those still running at the end are stopped.

    What they printed is shown where the test failed.
    """
    servers: list[ServerProcess] = []

    def start(
        settings: Mapping[str, Any] | None = None,
        environment: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
    ) -> ServerProcess:
        directory = tmp_path / f"server-{len(servers)}"
        server = ServerProcess(directory, settings, environment, prefix)
        servers.append(server)
        server.start()
        return server

    try:
        yield start
        for server in servers:
            if server.is_running:
                server.stop()
    finally:
        for server in servers:
            if server.is_running:
                server.kill()
            print(server.output)


@pytest.fixture
def server(start_server: StartServer) -> ServerProcess:
    """One server with the settings every test server gets, listening."""
    return start_server()


@pytest.fixture
def peer(tmp_path: Path) -> Peer:
    """The official client in its environment."""
    directory = tmp_path / "peer"
    directory.mkdir()
    return find_peer(directory)
