"""Each page, wide and narrow, light and dark: quiet, at home, not too wide, no name ever run."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.admin.browser.served import Served
from tests.admin.browser.window import Window
from tests.admin.browsing import NASTY, fill

FILES = ("payload", "export", "file")  # these are saved, not shown
PAGES = (
    "/admin/login",
    "/admin/",
    "/admin/declare",
    "/admin/queues/{name}/jobs",
    "/admin/queues/{name}/settings",
    "/admin/queues/{name}/enqueue",
    "/admin/queues/{name}/danger",
    "/admin/queues/{name}/dead/{key:path}",
    "/admin/jobs/{id}",
    "/admin/config",
    "/admin/config/keys",
    "/admin/config/admins",
    "/admin/audit",
    "/admin/server",
    "/admin/help",
    "/admin/help/keys",
    "/admin/help/api",
    "/admin/help/operating",
)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("walk")) as found:
        yield found


@pytest.fixture(scope="module")
def pages(served: Served) -> dict[str, str]:
    """A server with something to show, on which somebody did something too."""
    found: dict[str, str] = served.do(fill, served.server)
    for _attempt in range(3):
        served.do(served.server.kill, NASTY, 1, reason="</bdi><script>alert(2)</script>")
    return found


def test_the_list_names_every_page(pages: dict[str, str]) -> None:
    shown = {name for name in pages if not name.endswith(FILES)}
    led_on = {"/admin/jobs", "/admin/queues/{name}"}

    assert set(PAGES) == shown - led_on


@pytest.mark.parametrize(
    ("size", "theme"),
    [
        ("desk", "light"),
        pytest.param("desk", "dark", marks=pytest.mark.long),
        pytest.param("phone", "light", marks=pytest.mark.long),
        ("small", "dark"),
    ],
)
@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_quiet_fits_and_runs_no_name(
    window: Window, pages: dict[str, str], name: str, size: str, theme: str
) -> None:
    window.resize(size)
    window.shade(theme)

    window.open(pages[name])

    word = name.strip("/").replace("/", "-").replace("{", "").replace("}", "").partition(":")[0]
    picture = window.shoot(f"{word}-{size}-{theme}")
    assert picture.stat().st_size > 2000
    assert window.overhang() <= 0
    assert window.driver.title
    # A name that ran would have opened a box; one that became markup would be an element.
    assert window.all("img, main script, bdi *") == []


def test_a_name_that_is_markup_is_shown_as_it_is(window: Window, pages: dict[str, str]) -> None:
    window.open("/admin/")
    window.until(lambda: window.all("[aria-current='page']"), "the page is there")
    names = [one.text for one in window.all("tbody .name a, .card .name, .cards h3 a, main bdi")]
    window.open(pages["/admin/queues/{name}/dead/{key:path}"])

    assert NASTY in names
    assert window.words("h1") == NASTY
    assert window.words(".reason") == NASTY


def test_two_themes_are_two_pictures(window: Window, pages: dict[str, str]) -> None:
    seen = []
    for theme in ("light", "dark"):
        window.shade(theme)
        window.open("/admin/server")
        color = "return getComputedStyle(document.body).backgroundColor"
        seen.append(window.driver.execute_script(color))

    assert seen == ["rgb(244, 246, 248)", "rgb(14, 18, 23)"]


def test_screens_are_kept_where_git_does_not_look() -> None:
    ignored = (Path(__file__).resolve().parents[3] / ".gitignore").read_text().splitlines()

    assert "/.cache/" in ignored
