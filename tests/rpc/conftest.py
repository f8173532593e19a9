import gc
from collections.abc import Iterator

import pytest


@pytest.fixture
def purerpc_leftovers() -> Iterator[None]:
    """purerpc's client leaves sockets and streams to the collector: collect them with its test."""
    yield
    gc.collect()
