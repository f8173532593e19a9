"""All routes of the JSON API, `/admin/api/v1`, and the document that describes them."""

from collections.abc import Callable
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sepp import __version__
from sepp.admin import (
    api_config,
    api_jobs,
    api_queues,
    api_server,
    api_session,
)
from sepp.admin.endpoint import Endpoint, Param, serve
from sepp.admin.errors import ApiError, not_found
from sepp.admin.messages import ErrorBody
from sepp.admin.site import Site

BASE: Final = "/admin/api/v1"
DOCUMENT_PATH: Final = f"{BASE}/openapi.json"

ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    *api_session.ENDPOINTS,
    *api_server.ENDPOINTS,
    *api_queues.ENDPOINTS,
    *api_jobs.ENDPOINTS,
    *api_config.ENDPOINTS,
)

AMBIGUOUS: Final = ("/queues/{name}:purge",)
"""Paths that could also be those of a queue whose name ends in the word."""

STATUSES: Final = {
    "invalid_argument": 400,
    "if_match_required": 400,
    "invalid_change": 400,
    "env_pinned": 400,
    "admin_keys_immutable": 400,
    "api_keys_immutable": 400,
    "unauthorized": 401,
    "forbidden": 403,
    "not_found": 404,
    "failed_precondition": 409,
    "resource_exhausted": 409,
    "inflight": 409,
    "not_empty": 409,
    "etag_mismatch": 412,
    "payload_too_large": 413,
    "invalid": 422,
    "rejected": 422,
}
"""The status that goes with each code."""

_TYPES: Final[dict[str, dict[str, Any]]] = {
    "text": {"type": "string"},
    "count": {"type": "integer", "minimum": 0, "maximum": 2**32 - 1},
    "ms": {"type": "integer", "minimum": 0},
    "flag": {"type": "boolean"},
    "names": {"type": "array", "items": {"type": "string"}},
}


def routes(site: Site) -> list[Route]:
    """Return the routes; every other method on a known path is 405, every other path 404."""
    by_path: dict[str, dict[str, Endpoint]] = {}
    for endpoint in ENDPOINTS:
        by_path.setdefault(endpoint.path, {})[endpoint.method] = endpoint
    found = [Route(DOCUMENT_PATH, _document, methods=["GET"])]
    # A path with a colon word comes first: else the name before it would swallow the word.
    ordered = sorted(by_path.items(), key=lambda item: (":" not in item[0].rpartition("}")[2], 0))
    for path, methods in ordered:
        # A queue may be named "a:purge": other methods than the word's own are about the queue.
        names = list(methods) if path in AMBIGUOUS else _all_methods()
        found.append(Route(BASE + path, _dispatcher(site, methods), methods=names))
    found.append(Route("/admin/api/{rest:path}", _unknown, methods=_all_methods()))
    return found


def _all_methods() -> list[str]:
    return ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


def _dispatcher(site: Site, methods: dict[str, Endpoint]) -> Callable[[Request], Any]:
    allowed = ", ".join(sorted({*methods, *(("HEAD",) if "GET" in methods else ())}))

    async def dispatch(request: Request) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        endpoint = methods.get(method)
        if endpoint is None:
            text = f"{request.method} is not possible here; possible: {allowed}"
            error = ApiError(405, "invalid_argument", text, headers={"Allow": allowed})
            return error.response()
        return await serve(endpoint, site, request)

    return dispatch


async def _unknown(request: Request) -> Response:
    return not_found(f"there is no {request.url.path} in this API").response()


async def _document(request: Request) -> Response:
    return JSONResponse(document())


# OpenAPI


def document() -> dict[str, Any]:
    """Return the OpenAPI 3.1 document, made from the same table as the routes."""
    kinds = {kind for endpoint in ENDPOINTS for kind in _kinds(endpoint)} | {ErrorBody}
    ordered = sorted(kinds, key=str)
    schemas, components = msgspec.json.schema_components(
        ordered, ref_template="#/components/schemas/{name}"
    )
    by_kind = dict(zip(ordered, schemas, strict=True))
    paths: dict[str, Any] = {}
    for endpoint in ENDPOINTS:
        path = endpoint.path.replace(":path}", "}")
        paths.setdefault(path, {})[endpoint.method.lower()] = _operation(endpoint, by_kind)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "sepp-trio admin API",
            "version": __version__,
            "description": "Roles: viewer reads, operator also moves jobs, admin also changes "
            "settings. Keys and cursors are standard base64: encode them in URLs.",
        },
        "servers": [{"url": BASE}],
        "security": [{"bearer": []}, {"cookie": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "cookie": {"type": "apiKey", "in": "cookie", "name": "sepp_admin"},
            },
        },
    }


def _kinds(endpoint: Endpoint) -> list[Any]:
    return [kind for kind in (endpoint.body, endpoint.answer) if kind is not None]


def codes(endpoint: Endpoint) -> set[str]:
    """Return every error code the endpoint may answer with."""
    found = set(endpoint.errors)
    if endpoint.role is not None:
        found |= {"unauthorized", "forbidden"}
    if endpoint.params or endpoint.body is not None or "{" in endpoint.path:
        found.add("invalid_argument")
    if endpoint.body is not None:
        found |= {"payload_too_large", "forbidden"}
    return found


def _operation(endpoint: Endpoint, by_kind: dict[Any, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": endpoint.text,
        "operationId": _operation_id(endpoint),
        "x-role": endpoint.role,
        "parameters": _parameters(endpoint),
        "responses": _responses(endpoint, by_kind),
    }
    if endpoint.role is None:
        operation["security"] = []
    if endpoint.body is not None:
        content = {"application/json": {"schema": by_kind[endpoint.body]}}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _operation_id(endpoint: Endpoint) -> str:
    words = endpoint.path.replace(":path", "").translate(str.maketrans("/:-{}", "_____"))
    return "_".join(filter(None, [endpoint.method.lower(), *words.split("_")]))


def _parameters(endpoint: Endpoint) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for piece in endpoint.path.split("{")[1:]:
        name = piece.partition("}")[0].partition(":")[0]
        found.append({"name": name, "in": "path", "required": True, "schema": {"type": "string"}})
    if endpoint.wants_etag:
        text = "The etag of the configuration."
        schema = {"type": "string"}
        found.append(
            {"name": "If-Match", "in": "header", "required": True, "schema": schema}
            | {"description": text}
        )
    return found + [_query_parameter(param) for param in endpoint.params]


def _query_parameter(param: Param) -> dict[str, Any]:
    schema = dict(_TYPES[param.kind])
    if param.choices:
        schema["enum"] = list(param.choices)
    return {
        "name": param.name,
        "in": "query",
        "required": param.is_required,
        "description": param.text,
        "schema": schema,
    }


def _responses(endpoint: Endpoint, by_kind: dict[Any, Any]) -> dict[str, Any]:
    good: dict[str, Any] = {"description": "done"}
    if endpoint.answer is not None:
        good["content"] = {endpoint.media_type: {"schema": by_kind[endpoint.answer]}}
    elif endpoint.status != 204:
        good["content"] = {endpoint.media_type: {"schema": {"type": "string"}}}
    found = {str(endpoint.status): good}
    by_status: dict[int, list[str]] = {}
    for code in sorted(codes(endpoint)):
        by_status.setdefault(STATUSES[code], []).append(code)
    for status, names in sorted(by_status.items()):
        content = {"application/json": {"schema": by_kind[ErrorBody]}}
        found[str(status)] = {"description": ", ".join(names), "content": content}
    return found
