"""A server for the tests of one module, and a client of it."""

from collections.abc import AsyncIterator, Iterator
from itertools import count

import pytest

from sepp.client import SeppClient
from tests.e2e.conftest import start_server
from tests.e2e.server_process import ServerProcess

__all__ = ["client", "queue", "shared", "start_server"]

_numbers = count()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One server for all tests of a module; each uses a queue of its own."""
    server = ServerProcess(tmp_path_factory.mktemp("shared"))
    server.start()
    try:
        yield server
        server.stop()
    finally:
        if server.is_running:
            server.kill()
        print(server.output)


@pytest.fixture
async def client(shared: ServerProcess) -> AsyncIterator[SeppClient]:
    """A client of the shared server."""
    async with SeppClient.connect(shared.address) as connected:
        yield connected


@pytest.fixture
def queue() -> str:
    """The name of a queue that no other test uses."""
    return f"queue-{next(_numbers)}"
