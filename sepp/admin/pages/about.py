"""The server's own page, and the documents."""

import platform
from functools import lru_cache
from typing import Final

from markupsafe import Markup
from starlette.responses import Response

from sepp.admin import api
from sepp.admin.pages import markdown
from sepp.admin.pages.view import HERE, PageRoute, View

OPERATING: Final = HERE.parent / "OPERATING.md"

# Keys in the order of the help page: group, then key and what it does.
KEYBOARD: Final = (
    (
        "Everywhere",
        (
            ("?", "this map"),
            ("i", "job id field"),
            ("/", "filter field"),
            ("g q", "Queues"),
            ("g c", "Config"),
            ("g a", "Audit"),
            ("g s", "Server"),
            ("p", "pause or resume the figures"),
            ("u", "UTC or local time"),
            ("r", "show what is newer, sort again"),
            ("Esc", "close, then clear the selection"),
        ),
    ),
    (
        "Lists",
        (
            ("j", "next row"),
            ("k", "previous row"),
            ("Enter", "open the row"),
            ("o", "peek at the row"),
            ("x", "select the row"),
            ("Shift x", "select up to the row"),
            ("a", "select all shown, again: none"),
            ("Shift R", "requeue the selected…"),
            ("Delete", "delete the selected…"),
            ("1 2 3 4", "Ready, Scheduled, In-flight, Dead letters"),
        ),
    ),
)


async def server(view: View) -> Response:
    """What runs, since when, on what, how full and how fast."""
    backend = view.site.backend
    details = await backend.details()
    return view.render(
        "server.html",
        nav="server",
        details=details,
        vitals=backend.vitals(),
        info=backend.facts,
        is_strict=backend.config.running.server.strict_queues,
        has_auth=backend.config.running.auth.api_keys is not None,
        persist_mode=backend.config.boot.storage.persist_mode,
        streams=len(view.site.hub),
        python=platform.python_version(),
    )


async def help_index(view: View) -> Response:
    """What there is to read, and the switch for single keys."""
    return view.render("help.html", nav="help", part="index")


async def help_keys(view: View) -> Response:
    """The keyboard map."""
    return view.render("help_keys.html", nav="help", part="keys", groups=KEYBOARD)


async def help_api(view: View) -> Response:
    """The routes of the JSON API; the same table makes the OpenAPI document."""
    return view.render(
        "help_api.html",
        nav="help",
        part="api",
        endpoints=[(e, _fields(e.body)) for e in api.ENDPOINTS],
        statuses=api.STATUSES,
        base=api.BASE,
        document_url=api.DOCUMENT_PATH,
        codes=api.codes,
    )


def _fields(body: type | None) -> list[str]:
    return list(getattr(body, "__struct_fields__", ()))


@lru_cache(maxsize=1)
def _operating() -> tuple[Markup, list[tuple[str, str]]]:
    return markdown.render(OPERATING.read_text(encoding="utf-8"))


async def help_operating(view: View) -> Response:
    """The operator's guide."""
    html, headings = _operating()
    return view.render(
        "help_document.html", nav="help", part="operating", html=html, headings=headings
    )


ROUTES: Final = (
    PageRoute("/admin/server", server),
    PageRoute("/admin/help", help_index),
    PageRoute("/admin/help/keys", help_keys),
    PageRoute("/admin/help/api", help_api),
    PageRoute("/admin/help/operating", help_operating),
)
