"""The three static files, ready to send: joined, without comments, compressed once."""

import gzip
import hashlib
import re
from functools import lru_cache
from pathlib import Path
from typing import Final

from attrs import frozen
from starlette.requests import Request
from starlette.responses import Response

STATIC: Final = Path(__file__).resolve().parent.parent / "static"
SCRIPTS: Final = ("figures.js", "hands.js", "live.js")  # one module in the browser
SCRIPT: Final = "admin.js"

_MEDIA_TYPES: Final = {
    "admin.css": "text/css; charset=utf-8",
    SCRIPT: "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
_FOR_PEOPLE: Final = re.compile(r"^[ \t]+|^//.*\n|^\n", re.MULTILINE)


@frozen
class Asset:
    """One file as sent."""

    media_type: str
    plain: bytes
    packed: bytes


@lru_cache(maxsize=1)
def load() -> dict[str, Asset]:
    """Return all files by name."""
    texts = {
        name: (STATIC / name).read_text(encoding="utf-8") for name in ("admin.css", "icon.svg")
    }
    script = "".join((STATIC / name).read_text(encoding="utf-8") for name in SCRIPTS)
    # No template literal of ours spans lines, so what starts a line is layout or a comment.
    texts[SCRIPT] = _FOR_PEOPLE.sub("", _FOR_PEOPLE.sub("", script))
    return {
        name: Asset(_MEDIA_TYPES[name], text.encode(), gzip.compress(text.encode(), mtime=0))
        for name, text in texts.items()
    }


@lru_cache(maxsize=1)
def version() -> str:
    """Return a short hash of all files; it stands in their URLs, so they never go stale."""
    digest = hashlib.sha256()
    for _, asset in sorted(load().items()):
        digest.update(asset.plain)
    return digest.hexdigest()[:12]


async def serve(request: Request) -> Response:
    """Send one file; under its current version it may be kept for a year."""
    asset = load().get(request.path_params["name"])
    if asset is None:
        return Response("not found\n", 404, media_type="text/plain")
    is_current = request.path_params["version"] == version()
    headers = {
        "cache-control": "public, max-age=31536000, immutable" if is_current else "no-cache",
        "vary": "accept-encoding",
    }
    body = asset.plain
    if "gzip" in request.headers.get("accept-encoding", ""):
        headers["content-encoding"] = "gzip"
        body = asset.packed
    return Response(body, media_type=asset.media_type, headers=headers)
