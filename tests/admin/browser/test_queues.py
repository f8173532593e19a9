"""Queues in a browser: enqueue, bury, release, declare, override, purge, delete, strict mode."""

import base64
from typing import Any

import pytest

from tests.admin.browser.served import Served
from tests.admin.browser.window import Window

QUEUE = "/admin/queues/webhooks"


def newest(served: Served) -> tuple[str, str, dict[str, Any]]:
    """Return the newest audit entry."""
    return served.trail()[0]


def test_a_job_is_enqueued_as_written(window: Window, served: Served) -> None:
    window.open(f"{QUEUE}/enqueue")
    window.write("#job_type", "deliver_hook")
    window.write("#data", '{"größe": 1}')
    assert window.words("#bytes") == "14 of at most 1,000,000 bytes"
    window.write("#priority", "7")
    window.write("[name=ck0]", "tenant")
    window.write("[name=cv0]", "42")
    window.choose("[name=ct0]", "integer")
    window.go("[data-enqueue] button.primary")

    job = served.api(f"/jobs/{window.words('#job-id')}")
    assert window.words("h1") == "deliver_hook"
    assert base64.b64decode(job["payload"]["data_b64"]).decode() == '{"größe": 1}'
    assert (job["priority"], job["custom"]["tenant"]) == (7, 42)
    assert served.numbers() == {"ready": 1}
    actor, action, details = newest(served)
    assert (actor, action, details["queue"]) == ("ada", "job.enqueue", "webhooks")


def test_a_refused_job_keeps_what_was_typed(window: Window, served: Served) -> None:
    window.open(f"{QUEUE}/enqueue")
    window.write("#job_type", "a")
    window.write("#data", "{not json")
    window.go("[data-enqueue] button.primary")
    window.expected.append("422")  # a refused form is a failed load to the console

    assert "json" in window.words("#e-data").lower()
    assert window.one("#data").get_attribute("value") == "{not json"
    assert served.numbers() == {}
    assert served.trail() == []


def test_a_ready_job_is_buried(window: Window, served: Served) -> None:
    served.do(served.server.enqueue, count=2)
    window.open(f"{QUEUE}/jobs?state=ready")
    window.click("tbody .check")
    window.click("[data-verb=Dead-letter]")
    window.write("dialog #why", "broken")
    window.go("dialog button.danger")

    assert served.numbers() == {"ready": 1, "dead_lettered": 1}
    assert newest(served)[1] == "jobs.dead_letter"
    assert newest(served)[2]["reason"] == "broken"


def test_a_lease_is_released_from_the_list_and_from_the_job(window: Window, served: Served) -> None:
    served.do(served.server.enqueue, count=2)
    served.do(served.server.reserve, count=2, lease_ms=600_000)
    window.open(f"{QUEUE}/jobs?state=inflight")
    window.click("tbody [name=lease]")
    assert "ack will be refused" in window.words("dialog .dialog-body p")
    window.go("dialog button.danger")
    assert served.numbers() == {"ready": 1, "inflight": 1}

    window.go("tbody .id a")
    window.click("#act .danger")
    window.go("dialog button.danger")
    assert served.numbers() == {"ready": 2}
    assert [one[1] for one in served.trail()] == ["jobs.release", "jobs.release"]


def test_a_queue_is_declared_given_an_override_and_taken_out_again(
    window: Window, served: Served
) -> None:
    window.open("/admin/")
    window.click("[href='/admin/declare']")
    window.write("dialog #name", "fresh-ü")
    window.go("dialog button.primary")
    assert window.words("h1") == "fresh-ü"

    window.write("[name$=default_max_attempts]", "9")
    assert "1 change" in window.words("[data-tally]")
    window.go(".savebar .primary")
    text = served.server.path.read_text()
    assert 'name = "fresh-ü"' in text
    assert "default_max_attempts = 9" in text
    assert "# Kept by the tests" in text

    window.go(".tabs a:last-child")
    window.write("[name=typed]:enabled", "fresh-ü")
    delete = "form:has([value=delete]) "
    window.write(f"{delete}[name=typed]", "fresh-ü")
    window.go(f"{delete}button")
    assert "fresh-" not in served.server.path.read_text()
    told = [one[1] for one in served.trail()]
    assert told[0] == "queue.delete"
    assert set(told[1:]) == {"queue.put"}


def test_purging_wants_the_name_and_spares_jobs_in_flight(window: Window, served: Served) -> None:
    served.do(served.server.enqueue, count=3)
    served.do(served.server.reserve, count=1)
    window.open(f"{QUEUE}/danger")
    purge = "form:has([value=purge]) "
    assert not window.one(f"{purge}button").is_enabled()
    window.write(f"{purge}[name=typed]", "webhook")
    assert not window.one(f"{purge}button").is_enabled()
    window.write(f"{purge}[name=typed]", "webhooks")
    window.write(f"{purge}[name=reason]", "load test")
    window.go(f"{purge}button")

    assert served.numbers() == {"inflight": 1}
    assert newest(served)[1] == "queue.purge"
    assert newest(served)[2]["reason"] == "load test"


def test_purge_and_delete(window: Window, served: Served) -> None:
    served.do(served.server.enqueue, count=3)
    served.do(served.server.kill, count=2)
    window.open(f"{QUEUE}/danger")
    form = "form:has([value=purge_delete]) "
    window.write(f"{form}[name=typed]", "webhooks")
    window.go(f"{form}button")

    assert "webhooks" not in served.server.path.read_text()
    assert newest(served)[1] == "queue.delete"


def test_strict_mode_asks_and_is_told(window: Window, served: Served) -> None:
    served.do(served.server.enqueue, "foreign")
    window.open("/admin/")
    window.click("[role=switch][name=value]")
    assert "foreign" in window.words("dialog .pick")
    window.go("dialog button.primary")
    assert window.one("[role=switch]").get_attribute("aria-checked") == "true"
    assert served.server.reloader.running.server.strict_queues is True

    window.click("[role=switch][name=value]")
    window.go("dialog button.primary")
    assert served.server.reloader.running.server.strict_queues is False
    assert [one[1] for one in served.trail()] == ["config.put", "config.put"]


@pytest.mark.parametrize("view", ["table", "cards"])
def test_the_dashboard_follows(window: Window, served: Served, view: str) -> None:
    served.do(served.server.enqueue, count=1)
    window.open(f"/admin/?view={view}")
    place = "#main [data-queue=webhooks] [data-f=ready]"
    assert window.words(place) == "1"
    served.do(served.server.enqueue, count=4)

    window.until(lambda: window.words(place) == "5", "the figure follows")
    window.until(lambda: window.words(".band [data-f=ready]") == "5", "the sum follows")


def test_queues_are_filtered_sorted_and_paged(window: Window, served: Served) -> None:
    for number in range(30):
        served.do(served.server.enqueue, f"queue-{number:02}", number + 1)
    overview = "/overview?points=1"
    window.until(
        lambda: len(served.api(overview)["frame"]["queues"]) == 31, "a sample knows them all"
    )
    window.open("/admin/?view=table&limit=25")
    assert len(window.all(".data tbody tr")) == 25
    window.go(".pager [rel=next]")
    assert 0 < len(window.all(".data tbody tr")) <= 25
    window.open("/admin/?view=table")
    window.go("thead [href*='sort=ready']")
    first = window.words(".data tbody tr:first-child .name")
    assert first.startswith(("queue-29", "queue-00"))
    window.write("[name=q]", "queue-1")
    window.press("\ue007")
    window.until(lambda: "q=queue-1" in window.path, "it is filtered")
    window.until(lambda: len(window.all(".data tbody tr")) == 10, "ten are left")


def test_the_chart_answers_arrow_keys_and_has_a_table(window: Window, served: Served) -> None:
    served.do(served.server.enqueue, count=5)
    window.open("/admin/")
    chart = window.one(".chart-panel svg[tabindex]")
    window.driver.execute_script("arguments[0].focus()", chart)
    chart.send_keys("\ue012")  # left
    assert "/s" in window.words(".chart-panel .readout")
    window.click(".chart-panel .values summary")
    assert "Enqueued/s" in window.words(".chart-panel .values table")


def test_a_range_is_kept(window: Window) -> None:
    window.open("/admin/")
    page = window.one("html")
    window.choose("#range", "Last 5 min")
    window.until(lambda: window.has_left(page), "the page is drawn anew")
    window.open(f"{QUEUE}/jobs")

    assert window.one("#range").get_attribute("value") == "5m"


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("q" * 512, id="512 bytes"),
        pytest.param("\u05ea\u05d5\u05e8 \u202e gnihtyna", id="right to left"),
        pytest.param("\U0001f680 \u6d88\u606f\u961f\u5217", id="emoji"),
        pytest.param("<img src=x onerror=alert(1)>", id="markup"),
        pytest.param("a:b?c=d&e#f%2F;g", id="parts of a URL"),
    ],
)
def test_any_name_goes_there_and_back(window: Window, served: Served, name: str) -> None:
    served.do(served.server.enqueue, name, count=2)
    served.do(served.server.kill, name, reason=name, job_type=name[:64])
    window.resize("small")
    window.open("/admin/?view=table")
    assert name in [link.text for link in window.all(".data .name a")]
    assert window.overhang() <= 0
    window.resize("desk")
    window.open("/admin/?view=cards")
    link = next(one for one in window.all("#main a") if one.text == name)
    page = window.one("html")
    link.click()
    window.until(lambda: window.has_left(page), "the card leads on")

    assert window.words("h1") == name, window.path
    window.go(".states .dead")
    assert window.words("tbody .why-cell") == name[:300]
    window.click("tbody .check")
    window.click("[data-verb=Requeue]")
    assert name in window.words("dialog #ask-t")
    window.go("dialog button.primary")

    assert window.words("h1") == name
    assert served.numbers(name) == {"ready": 3}
    assert newest(served)[2]["queue"] == name
    assert window.all("img, main script, bdi *") == []
