"""The admin API as its verbs see it: one request, one JSON answer, one line when it fails."""

import json
import ssl
from collections.abc import Iterator, Mapping
from http.client import HTTPException
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode
from urllib.request import HTTPHandler, HTTPSHandler, OpenerDirector, Request

from sepp.cli.options import Admin
from sepp.exits import StartError

BASE: Final = "/admin/api/v1"
TIMEOUT_S: Final = 60.0
PAGE: Final = 100


class Api:
    """An admin listener."""

    def __init__(self, side: Admin) -> None:
        url = side.admin if "://" in side.admin else f"http://{side.admin}"
        if not url.startswith(("http://", "https://")):
            raise StartError(f"--admin {side.admin!r} is no http:// or https:// URL")
        self._url = url.rstrip("/") + BASE
        self._key = side.key
        try:
            context = ssl.create_default_context(cafile=side.ca)
        except OSError as error:
            raise StartError(f"cannot read {side.ca!r}: {error.strerror or error}") from None
        # Made by hand: no proxy of the environment is to see keys, and no redirect is followed.
        self._opener = OpenerDirector()
        for handler in (HTTPHandler(), HTTPSHandler(context=context)):
            self._opener.add_handler(handler)

    def call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, object] | None = None,
        body: object = None,
        etag: str | None = None,
    ) -> Any:
        """Make a request and return its JSON; None when the answer is empty.

        Raises:
            StartError: It was refused, or the listener cannot be reached.
        """
        data = b"".join(self.stream(method, path, query=query, body=body, etag=etag))
        try:
            return json.loads(data) if data else None
        except ValueError:
            raise StartError(f"no JSON from {self._url}: is the admin listener there?") from None

    def stream(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, object] | None = None,
        body: object = None,
        etag: str | None = None,
    ) -> Iterator[bytes]:
        """Make a request and yield its answer, a line at a time."""
        wanted = {name: value for name, value in (query or {}).items() if value is not None}
        url = self._url + path + (f"?{urlencode(wanted)}" if wanted else "")
        headers = {"Accept": "application/json"}
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key}"
        if etag is not None:
            headers["If-Match"] = etag
        data = None
        if body is not None:
            headers["Content-Type"] = "application/json"
            data = json.dumps(body).encode()
        request = Request(url, data=data, headers=headers, method=method)
        try:
            with self._opener.open(request, timeout=TIMEOUT_S) as answer:
                if answer.status >= 400:
                    raise _refusal(answer.status, answer.read())
                yield from answer
        except HTTPError as error:
            raise _refusal(error.code, error.read()) from None
        except (URLError, OSError) as error:
            reason = getattr(error, "reason", error)
            raise StartError(f"no answer from {self._url}: {reason}") from None
        except HTTPException:  # its text is what was received: no words
            raise StartError(
                f"no whole HTTP answer from {self._url}: is the admin listener there?"
            ) from None


class Refused(StartError):
    """The API said no; `status` is the HTTP status."""

    def __init__(self, status: int, text: str) -> None:
        self.status = status
        super().__init__(text)


def _refusal(status: int, data: bytes) -> Refused:
    try:
        body = json.loads(data)
        text = body["error"]
        if "rejection" in body:
            text = f"{text} ({body['rejection']['reason']}: {body['rejection']['detail']})"
    except (ValueError, KeyError, TypeError):
        text = data.decode("utf-8", "replace")[:200]
    if status == 401:
        text = f"{text}; give an admin key with --key or SEPP_ADMIN_KEY"
    return Refused(status, " ".join(f"{text} (HTTP {status})".split()))


def part(text: str) -> str:
    """Return a name as one part of a path."""
    return quote(text, safe="")
