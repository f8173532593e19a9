"""For every endpoint of the API: a request that works, and requests that do not.

A sample prepares what it needs on the server and returns path, body and headers. `test_routes.py`
sends it with every role.
"""

import base64
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from attrs import define, field

from sepp.core.commands import Directive
from tests.admin.conftest import Console

BIG = "x" * 10_000_000


@define
class Sent:
    """One request below the base path."""

    path: str
    json: Any = None
    headers: dict[str, str] = field(factory=dict)


Sample = Callable[[Console], Awaitable[Sent]]


def key_of(job_id: bytes, at_ms: int | None = None) -> str:
    """Return the handle of a job, with the time of death of a dead one."""
    fence = b"" if at_ms is None else at_ms.to_bytes(8, "big")
    return base64.b64encode(job_id + fence).decode()


def quoted(key: str) -> str:
    """Return a handle as part of a path."""
    return key.replace("/", "%2F").replace("+", "%2B").replace("=", "%3D")


def plain(path: str) -> Sample:
    """Return a sample that needs nothing."""

    async def sample(console: Console) -> Sent:
        return Sent(path)

    return sample


async def login(console: Console) -> Sent:
    return Sent("/session", {"name": "ada", "key": "admin-secret"})


async def backup(console: Console) -> Sent:
    return Sent("/backup", {"directory": "/backup/monday"})


async def put_queue(console: Console) -> Sent:
    overrides = {"default_max_attempts": 9, "allowed_job_types": ["a", "b"]}
    return Sent("/queues/fresh", {"etag": await console.etag(), "overrides": overrides})


async def delete_queue(console: Console) -> Sent:
    return Sent("/queues/webhooks", headers={"if-match": await console.etag()})


async def purge_queue(console: Console) -> Sent:
    console.server.enqueue(count=2)
    return Sent("/queues/webhooks:purge", {"reason": "clean"})


async def enqueue(console: Console) -> Sent:
    payload = {"encoding": "json", "data_text": "{}"}
    return Sent("/queues/webhooks/jobs", {"job_type": "deliver_hook", "payload": payload})


async def bury(console: Console) -> Sent:
    (job_id,) = console.server.enqueue()
    return Sent(
        "/queues/webhooks/jobs:dead-letter", {"state": "ready", "keys_b64": [key_of(job_id)]}
    )


async def release(console: Console) -> Sent:
    (job_id,) = console.server.enqueue()
    console.server.reserve()
    body = {"id": str(uuid.UUID(bytes=job_id)), "attempt": 1, "reason": "stuck"}
    return Sent("/queues/webhooks/jobs:release", body)


def on_dead(verb: str) -> Sample:
    """Return a sample that moves one dead letter by its key."""

    async def sample(console: Console) -> Sent:
        (job_id,) = console.server.kill()
        key = key_of(job_id, console.server.wall_ms)
        return Sent(f"/queues/webhooks/dead-letters:{verb}", {"keys_b64": [key]})

    return sample


async def dead_by_key(console: Console) -> Sent:
    (job_id,) = console.server.kill()
    key = key_of(job_id, console.server.wall_ms)
    return Sent(f"/queues/webhooks/dead-letters/{quoted(key)}")


async def job_by_id(console: Console) -> Sent:
    (job_id,) = console.server.enqueue()
    return Sent(f"/jobs/{uuid.UUID(bytes=job_id)}")


async def dead_by_id(console: Console) -> Sent:
    (job_id,) = console.server.kill(directive=Directive.DEAD_LETTER)
    return Sent(f"/dead-letters/{uuid.UUID(bytes=job_id)}")


async def put_config(console: Console) -> Sent:
    changes = [{"path": "limits.default_max_attempts", "value": 7}]
    return Sent("/config", {"etag": await console.etag(), "changes": changes})


async def add_key(console: Console) -> Sent:
    return Sent("/auth/keys", {"etag": await console.etag(), "name": "eu-1", "key": "s3cret"})


async def _with_key(console: Console) -> str:
    etag = await console.etag()
    body = {"etag": etag, "name": "eu-1", "key": "s3cret"}
    return str((await console.call("POST", "/auth/keys", json=body)).json()["etag"])


async def revoke_key(console: Console) -> Sent:
    return Sent("/auth/keys/eu-1", headers={"if-match": await _with_key(console)})


async def disable_auth(console: Console) -> Sent:
    return Sent("/auth/keys", headers={"if-match": await _with_key(console)})


GOOD: dict[tuple[str, str], Sample] = {
    ("POST", "/session"): login,
    ("GET", "/session"): plain("/session"),
    ("DELETE", "/session"): plain("/session"),
    ("GET", "/overview"): plain("/overview?queues=webhooks&points=10&span_ms=60000"),
    ("GET", "/server-info"): plain("/server-info"),
    ("POST", "/backup"): backup,
    ("GET", "/queues"): plain("/queues"),
    ("GET", "/queues/{name}"): plain("/queues/webhooks"),
    ("PUT", "/queues/{name}"): put_queue,
    ("DELETE", "/queues/{name}"): delete_queue,
    ("POST", "/queues/{name}:purge"): purge_queue,
    ("GET", "/queues/{name}/jobs"): plain("/queues/webhooks/jobs?state=ready&limit=10"),
    ("POST", "/queues/{name}/jobs"): enqueue,
    ("POST", "/queues/{name}/jobs:dead-letter"): bury,
    ("POST", "/queues/{name}/jobs:release"): release,
    ("GET", "/queues/{name}/dead-letters/{key_b64:path}"): dead_by_key,
    ("POST", "/queues/{name}/dead-letters:requeue"): on_dead("requeue"),
    ("POST", "/queues/{name}/dead-letters:delete"): on_dead("delete"),
    ("GET", "/queues/{name}/dead-letters:export"): plain("/queues/webhooks/dead-letters:export"),
    ("GET", "/jobs/{id}"): job_by_id,
    ("GET", "/dead-letters/{id}"): dead_by_id,
    ("GET", "/config"): plain("/config"),
    ("PUT", "/config"): put_config,
    ("POST", "/auth/keys"): add_key,
    ("DELETE", "/auth/keys/{name}"): revoke_key,
    ("DELETE", "/auth/keys"): disable_auth,
    ("GET", "/audit"): plain("/audit?limit=10&actor=ada&action_prefix=job"),
}
"""A request that works, by method and path. The stream of events has tests of its own."""

_ENQUEUE = "/queues/webhooks/jobs"
_KEY = key_of(bytes(16))

# Method, path, body. All answer 400 `invalid_argument`.
BAD: list[tuple[str, str, Any]] = [
    ("POST", "/session", {"name": "ada"}),
    ("POST", "/session", {"name": "ada", "key": "x", "role": "admin"}),
    ("POST", "/session", {"name": BIG, "key": "x"}),
    ("POST", "/session", {"name": "ada", "key": BIG}),
    ("GET", "/overview?points=-1", None),
    ("GET", "/overview?points=NaN", None),
    ("GET", "/overview?points=1e12", None),
    ("GET", "/overview?span_ms=999999999999999999", None),
    ("GET", "/events?points=-1", None),
    ("GET", "/queues/webhooks/jobs", None),
    ("GET", "/queues/webhooks/jobs?state=gone", None),
    ("GET", "/queues/webhooks/jobs?state=ready&limit=-1", None),
    ("GET", "/queues/webhooks/jobs?state=ready&limit=1000000000000", None),
    ("GET", "/queues/webhooks/jobs?state=ready&limit=NaN", None),
    ("GET", "/queues/webhooks/jobs?state=ready&limit=٣", None),
    ("GET", "/queues/webhooks/jobs?state=ready&cursor=!", None),
    ("GET", "/queues/webhooks/jobs?state=ready&cursor=AAAA", None),
    ("GET", "/queues/webhooks/jobs?state=ready&order=sideways", None),
    ("GET", "/queues/webhooks/jobs?state=ready&cause=rejected", None),
    ("GET", "/queues/webhooks/jobs?state=dead_letter&cause=bad_luck", None),
    ("GET", "/queues/webhooks/jobs?state=dead_letter&failed_before_ms=-1", None),
    ("GET", "/queues/webhooks/jobs?state=dead_letter&reason=" + "x" * 3000, None),
    ("GET", "/queues/webhooks/dead-letters:export?failed_before_ms=NaN", None),
    ("GET", "/queues/webhooks/dead-letters/!!", None),
    ("GET", "/queues/webhooks/dead-letters/AAAA", None),
    ("PUT", "/queues/webhooks", {"overrides": {}}),
    ("PUT", "/queues/webhooks", {"etag": "x" * 65, "overrides": {}}),
    ("PUT", "/queues/webhooks", {"etag": "x", "overrides": {"default_priority": {"a": 1}}}),
    ("POST", "/backup", {}),
    ("POST", "/backup", {"directory": "monday"}),
    ("POST", "/backup", {"directory": ""}),
    ("POST", "/backup", {"directory": "/a\0b"}),
    ("POST", "/backup", {"directory": "/" + "x" * 5000}),
    ("DELETE", "/queues/webhooks?purge=perhaps", None),
    ("POST", "/queues/webhooks:purge", {"reason": BIG}),
    ("POST", "/queues/webhooks:purge", []),
    ("POST", _ENQUEUE, {}),
    ("POST", _ENQUEUE, {"job_type": BIG}),
    ("POST", _ENQUEUE, {"job_type": 5}),
    ("POST", _ENQUEUE, {"job_type": "a", "priority": -1}),
    ("POST", _ENQUEUE, {"job_type": "a", "priority": 1_000_000_000_000}),
    ("POST", _ENQUEUE, {"job_type": "a", "priority": 1.5}),
    ("POST", _ENQUEUE, {"job_type": "a", "max_attempts": -1}),
    ("POST", _ENQUEUE, {"job_type": "a", "max_attempts": 1_000_000_000_000}),
    ("POST", _ENQUEUE, {"job_type": "a", "scheduled_at_ms": -1}),
    ("POST", _ENQUEUE, {"job_type": "a", "scheduled_at_ms": 10**18}),
    ("POST", _ENQUEUE, {"job_type": "a", "idempotency_key": BIG}),
    ("POST", _ENQUEUE, {"job_type": "a", "custom": {"n": 10**30}}),
    ("POST", _ENQUEUE, {"job_type": "a", "custom": {"n": [1]}}),
    ("POST", _ENQUEUE, {"job_type": "a", "payload": {"encoding": "json"}}),
    ("POST", _ENQUEUE, {"job_type": "a", "payload": {"encoding": "b", "data_b64": "?"}}),
    ("POST", _ENQUEUE, {"job_type": "a", "payload": {"encoding": BIG, "data_text": "x"}}),
    ("POST", "/queues/webhooks/jobs:dead-letter", {"state": "inflight", "keys_b64": [_KEY]}),
    ("POST", "/queues/webhooks/jobs:dead-letter", {"state": "ready", "keys_b64": []}),
    ("POST", "/queues/webhooks/jobs:dead-letter", {"state": "ready", "keys_b64": [_KEY] * 101}),
    ("POST", "/queues/webhooks/jobs:dead-letter", {"state": "ready", "keys_b64": ["?"]}),
    ("POST", "/queues/webhooks/jobs:dead-letter", {"state": "ready", "keys_b64": ["AAAA"]}),
    ("POST", "/queues/webhooks/jobs:release", {"id": "x" * 36, "attempt": 1}),
    ("POST", "/queues/webhooks/jobs:release", {"id": "abc", "attempt": 1}),
    ("POST", "/queues/webhooks/jobs:release", {"id": str(uuid.UUID(int=1)), "attempt": 0}),
    ("POST", "/queues/webhooks/jobs:release", {"id": str(uuid.UUID(int=1)), "attempt": 10**12}),
    *(
        ("POST", f"/queues/webhooks/dead-letters:{verb}", body)
        for verb in ("requeue", "delete")
        for body in (
            {},
            {"keys_b64": []},
            {"keys_b64": [_KEY] * 101},
            {"keys_b64": [_KEY], "filter": {}, "until_ms": 1},
            {"filter": {}},
            {"filter": {}, "until_ms": -1},
            {"filter": {}, "until_ms": 1, "cursor": "AAAA"},
            {"filter": {"cause": "bad_luck"}, "until_ms": 1},
            {"filter": {"reason": BIG}, "until_ms": 1},
            {"keys_b64": [_KEY], "reason": BIG},
        )
    ),
    ("PUT", "/config", {"changes": []}),
    ("PUT", "/config", {"etag": "x", "changes": []}),
    ("PUT", "/config", {"etag": "x", "changes": [{"path": BIG, "value": 1}]}),
    ("POST", "/auth/keys", {"etag": "x", "name": BIG, "key": "k"}),
    ("POST", "/auth/keys", {"etag": "x", "name": "n", "key": BIG}),
    ("GET", "/audit?before=0", None),
    ("GET", "/audit?before=-1", None),
    ("GET", "/audit?before=1e12", None),
    ("GET", "/audit?limit=NaN", None),
]
