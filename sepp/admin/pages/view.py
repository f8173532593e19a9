"""One page request, and what turns its answer into HTML."""

import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, quote, urlencode

import trio
from attrs import define, field, frozen
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from sepp.admin import wording
from sepp.admin.errors import invalid
from sepp.admin.guard import read_body
from sepp.admin.notes import Note, Tone
from sepp.admin.pages import assets, prefs
from sepp.admin.pages.prefs import Prefs
from sepp.admin.sessions import Actor
from sepp.admin.site import Site
from sepp.config.sections import Role

HERE: Final = Path(__file__).resolve().parent.parent
TEMPLATES: Final = HERE / "templates"
NOTE_COOKIE: Final = "sepp_note"
FORM_BYTES_MAX: Final = 8 * 1024 * 1024
FORM_FIELDS_MAX: Final = 2000
SLICE_S: Final = 0.002  # of making a page between two looks at the other tasks


def segment(text: str) -> str:
    """Return a text as one path segment."""
    return quote(text, safe="")


def queue_url(name: str, tail: str = "", **query: object) -> str:
    """Return the URL of a page of a queue; empty parameters are left out."""
    url = f"/admin/queues/{segment(name)}{tail}"
    kept = {key: value for key, value in query.items() if value not in (None, "")}
    return f"{url}?{urlencode(kept)}" if kept else url


def with_query(path: str, **query: object) -> str:
    """Return a path with those parameters that are not empty."""
    kept = {key: value for key, value in query.items() if value not in (None, "")}
    return f"{path}?{urlencode(kept)}" if kept else path


def path_of(request: Request) -> str:
    """Return the path of a request as part of a URL: decoded, a name in it may hold ?, # or %."""
    return quote(request.scope["path"])


def here(request: Request) -> str:
    """Return a URL that leads where this request led, with its query."""
    query = request.url.query
    return f"{path_of(request)}?{query}" if query else path_of(request)


@lru_cache(maxsize=1)
def environment() -> Environment:
    """Return the one template environment: everything is escaped, nothing undefined passes."""
    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters.update(
        count=wording.count,
        rate=wording.rate,
        size=wording.size,
        span=wording.span,
        exact_span=wording.exact_span,
        exact_size=wording.exact_size,
        moment=wording.moment,
        clock=wording.clock,
        iso=wording.iso,
        segment=segment,
    )
    made.globals.update(
        queue_url=queue_url,
        with_query=with_query,
        relative=wording.relative,
        day=wording.day,
        plural=wording.plural,
        cause_words=wording.CAUSE_WORDS,
        state_words=wording.STATE_WORDS,
        ranges=prefs.RANGES,
        nothing=Markup('<span class="faint">–</span>'),
    )
    return made


async def load_templates() -> None:
    """Compile all templates, which takes long, before somebody waits for the first page."""
    made = environment()
    for name in made.list_templates():
        made.get_template(name)
        await trio.lowlevel.checkpoint()


class Rendered(HTMLResponse):
    """A page whose text is yet to be made, by `fill`."""

    def __init__(self, pieces: Iterator[str], status: int) -> None:
        super().__init__(status_code=status)
        self._pieces = pieces

    async def fill(self) -> None:
        """Make the text; others get their turn every 2 ms."""
        made: list[str] = []
        began_s = time.perf_counter()
        for piece in self._pieces:
            made.append(piece)
            if time.perf_counter() - began_s > SLICE_S:
                await trio.lowlevel.checkpoint()
                began_s = time.perf_counter()
        self.body = "".join(made).encode()
        self.headers["content-length"] = str(len(self.body))


@define
class View:
    """One page request of somebody who may make it."""

    site: Site
    actor: Actor
    request: Request
    params: dict[str, str]
    prefs: Prefs
    form: FormData = field(factory=FormData)
    now_ms: int = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.now_ms = self.site.backend.now_ms()

    @property
    def query(self) -> Mapping[str, str]:
        """The query parameters; the first of each name."""
        return self.request.query_params

    @property
    def path(self) -> str:
        """The path, as part of a URL."""
        return path_of(self.request)

    @property
    def here(self) -> str:
        """The path with its query, to come back to."""
        return here(self.request)

    def text(self, name: str, longest: int = 2048) -> str:
        """Return a field of the posted form, cut to `longest` characters."""
        value = self.form.get(name, "")
        return value[:longest] if isinstance(value, str) else ""

    def texts(self, name: str) -> list[str]:
        """Return all values of a field of the posted form."""
        return [value for value in self.form.getlist(name) if isinstance(value, str)]

    @property
    def is_confirmed(self) -> bool:
        """Whether the reader has seen what will be done."""
        return self.text("confirm") == "1"

    def render(self, template: str, *, status: int = 200, **values: object) -> Response:
        """Return a page, to be filled; the note of the action before is shown once.

        `nav` names the current entry of the menu, `live` the queues whose figures the page shows
        (None: no stream at all).
        """
        ticket = self.request.cookies.get(NOTE_COOKIE)
        values.setdefault("note", self.site.notes.take(ticket))
        values.setdefault("nav", "")
        values.setdefault("live", [])
        pieces = (
            environment()
            .get_template(template)
            .generate(
                view=self,
                actor=self.actor,
                prefs=self.prefs,
                now_ms=self.now_ms,
                # Not before the newest figure of the page was read: older frames are passed over.
                shown_ms=self.site.backend.now_ms(),
                facts=self.site.backend.facts,
                assets=f"/admin/assets/{assets.version()}",
                **values,
            )
        )
        response = Rendered(pieces, status)
        if ticket:
            response.delete_cookie(NOTE_COOKIE, path="/admin")
        return response

    def done(self, url: str, text: str, tone: Tone = "good", audit: int | None = None) -> Response:
        """Return the way to the page after an action, which will show this note."""
        return self.redirect(url, Note(text, tone, audit if self.actor.may("admin") else None))

    def redirect(self, url: str, note: Note | None = None) -> Response:
        """Return 303 to a page of ours."""
        response = RedirectResponse(url, status_code=303)
        if note is not None:
            response.set_cookie(
                NOTE_COOKIE,
                self.site.notes.put(note),
                max_age=60,
                path="/admin",
                httponly=True,
                samesite="strict",
            )
        return response


Handler = Callable[[View], Awaitable[Response]]


@frozen
class PageRoute:
    """One page: methods on a path below `/admin`, for a role and above; None: anybody."""

    path: str
    handler: Handler
    role: Role | None = "viewer"
    methods: tuple[str, ...] = ("GET",)


async def read_form(request: Request) -> FormData:
    """Return the fields of a posted form, bounded in size and number.

    Raises:
        ApiError: It is too large, slow, or no form.
    """
    body = await read_body(request, FORM_BYTES_MAX)
    try:
        pairs = parse_qsl(
            body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=FORM_FIELDS_MAX
        )
    except ValueError as error:
        raise invalid(f"the form has more than {FORM_FIELDS_MAX} fields") from error
    return FormData([(name, value) for name, value in pairs])


def local_url(text: str, otherwise: str = "/admin/") -> str:
    """Return a URL somebody sent if it is a page of ours, else another one."""
    is_ours = text.startswith("/admin/") and "\\" not in text and "//" not in text.partition("?")[0]
    return text if is_ours and text.isprintable() else otherwise
