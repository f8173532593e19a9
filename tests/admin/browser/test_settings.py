"""Configuration, keys and the audit trail in a browser."""

from tests.admin.browser.served import Served
from tests.admin.browser.window import Keys, Window

ATTEMPTS = "[name='limits.default_max_attempts']"


def test_changes_are_counted_reviewed_and_saved(window: Window, served: Served) -> None:
    window.open("/admin/config")
    window.write(ATTEMPTS, "7")
    window.write("[name='limits.retry_delay_ms']", "2000")
    window.write("[name='server.listen_addr']", "0.0.0.0:6000")
    assert window.words("[data-tally]") == "3 changes, 1 waits for a restart"
    window.click("[data-field]:has([name='server.listen_addr']) [data-undo]")
    assert window.words("[data-tally]") == "2 changes, apply at once"
    assert served.trail() == []

    window.click(".savebar .primary")
    window.one("dialog tbody tr")
    rows = [row.text for row in window.all("dialog tbody tr")]
    assert rows == ["limits.default_max_attempts 5 7", "limits.retry_delay_ms 0 2000"]
    window.go("dialog button.primary")

    text = served.server.path.read_text()
    assert "default_max_attempts = 7 # more patience than usual" in text
    assert served.server.reloader.running.limits.retry_delay_ms == 2000
    actor, action, details = served.trail()[0]
    assert (actor, action) == ("ada", "config.put")
    assert details["paths"] == ["limits.default_max_attempts", "limits.retry_delay_ms"]


def test_a_value_out_of_bounds_is_told_at_its_field(window: Window, served: Served) -> None:
    before = served.server.path.read_text()
    window.open("/admin/config")
    window.write(ATTEMPTS, "0")
    window.expected.append("422")
    window.go(".savebar .primary")
    assert "default_max_attempts" in window.words(".err")
    assert window.one("[aria-invalid=true]").get_attribute("value") == "0"

    assert served.server.path.read_text() == before
    assert served.trail() == []


def test_a_file_changed_meanwhile_keeps_both(window: Window, served: Served) -> None:
    window.open("/admin/config")
    window.write(ATTEMPTS, "8")
    served.server.path.write_text(
        served.server.path.read_text().replace("[storage]", "[storage] # by hand")
    )
    window.expected.append("412")
    window.click(".savebar .primary")
    assert window.words("dialog #ask-t") == "The file changed meanwhile"
    window.click("dialog button.primary")
    window.until(lambda: "Save 1 change" in window.words("#ask-t"), "it is asked anew")
    window.go("#ask .primary")

    text = served.server.path.read_text()
    assert "# by hand" in text
    assert "default_max_attempts = 8" in text


def test_a_key_is_made_shown_once_and_revoked(window: Window, served: Served) -> None:
    window.open("/admin/config/keys")
    window.write("[name=name]", "eu-1")
    window.go("form[action$=keys] .primary")
    secret = window.words("#new-key")
    assert len(secret) > 20
    assert secret in served.server.path.read_text()
    window.open("/admin/config/keys")
    assert secret not in window.driver.page_source

    window.click("[aria-label='Revoke eu-1']")
    assert "last key" in window.words("dialog .dialog-body p")
    window.go("dialog button.danger")
    assert secret not in served.server.path.read_text()
    assert [one[1] for one in served.trail()] == ["auth_key.revoke", "auth_key.add"]
    assert secret not in str(served.trail())


def test_keys_are_turned_off(window: Window, served: Served) -> None:
    window.open("/admin/config/keys")
    window.write("[name=name]", "eu-1")
    window.write("[name=key]", "s3cret-of-my-own")
    window.go("form[action$=keys] .primary")
    window.click("[name=off]")
    window.go("dialog button.danger")

    assert served.server.reloader.running.auth.api_keys is None
    assert window.words(".empty h2") == "No key is asked for"


def test_admin_keys_are_listed_without_their_secrets(window: Window, served: Served) -> None:
    window.open("/admin/config/admins")

    assert [one.text for one in window.all("tbody b")] == ["vera", "otto", "ada"]
    assert "secret" not in window.driver.page_source


def test_the_trail_is_filtered_paged_and_followed(window: Window, served: Served) -> None:
    for number in range(55):
        body = {"job_type": f"type-{number}"}
        served.call("POST", "/queues/webhooks/jobs", body)
    window.open("/admin/audit")
    assert len(window.all("#trail tbody tr")) == 50
    window.go(".pager [rel=next]")
    assert len(window.all("#trail tbody tr")) == 5

    window.open("/admin/audit")
    window.click("#follow")
    served.call("POST", "/queues/webhooks:purge", {"reason": "clean"})
    newest = "#trail tbody tr:first-child .action"
    window.until(lambda: window.words(newest) == "queue.purge", "the new entry is shown")

    window.choose("[name=action]", "queue.")
    window.go(".filters button")
    assert len(window.all("#trail tbody tr")) == 1
    window.press(Keys.ESCAPE)


def test_new_entries_are_offered_when_not_followed(window: Window, served: Served) -> None:
    served.call("POST", "/queues/webhooks/jobs", {"job_type": "a"})
    window.open("/admin/audit")
    window.until(lambda: window.words("#live span") == "Live", "the stream is open")
    served.call("POST", "/queues/webhooks/jobs", {"job_type": "b"})

    assert window.words("#newer") == "1 new entry. Show"
    assert len(window.all("#trail tbody tr")) == 1
    window.press("r")
    window.until(lambda: len(window.all("#trail tbody tr")) == 2, "it is shown")
