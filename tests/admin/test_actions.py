"""What operators do to jobs: fenced, counted, on record in the same commit."""

import uuid

import pytest

from sepp.core.commands import AppendAudit, Directive, Nack
from tests.admin.conftest import Console
from tests.admin.samples import key_of

DEAD = "/queues/webhooks/dead-letters"


def text_of(job_id: bytes) -> str:
    return str(uuid.UUID(bytes=job_id))


async def test_requeue_moves_to_the_back_with_attempt_1(console: Console) -> None:
    server = console.server
    dead = server.kill(count=2)
    keys = [key_of(job_id, server.wall_ms) for job_id in dead]

    answer = await console.call("POST", f"{DEAD}:requeue", json={"keys_b64": keys, "reason": "up"})

    assert answer.json() == {"requeued": 2, "missing": 0, "audit_seq": 1}
    head = server.backend.find(dead[0])
    assert head is not None
    assert (head.state.value, head.attempt) == ("ready", 1)
    entry = (await console.trail())[0]
    assert entry["action"] == "dead_letters.requeue"
    assert entry["details"] == {
        "queue": "webhooks",
        "count": 2,
        "job_ids": [text_of(job_id) for job_id in dead],
        "reason": "up",
    }


async def test_the_entry_is_in_the_group_of_its_action(console: Console) -> None:
    (job_id,) = console.server.kill()
    key = key_of(job_id, console.server.wall_ms)

    await console.call("POST", f"{DEAD}:delete", json={"keys_b64": [key]})

    group = console.server.door.groups[-1]
    assert [type(command).__name__ for command in group] == ["DeleteDead", "AppendAudit"]
    assert isinstance(group[1], AppendAudit)


async def test_jobs_that_went_are_missing_not_hit(console: Console) -> None:
    server = console.server
    (gone, stays) = server.kill(count=2)
    keys = [key_of(job_id, server.wall_ms) for job_id in (gone, stays)]
    await console.call("POST", f"{DEAD}:delete", json={"keys_b64": keys[:1]})

    answer = await console.call("POST", f"{DEAD}:delete", json={"keys_b64": keys})

    assert answer.json() == {"deleted": 1, "missing": 1, "audit_seq": 2}
    assert server.backend.find(stays) is None


async def test_nothing_left_to_do_leaves_no_entry(console: Console) -> None:
    answer = await console.call(
        "POST", f"{DEAD}:requeue", json={"keys_b64": [key_of(bytes(16), 5)]}
    )

    assert answer.json() == {"requeued": 0, "missing": 1}
    assert await console.trail() == []


async def test_a_job_that_died_again_is_another_dead_letter(console: Console) -> None:
    server = console.server
    (job_id,) = server.kill()
    old_key = key_of(job_id, server.wall_ms)
    await console.call("POST", f"{DEAD}:requeue", json={"keys_b64": [old_key]})
    server.pass_ms(1000)
    (leased,) = server.reserve()
    server.do(Nack(leased.job_id, leased.attempt, Directive.DEAD_LETTER))
    server.commit()

    answer = await console.call("POST", f"{DEAD}:delete", json={"keys_b64": [old_key]})

    assert answer.json() == {"deleted": 0, "missing": 1}
    assert server.backend.queue("webhooks").dead_lettered == 1
    by_key = await console.call("GET", f"{DEAD}/{old_key.replace('/', '%2F')}")
    assert by_key.status_code == 404


async def test_a_key_of_another_queue_is_missing(console: Console) -> None:
    server = console.server
    (job_id,) = server.kill("mail")

    answer = await console.call(
        "POST", f"{DEAD}:delete", json={"keys_b64": [key_of(job_id, server.wall_ms)]}
    )

    assert answer.json() == {"deleted": 0, "missing": 1}
    assert server.backend.find(job_id) is not None


@pytest.mark.parametrize("state", ["ready", "scheduled"])
async def test_bury_takes_jobs_of_the_named_state_only(console: Console, state: str) -> None:
    server = console.server
    (ready,) = server.enqueue()
    (scheduled,) = server.enqueue(delay_ms=60_000)
    body = {"state": state, "keys_b64": [key_of(ready), key_of(scheduled)], "reason": "dup"}

    answer = await console.call("POST", "/queues/webhooks/jobs:dead-letter", json=body)

    assert answer.json() == {"dead_lettered": 1, "missing": 1, "audit_seq": 1}
    buried = ready if state == "ready" else scheduled
    found = await console.call("GET", f"/dead-letters/{text_of(buried)}")
    assert (found.json()["cause"], found.json()["last_reason"]) == ("admin", "dup")


async def test_release_gives_a_leased_job_back_at_once(console: Console) -> None:
    server = console.server
    (job_id,) = server.enqueue()
    server.reserve()
    body = {"id": text_of(job_id).upper(), "attempt": 1, "reason": "worker is gone"}

    answer = await console.call("POST", "/queues/webhooks/jobs:release", json=body)

    assert answer.json() == {"id": text_of(job_id), "dead_lettered": False, "audit_seq": 1}
    head = server.backend.find(job_id)
    assert head is not None
    assert (head.state.value, head.attempt) == ("ready", 2)
    entry = (await console.trail())[0]
    assert entry["action"] == "jobs.release"
    assert entry["details"]["attempt"] == 1


async def test_release_is_fenced_by_the_attempt(console: Console) -> None:
    (job_id,) = console.server.enqueue()
    console.server.reserve()

    answer = await console.call(
        "POST", "/queues/webhooks/jobs:release", json={"id": text_of(job_id), "attempt": 2}
    )

    assert (answer.status_code, answer.json()["code"]) == (409, "failed_precondition")
    assert console.server.backend.queue("webhooks").inflight == 1
    assert await console.trail() == []


@pytest.mark.parametrize("queue", ["webhooks", "mail"])
async def test_release_of_a_job_not_in_flight_here_is_404(console: Console, queue: str) -> None:
    (ready,) = console.server.enqueue()
    body = {"id": text_of(ready), "attempt": 1}
    if queue == "mail":
        console.server.reserve()

    answer = await console.call("POST", f"/queues/{queue}/jobs:release", json=body)

    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


async def test_release_of_the_last_attempt_buries_the_job(console: Console) -> None:
    (job_id,) = console.server.enqueue(max_attempts=1)
    console.server.reserve()

    answer = await console.call(
        "POST", "/queues/webhooks/jobs:release", json={"id": text_of(job_id), "attempt": 1}
    )

    assert answer.json()["dead_lettered"] is True


# Enqueue


async def test_enqueue_reports_a_duplicate(console: Console) -> None:
    body = {"job_type": "a", "idempotency_key": "k1", "custom": {"n": 1, "f": 1.5, "b": True}}

    first = await console.call("POST", "/queues/webhooks/jobs", json=body)
    second = await console.call("POST", "/queues/webhooks/jobs", json=body)

    assert first.json()["deduplicated"] is False
    assert second.json() == {"job_id": first.json()["job_id"], "deduplicated": True}
    job = (await console.call("GET", f"/jobs/{first.json()['job_id']}")).json()
    assert job["custom"] == {"n": 1, "f": 1.5, "b": True}
    assert type(job["custom"]["b"]) is bool


@pytest.mark.parametrize(
    ("queue", "body", "reason"),
    [
        ("webhooks", {"job_type": ""}, "invalid_request"),
        ("webhooks", {"job_type": "a", "priority": 10}, "invalid_request"),
        ("webhooks", {"job_type": "a", "max_attempts": 0}, "invalid_request"),
        ("webhooks", {"job_type": "a" * 257}, "job_type_name_too_long"),
        ("webhooks", {"job_type": "a", "scheduled_at_ms": 253_402_300_799_999},
         "scheduled_too_far"),
        ("webhooks", {"job_type": "a", "payload": {"encoding": "b", "data_text": "x" * 1_000_001}},
         "payload_too_large"),
        ("webhooks", {"job_type": "a", "custom": {f"k{n}": n for n in range(65)}},
         "custom_entries_too_many"),
        ("webhooks", {"job_type": "a", "custom": {"k" * 257: 1}}, "custom_key_too_long"),
        ("webhooks", {"job_type": "a", "custom": {"k": "x" * 20_000}}, "custom_map_too_large"),
        ("webhooks", {"job_type": "a", "idempotency_key": "k" * 257}, "idempotency_key_too_long"),
        ("q" * 513, {"job_type": "a"}, "queue_name_too_long"),
        ("..", {"job_type": "a"}, "invalid_request"),
        ("a%01b", {"job_type": "a"}, "invalid_request"),
    ],
)  # fmt: skip
async def test_enqueue_is_validated_like_the_rpc(
    console: Console, queue: str, body: dict[str, object], reason: str
) -> None:
    path = f"/queues/{queue.replace('..', '%2E%2E')}/jobs"

    answer = await console.call("POST", path, json=body)

    assert (answer.status_code, answer.json()["code"]) == (422, "rejected")
    assert answer.json()["rejection"]["reason"] == reason
    assert answer.json()["rejection"]["detail"] in answer.json()["error"]
    assert await console.trail() == []


async def test_strict_mode_and_depth_caps_reject(console: Console) -> None:
    changes = [
        {"path": "server.strict_queues", "value": True},
        {"path": "queues.webhooks.max_queue_depth", "value": 1},
    ]
    etag = await console.etag()
    await console.call("PUT", "/config", json={"etag": etag, "changes": changes})

    unknown = await console.call("POST", "/queues/nowhere/jobs", json={"job_type": "a"})
    fits = await console.call("POST", "/queues/webhooks/jobs", json={"job_type": "a"})
    full = await console.call("POST", "/queues/webhooks/jobs", json={"job_type": "a"})

    assert unknown.json()["rejection"]["reason"] == "unknown_queue"
    assert fits.status_code == 200
    assert full.json()["rejection"]["reason"] == "queue_full"


async def test_a_server_that_cannot_take_commands_says_so(console: Console) -> None:
    (job_id,) = console.server.kill()
    console.server.door.refusal = "the command queue is full"
    key = key_of(job_id, console.server.wall_ms)

    answer = await console.call("POST", f"{DEAD}:delete", json={"keys_b64": [key]})

    assert (answer.status_code, answer.json()) == (
        409,
        {"error": "the command queue is full", "code": "resource_exhausted"},
    )


# By filter


async def test_by_filter_takes_what_matches_and_died_in_time(console: Console) -> None:
    server = console.server
    server.kill(count=3, reason="timeout A")
    server.kill(count=2, reason="other")
    until_ms = server.wall_ms
    server.pass_ms(10)
    late = server.kill(count=1, reason="timeout B")
    body = {"filter": {"reason": "TIMEOUT"}, "until_ms": until_ms, "reason": "fixed"}

    answer = await console.call("POST", f"{DEAD}:requeue", json=body)

    assert answer.json() == {
        "requeued": 3, "missing": 0, "examined": 6, "next_cursor": None, "audit_seq": 1,
    }  # fmt: skip
    assert server.backend.find(late[0]).state.value == "dead_letter"  # type: ignore[union-attr]  # it is there


async def test_by_filter_goes_on_in_steps_of_1000(console: Console) -> None:
    server = console.server
    server.kill(count=2100)
    body: dict[str, object] = {"filter": {}, "until_ms": server.wall_ms}
    counts = []
    while True:
        answer = (await console.call("POST", f"{DEAD}:delete", json=body)).json()
        counts.append(answer["deleted"])
        if answer["next_cursor"] is None:
            break
        body["cursor"] = answer["next_cursor"]

    assert counts == [1000, 1000, 100]
    assert server.backend.queue("webhooks").dead_lettered == 0
    assert [entry["details"]["count"] for entry in await console.trail()] == [100, 1000, 1000]


@pytest.mark.parametrize("directive", [Directive.DEAD_LETTER, Directive.POLICY])
async def test_by_filter_on_cause(console: Console, directive: Directive) -> None:
    console.server.kill(count=1, directive=Directive.DEAD_LETTER)
    console.server.kill(count=1, directive=Directive.POLICY, max_attempts=1)
    cause = "rejected" if directive is Directive.DEAD_LETTER else "attempts_exhausted"
    body = {"filter": {"cause": cause}, "until_ms": console.server.wall_ms}

    answer = await console.call("POST", f"{DEAD}:delete", json=body)

    assert answer.json()["deleted"] == 1
    left = console.server.backend.queue("webhooks").dead_by_cause
    assert sum(left) == 1


async def test_a_backup_is_on_record_and_one_that_fails_is_not(console: Console) -> None:
    answer = await console.call("POST", "/backup", json={"directory": "/backup/monday"})

    assert answer.json() == {
        "directory": "/backup/monday",
        "last_lsn": 1234,
        "segments": 3,
        "bytes": 142_617_728,
        "audit_seq": 1,
    }
    entry = (await console.trail())[0]
    assert entry["action"] == "store.backup"
    assert entry["details"] == {"directory": "/backup/monday", "last_lsn": 1234}

    console.server.door.backup_fault = "/backup/monday is not empty"
    answer = await console.call("POST", "/backup", json={"directory": "/backup/monday"})

    assert answer.status_code == 409
    assert answer.json() == {
        "error": "no backup was made: /backup/monday is not empty",
        "code": "failed_precondition",
    }
    assert len(await console.trail()) == 1
