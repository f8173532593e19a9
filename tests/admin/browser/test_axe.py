"""axe-core, the accessibility checker, finds nothing serious on any page."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.admin.browser.served import Served
from tests.admin.browser.test_walk import PAGES
from tests.admin.browser.window import Keys, Window
from tests.admin.browsing import fill

BAD = ("serious", "critical")
RUN = """
const done = arguments[arguments.length - 1];
axe.run(document, {resultTypes: ["violations"]}).then(
  ({violations}) => done(violations.map(({id, impact, help, nodes}) =>
    ({id, impact, help, nodes: nodes.map((node) => node.html)}))),
  (fault) => done([{id: String(fault), impact: "critical", help: "", nodes: []}]));
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("axe")) as found:
        yield found


@pytest.fixture(scope="module")
def pages(served: Served) -> dict[str, str]:
    found: dict[str, str] = served.do(fill, served.server)
    return found


@pytest.fixture(scope="session")
def checker() -> str:
    """The source of axe-core, which tools/test fetches."""
    path = os.environ.get("SEPP_AXE", "")
    if not path:
        pytest.skip("no axe-core: tools/test fetches it")
    return Path(path).read_text("utf-8")


def faults(window: Window, checker: str) -> list[dict[str, Any]]:
    """Return what axe-core finds on the page that is open, if it is bad."""
    window.driver.execute_script(checker)
    found = window.driver.execute_async_script(RUN)
    return [one for one in found if one["impact"] in BAD]


@pytest.mark.parametrize(
    ("size", "theme"),
    [
        pytest.param("desk", "light", marks=pytest.mark.long),
        ("desk", "dark"),
        ("phone", "light"),
        pytest.param("small", "dark", marks=pytest.mark.long),
    ],
)
@pytest.mark.parametrize("name", PAGES)
def test_a_page_has_no_serious_fault(
    window: Window, pages: dict[str, str], checker: str, name: str, size: str, theme: str
) -> None:
    window.resize(size)
    window.shade(theme)

    window.open(pages[name])

    assert faults(window, checker) == []
    assert window.overhang() <= 0


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_question_and_a_peek_have_none_either(
    window: Window, pages: dict[str, str], checker: str, theme: str
) -> None:
    window.shade(theme)
    window.open("/admin/queues/webhooks/jobs?state=dead_letter")
    window.click("[data-peek]")
    window.one(".drawer")
    peeked = faults(window, checker)
    window.press(Keys.ESCAPE)
    window.click("tbody .check")
    window.click("[data-verb=Delete]")
    window.one("dialog[open] #ask-t")

    assert peeked == []
    assert faults(window, checker) == []


def test_a_phone_s_menu_has_none_either(
    window: Window, pages: dict[str, str], checker: str
) -> None:
    window.resize("phone")
    window.open("/admin/")
    window.click(".menu-btn")
    window.one("#menu .nav")

    assert faults(window, checker) == []


def test_the_checker_checks(window: Window, pages: dict[str, str], checker: str) -> None:
    window.open("/admin/help/keys")
    spoil = "document.querySelector('h1').insertAdjacentHTML('afterend', '<img>')"
    window.driver.execute_script(spoil)

    assert [one["id"] for one in faults(window, checker)] == ["image-alt"]
