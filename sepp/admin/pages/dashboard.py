"""The queues: what needs attention first, then figures, then a table or cards."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import trio
from attrs import define
from starlette.responses import Response

from sepp.admin import config_edit
from sepp.admin.errors import ApiError
from sepp.admin.messages import Attention, QueueFrame
from sepp.admin.pages import charts, prefs
from sepp.admin.pages.charts import Chart
from sepp.admin.pages.view import PageRoute, View, queue_url, with_query
from sepp.admin.requests import Change

CARDS_MAX: Final = 12  # queues up to which cards are what one sees first
SIZES: Final = (25, 50, 100)
SPARK_POINTS: Final = 45
SPARK_POINTS_MANY: Final = 30
CARD_POINTS: Final = 60
CHART_POINTS: Final = 90
ATTENTION_SHOWN: Final = 3

CONDITIONS: Final[dict[str, tuple[str, Callable[[QueueFrame], bool]]]] = {
    "": ("All", lambda _: True),
    "dead": ("Dead", lambda queue: queue.dead_lettered > 0),
    "waiting": ("Waiting", lambda queue: queue.ready > 0 and not queue.inflight),
    "idle": ("Idle", lambda queue: not (queue.ready or queue.scheduled or queue.inflight)
             and not (queue.rates.enqueued or queue.rates.acked)),
}  # fmt: skip
"""What the list can be narrowed to: word and test."""

SORTS: Final[dict[str, tuple[str, Callable[[QueueFrame], float]]]] = {
    "dead": ("Most dead letters", lambda queue: queue.dead_lettered),
    "ready": ("Most ready", lambda queue: queue.ready),
    "scheduled": ("Most scheduled", lambda queue: queue.scheduled),
    "inflight": ("Most in-flight", lambda queue: queue.inflight),
    "oldest": ("Oldest job", lambda queue: -_oldest(queue)),
    "enqueued": ("Most enqueued", lambda queue: queue.rates.enqueued),
    "acked": ("Most acked", lambda queue: queue.rates.acked),
    "name": ("Name", lambda _: 0),
}
"""What the list can be sorted by: words and value, the largest first."""

_NEVER_MS: Final = 1 << 60


@define
class Row:
    """One queue of the list."""

    name: str
    queue: QueueFrame
    is_declared: bool
    chart: Chart
    oldest_ms: int | None
    is_late: bool


def _oldest(queue: QueueFrame) -> int:
    at_ms = queue.oldest_ready_at_ms
    return at_ms if isinstance(at_ms, int) else _NEVER_MS


async def dashboard(view: View) -> Response:
    """The page."""
    site, query = view.site, view.query
    # Whoever comes back from an action sees what it did, with or without script.
    frame = await site.stats.frame(age_ms_max=0)
    wanted = query.get("q", "").strip().lower()[:512]
    only = query.get("only", "") if query.get("only", "") in CONDITIONS else ""
    sort = query.get("sort", "dead") if query.get("sort", "dead") in SORTS else "dead"
    is_up = query.get("dir") == "up"
    matching = [(n, q) for n, q in frame.queues.items() if wanted in n.lower()]
    tallies = {
        key: sum(1 for _, queue in matching if test(queue)) for key, (_, test) in CONDITIONS.items()
    }
    shown = [pair for pair in matching if CONDITIONS[only][1](pair[1])]
    _order(shown, sort, is_up=is_up)
    is_cards = _is_cards(view, len(frame.queues))
    sizes = SIZES[:2] if is_cards else SIZES  # more of them would be a page too heavy
    limit = next((size for size in sizes if query.get("limit") == str(size)), sizes[1])
    pages = max(1, -(-len(shown) // limit))
    page = min(_number(query.get("page", "1")), pages)
    part = shown[(page - 1) * limit : page * limit]
    span = query.get("range", view.prefs.range)
    span = span if span in prefs.RANGES else view.prefs.range
    kept = {"q": query.get("q", ""), "only": only, "sort": sort, "dir": "up" if is_up else ""}
    kept |= {"limit": str(limit), "view": query.get("view", "")}
    return view.render(
        "dashboard.html",
        nav="queues",
        live=[name for name, _ in part],
        frame=frame,
        chart=_chart(view, None, span, CHART_POINTS),
        attention=shown_attention(frame.attention),
        attention_rest=max(0, len(frame.attention) - ATTENTION_SHOWN),
        has_bad=any(line.level == "bad" for line in frame.attention),
        rows=await _rows(view, part, span, is_cards=is_cards),
        is_cards=is_cards,
        tallies=tallies,
        link=lambda **changes: _link({**kept, **changes}),
        kept=[pair for pair in kept.items() if pair[1]],
        conditions=CONDITIONS,
        sorts=SORTS,
        q=query.get("q", ""),
        only=only,
        sort=sort,
        is_up=is_up,
        limit=limit,
        sizes=sizes,
        page=page,
        pages=pages,
        first=(page - 1) * limit + 1,
        total=len(shown),
        queue_count=len(frame.queues),
        span=span,
        history_ms=site.stats.history_ms,
        is_strict=site.backend.config.running.server.strict_queues,
        axis=charts.axis,
    )


def _link(query: Mapping[str, object]) -> str:
    """Return the dashboard's URL; what is the default is left out."""
    defaults = {"sort": "dead", "limit": "50", "page": "1"}
    return with_query("/admin/", **{k: v for k, v in query.items() if str(v) != defaults.get(k)})


def _is_cards(view: View, queue_count: int) -> bool:
    chosen = view.query.get("view", view.prefs.view)
    return chosen == "cards" or (chosen != "table" and queue_count <= CARDS_MAX)


def _order(pairs: list[tuple[str, QueueFrame]], sort: str, *, is_up: bool) -> None:
    """Sort in place: by name first, so that equals stand by name; then ready breaks a tie."""
    pairs.sort(key=lambda pair: pair[0], reverse=sort == "name" and is_up)
    if sort == "name":
        return
    if sort == "dead":
        pairs.sort(key=lambda pair: pair[1].ready, reverse=True)
    value = SORTS[sort][1]
    pairs.sort(key=lambda pair: value(pair[1]), reverse=not is_up)


async def _rows(
    view: View, pairs: Sequence[tuple[str, QueueFrame]], span: str, *, is_cards: bool
) -> list[Row]:
    declared = {queue.name for queue in view.site.backend.config.running.queues}
    has_hits = is_cards and len(pairs) <= CARDS_MAX  # columns to point at would fill the page
    found = []
    spark_points = SPARK_POINTS if len(pairs) <= SIZES[1] else SPARK_POINTS_MANY
    points = CARD_POINTS if is_cards else spark_points
    for place, (name, queue) in enumerate(pairs):
        if place % 10 == 9:
            await trio.lowlevel.checkpoint()
        oldest = queue.oldest_ready_at_ms if isinstance(queue.oldest_ready_at_ms, int) else None
        found.append(
            Row(
                name,
                queue,
                name in declared,
                _chart(view, name, span, points, is_spark=not is_cards, has_hits=has_hits),
                oldest,
                oldest is not None and view.now_ms - oldest >= 300_000,
            )
        )
    return found


def _chart(
    view: View,
    name: str | None,
    span: str,
    points: int,
    *,
    is_spark: bool = False,
    has_hits: bool = True,
) -> Chart:
    span_ms = prefs.RANGES[span][0]
    samples = view.site.stats.samples(name, span_ms, points)
    width, height = (120, 24) if is_spark else (300, 56) if name is not None else (600, 100)
    return charts.draw(samples, width=width, height=height, span_ms=span_ms, has_hits=has_hits)


def shown_attention(lines: Sequence[Attention]) -> list[tuple[Attention, str]]:
    """Return the worst lines with the page each leads to."""
    found = []
    for line in lines[:ATTENTION_SHOWN]:
        name = line.queue if isinstance(line.queue, str) else None
        if name is None:
            url = "/admin/config" if line.rule == "reload_failed" else "/admin/server"
        else:
            state = "dead_letter" if line.rule == "died" else "ready"
            url = queue_url(name, "/jobs", state=state)
        found.append((line, url))
    return found


def _number(text: str) -> int:
    return max(1, int(text)) if text.isascii() and text.isdecimal() and len(text) < 7 else 1


async def declare_form(view: View) -> Response:
    """Ask for the name of a new queue."""
    return view.render("declare.html", nav="queues", error="", name=view.query.get("name", ""))


async def declare(view: View) -> Response:
    """Declare a queue and go to its settings."""
    name = view.text("name").strip()
    etag = config_edit.read_file(view.site.backend.config.path).etag
    try:
        await config_edit.put_queue(view.site, view.actor, etag, name, {})
    except ApiError as error:
        return view.render(
            "declare.html", status=error.status, nav="queues", error=error.text, name=name
        )
    return view.done(queue_url(name, "/settings"), f"Declared {name}.")


async def strict(view: View) -> Response:
    """Turn strict mode on or off, after saying what that stops."""
    wanted = view.text("value") == "on"
    frame = await view.site.stats.frame(age_ms_max=0)
    declared = {queue.name for queue in view.site.backend.config.running.queues}
    foreign = [
        name for name, q in frame.queues.items() if name not in declared and q.ready + q.scheduled
    ]
    if not view.is_confirmed:
        return view.render("strict.html", nav="queues", wanted=wanted, foreign=foreign)
    etag = config_edit.read_file(view.site.backend.config.path).etag
    change = Change(path="server.strict_queues", value=wanted)
    await config_edit.change_settings(view.site, view.actor, etag, [change])
    if wanted:
        text = "Strict mode is on: only declared queues take jobs."
    else:
        text = "Strict mode is off: a queue appears with its first job."
    return view.done("/admin/", text)


ROUTES: Final = (
    PageRoute("/admin/", dashboard),
    PageRoute("/admin/declare", declare_form, "admin"),
    PageRoute("/admin/declare", declare, "admin", ("POST",)),
    PageRoute("/admin/strict", strict, "admin", ("POST",)),
)
