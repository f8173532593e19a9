"""Every refusal an endpoint declares, brought about: its status, its code, and nothing changed."""

import hashlib
import uuid
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from sepp.admin import api
from sepp.admin.messages import ErrorBody
from sepp.admin.stream import SUBSCRIBERS_MAX
from tests.admin.conftest import Console
from tests.admin.samples import GOOD, Sent, key_of, quoted

Spoil = Callable[[Console, Sent], Awaitable[Sent]]
Case = tuple[str, str, str]
DECLARED: list[Case] = [(e.method, e.path, code) for e in api.ENDPOINTS for code in e.errors]
NOBODY = "0198ab00-0000-7000-8000-000000000000"


def _again(sent: Sent, etag: str) -> Sent:
    """The same request by somebody who has seen this file."""
    if sent.json is not None:
        sent.json["etag"] = etag
    else:
        sent.headers["if-match"] = etag
    return sent


async def _file(console: Console, sent: Sent, text: str) -> Sent:
    console.server.path.write_text(text)
    return _again(sent, hashlib.sha256(text.encode()).hexdigest())


async def full(console: Console, sent: Sent) -> Sent:
    console.server.door.refusal = "not done: the server is overloaded"
    return sent


async def no_backup(console: Console, sent: Sent) -> Sent:
    console.server.door.backup_fault = "the directory is not empty"
    return sent


async def pinned(console: Console, sent: Sent) -> Sent:
    names = ("auth.api_keys", "limits.default_max_attempts", "queues")
    console.server.reloader.pinned = lambda: names  # type: ignore[method-assign]  # for this one
    return sent


async def not_toml(console: Console, sent: Sent) -> Sent:
    return await _file(console, sent, "[broken")


async def out_of_bounds(console: Console, sent: Sent) -> Sent:
    text = console.server.path.read_text() + "\n[logging]\nformat = 'odd'\n"
    return await _file(console, sent, text)


async def no_text(console: Console, sent: Sent) -> Sent:
    console.server.path.write_bytes(b"\xff")
    return sent


async def stale(console: Console, sent: Sent) -> Sent:
    return _again(sent, "0" * 64)


async def without_etag(console: Console, sent: Sent) -> Sent:
    return Sent(sent.path, sent.json)


def to(path: str) -> Spoil:
    """Ask for another thing."""

    async def spoil(console: Console, sent: Sent) -> Sent:
        return Sent(path, sent.json, sent.headers)

    return spoil


def with_body(**fields: object) -> Spoil:
    """Send other fields."""

    async def spoil(console: Console, sent: Sent) -> Sent:
        return Sent(sent.path, {**sent.json, **fields}, sent.headers)

    return spoil


def change(path: str) -> Spoil:
    """Change another setting."""
    return with_body(changes=[{"path": path, "value": None}])


async def no_keys(console: Console, sent: Sent) -> Sent:
    await console.call("DELETE", "/auth/keys", headers=sent.headers)
    return _again(sent, await console.etag())


async def same_key(console: Console, sent: Sent) -> Sent:
    await console.call("POST", "/auth/keys", json=sent.json)
    return _again(sent, await console.etag())


async def holds_a_job(console: Console, sent: Sent) -> Sent:
    console.server.enqueue()
    return sent


async def holds_a_lease(console: Console, sent: Sent) -> Sent:
    console.server.enqueue()
    console.server.reserve()
    return sent


async def many_streams(console: Console, sent: Sent) -> Sent:
    for _stream in range(SUBSCRIBERS_MAX):
        assert console.site.hub.subscribe(None, is_admin=False) is not None
    return sent


ANYWHERE: dict[str, Spoil] = {
    "resource_exhausted": full,
    "env_pinned": pinned,
    "failed_precondition": not_toml,
    "invalid": out_of_bounds,
    "etag_mismatch": stale,
    "if_match_required": without_etag,
}
HERE: dict[Case, Spoil] = {
    ("POST", "/session", "unauthorized"): with_body(key="wrong"),
    ("GET", "/events", "resource_exhausted"): many_streams,
    ("POST", "/backup", "failed_precondition"): no_backup,
    ("PUT", "/queues/{name}", "invalid_change"): with_body(overrides={"nonsense": 1}),
    ("DELETE", "/queues/{name}", "inflight"): holds_a_lease,
    ("DELETE", "/queues/{name}", "not_empty"): holds_a_job,
    ("POST", "/queues/{name}/jobs", "rejected"): with_body(job_type="a" * 300),
    ("POST", "/queues/{name}/jobs:release", "not_found"): with_body(id=NOBODY),
    ("POST", "/queues/{name}/jobs:release", "failed_precondition"): with_body(attempt=7),
    ("GET", "/queues/{name}/dead-letters/{key_b64:path}", "not_found"): to(
        f"/queues/webhooks/dead-letters/{quoted(key_of(uuid.UUID(NOBODY).bytes, 1))}"
    ),
    ("GET", "/jobs/{id}", "not_found"): to(f"/jobs/{NOBODY}"),
    ("GET", "/dead-letters/{id}", "not_found"): to(f"/dead-letters/{NOBODY}"),
    ("GET", "/config", "failed_precondition"): no_text,
    ("PUT", "/config", "admin_keys_immutable"): change("admin.keys"),
    ("PUT", "/config", "api_keys_immutable"): change("auth.api_keys"),
    ("PUT", "/config", "invalid_change"): change("limits.nonsense"),
    ("POST", "/auth/keys", "invalid_change"): same_key,
    ("DELETE", "/auth/keys/{name}", "not_found"): to("/auth/keys/nobody"),
    ("DELETE", "/auth/keys", "not_found"): no_keys,
}


def test_every_refusal_here_is_declared() -> None:
    assert HERE.keys() <= set(DECLARED)


@pytest.mark.parametrize("case", DECLARED, ids=" ".join)
async def test_a_declared_refusal_comes_as_declared(console: Console, case: Case) -> None:
    method, path, code = case
    sent = await GOOD[method, path](console) if path != "/events" else Sent(path)
    sent = await (HERE.get(case) or ANYWHERE[code])(console, sent)
    file = console.server.path.read_bytes()
    numbers = console.server.backend.queue("webhooks")

    answer = await console.call(method, sent.path, json=sent.json, headers=sent.headers)

    assert (answer.status_code, _code(answer.content)) == (api.STATUSES[code], code), answer.text
    assert console.server.path.read_bytes() == file
    assert console.server.backend.queue("webhooks") == numbers


def _code(content: bytes) -> str:
    return msgspec.json.decode(content, type=ErrorBody).code
