"""The audit trail: newest first, filters, bounded looking, entries nobody can read."""

import uuid

import pytest

from sepp.admin import trail
from sepp.core.commands import AppendAudit
from tests.admin.conftest import Console


def fill(console: Console, count: int, actor: str = "bob", action: str = "job.enqueue") -> None:
    for number in range(count):
        body = trail.encode_entry(actor, action, {"n": number}, console.server.wall_ms)
        console.server.do(AppendAudit(body))
    console.server.commit()


async def page(console: Console, query: str = "") -> tuple[list[int], int | None]:
    found = (await console.call("GET", f"/audit?{query}")).json()
    return [entry["seq"] for entry in found["entries"]], found["next_before"]


async def test_newest_first_and_paged(console: Console) -> None:
    fill(console, 7)

    assert await page(console, "limit=3") == ([7, 6, 5], 5)
    assert await page(console, "limit=3&before=5") == ([4, 3, 2], 2)
    assert await page(console, "limit=3&before=2") == ([1], None)
    assert await page(console) == ([7, 6, 5, 4, 3, 2, 1], None)
    assert await page(console, "before=4000000000&limit=1") == ([7], 7)


async def test_actor_is_exact_action_is_a_prefix(console: Console) -> None:
    fill(console, 2, "bob", "job.enqueue")
    fill(console, 2, "bobby", "jobs.release")
    fill(console, 1, "bob", "config.put")

    assert await page(console, "actor=bob") == ([5, 2, 1], None)
    assert await page(console, "action_prefix=job") == ([4, 3, 2, 1], None)
    assert await page(console, "action_prefix=jobs.") == ([4, 3], None)
    assert await page(console, "actor=bob&action_prefix=config") == ([5], None)


async def test_looking_is_bounded_and_goes_on(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trail, "LOOKED_AT_MAX", 200)
    fill(console, 1, "needle")
    fill(console, 450)
    before, pages = "", 0
    while True:
        found, following = await page(console, f"actor=needle{before}")
        pages += 1
        if following is None:
            break
        assert found == []
        before = f"&before={following}"

    assert (found, pages) == ([1], 3)


async def test_an_entry_nobody_can_read_is_shown(console: Console) -> None:
    console.server.do(AppendAudit(b"\xff{"))
    console.server.commit()

    found = (await console.call("GET", "/audit")).json()["entries"]

    assert [(entry["actor"], entry["action"]) for entry in found] == [("?", "unreadable")]


async def test_entries_wait_for_cold_bodies(console: Console) -> None:
    fill(console, 40)
    console.server.reader.is_cold = True

    found, _ = await page(console, "limit=100")

    assert found == list(range(40, 0, -1))


async def test_details_round_trip(console: Console) -> None:
    job = {"job_type": f"<b>{uuid.uuid4()}</b>"}
    await console.call("POST", "/queues/%F0%9F%A6%8A/jobs", json=job)

    entry = (await console.trail())[0]

    assert entry["details"]["queue"] == "🦊"
    assert entry["details"]["job_type"] == job["job_type"]
    assert (entry["actor"], entry["role"]) == ("ada", "admin")
