"""One browser for all tests here; each gets a server of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver

from tests.admin.browser.served import Served
from tests.admin.browser.window import Window, missing, open_chromium

FAILED = pytest.StashKey[bool]()


@pytest.fixture(scope="session")
def chromium() -> Iterator[webdriver.Chrome]:
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    driver = open_chromium()
    yield driver
    driver.quit()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with Served(tmp_path) as found:
        yield found


@pytest.fixture
def window(
    chromium: webdriver.Chrome, served: Served, request: pytest.FixtureRequest
) -> Iterator[Window]:
    """A window in which an admin is signed in; at the end it must have been quiet."""
    found = Window(chromium, served.base)
    found.begin(served.sign_in("admin"))
    yield found
    if request.node.stash.get(FAILED, False):
        found.shoot(f"failed-{request.node.name}")
    else:
        found.check()
    chromium.get("about:blank")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Remember whether the test itself failed, for its picture."""
    report = yield
    if report.when == "call":
        item.stash[FAILED] = report.failed
    return report
