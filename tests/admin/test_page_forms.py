"""Settings, enqueue, danger, keys and configuration from the pages."""

import base64
import re
from html import unescape

import pytest

from sepp.config.model import KEYS
from tests.admin.browsing import NASTY, check_page, follow, get, hidden, post, toast
from tests.admin.conftest import Console
from tests.fakes.operators import CONFIG

SETTINGS = "/admin/queues/webhooks/settings"
ENQUEUE = "/admin/queues/webhooks/enqueue"
DANGER = "/admin/queues/webhooks/danger"


# A queue's settings


async def test_overrides_are_saved_and_reset(console: Console) -> None:
    etag = await console.etag()
    sent = {"etag": etag, "default_max_attempts": "7", "max_payload_bytes": "", "retry_backoff": ""}

    page = await follow(console, await post(console, SETTINGS, sent))

    assert toast(page) == "Saved 2 overrides of webhooks."
    (queue,) = console.server.reloader.running.queues
    assert (queue.default_max_attempts, queue.max_payload_bytes) == (7, None)
    assert 'value="7"' in page
    assert "Override</span> server value <b>5</b>" in page


@pytest.mark.parametrize(
    ("field", "value", "status"),
    [("default_max_attempts", "abc", 422), ("default_priority", "10", 422),
     ("default_max_attempts", "1e12", 422), ("max_payload_bytes", "-1", 422)],
)  # fmt: skip
async def test_a_bad_override_stands_at_its_field(
    console: Console, field: str, value: str, status: int
) -> None:
    answer = await post(console, SETTINGS, {"etag": await console.etag(), field: value})

    assert answer.status_code == status
    check_page(answer.text)
    assert f'id="f-{field}-e"' in answer.text
    assert f'value="{value}"' in answer.text, "what was typed is kept"
    assert console.server.path.read_text() == CONFIG


async def test_a_stale_etag_keeps_what_was_typed(console: Console) -> None:
    answer = await post(console, SETTINGS, {"etag": "0" * 64, "default_max_attempts": "7"})

    assert answer.status_code == 412
    assert 'value="7"' in answer.text
    assert "the file changed since you read it" in answer.text


async def test_saving_declares_an_undeclared_queue(console: Console) -> None:
    sent = {"etag": await console.etag(), "default_priority": "3"}

    await post(console, "/admin/queues/fresh%20one/settings", sent)

    assert [queue.name for queue in console.server.reloader.running.queues] == [
        "webhooks",
        "fresh one",
    ]


# Enqueue


async def test_enqueue_leads_to_the_new_job(console: Console) -> None:
    sent = {
        "job_type": "a", "data": '{"n": 1}', "form": "json", "priority": "9",
        "scheduled_at": "2026-11-29T13:00", "ck0": "n", "cv0": "7", "ct0": "integer",
        "ck1": NASTY, "cv1": "x", "ct1": "string", "ck2": "b", "cv2": "True", "ct2": "bool",
    }  # fmt: skip

    answer = await post(console, ENQUEUE, sent)
    page = await follow(console, answer)

    assert answer.headers["location"].startswith("/admin/jobs/")
    assert "Enqueued" in toast(page)
    job = (await console.call("GET", f"/jobs/{answer.headers['location'][-36:]}")).json()
    assert job["priority"] == 9
    assert job["payload"]["encoding"] == "json"
    assert job["custom"] == {"n": 7, NASTY: "x", "b": True}
    assert job["scheduled_at_ms"] == 1_795_957_200_000


@pytest.mark.parametrize(
    ("sent", "field"),
    [
        ({"job_type": "a", "data": "x" * 1_000_001, "form": "text", "encoding": "t"}, "data"),
        ({"job_type": "a", "data": "???", "form": "base64", "encoding": "t"}, "data"),
        ({"job_type": "a", "data": "{not json", "form": "json"}, "data"),
        ({"job_type": "a", "data": "[" * 100_000, "form": "json"}, "data"),
        ({"job_type": "a" * 300}, "job_type"),
        ({"job_type": "a", "priority": "x"}, "priority"),
        ({"job_type": "a", "scheduled_at": "soon"}, "scheduled_at"),
        ({"job_type": "a", "scheduled_at": "2099-01-01T00:00"}, "scheduled_at"),
        ({"job_type": "a", "ck0": "n", "cv0": "x", "ct0": "integer"}, "custom"),
        ({"job_type": "a", "ck0": "n", "cv0": str(2**63), "ct0": "integer"}, "custom"),
        ({"job_type": "a", "idempotency_key": "k" * 300}, "idempotency_key"),
    ],
)
async def test_a_rejection_stands_at_its_field_and_nothing_is_lost(
    console: Console, sent: dict[str, str], field: str
) -> None:
    answer = await post(console, ENQUEUE, sent)

    assert answer.status_code == 422
    assert f'id="e-{field}"' in answer.text
    assert 'name="job_type" value="a' in answer.text
    assert console.server.backend.queue("webhooks").live == 0


@pytest.mark.parametrize("form", ["json", "text"])
async def test_line_ends_are_those_of_the_writer_not_of_the_form(
    console: Console, form: str
) -> None:
    sent = {"job_type": "a", "data": "[1,\r\n2]", "form": form, "encoding": "e"}

    answer = await post(console, ENQUEUE, sent)

    job = (await console.call("GET", f"/jobs/{answer.headers['location'][-36:]}")).json()
    assert base64.b64decode(job["payload"]["data_b64"]) == b"[1,\n2]"


async def test_a_duplicate_is_told(console: Console) -> None:
    sent = {"job_type": "a", "idempotency_key": "k"}
    await post(console, ENQUEUE, sent)

    page = await follow(console, await post(console, ENQUEUE, sent))

    assert toast(page).startswith("Not enqueued again:")


# Danger


@pytest.mark.parametrize("verb", ["purge", "delete", "purge_delete"])
async def test_the_name_must_be_typed(console: Console, verb: str) -> None:
    console.server.enqueue()

    answer = await post(
        console, DANGER, {"verb": verb, "typed": "webhook", "etag": await console.etag()}
    )

    assert answer.status_code == 422
    assert "Type webhooks to go on." in answer.text
    assert console.server.backend.queue("webhooks").ready == 1


async def test_purge_and_delete(console: Console) -> None:
    console.server.enqueue(count=3)
    sent = {"typed": "webhooks", "etag": await console.etag()}

    refused = await post(console, DANGER, {**sent, "verb": "delete"})
    page = await follow(console, await post(console, DANGER, {**sent, "verb": "purge_delete"}))

    assert refused.status_code == 409
    assert "holds 3 jobs" in refused.text
    assert toast(page) == "Deleted webhooks and 3 jobs."
    assert console.server.reloader.running.queues == ()


async def test_purge_keeps_the_queue(console: Console) -> None:
    console.server.enqueue(count=3)

    page = await follow(
        console, await post(console, DANGER, {"verb": "purge", "typed": "webhooks"})
    )

    assert toast(page).startswith("Purged 3 jobs of webhooks.")
    assert (await console.trail())[0]["action"] == "queue.purge"


# The configuration


async def test_every_setting_has_a_field(console: Console) -> None:
    page = (await get(console, "/admin/config")).text

    shown = set(re.findall(r'id="f-[\w-]+" name="([\w.]+)"', page))
    assert shown == {key.path for key in KEYS if key.kind != "tables"}


async def test_changes_are_reviewed_then_saved(console: Console) -> None:
    sent = {
        "etag": await console.etag(),
        "limits.default_max_attempts": "9",
        "limits.allowed_encodings": "json\r\nmsgpack",
        "server.strict_queues": ["false", "true"],
        "storage.sweep_interval_ms": "1000",
    }
    review = await post(console, "/admin/config", sent)
    assert console.server.path.read_text() == CONFIG

    page = await follow(console, await post(console, "/admin/config", hidden(review.text)))

    text = unescape(re.sub(r"<[^>]+>", " ", review.text))
    assert "Save 3 changes?" in text
    assert re.search(r"limits.default_max_attempts\s+5\s+9", text)
    assert "storage.sweep_interval_ms" not in text
    assert toast(page) == "Saved 3 settings."
    running = console.server.reloader.running
    assert (running.limits.default_max_attempts, running.server.strict_queues) == (9, True)
    assert running.limits.allowed_encodings == ("json", "msgpack")


async def test_a_setting_that_waits_for_a_restart_says_so(console: Console) -> None:
    sent = {"etag": await console.etag(), "storage.sweep_interval_ms": "500", "confirm": "1"}

    page = await follow(console, await post(console, "/admin/config", sent))

    assert "Waiting for a restart: storage.sweep_interval_ms." in toast(page)
    assert "storage.sweep_interval_ms: running with 1000, saved 500" in page


async def test_a_bad_setting_stands_at_its_field(console: Console) -> None:
    sent = {"etag": await console.etag(), "limits.default_priority": "10", "confirm": "1"}

    answer = await post(console, "/admin/config", sent)

    assert answer.status_code == 422
    assert 'id="f-limits-default_priority-e"' in answer.text
    check_page(answer.text)


async def test_a_conflict_keeps_the_readers_edits(console: Console) -> None:
    sent = {"etag": await console.etag(), "limits.default_priority": "4", "confirm": "1"}
    with console.server.path.open("a") as file:
        file.write("# other hands\n")

    conflict = await post(console, "/admin/config", sent)
    review = await post(console, "/admin/config", hidden(conflict.text))
    page = await follow(console, await post(console, "/admin/config", hidden(review.text)))

    assert conflict.status_code == 412
    assert "The file changed meanwhile" in conflict.text
    assert toast(page) == "Saved 1 setting."
    assert "# other hands" in console.server.path.read_text()


async def test_the_file_is_shown_without_secrets(console: Console) -> None:
    text = (await get(console, "/admin/config/file")).text

    assert "secret" not in text
    assert text.count("•••") == 3
    assert "# may do all" in text


async def test_a_key_is_shown_once(console: Console) -> None:
    sent = {"etag": await console.etag(), "name": "eu-1", "key": ""}

    page = await follow(console, await post(console, "/admin/config/keys", sent))
    again = (await get(console, "/admin/config/keys")).text

    (key,) = console.server.reloader.running.auth.api_keys or ()
    assert len(key.key) >= 40
    assert key.key in page
    assert key.key not in again
    assert key.key not in str(await console.trail())


async def test_keys_are_revoked_and_turned_off_after_a_question(console: Console) -> None:
    url = "/admin/config/keys/revoke"
    await post(
        console, "/admin/config/keys", {"etag": await console.etag(), "name": NASTY, "key": "k"}
    )
    question = await post(console, url, {"etag": await console.etag(), "name": NASTY})
    page = await follow(console, await post(console, url, hidden(question.text)))
    off = await post(console, url, {"etag": await console.etag(), "off": "1"})
    await post(console, url, hidden(off.text))

    assert "It is the last key" in question.text
    assert toast(page) == f"Revoked the key {NASTY}."
    assert console.server.reloader.running.auth.api_keys is None


async def test_a_new_queue_leads_to_its_settings(console: Console) -> None:
    bad = await post(console, "/admin/declare", {"name": "a/b"})
    good = await post(console, "/admin/declare", {"name": "neu €"})

    assert bad.status_code == 422
    assert 'value="a/b"' in bad.text
    assert good.headers["location"] == "/admin/queues/neu%20%E2%82%AC/settings"


async def test_strict_mode_says_what_it_stops(console: Console) -> None:
    console.server.enqueue(NASTY)

    question = await post(console, "/admin/strict", {"value": "on"})
    assert not console.server.reloader.running.server.strict_queues
    await post(console, "/admin/strict", hidden(question.text))

    assert "1 undeclared queue holds jobs" in question.text
    assert console.server.reloader.running.server.strict_queues
