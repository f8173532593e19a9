"""What holds for every test: `--long`, log levels of its own, and properties that may be slow."""

import logging
from collections.abc import Iterator

import pytest
from hypothesis import settings

# A busy machine is no fault of the code; how to repeat a failure is printed with it.
settings.register_profile("sepp", deadline=None, print_blob=True)
settings.load_profile("sepp")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--long`."""
    parser.addoption("--long", action="store_true", help="run the tests marked long as well")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests marked long, unless they are asked for; pytest tells how many."""
    if config.getoption("--long"):
        return
    left_out = [item for item in items if item.get_closest_marker("long")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("long")]


@pytest.fixture(autouse=True)
def _own_log_level() -> Iterator[None]:
    """Give the next test the level this one found: with logging off, nothing is left to capture."""
    root = logging.getLogger()
    level = root.level
    yield
    root.setLevel(level)
