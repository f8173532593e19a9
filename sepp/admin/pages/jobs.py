"""The jobs of a queue by state, and finding one by its id."""

from typing import Any, Final

from attrs import define
from starlette.responses import Response

from sepp.admin import listing, wording
from sepp.admin.backend import CAUSES, QueueNumbers, State
from sepp.admin.listing import Filter, Row
from sepp.admin.pages import payload, queue_frame
from sepp.admin.pages.view import PageRoute, View, queue_url, segment
from sepp.wire import id_bytes, id_text

PAGE: Final = 50

AGES: Final[dict[str, tuple[int, str]]] = {
    "1h": (3_600_000, "over 1 h ago"),
    "1d": (86_400_000, "over 1 day ago"),
    "7d": (604_800_000, "over 7 days ago"),
}
"""Choices of the filter on when a job died."""

_FIELDS: Final = ("cause", "type", "reason", "before")


@define
class JobRow:
    """One job as the table shows it."""

    id: str
    key: str
    url: str
    row: Row
    cause: str
    preview: str
    size: int | None


def job_url(row: Row) -> str:
    """Return the page of a job."""
    if row.head.state is State.DEAD_LETTER:
        return queue_url(row.head.queue, f"/dead/{segment(listing.handle_of(row.head))}")
    return f"/admin/jobs/{id_text(row.head.job_id)}"


def job_row(row: Row) -> JobRow:
    """Return a job for the table."""
    data = row.content.payload if row.content else None
    return JobRow(
        id=id_text(row.head.job_id),
        key=listing.handle_of(row.head),
        url=job_url(row),
        row=row,
        cause=CAUSES.get(row.head.cause, ""),
        preview=payload.preview(data) if data else "",
        size=None if data is None else len(data),
    )


def state_of(text: str) -> State:
    """Return the state a URL names, ready for anything else."""
    try:
        return State(text)
    except ValueError:
        return State.READY


def filter_of(values: dict[str, str], now_ms: int) -> Filter:
    """Return the filter of a URL or form; what is no choice is no filter."""
    before_ms = None
    if values["before"] in AGES:
        before_ms = now_ms - AGES[values["before"]][0]
    return Filter(
        cause=values["cause"] if values["cause"] in CAUSES.values() else None,
        job_type=values["type"] or None,
        reason=values["reason"] or None,
        before_ms=before_ms,
    )


def filter_values(source: Any) -> dict[str, str]:
    """Return the filter fields of a query or form."""
    return {name: str(source.get(name, ""))[:1024] for name in _FIELDS}


def filter_words(values: dict[str, str]) -> str:
    """Return a filter in words, "" for none."""
    parts = []
    if values["cause"] in wording.CAUSE_WORDS:
        parts.append(f"cause is {wording.CAUSE_WORDS[values['cause']]}")
    if values["type"]:
        parts.append(f"type is {values['type']}")
    if values["reason"]:
        parts.append(f"reason contains “{values['reason']}”")
    if values["before"] in AGES:
        parts.append(f"died {AGES[values['before']][1]}")
    text = " and ".join(parts)
    return text[:1].upper() + text[1:]


async def jobs(view: View) -> Response:
    """The list."""
    name, query = view.params["name"], view.query
    state = state_of(query.get("state", ""))
    is_dead = state is State.DEAD_LETTER
    values = filter_values(query) if is_dead else dict.fromkeys(_FIELDS, "")
    wanted = filter_of(values, view.now_ms)
    cursor = query.get("cursor", "")
    found = await listing.page(
        view.site.backend,
        name,
        state,
        after=listing.parse_cursor(cursor),
        limit=PAGE,
        is_newest_first=is_dead,
        wanted=wanted,
    )
    context = queue_frame.context(view, name, "jobs", found.numbers)
    rows = [job_row(row) for row in found.rows]
    first = _ordinal(query.get("from", "")) if cursor else 1
    total = _total(found.numbers, state)
    shown = {key: value for key, value in values.items() if value}
    following = listing.cursor_of(found.next)
    return view.render(
        "jobs.html",
        **context,
        state=state.value,
        rows=rows,
        values=values,
        ages=AGES,
        filter_words=filter_words(values),
        filter_count=len(shown),
        total=total,
        first=first,
        is_first_page=not cursor,
        first_url=queue_url(name, "/jobs", state=state.value, **shown),
        next_url=queue_url(
            name,
            "/jobs",
            state=state.value,
            **shown,
            cursor=following,
            **{"from": first + len(rows)},
        )
        if following
        else "",
        is_truncated=found.is_truncated,
        examined=found.examined + (first - 1 if cursor else 0),
        retention_ms=view.site.backend.facts.retention_ms,
        until_ms=view.now_ms,
    )


def _ordinal(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and 0 < len(text) < 12 else 1


def _total(numbers: QueueNumbers, state: State) -> int:
    totals: dict[State, int] = {
        State.READY: numbers.ready,
        State.SCHEDULED: numbers.scheduled,
        State.INFLIGHT: numbers.inflight,
        State.DEAD_LETTER: numbers.dead_lettered,
        State.ASIDE: numbers.aside,
    }
    return totals[state]


async def queue(view: View) -> Response:
    """A queue without a tab: its ready jobs."""
    return view.redirect(queue_url(view.params["name"], "/jobs", state="ready"))


async def find(view: View) -> Response:
    """Find a job by its id and go to its page; live jobs first, then dead letters."""
    text = view.query.get("id", "").strip()
    job_id = id_bytes(text)
    if job_id is None:
        if not text:
            return view.redirect("/admin/")
        return _nowhere(view, "This is no job id: an id has 36 characters, with hyphens.")
    return view.redirect(f"/admin/jobs/{id_text(job_id)}")


def _nowhere(view: View, why: str) -> Response:
    return view.render(
        "error.html",
        status=404,
        title="No such job",
        text=why,
        again="",
        nav="queues",
    )


ROUTES: Final = (
    PageRoute("/admin/queues/{name}", queue),
    PageRoute("/admin/queues/{name}/jobs", jobs),
    PageRoute("/admin/jobs", find),
)
