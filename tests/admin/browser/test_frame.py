"""What every page has: signing in and out, the menu, themes, clocks, live figures, keys."""

import pytest

from sepp.admin.messages import Frame
from sepp.admin.stats import Stats
from sepp.admin.stream import Hub
from tests.admin.browser.served import Served
from tests.admin.browser.window import Keys, Window
from tests.fakes.operators import SECRETS


def test_signing_in_leads_to_where_one_wanted_and_out_again(window: Window, served: Served) -> None:
    window.begin(None)
    window.open("/admin/queues/webhooks/danger")
    assert window.path.startswith("/admin/login")
    window.write("#name", "ada")
    window.write("#key", "wrong")
    window.expected.append("401")
    window.go("main .primary")
    assert "wrong" not in window.driver.page_source.replace("wrong name", "")
    window.write("#key", SECRETS["admin"])
    window.go("main .primary")
    assert window.path == "/admin/queues/webhooks/danger"

    window.go(".who button")
    window.open("/admin/")
    assert window.path.startswith("/admin/login")
    assert [one[:2] for one in served.trail()] == [
        ("ada", "session.login"),
        ("ada", "session.login_failed"),
    ]


@pytest.mark.parametrize(
    ("role", "shown"),
    [("viewer", []), ("operator", ["Enqueue"]), ("admin", ["Enqueue", "Danger"])],
)
def test_a_role_sees_what_it_may_do(
    window: Window, served: Served, role: str, shown: list[str]
) -> None:
    served.do(served.server.kill)
    window.begin(served.sign_in(role))
    window.open("/admin/queues/webhooks/jobs?state=dead_letter")

    tabs = [one.text for one in window.all(".tabs a")]
    assert tabs == ["Jobs", "Settings", *shown]
    assert bool(window.all("#bulk")) == (role != "viewer")
    assert bool(window.all(".nav [href='/admin/audit']")) == (role == "admin")


def test_the_menu_leads_everywhere(window: Window) -> None:
    window.open("/admin/")
    titles = []
    for place in range(1, 6):
        window.go(f".nav a:nth-child({place})")
        titles.append(window.words("h1"))

    assert titles == ["Queues", "Config", "Audit", "Server", "Help"]


def test_the_menu_of_a_phone_opens_and_closes(window: Window) -> None:
    window.resize("phone")
    window.open("/admin/")
    assert not window.one(".menu-btn").get_attribute("hidden")
    assert not window.all("#menu")[0].is_displayed()
    window.click(".menu-btn")
    window.shoot("menu-phone-light")
    window.go("#menu [href='/admin/server']")

    assert window.words("h1") == "Server"


@pytest.mark.parametrize("is_on", [True, False])
def test_the_theme_is_kept(window: Window, is_on: bool) -> None:
    window.command("Emulation.setScriptExecutionDisabled", value=not is_on)
    window.open("/admin/help")
    seen = []
    for _press in range(3):
        window.go("[name=theme]")
        seen.append(window.one("html").get_attribute("data-theme"))

    assert sorted(seen, key=str) == ["None", "dark", "light"] or set(seen) == {
        None,
        "dark",
        "light",
    }


def test_times_are_told_in_the_chosen_clock(window: Window, served: Served) -> None:
    window.command("Emulation.setTimezoneOverride", timezoneId="Asia/Tokyo")
    served.do(served.server.enqueue)
    job = served.api("/queues/webhooks/jobs?state=ready")["jobs"][0]["id"]
    window.open(f"/admin/jobs/{job}")
    assert "12:45" in window.words(".line-list .gap")
    window.press("u")
    window.until(lambda: window.all("[name=clock][value=utc]"), "the clock is local")

    assert "21:45" in window.words(".line-list .gap")
    assert window.words("[data-zone]") == "UTC+09:00"
    window.command("Emulation.setTimezoneOverride", timezoneId="")


def test_the_figures_are_live_until_they_are_paused(window: Window, served: Served) -> None:
    served.do(served.server.enqueue)
    window.open("/admin/?view=table")
    window.until(lambda: window.words("#live span") == "Live", "the stream is open")
    place = ".band [data-f=ready]"
    window.press("p")
    assert window.words("#live span") == "Paused"
    served.do(served.server.enqueue, count=6)
    before = served.api("/overview?points=1")["frame"]["ts_ms"]
    window.until(
        lambda: served.api("/overview?points=1")["frame"]["ts_ms"] > before + 1500, "time passes"
    )
    assert window.words(place) == "1"
    window.click("#live")

    window.until(lambda: window.words(place) == "7", "the figures go on")


def test_a_figure_never_goes_back_to_an_older_one(
    window: Window, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Frames from before the jobs died, for a page from after: as a stream may begin.
    old = served.run(served.site.stats.frame)
    later = Hub.publish_frame

    async def frame(stats: Stats, **_: int) -> Frame:
        return old

    monkeypatch.setattr(Stats, "frame", frame)
    monkeypatch.setattr(Hub, "publish_frame", lambda hub, _: later(hub, old))
    served.do(served.server.kill, count=60)
    window.open("/admin/queues/webhooks/jobs?state=dead_letter")
    window.until(lambda: window.words("#live span") == "Live", "a frame came")
    assert window.words(".states .dead b") == "60"

    monkeypatch.undo()
    served.do(served.server.kill, count=1)
    window.until(lambda: window.words(".states .dead b") == "61", "newer frames are shown")
    assert window.words("#newer") == "1 newer. Show"
    assert window.words(".pager span").startswith("Dead letters 1–50 of 60")


def test_a_server_that_is_gone_is_told(window: Window, served: Served) -> None:
    window.open("/admin/")
    window.until(lambda: window.words("#live span") == "Live", "the stream is open")
    window.expected += ["ERR_", "Failed to load"]
    served.stop()

    stale = ("Stale", "Polling", "Offline")
    window.until(lambda: window.words("#live span").startswith(stale), "it is told")
    assert window.all("body.is-stale") or window.words("#live span").startswith("Polling")


def test_a_job_is_found_by_its_id(window: Window, served: Served) -> None:
    served.do(served.server.enqueue)
    job = served.api("/queues/webhooks/jobs?state=ready")["jobs"][0]["id"]
    window.open("/admin/help")
    window.press("i")
    window.press(job, Keys.ENTER)
    window.until(lambda: window.path == f"/admin/jobs/{job}", "its page is open")

    window.expected.append("404")
    window.write("#find", "0198ab00-0000-7000-8000-000000000000")
    window.press(Keys.ENTER)
    window.until(lambda: "No live job" in window.driver.page_source, "it is nowhere")


def test_keys_lead_to_pages_and_can_be_switched_off(window: Window) -> None:
    window.open("/admin/")
    window.press("g", "c")
    window.until(lambda: window.words("h1") == "Config", "g c leads to the configuration")
    window.press("?")
    window.until(lambda: window.path == "/admin/help/keys", "? leads to the keys")
    window.go("[name=keys]")
    assert window.one("html").get_attribute("data-keys") == "off"
    window.press("g", "s")

    assert window.path.startswith("/admin/help/keys")


def test_ids_are_copied(window: Window, served: Served) -> None:
    window.command(
        "Browser.grantPermissions",
        origin=served.base,
        permissions=["clipboardReadWrite", "clipboardSanitizedWrite"],
    )
    served.do(served.server.enqueue)
    job = served.api("/queues/webhooks/jobs?state=ready")["jobs"][0]["id"]
    window.open(f"/admin/jobs/{job}")
    window.click(".sub .copy")
    window.one(".sub .copy.done")

    read = "navigator.clipboard.readText().then(arguments[0], (fault) => arguments[0](`${fault}`))"
    assert window.driver.execute_async_script(read) == job


def test_a_payload_is_seen_three_ways_wrapped_and_whole(window: Window, served: Served) -> None:
    text = b'{"note": "' + b"x" * 100_000 + b'\xe2\x80\xae"}'
    served.do(served.server.enqueue, payload=text)
    job = served.api("/queues/webhooks/jobs?state=ready")["jobs"][0]["id"]
    window.open(f"/admin/jobs/{job}")
    window.click("[data-wrap]")
    window.click("[data-all]")
    whole = "return document.querySelector('#code').textContent.length"
    window.until(lambda: window.driver.execute_script(whole) > 100_000, "it is shown whole")
    assert "\\u202e" in window.words("#code")[-20:]
    for way in ("Text", "Hex"):
        window.open(f"/admin/jobs/{job}?as={way.lower()}")
        assert window.words("#payload ~ .end [aria-current]") == way


def test_a_page_that_is_not_there_says_so(window: Window) -> None:
    window.expected.append("404")
    window.open("/admin/nowhere")

    assert window.words("h1")
    assert window.all(".top .brand")
