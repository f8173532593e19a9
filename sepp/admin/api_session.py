"""Signing in and out, and who is asking."""

from typing import Final

import msgspec
import trio
from starlette.requests import Request
from starlette.responses import Response

from sepp.admin.endpoint import COOKIE, Call, Endpoint, identify
from sepp.admin.errors import ApiError
from sepp.admin.messages import LoggedIn, Session
from sepp.admin.requests import Login
from sepp.admin.sessions import Actor, Unauthorized
from sepp.admin.site import Site

_NAME_CHARS: Final = 256


async def sign_in(site: Site, request: Request, name: str, key: str) -> tuple[LoggedIn, str]:
    """Make a session and return it with its token.

    Raises:
        ApiError: 401 after half a second, for a wrong name, a wrong key, or when keys are off.
    """
    now_ms = site.backend.now_ms()
    opened = site.sessions.open(name, key, now_ms)
    client = request.client.host if request.client else "?"
    if opened is None:
        unrecorded = site.failed_logins.admit(now_ms)
        if unrecorded is not None:
            details: dict[str, object] = {"from": client}
            if unrecorded:
                details["unrecorded_before"] = unrecorded
            await site.record(name[:_NAME_CHARS], "session.login_failed", details)
        await trio.sleep(site.wrong_login_s)
        raise ApiError(401, "unauthorized", "invalid name or key")
    token, found, expires_ms = opened
    await site.record(Actor(found.name, found.role), "session.login", {"from": client})
    return LoggedIn(name=found.name, role=found.role, expires_at_ms=expires_ms), token


def set_cookie(response: Response, site: Site, token: str, *, is_tls: bool) -> None:
    """Give the session's cookie to the browser."""
    age_s = site.backend.config.running.admin.session_ttl_ms // 1000
    response.set_cookie(
        COOKIE, token, max_age=age_s, path="/", secure=is_tls, httponly=True, samesite="strict"
    )


def sign_out(site: Site, request: Request, response: Response) -> Response:
    """End the session of a request."""
    site.sessions.close(request.cookies.get(COOKIE, ""))
    response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
    return response


async def _post(call: Call) -> Response:
    answer, token = await sign_in(call.site, call.request, call.body.name, call.body.key)
    response = Response(msgspec.json.encode(answer), media_type="application/json")
    set_cookie(response, call.site, token, is_tls=call.request.url.scheme == "https")
    return response


async def _get(call: Call) -> Session:
    found = identify(call.site, call.request)
    is_enabled = call.site.sessions.is_enabled
    if isinstance(found, Unauthorized):
        return Session(name=None, role=None, auth_enabled=is_enabled)
    name = None if found.is_local else found.name
    return Session(name=name, role=found.role, auth_enabled=is_enabled)


async def _delete(call: Call) -> Response:
    return sign_out(call.site, call.request, Response(status_code=204))


ENDPOINTS: Final = (
    Endpoint(
        "POST",
        "/session",
        None,
        _post,
        "Sign in: makes a session and sets its cookie.",
        body=Login,
        answer=LoggedIn,
        errors=("unauthorized",),
    ),
    Endpoint("GET", "/session", None, _get, "Who is asking.", answer=Session),
    Endpoint("DELETE", "/session", None, _delete, "Sign out.", status=204),
)
