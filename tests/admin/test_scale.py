"""What a page costs does not grow with what the server holds."""

from collections.abc import Sequence

import pytest

from tests.admin.browsing import get
from tests.admin.conftest import Console

PAGE_BYTES_MAX = 300_000
DEAD = "/admin/queues/webhooks/jobs?state=dead_letter"
MIB = b'{"a":"' + b"x" * (1024 * 1024 - 8) + b'"}'


async def busy(console: Console) -> None:
    """A thousand queues, the first hundred with something to draw."""
    server = console.server
    for number in range(1000):
        server.enqueue(f"tenant-{number:04}", 1 + number % 3)
    for step in range(60):
        for number in range(0, 100):
            name = f"tenant-{number:04}"
            server.enqueue(name, 1 + (step + number) % 7)
            server.ack(server.reserve(name, 1 + (step * number) % 5))
        server.pass_ms(15_000)
        await console.site.stats.sample()


async def test_the_dashboard_of_a_thousand_queues(console: Console) -> None:
    await busy(console)

    sizes = {
        query: len((await get(console, f"/admin/?{query}")).content)
        for query in ("", "limit=100", "view=cards&limit=50", "view=cards&limit=100", "sort=name")
    }

    assert {query: size for query, size in sizes.items() if size > PAGE_BYTES_MAX} == {}
    assert min(sizes.values()) > 50_000


@pytest.mark.parametrize("state", ["ready", "dead_letter"])
async def test_a_page_of_large_jobs(console: Console, state: str) -> None:
    make = console.server.enqueue if state == "ready" else console.server.kill
    make(count=25, payload=MIB)

    answer = await get(console, f"/admin/queues/webhooks/jobs?state={state}")

    assert answer.text.count('type="checkbox" name="key"') == 25
    assert len(answer.content) <= PAGE_BYTES_MAX


async def test_a_page_of_a_long_list_reads_its_own_bodies_only(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = console.server
    for _batch in range(3):
        server.kill(count=1000)
    read: list[int] = []
    known = server.reader.bodies_nowait

    def bodies_nowait(slots: Sequence[int]) -> list[bytes | None]:
        read.extend(slots)
        return known(slots)

    monkeypatch.setattr(server.reader, "bodies_nowait", bodies_nowait)
    page = await get(console, DEAD)
    bodies_of_page = len(read)
    read.clear()
    answer = await console.call("GET", "/queues/webhooks/jobs?state=dead_letter&limit=10")

    assert "Dead letters 1–50 of 3,000, newest first" in page.text
    # Each job has a body, and the reason it died of is one more.
    assert bodies_of_page <= 2 * 51
    assert len(answer.json()["jobs"]) == 10
    assert len(read) <= 2 * 11
