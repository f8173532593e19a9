"""All pages and static files: who may see them, and what a reader gets who may not."""

import traceback
from collections.abc import Callable
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from sepp.admin.endpoint import identify
from sepp.admin.errors import ApiError
from sepp.admin.pages import (
    about,
    assets,
    audit,
    config,
    dashboard,
    entry,
    job,
    job_actions,
    jobs,
    prefs,
    queue_forms,
)
from sepp.admin.pages.view import PageRoute, Rendered, View, here, read_form, with_query
from sepp.admin.sessions import Actor, Unauthorized
from sepp.admin.site import Site
from sepp.logs import get_logger

_log = get_logger("sepp.admin.pages")

_NOBODY: Final = Actor("", "viewer")

# A link from elsewhere does not carry a SameSite=Strict cookie. A page that loads itself again
# does.
_BOUNCE: Final = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><meta http-equiv="refresh" content="0">'
    "<title>sepp-trio</title><p>One moment.</p>"
)

TABLE: Final[tuple[PageRoute, ...]] = (
    *entry.ROUTES,
    *dashboard.ROUTES,
    *jobs.ROUTES,
    *job_actions.ROUTES,
    *job.ROUTES,
    *queue_forms.ROUTES,
    *config.ROUTES,
    *audit.ROUTES,
    *about.ROUTES,
)


def routes(site: Site) -> list[Route]:
    """Return the routes of all pages, ending with one that says 404 in the frame."""
    found = [
        Route("/admin", lambda request: RedirectResponse("/admin/", status_code=307)),
        Route("/admin/assets/{version}/{name}", assets.serve),
    ]
    by_path: dict[str, dict[str, PageRoute]] = {}
    for page in TABLE:
        for method in page.methods:
            by_path.setdefault(page.path, {})[method] = page
    for path, methods in by_path.items():
        found.append(Route(path, _dispatcher(site, methods), methods=_METHODS))
    found.append(Route("/admin/{rest:path}", _dispatcher(site, {}), methods=_METHODS))
    return found


_METHODS: Final = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


def _dispatcher(site: Site, methods: dict[str, PageRoute]) -> Callable[[Request], Any]:
    async def dispatch(request: Request) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        actor = identify(site, request)
        page = methods.get(method)
        if (page is None or page.role is not None) and isinstance(actor, Unauthorized):
            return _sign_in(request)
        who = _NOBODY if isinstance(actor, Unauthorized) else actor
        view = View(site, who, request, dict(request.path_params), prefs.read(request.cookies))
        if page is None:
            status = 405 if methods else 404
            return await _filled(_error(view, status, "There is no page at this address."))
        if page.role is not None and not who.may(page.role):
            text = f"This page needs the role {page.role}; yours is {who.role}."
            return await _filled(_error(view, 403, text))
        return await _serve(page, view)

    return dispatch


async def _serve(page: PageRoute, view: View) -> Response:
    try:
        if view.request.method == "POST":
            view.form = await read_form(view.request)
        return await _filled(await page.handler(view))
    except ApiError as error:
        answer = _error(view, error.status, _sentence(error.text))
    except Exception:  # noqa: BLE001  # a fault of one page; the reader keeps the frame
        _log.error("page failed", path=view.request.url.path, error=traceback.format_exc())
        text = "This page failed; the log says why. The queues are not affected."
        answer = _error(view, 500, text)
    return await _filled(answer)


async def _filled(answer: Response) -> Response:
    if isinstance(answer, Rendered):
        await answer.fill()
    return answer


def _sign_in(request: Request) -> Response:
    is_from_elsewhere = request.headers.get("sec-fetch-site") in ("cross-site", "same-site")
    if request.method == "GET" and is_from_elsewhere:
        return HTMLResponse(_BOUNCE)
    wanted = here(request)
    is_page = request.method == "GET" and wanted != "/admin/"
    return RedirectResponse(
        with_query("/admin/login", next=wanted if is_page else ""), status_code=303
    )


_TITLES: Final = {
    400: "That did not work",
    403: "Not yours to see",
    404: "Not found",
    405: "Not found",
    409: "Not possible now",
    412: "The file changed meanwhile",
    413: "Too large",
    422: "Refused",
}


def _error(view: View, status: int, text: str) -> Response:
    again = view.here if view.request.method == "GET" and status not in (403, 404, 405) else ""
    title = _TITLES.get(status, "That did not work")
    return view.render("error.html", status=status, title=title, text=text, again=again)


def _sentence(text: str) -> str:
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?")) else f"{text}."
