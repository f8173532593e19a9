"""One JSON route: what it takes, who may call it, what it answers; and how a request gets there.

The table of endpoints is the single source of the routes, of the OpenAPI document and of the tests
that try every route with every role.
"""

import traceback
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Literal, TypeVar

import msgspec
from attrs import define, frozen
from msgspec import UnsetType
from starlette.requests import Request
from starlette.responses import Response

from sepp.admin.errors import ApiError, forbidden, invalid, unauthorized
from sepp.admin.guard import read_body
from sepp.admin.sessions import Actor, Unauthorized
from sepp.admin.site import Site
from sepp.config.sections import Role
from sepp.config.table import U32_MAX
from sepp.core.jobs import LAST_MS
from sepp.logs import get_logger

COOKIE: Final = "sepp_admin"
QUERY_CHARS_MAX: Final = 2048

Kind = Literal["text", "count", "ms", "flag", "names"]

_log = get_logger("sepp.admin.api")

T = TypeVar("T")

_encode = msgspec.json.Encoder().encode


@frozen
class Param:
    """A query parameter. `choices` bounds a text; a count is 0…2³²−1, ms up to year 9999."""

    name: str
    text: str
    kind: Kind = "text"
    choices: tuple[str, ...] = ()
    is_required: bool = False


@define
class Call:
    """One request on its way through a handler."""

    site: Site
    actor: Actor
    request: Request
    params: dict[str, str]
    query: dict[str, Any]
    body: Any = None

    @property
    def now_ms(self) -> int:
        """The wall clock."""
        return self.site.backend.now_ms()

    @property
    def etag(self) -> str:
        """The etag of an `If-Match` header, quoted or bare.

        Raises:
            ApiError: There is none.
        """
        value = self.request.headers.get("if-match", "").strip().removeprefix("W/").strip('"')
        if not value:
            raise ApiError(400, "if_match_required", "send the etag of the configuration: If-Match")
        return value


Handler = Callable[[Call], Awaitable[Any]]


@frozen
class Endpoint:
    """See the module.

    Args:
        method, path: The route below `/admin/api/v1`; `{name}` is one path segment.
        role: The lowest role that may call it; None: anybody, signed in or not.
        handler: Takes the call and returns an answer struct, a response, or None for 204.
        text: One sentence for the document.
        body, answer: The types of the bodies, None for none.
        params: The query parameters.
        errors: Codes that may come back beside those every route may answer.
        wants_etag: Whether it needs an `If-Match` header.
        media_type: Of the answer, where it is not JSON.
    """

    method: str
    path: str
    role: Role | None
    handler: Handler
    text: str
    body: type | None = None
    answer: Any = None
    params: tuple[Param, ...] = ()
    errors: tuple[str, ...] = ()
    wants_etag: bool = False
    media_type: str = "application/json"
    status: int = 200


def bearer_of(request: Request) -> str | None:
    """Return the key of `Authorization: Bearer <key>`; the first such header counts."""
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else None


def identify(site: Site, request: Request) -> Actor | Unauthorized:
    """Return who sent a request."""
    return site.sessions.who(bearer_of(request), request.cookies.get(COOKIE), site.backend.now_ms())


async def serve(endpoint: Endpoint, site: Site, request: Request) -> Response:
    """Answer one request to an endpoint; refusals are answers too."""
    try:
        return await _serve(endpoint, site, request)
    except ApiError as error:
        return error.response()
    except Exception:  # noqa: BLE001  # a fault of one request; it is answered and logged
        _log.error("request failed", path=request.url.path, error=traceback.format_exc())
        return ApiError(500, "internal", "the request failed; the log says why").response()


async def _serve(endpoint: Endpoint, site: Site, request: Request) -> Response:
    actor = identify(site, request)
    if isinstance(actor, Unauthorized):
        if endpoint.role is not None:
            raise unauthorized(actor.text)
        actor = Actor("", "viewer")
    elif endpoint.role is not None and not actor.may(endpoint.role):
        raise forbidden(f"this needs the role {endpoint.role}; yours is {actor.role}")
    call = Call(
        site, actor, request, dict(request.path_params), parse_query(endpoint.params, request)
    )
    if endpoint.body is not None:
        call.body = await _parse_body(endpoint.body, site, request)
    answer = await endpoint.handler(call)
    if isinstance(answer, Response):
        return answer
    if answer is None:
        return Response(status_code=204)
    return Response(_encode(answer), status_code=endpoint.status, media_type="application/json")


async def _parse_body(kind: type, site: Site, request: Request) -> Any:
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        # Also what keeps a foreign form out: it cannot send this type.
        raise ApiError(415, "invalid_argument", "the body must be application/json")
    bytes_max = site.backend.config.boot.limits.max_message_bytes * 4 // 3
    data = await read_body(request, bytes_max)
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise invalid(f"the body does not fit: {error}") from error


def parse_query(params: tuple[Param, ...], request: Request) -> dict[str, Any]:
    """Return the query by name; parameters not sent are left out, unknown ones ignored.

    Raises:
        ApiError: A value does not fit.
    """
    found: dict[str, Any] = {}
    sent = request.query_params
    for param in params:
        if param.kind == "names":
            if param.name in sent:
                found[param.name] = sent.getlist(param.name)
            continue
        value = sent.get(param.name)
        if value is None or (value == "" and not param.is_required):
            if param.is_required:
                raise invalid(f"the parameter {param.name} is missing")
            continue
        found[param.name] = _parse_value(param, value)
    return found


def _parse_value(param: Param, value: str) -> Any:
    if param.kind == "flag":
        if value not in ("true", "false"):
            raise invalid(f"{param.name} must be true or false")
        return value == "true"
    if param.kind in ("count", "ms"):
        largest = U32_MAX if param.kind == "count" else LAST_MS
        is_number = value.isascii() and value.isdecimal() and len(value) <= 15
        if not is_number or int(value) > largest:
            raise invalid(f"{param.name} must be a whole number from 0 to {largest}")
        return int(value)
    if len(value) > QUERY_CHARS_MAX:
        raise invalid(f"{param.name} is longer than {QUERY_CHARS_MAX} characters")
    if param.choices and value not in param.choices:
        raise invalid(f"{param.name} must be one of {', '.join(param.choices)}")
    return value


def page_limit(query: Mapping[str, Any], default: int = 50, largest: int = 100) -> int:
    """Return the `limit` of a list, clamped to 1…100."""
    return max(1, min(int(query.get("limit", default)), largest))


def given(value: T | UnsetType) -> T | None:
    """Return what was sent, None for what was left out."""
    return None if isinstance(value, UnsetType) else value
