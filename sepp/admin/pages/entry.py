"""Signing in and out, and what a reader chooses once for all pages."""

from typing import Final
from urllib.parse import unquote

from starlette.responses import Response

from sepp.admin import api_session, config_edit, wording
from sepp.admin.errors import ApiError
from sepp.admin.pages import prefs
from sepp.admin.pages.view import PageRoute, View, local_url


async def login_form(view: View) -> Response:
    """Ask for name and key."""
    return _form(view, local_url(view.query.get("next", "")), "", "", 200)


async def login(view: View) -> Response:
    """Make a session and go where the reader wanted to."""
    name, target = view.text("name"), local_url(view.text("next"))
    try:
        _, token = await api_session.sign_in(view.site, view.request, name, view.text("key", 4096))
    except ApiError:
        text = "No admin key has this name and key. Check both and try again."
        return _form(view, target, name, text, 401)
    response = view.redirect(target)
    is_tls = view.request.url.scheme == "https"
    api_session.set_cookie(response, view.site, token, is_tls=is_tls)
    return response


def _form(view: View, target: str, name: str, error: str, status: int) -> Response:
    return view.render(
        "login.html",
        status=status,
        live=None,
        next=target,
        where=_where(target),
        name=name,
        error=error,
        file_name=config_edit.file_name(view.site),
    )


def _where(target: str) -> str:
    """Return the page a URL leads to, in words; "" where that says nothing."""
    path, _, query = target.partition("?")
    pieces = path.split("/")
    if len(pieces) > 3 and pieces[2] == "queues":
        for state, words in wording.STATE_WORDS.items():
            if f"state={state}" in query.split("&"):
                return f"{unquote(pieces[3])}, {words.lower()}"
        return unquote(pieces[3])
    return {"config": "the configuration", "audit": "the audit trail", "server": "the server"}.get(
        pieces[2], ""
    )


async def logout(view: View) -> Response:
    """End the session."""
    return api_session.sign_out(view.site, view.request, view.redirect("/admin/login"))


async def choose(view: View) -> Response:
    """Remember a choice and go back to the page it was made on."""
    wanted = {name: view.text(name) for name in prefs.CHOICES}
    response = view.redirect(local_url(view.text("back")))
    chosen = prefs.change(view.prefs, wanted)
    prefs.write(response, chosen, is_tls=view.request.url.scheme == "https")
    return response


ROUTES: Final = (
    PageRoute("/admin/login", login_form, None),
    PageRoute("/admin/login", login, None, ("POST",)),
    PageRoute("/admin/logout", logout, None, ("POST",)),
    PageRoute("/admin/prefs", choose, None, ("POST",)),
)
