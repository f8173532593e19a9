"""Every route with every role, with good and bad input; and the document that describes them."""

import re
from typing import Any

import httpx
import msgspec
import pytest

from sepp.admin import api
from sepp.admin.endpoint import Endpoint
from sepp.admin.messages import ErrorBody
from sepp.admin.sessions import RANKS
from tests.admin.conftest import Console
from tests.admin.samples import BAD, GOOD

ROLES = (None, "viewer", "operator", "admin")
STREAMS = {("GET", "/events")}
TABLE = {(endpoint.method, endpoint.path): endpoint for endpoint in api.ENDPOINTS}


def test_every_endpoint_has_a_sample() -> None:
    assert GOOD.keys() == TABLE.keys() - STREAMS


def test_bad_input_is_tried_on_every_endpoint_that_takes_any() -> None:
    tried = {(method, _template(method, path)) for method, path, _ in BAD}
    takes = {key for key, e in TABLE.items() if e.body is not None or e.params}
    assert takes - tried == set()


def _template(method: str, path: str) -> str:
    path = path.partition("?")[0]
    for known_method, template in TABLE:
        pattern = re.escape(template).replace(r"\{name\}", "[^/:]+").replace(r"\{id\}", "[^/]+")
        pattern = pattern.replace(r"\{key_b64:path\}", ".+")
        if known_method == method and re.fullmatch(pattern, path):
            return template
    raise AssertionError(f"no route for {method} {path}")


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("key", sorted(GOOD), ids=" ".join)
async def test_role_decides(console: Console, key: tuple[str, str], role: str | None) -> None:
    endpoint = TABLE[key]
    sent = await GOOD[key](console)
    before = await console.trail()

    answer = await console.call(
        endpoint.method, sent.path, role=role, json=sent.json, headers=sent.headers
    )

    if endpoint.role is None or (role is not None and RANKS[role] >= RANKS[endpoint.role]):
        assert answer.status_code == endpoint.status, answer.text
        _check_answer(endpoint, answer)
    else:
        wanted = (401, "unauthorized") if role is None else (403, "forbidden")
        assert (answer.status_code, _error(answer).code) == wanted
        assert await console.trail() == before, "a refused request must change nothing"


def _check_answer(endpoint: Endpoint, answer: httpx.Response) -> None:
    if endpoint.answer is not None:
        # Strict both ways: what is sent is declared, what is declared is sent.
        msgspec.json.decode(answer.content, type=endpoint.answer)
    assert answer.headers["cache-control"] == "no-store"
    assert "content-security-policy" in answer.headers


def _error(answer: httpx.Response) -> ErrorBody:
    assert answer.headers["content-type"] == "application/json"
    return msgspec.json.decode(answer.content, type=ErrorBody)


@pytest.mark.parametrize(("method", "path", "body"), BAD, ids=lambda value: str(value)[:60])
async def test_bad_input_is_refused(console: Console, method: str, path: str, body: Any) -> None:
    headers = {"if-match": "x"} if method == "DELETE" else {}

    answer = await console.call(method, path, json=body, headers=headers)

    assert (answer.status_code, _error(answer).code) == (400, "invalid_argument"), answer.text
    assert len(answer.content) < 10_000, "an error must not echo the input whole"


@pytest.mark.parametrize("key", sorted(k for k, e in TABLE.items() if e.body), ids=" ".join)
@pytest.mark.parametrize("text", [b"", b"{", b"null", b'{"a": NaN}', b"\xff\xfe", b"[" * 100_000])
async def test_malformed_json_is_refused(
    console: Console, key: tuple[str, str], text: bytes
) -> None:
    sent = await GOOD[key](console)

    answer = await console.call(
        key[0], sent.path, content=text, headers={"content-type": "application/json"}
    )

    assert (answer.status_code, _error(answer).code) == (400, "invalid_argument")


@pytest.mark.parametrize("key", sorted(k for k, e in TABLE.items() if e.body), ids=" ".join)
@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
async def test_json_routes_demand_their_content_type(
    console: Console, key: tuple[str, str], kind: str
) -> None:
    sent = await GOOD[key](console)

    answer = await console.call(
        key[0], sent.path, content=msgspec.json.encode(sent.json), headers={"content-type": kind}
    )

    assert (answer.status_code, _error(answer).code) == (415, "invalid_argument")


@pytest.mark.parametrize("key", sorted(k for k, e in TABLE.items() if e.body), ids=" ".join)
async def test_bodies_over_the_cap_are_refused(console: Console, key: tuple[str, str]) -> None:
    sent = await GOOD[key](console)
    cap = console.server.reloader.boot.limits.max_message_bytes * 4 // 3

    answer = await console.call(
        key[0], sent.path, content=b" " * (cap + 1), headers={"content-type": "application/json"}
    )

    assert (answer.status_code, _error(answer).code) == (413, "payload_too_large")


ETAG_ROUTES = [
    ("PUT", "/queues/{name}"),
    ("DELETE", "/queues/{name}"),
    ("PUT", "/config"),
    ("POST", "/auth/keys"),
    ("DELETE", "/auth/keys/{name}"),
    ("DELETE", "/auth/keys"),
]


@pytest.mark.parametrize("key", ETAG_ROUTES, ids=" ".join)
async def test_a_stale_etag_changes_nothing(console: Console, key: tuple[str, str]) -> None:
    sent = await GOOD[key](console)
    with console.server.path.open("a") as file:
        file.write("# somebody else was here\n")
    text = console.server.path.read_text()

    answer = await console.call(key[0], sent.path, json=sent.json, headers=sent.headers)

    assert (answer.status_code, _error(answer).code) == (412, "etag_mismatch")
    assert console.server.path.read_text() == text


@pytest.mark.parametrize("key", [k for k in ETAG_ROUTES if TABLE[k].wants_etag], ids=" ".join)
async def test_a_missing_etag_is_refused(console: Console, key: tuple[str, str]) -> None:
    sent = await GOOD[key](console)

    answer = await console.call(key[0], sent.path)

    assert (answer.status_code, _error(answer).code) == (400, "if_match_required")


@pytest.mark.parametrize("path", sorted({path for _, path in TABLE}))
async def test_other_methods_are_405_with_allow(console: Console, path: str) -> None:
    meant = "/queues/{name}" if path in api.AMBIGUOUS else path
    known = {method for method, other in TABLE if other == meant}
    url = path.replace("{name}", "a").replace("{id}", "b").replace("{key_b64:path}", "c")

    answer = await console.call("PATCH", url)

    assert (answer.status_code, _error(answer).code) == (405, "invalid_argument")
    assert known <= set(answer.headers["allow"].split(", "))


async def test_unknown_paths_are_404_json(console: Console) -> None:
    for path in ("/nothing", "/queues/a/b/c", "/queues/webhooks:explode", "/"):
        answer = await console.call("GET", path)
        if path == "/queues/webhooks:explode":
            continue  # a GET of a queue with this name
        assert (answer.status_code, _error(answer).code) == (404, "not_found"), path


# The document


async def test_the_document_describes_exactly_the_routes(console: Console) -> None:
    document = (await console.call("GET", "/openapi.json")).json()

    described = {
        (method.upper(), path) for path, methods in document["paths"].items() for method in methods
    }
    assert described == {(method, path.replace(":path}", "}")) for method, path in TABLE}
    assert document["openapi"] == "3.1.0"


async def test_the_document_resolves_and_names_each_operation_once(console: Console) -> None:
    document = (await console.call("GET", "/openapi.json")).json()
    text = msgspec.json.encode(document).decode()

    names = set(re.findall(r'"#/components/schemas/([^"]+)"', text))
    assert names <= document["components"]["schemas"].keys()
    ids = [op["operationId"] for path in document["paths"].values() for op in path.values()]
    assert len(ids) == len(set(ids))


async def test_the_document_tells_roles_parameters_and_codes(console: Console) -> None:
    document = (await console.call("GET", "/openapi.json")).json()
    delete = document["paths"]["/queues/{name}"]["delete"]

    assert delete["x-role"] == "admin"
    assert [p["name"] for p in delete["parameters"]] == ["name", "If-Match", "purge"]
    assert delete["responses"].keys() == {"200", "400", "401", "403", "409", "412", "422"}
    assert "inflight" in delete["responses"]["409"]["description"]
