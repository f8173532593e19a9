"""Lists: order, pages, filters that stop looking, bodies that are not at hand."""

import base64
import json
import math
import uuid
from collections.abc import Sequence
from typing import Any

import pytest

from sepp.admin import core_backend, listing
from sepp.admin.backend import State
from tests.admin.conftest import Console
from tests.admin.samples import quoted

JOBS = "/queues/webhooks/jobs"


def ids_of(page: dict[str, Any]) -> list[bytes]:
    return [uuid.UUID(job["id"]).bytes for job in page["jobs"]]


async def all_pages(console: Console, query: str) -> list[bytes]:
    found: list[bytes] = []
    cursor = ""
    while True:
        page = (await console.call("GET", f"{JOBS}?{query}{cursor}")).json()
        found += ids_of(page)
        if page["next_cursor"] is None:
            return found
        cursor = f"&cursor={quoted(page['next_cursor'])}"


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 100])
async def test_ready_is_listed_in_dispatch_order(console: Console, limit: int) -> None:
    server = console.server
    low = server.enqueue(count=3, priority=0)
    high = server.enqueue(count=2, priority=9)
    middle = server.enqueue(count=2, priority=4)

    assert await all_pages(console, f"state=ready&limit={limit}") == high + middle + low


@pytest.mark.parametrize("order", ["oldest", "newest"])
@pytest.mark.parametrize("state", ["scheduled", "inflight", "dead_letter"])
async def test_other_states_are_listed_by_their_time(
    console: Console, state: str, order: str
) -> None:
    server = console.server
    wanted: list[bytes] = []
    for place in range(5):
        server.pass_ms(10)
        if state == "scheduled":
            wanted += server.enqueue(delay_ms=1000 * (place + 1))
        elif state == "inflight":
            wanted += server.enqueue()
            server.reserve(lease_ms=1000 * (place + 1))
        else:
            wanted += server.kill()

    found = await all_pages(console, f"state={state}&limit=2&order={order}")

    assert found == (wanted if order == "oldest" else wanted[::-1])


async def test_a_page_goes_on_where_it_was_when_jobs_go(console: Console) -> None:
    jobs = console.server.enqueue(count=6)
    page = (await console.call("GET", f"{JOBS}?state=ready&limit=2")).json()

    console.server.ack(console.server.reserve(count=3))
    more = console.server.enqueue(count=1)
    cursor = quoted(page["next_cursor"])
    rest = (await console.call("GET", f"{JOBS}?state=ready&cursor={cursor}")).json()

    assert ids_of(rest) == jobs[3:] + more


async def test_limits_are_clamped(console: Console) -> None:
    console.server.enqueue(count=120)

    for limit, count in (("0", 1), ("1", 1), ("", 50), ("100", 100), ("4000000000", 100)):
        page = (await console.call("GET", f"{JOBS}?state=ready&limit={limit}")).json()
        assert len(page["jobs"]) == count


async def test_lists_hold_small_payloads_only_details_all(console: Console) -> None:
    small, large = b"s" * 4096, b"l" * 4097
    (first,) = console.server.enqueue(payload=small)
    (second,) = console.server.enqueue(payload=large)
    (third,) = console.server.enqueue(payload=None)

    page = (await console.call("GET", f"{JOBS}?state=ready")).json()
    detail = (await console.call("GET", f"/jobs/{uuid.UUID(bytes=second)}")).json()

    assert ids_of(page) == [first, second, third]
    assert page["jobs"][0]["payload"] == {
        "encoding": "json",
        "size_bytes": 4096,
        "data_b64": base64.b64encode(small).decode(),
    }
    assert page["jobs"][1]["payload"] == {"encoding": "json", "size_bytes": 4097}
    assert page["jobs"][2]["payload"] == {"encoding": "", "size_bytes": 0}
    assert base64.b64decode(detail["payload"]["data_b64"]) == large
    assert (detail["queue"], detail["state"]) == ("webhooks", "ready")


async def test_times_of_each_state(console: Console) -> None:
    server = console.server
    due_ms = server.wall_ms + 60_000
    (scheduled,) = server.enqueue(delay_ms=60_000)
    (leased,) = server.enqueue()
    server.reserve(lease_ms=30_000)
    (dead,) = server.kill()

    async def detail(job_id: bytes, path: str = "jobs") -> dict[str, Any]:
        found: dict[str, Any] = (
            await console.call("GET", f"/{path}/{uuid.UUID(bytes=job_id)}")
        ).json()
        return found

    assert (await detail(scheduled))["scheduled_at_ms"] == due_ms
    assert (await detail(leased))["lease_expires_at_ms"] == server.wall_ms + 30_000
    assert (await detail(dead, "dead-letters"))["failed_at_ms"] == server.wall_ms
    for job_id, path in ((dead, "jobs"), (leased, "dead-letters")):
        answer = await console.call("GET", f"/{path}/{uuid.UUID(bytes=job_id)}")
        assert answer.status_code == 404


async def test_upper_case_ids_are_found(console: Console) -> None:
    (job_id,) = console.server.enqueue()

    answer = await console.call("GET", f"/jobs/{str(uuid.UUID(bytes=job_id)).upper()}")

    assert answer.status_code == 200


@pytest.mark.parametrize("text", ["abc", "x" * 36, "{" + "0" * 34 + "}", "%00", "é" * 36])
async def test_what_is_no_id_is_found_nowhere(console: Console, text: str) -> None:
    for path in ("jobs", "dead-letters"):
        assert (await console.call("GET", f"/{path}/{text}")).status_code == 404


async def test_doubles_json_cannot_say_become_texts(console: Console) -> None:
    custom: dict[str, object] = {"a": math.nan, "b": math.inf, "c": -math.inf, "d": 0.1}
    console.server.enqueue(custom=custom)

    page = (await console.call("GET", f"{JOBS}?state=ready")).json()

    assert page["jobs"][0]["custom"] == {"a": "NaN", "b": "Infinity", "c": "-Infinity", "d": 0.1}


async def test_hostile_names_round_trip(console: Console) -> None:
    names = ["<img src=x onerror=alert(1)>", "تقارير-شهرية", "🦊.feeding", "a b", "a%2Fb?c#d:purge",
             'q"\'`', "é" * 256]  # fmt: skip
    for name in names:
        console.server.enqueue(name, job_type=name[:100])
        path = "/queues/" + "".join(f"%{byte:02X}" for byte in name.encode())
        assert (await console.call("GET", path)).json()["depths"]["ready"] == 1, name
        page = (await console.call("GET", f"{path}/jobs?state=ready")).json()
        assert page["jobs"][0]["job_type"] == name[:100]
    listed = (await console.call("GET", "/queues")).json()
    assert {queue["name"] for queue in listed} == {*names, "webhooks"}


# Filters


async def test_filters_join(console: Console) -> None:
    server = console.server
    server.kill(count=2, reason="connect timed out", job_type="a")
    server.kill(count=1, reason="connect timed out", job_type="b")
    server.kill(count=1, reason=None, job_type="a")
    server.pass_ms(10)
    border_ms = server.wall_ms
    server.kill(count=1, reason="Connect timed out", job_type="a")

    async def count(query: str) -> int:
        page = (await console.call("GET", f"{JOBS}?state=dead_letter&{query}")).json()
        return len(page["jobs"])

    assert await count("") == 5
    assert await count("job_type=a") == 4
    assert await count("reason=TIMED") == 4
    assert await count("job_type=a&reason=timed") == 3
    assert await count(f"job_type=a&reason=timed&failed_before_ms={border_ms}") == 2
    assert await count(f"failed_before_ms={border_ms}&order=newest") == 4
    assert await count("cause=rejected") == 5
    assert await count("cause=lease_expired") == 0


async def test_a_filter_stops_looking_and_says_where(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "LOOKED_AT_MAX", 300)
    console.server.kill(count=700, reason="a")
    (wanted,) = console.server.kill(count=1, reason="needle")
    query, pages, found = "state=dead_letter&reason=needle", [], []
    cursor = ""
    while True:
        page = (await console.call("GET", f"{JOBS}?{query}{cursor}")).json()
        pages.append((page["examined"], page["truncated"]))
        found += ids_of(page)
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={quoted(page['next_cursor'])}"

    assert pages == [(300, True), (300, True), (101, False)]
    assert found == [wanted]


async def test_a_filtered_page_that_is_full_ends_at_its_last_job(console: Console) -> None:
    dead = console.server.kill(count=150, reason="same")

    found = await all_pages(console, "state=dead_letter&reason=same&limit=40")

    assert found == dead


# Bodies


async def test_bodies_not_in_memory_are_waited_for(console: Console) -> None:
    jobs = console.server.enqueue(count=70)
    console.server.reader.is_cold = True

    page = (await console.call("GET", f"{JOBS}?state=ready&limit=100")).json()

    assert ids_of(page) == jobs
    assert {job["job_type"] for job in page["jobs"]} == {"deliver_hook"}


async def test_a_damaged_body_is_shown_as_such_and_hides_no_other(console: Console) -> None:
    (bad, good) = console.server.enqueue(count=2)
    head = console.server.backend.find(bad)
    assert head is not None
    console.server.reader.damaged.add(head.slot)

    page = (await console.call("GET", f"{JOBS}?state=ready")).json()

    assert page["jobs"][0]["damaged"] is True
    assert page["jobs"][0]["job_type"] == ""
    assert (ids_of(page)[1], page["jobs"][1]["job_type"]) == (good, "deliver_hook")


async def test_a_slot_that_went_to_another_job_is_not_shown(console: Console) -> None:
    server = console.server
    server.enqueue(count=1, job_type="first")
    heads = server.backend.heads("webhooks", State.READY, None, 10, is_newest_first=False)
    server.ack(server.reserve())
    server.enqueue(count=1, job_type="second")
    assert (
        server.backend.heads("webhooks", State.READY, None, 10, is_newest_first=False)[0].slot
        == heads[0].slot
    ), "the slot is used again"

    assert await server.backend.contents(heads) == [None]


async def test_bodies_are_read_in_slices(console: Console) -> None:
    server = console.server
    server.enqueue(count=3, payload=b"x" * core_backend.SLICE_BYTES)
    server.enqueue(count=40, payload=b"y")
    sizes: list[int] = []
    original = server.reader.bodies_nowait

    def bodies_nowait(slots: Sequence[int]) -> list[bytes | None]:
        sizes.append(len(slots))
        return original(slots)

    server.reader.bodies_nowait = bodies_nowait  # type: ignore[method-assign]  # counts calls

    await console.call("GET", f"{JOBS}?state=ready&limit=100")

    assert sizes[:5] == [1, 1, 1, 32, 8]


async def test_export_streams_every_match_as_a_line(console: Console) -> None:
    dead = console.server.kill(count=250, reason="x", payload=b"p" * 5000)
    console.server.kill(count=1, reason="y")

    answer = await console.call("GET", "/queues/webhooks/dead-letters:export?reason=x")

    lines = [line for line in answer.text.split("\n") if line]
    assert len(lines) == 250
    page = {"jobs": [json.loads(line) for line in lines]}
    assert ids_of(page) == dead
    assert len(base64.b64decode(page["jobs"][0]["payload"]["data_b64"])) == 5000
    assert answer.headers["content-disposition"].startswith("attachment")
    assert "sandbox" in answer.headers["content-security-policy"]
