"""Emptying and deleting queues."""

from typing import Any

import pytest

from sepp.admin import queue_actions
from sepp.core.commands import Close, Open, Purge
from tests.admin.conftest import Console


async def delete(console: Console, name: str = "webhooks", query: str = "") -> Any:
    return await console.call(
        "DELETE", f"/queues/{name}{query}", headers={"if-match": await console.etag()}
    )


async def test_an_empty_queue_is_deleted(console: Console) -> None:
    answer = await delete(console)

    assert answer.json() == {"purged": 0, "etag": await console.etag()}
    assert console.server.reloader.running.queues == ()
    entry = (await console.trail())[0]
    assert entry["action"] == "queue.delete"
    assert entry["details"] == {"queue": "webhooks", "purged": 0}


async def test_an_undeclared_queue_can_be_deleted_too(console: Console) -> None:
    console.server.enqueue("mail", count=3)

    answer = await delete(console, "mail", "?purge=true")

    assert answer.json()["purged"] == 3
    assert console.server.backend.queue("mail").ready == 0
    assert (await console.trail())[0]["details"] == {"queue": "mail", "purged": 3}


@pytest.mark.parametrize("state", ["ready", "scheduled", "dead"])
async def test_jobs_stand_in_the_way_without_purge(console: Console, state: str) -> None:
    if state == "dead":
        console.server.kill()
    else:
        console.server.enqueue(delay_ms=60_000 if state == "scheduled" else 0)

    answer = await delete(console)

    assert (answer.status_code, answer.json()["code"]) == (409, "not_empty")
    assert len(console.server.reloader.running.queues) == 1
    assert (await delete(console, query="?purge=true")).json()["purged"] == 1


async def test_jobs_in_flight_stand_in_the_way_of_both(console: Console) -> None:
    console.server.enqueue(count=2)
    console.server.reserve()

    for query in ("", "?purge=true"):
        answer = await delete(console, query=query)
        assert (answer.status_code, answer.json()["code"]) == (409, "inflight")
    assert console.server.backend.queue("webhooks").ready == 1
    assert await console.trail() == []
    enqueued = await console.call("POST", "/queues/webhooks/jobs", json={"job_type": "a"})
    assert enqueued.status_code == 200, "the queue is open again"


async def test_the_queue_is_closed_while_it_is_deleted_and_open_after(console: Console) -> None:
    console.server.enqueue(count=1500)

    await delete(console, query="?purge=true")

    kinds = [type(group[0]) for group in console.server.door.groups]
    assert kinds[:6] == [Close, Close, Purge, Close, Purge, Open]
    actions = [entry["action"] for entry in await console.trail()]
    assert actions == ["queue.delete", "queue.purge_begun"]


async def test_a_job_reserved_meanwhile_stops_the_purge_and_is_on_record(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = console.server
    monkeypatch.setattr(queue_actions, "CHUNK", 10)
    server.enqueue(count=25)
    original, purges = server.door.run_group, 0

    async def run_group(commands: Any, follow_up: Any) -> Any:
        nonlocal purges
        if any(isinstance(command, Purge) for command in commands):
            purges += 1
            if purges == 2:
                server.reserve()
        return await original(commands, follow_up)

    server.door.run_group = run_group  # type: ignore[method-assign]  # a worker comes in between

    answer = await delete(console, query="?purge=true")

    assert answer.json()["code"] == "inflight"
    assert server.backend.queue("webhooks").ready == 14
    trail = [(entry["action"], entry["details"]) for entry in await console.trail()]
    assert trail == [
        ("queue.purge", {"queue": "webhooks", "purged": 10, "stopped_by": "inflight"}),
        ("queue.purge_begun", {"queue": "webhooks", "jobs": 25}),
    ]
    assert len(server.reloader.running.queues) == 1


async def test_purge_spares_jobs_in_flight_and_keeps_the_queue(console: Console) -> None:
    server = console.server
    server.enqueue(count=3)
    server.enqueue(count=2, delay_ms=60_000)
    server.kill(count=4)
    server.reserve()

    answer = await console.call("POST", "/queues/webhooks:purge", json={"reason": "old"})

    assert answer.json() == {"purged": 8, "audit_seq": 1}
    numbers = server.backend.queue("webhooks")
    assert (numbers.live, numbers.inflight, numbers.dead_lettered) == (1, 1, 0)
    entry = (await console.trail())[0]
    assert entry["details"] == {"queue": "webhooks", "purged": 8, "reason": "old"}
    assert len(server.reloader.running.queues) == 1


async def test_a_long_purge_is_on_record_at_both_ends(console: Console) -> None:
    console.server.enqueue(count=2500)

    answer = await console.call("POST", "/queues/webhooks:purge", json={})

    assert answer.json()["purged"] == 2500
    trail = [(entry["action"], entry["details"]) for entry in await console.trail()]
    assert trail == [
        ("queue.purge", {"queue": "webhooks", "purged": 2500}),
        ("queue.purge_begun", {"queue": "webhooks", "jobs": 2500}),
    ]


async def test_purge_forgets_idempotency_keys_and_does_not_count_them(console: Console) -> None:
    body = {"job_type": "a", "idempotency_key": "k"}
    await console.call("POST", "/queues/webhooks/jobs", json=body)

    purged = await console.call("POST", "/queues/webhooks:purge", json={})
    again = await console.call("POST", "/queues/webhooks/jobs", json=body)

    assert purged.json()["purged"] == 1
    assert again.json()["deduplicated"] is False
