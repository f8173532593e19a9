"""What is done to jobs from the pages: a question first, then the deed, told and on record."""

import re
import uuid
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pytest

from tests.admin.browsing import check_page, follow, get, hidden, post, toast
from tests.admin.conftest import Console
from tests.admin.samples import key_of, quoted
from tests.fakes.operators import FakeServer


async def test_selected_dead_letters_are_requeued_after_a_question(console: Console) -> None:
    server = console.server
    dead = server.kill(count=3)
    keys = [key_of(job_id, server.wall_ms) for job_id in dead[:2]]
    url = "/admin/queues/webhooks/dead-letters/requeue"

    question = await post(console, url, {"key": keys, "state": "dead_letter"}, "operator")
    assert server.backend.queue("webhooks").ready == 0
    done = await post(console, url, {**hidden(question.text), "why": "up again"}, "operator")
    page = await follow(console, done)

    assert "Requeue 2 dead letters of webhooks?" in question.text
    assert str(uuid.UUID(bytes=dead[0]))[:8] in question.text
    assert server.backend.queue("webhooks").ready == 2
    assert toast(page) == "Requeued 2 to webhooks."
    assert (await console.trail())[0]["details"]["reason"] == "up again"


async def test_the_result_says_what_was_gone_and_links_the_audit(console: Console) -> None:
    server = console.server
    (gone, stays) = server.kill(count=2)
    keys = [key_of(job_id, server.wall_ms) for job_id in (gone, stays)]
    url = "/admin/queues/webhooks/dead-letters/delete"
    question = await post(console, url, {"key": keys})
    await console.call("POST", "/queues/webhooks/dead-letters:delete", json={"keys_b64": keys[:1]})

    done = await post(console, url, hidden(question.text))
    page = await follow(console, done)

    assert toast(page) == "Deleted 1 of webhooks. 1 was already gone. Audit 2"
    assert 'class="toast part" role="alert"' in page
    again = await get(console, "/admin/queues/webhooks/jobs?state=dead_letter")
    assert toast(again.text) == "", "a result is shown once"


async def test_jobs_are_buried_and_released(console: Console) -> None:
    server = console.server
    (job_id,) = server.enqueue()
    url = "/admin/queues/webhooks/jobs/dead-letter"
    question = await post(console, url, {"key": [key_of(job_id)], "state": "ready"})
    page = await follow(console, await post(console, url, hidden(question.text)))
    assert toast(page).startswith("Dead-lettered 1 of webhooks.")

    (other,) = server.enqueue()
    server.reserve()
    lease = f"{uuid.UUID(bytes=other)}/1"
    url = "/admin/queues/webhooks/jobs/release"
    question = await post(console, url, {"lease": lease})
    page = await follow(console, await post(console, url, hidden(question.text)))

    assert "The worker’s ack will be refused" in question.text
    assert toast(page).startswith(f"Released {lease[:8]}. It is ready again.")
    assert [entry["action"] for entry in await console.trail()] == [
        "jobs.release",
        "jobs.dead_letter",
    ]


@pytest.mark.parametrize("fields", [{}, {"key": []}, {"key": ["?"]}, {"key": ["AAAA"] * 3}])
async def test_nonsense_selections_are_refused_in_the_frame(
    console: Console, fields: dict[str, Any]
) -> None:
    answer = await post(console, "/admin/queues/webhooks/dead-letters/delete", fields)

    assert answer.status_code == 400
    check_page(answer.text)


async def test_all_that_match_goes_in_steps_without_script(console: Console) -> None:
    server = console.server
    server.kill(count=1200, reason="boom")
    url = "/admin/queues/webhooks/dead-letters/delete"
    question = await post(
        console, url, {"scope": "all", "until": str(server.wall_ms), "total": "1200"}
    )
    fields = hidden(question.text)

    untyped = await post(console, url, fields)
    step = await post(console, url, {**fields, "typed": "1200"})
    done = await post(console, url, hidden(step.text))

    assert untyped.status_code == 422
    assert "Type 1200 to go on." in untyped.text
    assert "Deleted 1,000 of" in step.text
    assert toast(await follow(console, done)).startswith("Deleted 1,200 of webhooks.")
    assert server.backend.queue("webhooks").dead_lettered == 0


async def test_all_that_match_a_filter_spares_the_others(console: Console) -> None:
    server = console.server
    server.kill(count=2, reason="timeout")
    server.kill(count=1, reason="other")
    url = "/admin/queues/webhooks/dead-letters/requeue"
    question = await post(
        console, url, {"scope": "all", "until": str(server.wall_ms), "reason": "TIME"}
    )

    done = await post(console, url, {**hidden(question.text), "why": "fixed"})

    assert "Reason contains “TIME”" in unescape(question.text)
    assert toast(await follow(console, done)).startswith("Requeued 2 to webhooks.")
    assert server.backend.queue("webhooks").dead_lettered == 1


async def test_lists_page_by_cursor_and_say_where_one_is(console: Console) -> None:
    console.server.kill(count=120)
    url = "/admin/queues/webhooks/jobs?state=dead_letter"
    seen = []
    texts = []
    while url:
        page = (await get(console, url)).text
        seen += re.findall(r'<tr role="row" data-key="([^"]+)"', page)
        texts.append(re.sub(r"<[^>]+>", "", re.search(r"Dead letters (\d.*?), newest", page)[1]))  # type: ignore[index]  # it stands there
        link = re.search(r'rel="next" href="([^"]+)"', page)
        url = unescape(link[1]) if link else ""

    assert len(seen) == len(set(seen)) == 120
    assert texts == ["1–50 of 120", "51–100 of 120", "101–120 of 120"]


async def test_empty_lists_say_why(console: Console) -> None:
    nothing = (await get(console, "/admin/queues/webhooks/jobs?state=ready")).text
    console.server.kill(reason="a")
    hidden_by = (await get(console, "/admin/queues/webhooks/jobs?state=dead_letter&reason=zz")).text

    assert "No ready jobs" in nothing
    assert "Reason contains “zz”. 1 dead letter is hidden by the filter." in unescape(hidden_by)


async def test_retention_off_is_told(tmp_path: Path) -> None:
    console = Console(FakeServer(tmp_path, "[limits]\n"))

    page = await console.client.get("/admin/queues/q/jobs?state=dead_letter")

    assert "Dead letters are off" in page.text


async def test_find_leads_to_the_job_dead_or_alive(console: Console) -> None:
    (alive,) = console.server.enqueue()
    (dead,) = console.server.kill()

    async def where(text: str) -> str:
        answer = await get(console, f"/admin/jobs?id={text}")
        assert answer.status_code == 303
        second = await get(console, answer.headers["location"])
        return str(second.headers.get("location", answer.headers["location"]))

    assert (
        await where(str(uuid.UUID(bytes=alive)).upper()) == f"/admin/jobs/{uuid.UUID(bytes=alive)}"
    )
    key = quoted(key_of(dead, console.server.wall_ms))
    assert await where(str(uuid.UUID(bytes=dead))) == f"/admin/queues/webhooks/dead/{key}"
    nowhere = await get(console, f"/admin/jobs/{uuid.uuid4()}")
    assert nowhere.status_code == 404
    assert "No live job or dead letter has this id." in nowhere.text
    assert (await get(console, "/admin/jobs?id=abc")).status_code == 404


# Rows and their count


@pytest.mark.parametrize("query", ["", "&cause=rejected"])
async def test_rows_and_counts_are_of_one_moment(
    console: Console, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    server = console.server
    server.kill(count=60)
    known = server.backend.contents

    async def contents(heads: Any) -> Any:
        monkeypatch.undo()
        server.kill(count=7)  # while the page reads its bodies
        return await known(heads)

    monkeypatch.setattr(server.backend, "contents", contents)
    page = (await get(console, f"/admin/queues/webhooks/jobs?state=dead_letter{query}")).text

    assert server.backend.queue("webhooks").dead_lettered == 67
    assert page.count('type="checkbox" name="key"') == 50
    assert f"Dead letters 1–50 {'that match' if query else 'of 60'}, newest first" in page
    assert '<b data-f="dead_lettered">60</b>' in page


async def test_a_page_reached_late_does_not_count_past_the_end(console: Console) -> None:
    console.server.kill(count=3)

    url = "/admin/queues/webhooks/jobs?state=dead_letter"
    first = (
        await console.call("GET", "/queues/webhooks/jobs?state=dead_letter&order=newest&limit=1")
    ).json()
    late = await get(console, f"{url}&cursor={quoted(first['next_cursor'])}&from=51")

    assert "Dead letters 51–52, newest first" in late.text


# Odd names


async def test_urls_of_a_queue_lead_to_it_whatever_its_name(console: Console) -> None:
    name = "a:b?c=d&e#f%2F;g"
    (dead,) = console.server.kill(name)
    key = key_of(dead, console.server.wall_ms)
    base = f"/admin/queues/{quote(name, safe='')}"
    question = {"key": [key], "state": "dead_letter"}
    texts = [
        (await get(console, f"{base}{tail}")).text
        for tail in ("/jobs?state=dead_letter", f"/dead/{quoted(key)}", "/settings", "/danger")
    ]
    texts.append((await post(console, f"{base}/dead-letters/requeue", question)).text)

    for text in texts:
        urls = re.findall(r'="(/admin/queues/[^"]*)"', text)
        assert len(urls) > 1
        assert {unquote(re.split("[/?]", url)[3]) for url in urls} == {name}
    signed_out = await get(console, f"{base}/settings", role=None)
    assert (
        signed_out.headers["location"] == f"/admin/login?next={quote(f'{base}/settings', safe='')}"
    )
