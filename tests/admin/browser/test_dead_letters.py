"""Dead letters in a browser: select, look, requeue, delete, some or all, with the record of it."""

from typing import Any

import pytest

from tests.admin.browser.served import Served
from tests.admin.browser.window import Keys, Window
from tests.admin.browsing import NASTY

LIST = "/admin/queues/webhooks/jobs?state=dead_letter"


def kill(served: Served, count: int, **fields: Any) -> list[bytes]:
    """Let jobs die, the newest last."""
    ids: list[bytes] = served.do(served.server.kill, count=count, **fields)
    return ids


def picked(window: Window) -> int:
    """Return how many rows are selected."""
    return len(window.all("tbody tr.sel"))


@pytest.mark.parametrize(
    ("verb", "action", "left"),
    [
        ("Requeue", "dead_letters.requeue", {"ready": 2, "dead_lettered": 1}),
        ("Delete", "dead_letters.delete", {"dead_lettered": 1}),
    ],
)
def test_an_action_takes_two_of_three(
    window: Window, served: Served, verb: str, action: str, left: dict[str, int]
) -> None:
    kill(served, 3)
    window.open(LIST)
    assert not window.one(f"[data-verb={verb}]").is_enabled()
    for box in window.all("tbody .check")[:2]:
        box.click()
    assert picked(window) == 2
    assert window.words("#picked") == "2 selected of the 3 shown"

    window.click(f"[data-verb={verb}]")
    assert window.words("dialog #ask-t") == f"{verb} 2 dead letters of webhooks?"
    window.write("dialog #why", "looked at it")
    window.go("dialog button.btn.primary, dialog button.danger")

    assert window.toast().startswith(f"{verb}d 2")
    assert served.numbers() == left
    actor, told, details = served.trail()[0]
    assert (actor, told) == ("ada", action)
    assert (details["queue"], details["count"], details["reason"]) == (
        "webhooks",
        2,
        "looked at it",
    )


def test_the_way_back_changes_nothing_and_returns_the_focus(window: Window, served: Served) -> None:
    kill(served, 2)
    window.open(LIST)
    window.click("tbody .check")
    window.click("[data-verb=Delete]")
    assert window.words("dialog [data-close]") == window.driver.switch_to.active_element.text

    window.press(Keys.ESCAPE)
    window.until(lambda: not window.all("dialog"), "the question is gone")

    assert picked(window) == 1
    focused = window.driver.switch_to.active_element
    assert focused.get_attribute("data-verb") == "Delete"
    assert served.numbers() == {"dead_lettered": 2}
    assert served.trail() == []


def test_all_that_match_go_in_steps(window: Window, served: Served) -> None:
    kill(served, 1200, reason="connect timed out")
    kill(served, 5, reason="other")
    window.open(f"{LIST}&reason=timed")
    window.click(".bulk .all [formaction$=requeue]")
    assert "connect" not in window.words("dialog .facts")
    assert "timed" in window.words("dialog .facts")
    button = window.one("dialog button.primary")
    if not button.is_enabled():
        window.write("dialog #typed", window.one("dialog #typed").get_attribute("data-want") or "")
    window.click("dialog button.primary")
    window.until(lambda: window.words("dialog .dialog-foot button") == "Close", "it is through")

    assert window.words("dialog .dialog-body p").startswith("1,200 of 1,205 requeued")
    window.go("dialog .dialog-foot button")
    assert served.numbers() == {"ready": 1200, "dead_lettered": 5}
    steps = [(action, details["count"]) for _, action, details in served.trail()]
    assert [action for action, _ in steps] == ["dead_letters.requeue"] * len(steps)
    assert sum(count for _, count in steps) == 1200
    assert len(steps) >= 2


def test_deleting_all_wants_the_count_typed(window: Window, served: Served) -> None:
    kill(served, 130)
    window.open(LIST)
    window.click(".bulk .all [formaction$=delete]")
    assert not window.one("dialog button.danger").is_enabled()
    window.write("dialog #typed", "130")
    window.click("dialog button.danger")
    window.until(lambda: window.words("dialog .dialog-foot button") == "Close", "it is through")
    window.press(Keys.ESCAPE)

    window.until(lambda: window.words(".empty h2") == "No dead letters", "the list is empty")
    assert served.numbers() == {}
    assert [(one[1], one[2]["count"]) for one in served.trail()] == [("dead_letters.delete", 130)]


def test_without_script_it_works_the_same(window: Window, served: Served) -> None:
    kill(served, 3)
    window.command("Emulation.setScriptExecutionDisabled", value=True)
    window.open(LIST)
    window.one("tbody .check").click()
    window.go("[data-verb=Requeue]")
    assert window.words("main #ask-t") == "Requeue 1 dead letter of webhooks?"
    window.go("main .dialog-foot button")

    assert window.toast().startswith("Requeued 1")
    assert served.numbers() == {"ready": 1, "dead_lettered": 2}


def test_a_job_that_is_gone_meanwhile_is_told(window: Window, served: Served) -> None:
    kill(served, 2)
    window.open(LIST)
    window.click("#pick-all")
    window.click("[data-verb=Requeue]")
    window.one("dialog #ask-t")
    keys = [box.get_attribute("value") for box in window.all("tbody .check")]
    assert len(keys) == 2
    newest = served.api("/queues/webhooks/jobs?state=dead_letter&order=newest")["jobs"][0]
    _delete(served, newest["key_b64"])
    window.go("dialog button.primary")

    assert window.toast().startswith("Requeued 1 to webhooks. 1 was already gone")
    assert served.numbers() == {"ready": 1}


def test_the_peek_follows_the_keys_and_acts(window: Window, served: Served) -> None:
    kill(served, 3, reason=NASTY)
    window.open(LIST)
    window.press("j", "o")
    first = window.words(".drawer-head .mono")
    assert window.words(".drawer-body p") == NASTY
    window.press("j")
    window.until(lambda: window.words(".drawer-head .mono") != first, "the next one is shown")

    window.click(".drawer-foot .primary")
    window.go("dialog button.primary")

    assert window.toast().startswith("Requeued 1")
    assert served.numbers() == {"ready": 1, "dead_lettered": 2}


def test_the_job_page_requeues_and_goes_on_to_the_next(window: Window, served: Served) -> None:
    kill(served, 2, reason="boom")
    window.open(LIST)
    window.go("tbody .id a")
    assert window.words(".reason") == "boom"
    first = window.words("#job-id")
    window.click("#act .primary")
    window.go("dialog button.primary")

    assert window.words("#job-id") != first
    assert served.numbers() == {"ready": 1, "dead_lettered": 1}


def test_keys_select_ask_and_clear(window: Window, served: Served) -> None:
    kill(served, 4)
    window.open(LIST)
    window.press("j", "x")
    assert picked(window) == 1
    window.press("j", "j", "X")
    assert picked(window) == 3
    window.press("a")
    assert picked(window) == 4
    window.press(Keys.ESCAPE)
    assert picked(window) == 0
    window.press("k", "x", "R")

    assert window.words("dialog #ask-t") == "Requeue 1 dead letter of webhooks?"
    assert served.trail() == []


def test_filters_narrow_and_clear(window: Window, served: Served) -> None:
    kill(served, 2, reason="alpha", job_type="a")
    kill(served, 1, reason="beta", job_type="b")
    window.open(LIST)
    window.press("/")
    window.press("bet", Keys.ENTER)
    window.until(lambda: "reason=bet" in window.path, "it is filtered")
    window.until(lambda: len(window.all("tbody tr")) == 1, "one is left")
    window.go(".filters a.quiet")
    assert len(window.all("tbody tr")) == 3


def test_pages_of_the_list(window: Window, served: Served) -> None:
    kill(served, 60)
    window.open(LIST)
    assert len(window.all("tbody tr")) == 50
    assert window.words(".pager span").startswith("Dead letters 1–50 of 60")
    window.go(".pager [rel=next]")
    assert len(window.all("tbody tr")) == 10
    window.go(".pager [rel=prev]")
    assert len(window.all("tbody tr")) == 50


def test_on_a_phone_too(window: Window, served: Served) -> None:
    kill(served, 3)
    window.resize("phone")
    window.open(LIST)
    window.click("tbody .check")
    window.click("[data-verb=Delete]")
    assert window.overhang() <= 0
    window.shoot("ask-phone-light")
    window.go("dialog button.danger")

    assert served.numbers() == {"dead_lettered": 2}


def _delete(served: Served, key: str) -> None:
    answer = served.call("POST", "/queues/webhooks/dead-letters:delete", {"keys_b64": [key]})
    assert answer["deleted"] == 1
