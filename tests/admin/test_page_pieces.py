"""Pieces of pages: audit in words, documents, charts, fields, static files."""

import gzip
from collections.abc import Iterator
from typing import Any

import pytest
import trio

from sepp.admin.history import Sample
from sepp.admin.pages import assets, audit, charts, fields, markdown, view
from sepp.config.model import KEYS_BY_PATH
from tests.admin.browsing import get
from tests.admin.conftest import Console

# Audit in words


@pytest.mark.parametrize(
    ("action", "details", "words"),
    [
        ("dead_letters.requeue", {"queue": "a", "count": 3, "job_ids": [], "reason": "up"},
         "a: 3 jobs, “up”"),
        ("jobs.release", {"queue": "a", "job_id": "a41f7702-x", "attempt": 2,
                          "dead_lettered": False}, "a: a41f7702…, attempt 2"),
        ("queue.delete", {"queue": "a", "purged": 412}, "a: 412 jobs purged"),
        ("queue.put", {"queue": "a", "overrides": ["x", "y"]}, "a: set x, y"),
        ("queue.put", {"queue": "a", "overrides": []}, "a: declared"),
        ("config.put", {"paths": ["limits.a", "limits.b"]}, "limits.a, limits.b"),
        ("auth_key.add", {"name": "eu-1"}, "eu-1"),
        ("session.login_failed", {"from": "10.4.0.17"}, "from 10.4.0.17"),
        ("backup.create", {"segments": 184}, "segments 184"),
        ("session.login", {}, ""),
    ],
)  # fmt: skip
def test_entries_are_told_in_words(action: str, details: dict[str, Any], words: str) -> None:
    assert "".join(part.text for part in audit.describe(action, details)) == words


# Documents, charts, static files


def test_headings_of_one_name_have_anchors_of_their_own() -> None:
    html, headings = markdown.render("### [metrics]\n\n## Metrics\n\n## Metrics\n")

    assert headings == [("metrics-1", "Metrics"), ("metrics-2", "Metrics")]
    assert '<h4 id="metrics">' in html


def test_markdown_renders_our_pieces_and_escapes_the_rest() -> None:
    html, headings = markdown.render(
        "# T\n\nA **b** `c<d>` [x](#y) [z](FILE.md) <i>\n\n## Two *a*\n\n- one\n  more\n- two\n\n"
        "| a | b |\n|---|---|\n| `x\\|y` | 2 |\n\n```\n<pre>\n```\n1. n\n"
    )

    assert "<b>b</b>" in html
    assert "<code>c&lt;d&gt;</code>" in html
    assert '<a href="#y">x</a>' in html
    assert "z &lt;i&gt;" in html
    assert "<ul><li>one more</li><li>two</li></ul>" in html
    assert "<td><code>x|y</code></td>" in html
    assert '<pre class="code" tabindex="0">&lt;pre&gt;</pre>' in html
    assert headings == [("two-a", "Two *a*")]


def test_charts_have_a_round_scale() -> None:
    values = [0, 0.03, 0.5, 1, 1.2, 2.1, 69.4, 101, 331, 514, 99_999]

    assert [charts.round_up(value) for value in values] == [
        1, 0.03, 0.5, 1, 1.5, 3, 80, 150, 400, 600, 100_000,
    ]  # fmt: skip


def test_a_chart_without_samples_is_whole_too() -> None:
    chart = charts.draw([], width=600, height=100, span_ms=60_000)
    one = charts.draw([Sample(1000, 1, 1, 0, 0, 0)], width=600, height=100, span_ms=60_000)

    assert chart.is_idle
    assert chart.enqueued == ""
    assert one.enqueued == "M0 0 600 0"


def test_fields_turn_texts_into_values() -> None:
    def value(path: str, text: str) -> object:
        return fields.from_text(KEYS_BY_PATH[path], text)

    assert value("limits.default_priority", " 4 ") == 4
    assert value("limits.max_payload_bytes", "1,048,576") == 1_048_576
    assert value("limits.default_priority", "") is None
    assert value("limits.default_priority", "x") == "x"
    assert value("limits.allowed_encodings", "a\r\n\r\n b ") == ["a", "b"]
    assert value("limits.allowed_encodings", "[]") == []
    assert value("server.strict_queues", "true") is True
    assert value("tracing.sample_ratio", "0.5") == 0.5


async def test_static_files_are_small_packed_and_kept(console: Console) -> None:
    for name, most in (("admin.css", 56 * 1024), ("admin.js", 30 * 1024), ("icon.svg", 1024)):
        url = f"/admin/assets/{assets.version()}/{name}"
        answer = await console.client.get(url, headers={"accept-encoding": "gzip"})
        assert answer.status_code == 200
        assert "immutable" in answer.headers["cache-control"]
        assert answer.headers["content-encoding"] == "gzip"
        assert len(answer.content) <= most, name
        old = await console.client.get(f"/admin/assets/old/{name}")
        assert old.headers["cache-control"] == "no-cache"
    assert len(gzip.compress(assets.load()["admin.js"].plain)) < 12 * 1024
    assert (await console.client.get("/admin/assets/x/../admin.toml")).status_code in (303, 404)


def test_the_module_uses_no_markup_and_no_eval() -> None:
    script = assets.load()["admin.js"].plain.decode()

    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(",
                 "Function(", ".style", "http:", "https:"):  # fmt: skip
        assert word not in script.replace("http://www.w3.org/2000/svg", ""), word


async def test_documents_are_readable(console: Console) -> None:
    guide = (await get(console, "/admin/help/operating", "viewer")).text
    api = (await get(console, "/admin/help/api", "viewer")).text

    assert "Operating sepp-trio" in guide
    assert "<h3 id=" in guide
    assert "/queues/{name}/dead-letters:requeue" in api
    assert "409 inflight" in api


# Making a page


async def test_a_long_page_is_made_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 0.0
    turns: list[float] = []

    def pieces() -> Iterator[str]:
        nonlocal now_s
        for _ in range(9):
            now_s += view.SLICE_S / 2
            yield "<p>é</p>"

    async def others() -> None:
        while True:
            turns.append(now_s)
            await trio.lowlevel.checkpoint()

    monkeypatch.setattr(view.time, "perf_counter", lambda: now_s)
    page = view.Rendered(pieces(), 200)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(others)
        await page.fill()
        nursery.cancel_scope.cancel()

    assert page.body == "<p>é</p>".encode() * 9
    assert page.headers["content-length"] == str(len(page.body))
    # One turn between each two of the three stops, perhaps one before and one behind.
    assert 2 <= len(turns) <= 4
