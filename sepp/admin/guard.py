"""What every request passes before a handler sees it, and every answer on its way out.

While no keys are set there is no cookie to protect, so two checks stand between a foreign web page
and the queue: `Host` must be one of the loopback names (a name rebound to 127.0.0.1 is not), and a
request that changes something must come from this very origin. The second also holds with keys,
beside the SameSite cookie. A request with neither `Origin` nor `Sec-Fetch-Site` comes from no
browser and passes to the JSON API, which wants a key or `application/json`; page forms need one of
the two.
"""

import ipaddress
from collections.abc import MutableMapping
from typing import Any, Final

import trio
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from sepp.admin.errors import ApiError, forbidden
from sepp.admin.sessions import Sessions
from sepp.http1 import ASGIApp

API_PREFIX: Final = "/admin/api/"
BODY_S: Final = 60.0  # from the first to the last byte of a body

CSP: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
DOWNLOAD_CSP: Final = "default-src 'none'; sandbox"

_HEADERS: Final = {
    "content-security-policy": CSP,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # Not no-referrer: under that a browser sends `Origin: null` with our own forms.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}

_READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})


class Guard:
    """The outermost layer of the application."""

    def __init__(self, app: ASGIApp, sessions: Sessions) -> None:
        self._app = app
        self._sessions = sessions

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await receive()
                await send({"type": "websocket.close"})
            return

        async def send_guarded(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        refusal = self._refusal(scope)
        if refusal is None:
            await self._app(scope, receive, send_guarded)
            return
        is_api = scope["path"].startswith(API_PREFIX)
        answer: Response = (
            refusal.response()
            if is_api
            else PlainTextResponse(refusal.text + "\n", status_code=refusal.status)
        )
        await answer(scope, receive, send_guarded)

    def _refusal(self, scope: MutableMapping[str, Any]) -> ApiError | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not self._sessions.is_enabled and not is_own_host(host):
            return forbidden(f"this server is not called {host!r}; use localhost or its address")
        if scope["method"] in _READS:
            return None
        is_api = scope["path"].startswith(API_PREFIX)
        if not is_same_origin(headers, may_be_no_browser=is_api):
            return forbidden("this request comes from another site or names none (Origin)")
        return None


def is_own_host(host: str) -> bool:
    """Return whether a `Host` value is a loopback name or address, with any port."""
    name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
    name = name.removeprefix("[").removesuffix("]").lower().rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def is_same_origin(headers: Headers, *, may_be_no_browser: bool) -> bool:
    """Return whether a request that changes something was made by a page of ours, or by no page."""
    site = headers.get("sec-fetch-site")
    origin = headers.get("origin")
    if site is not None:
        if site == "same-origin":
            return True
        if site != "none":  # none: the person did it, not a page
            return False
    if origin is None:
        return may_be_no_browser
    # Only the authority is compared: behind a proxy that ends TLS the schemes differ.
    return origin.partition("://")[2].lower() == headers.get("host", "").lower() != ""


async def read_body(request: Request, bytes_max: int) -> bytes:
    """Return the body of a request.

    Raises:
        ApiError: It is longer than `bytes_max` (413), or did not arrive in time (408).
    """
    too_large = ApiError(413, "payload_too_large", f"the body is over {bytes_max} bytes")
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > bytes_max:
        raise too_large
    parts: list[bytes] = []
    total = 0
    with trio.move_on_after(BODY_S) as patience:
        async for part in request.stream():
            total += len(part)
            if total > bytes_max:
                raise too_large
            parts.append(part)
    if patience.cancelled_caught:
        raise ApiError(408, "invalid_argument", f"the body took longer than {BODY_S:.0f} s")
    return b"".join(parts)
