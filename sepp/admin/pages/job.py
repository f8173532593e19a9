"""One job: why it died first, then its payload, custom fields, facts and times."""

from typing import Final

from starlette.responses import Response

from sepp.admin import listing
from sepp.admin.backend import CAUSES, CustomValue, JobContent, State
from sepp.admin.errors import not_found
from sepp.admin.guard import DOWNLOAD_CSP
from sepp.admin.listing import Row
from sepp.admin.pages import jobs, payload
from sepp.admin.pages.view import PageRoute, View, queue_url, segment
from sepp.wire import id_bytes, id_text

KINDS: Final[dict[type, str]] = {bool: "bool", int: "integer", float: "double", str: "string"}
_NOWHERE: Final = "no live job or dead letter has this id. It may be done, deleted or expired"


async def _live_row(view: View) -> Row:
    job_id = id_bytes(view.params["id"])
    if job_id is None:
        raise not_found("this is no job id: an id has 36 characters, with hyphens")
    return await _row(view, job_id, None)


async def _dead_row(view: View) -> Row:
    job_id, failed_ms = listing.parse_handle(view.params["key"])
    row = await _row(view, job_id, failed_ms)
    is_same = failed_ms in (None, row.head.at_ms) and row.head.queue == view.params["name"]
    if row.head.state is not State.DEAD_LETTER or not is_same:
        raise not_found("this dead letter is gone: requeued, deleted or expired")
    return row


async def _row(view: View, job_id: bytes, failed_ms: int | None) -> Row:
    backend = view.site.backend
    await backend.locate([job_id])
    head = backend.find(job_id)
    if head is None:
        raise not_found(_NOWHERE if failed_ms is None else "this dead letter is gone")
    return (await listing.rows_of(backend, [head]))[0]


async def live(view: View) -> Response:
    """A job that is ready, scheduled or in flight; a dead one is shown on its own page."""
    row = await _live_row(view)
    if row.head.state is State.DEAD_LETTER:
        return view.redirect(jobs.job_url(row))
    return _page(view, row, "", "")


async def dead(view: View) -> Response:
    """A dead letter, with the way to its neighbours."""
    row = await _dead_row(view)
    backend, queue = view.site.backend, row.head.queue
    ordering = (queue, State.DEAD_LETTER, row.head.position, 1)
    older = backend.heads(*ordering, is_newest_first=True)
    newer = backend.heads(*ordering, is_newest_first=False)
    urls = [
        queue_url(queue, f"/dead/{segment(listing.handle_of(heads[0]))}") if heads else ""
        for heads in (newer, older)
    ]
    return _page(view, row, *urls)


def _page(view: View, row: Row, newer: str, older: str) -> Response:
    head, content = row.head, row.content
    data = content.payload if content else None
    retention_ms = view.site.backend.facts.retention_ms
    is_peek = view.query.get("part") == "peek"
    return view.render(
        "peek.html" if is_peek else "job.html",
        nav="queues",
        live=[head.queue],
        head=head,
        content=content,
        id=id_text(head.job_id),
        key=listing.handle_of(head),
        reason=row.reason,
        cause=CAUSES.get(head.cause, ""),
        shown=None if data is None else payload.show(data, view.query.get("as")),
        custom=_custom(content),
        payload_url=f"{view.path}/payload",
        here=view.path,
        all_bytes_max=payload.ALL_BYTES_MAX,
        newer=newer,
        older=older,
        kept_until_ms=head.at_ms + retention_ms if retention_ms else None,
        retention_ms=retention_ms,
        peek_bytes=payload.visible(data[:128].decode("utf-8", "replace")) if data else "",
    )


def _custom(content: JobContent | None) -> list[tuple[str, CustomValue, str]]:
    if content is None:
        return []
    return [
        (payload.visible(key), _shown(value), KINDS[type(value)])
        for key, value in content.custom.items()
    ]


def _shown(value: CustomValue) -> CustomValue:
    if isinstance(value, str):
        return payload.visible(value)
    return str(value).lower() if isinstance(value, bool) else listing.json_value(value)


async def live_payload(view: View) -> Response:
    """The payload of a live job as a download."""
    return _download(await _live_row(view))


async def dead_payload(view: View) -> Response:
    """The payload of a dead letter as a download."""
    return _download(await _dead_row(view))


def _download(row: Row) -> Response:
    if row.content is None or row.content.payload is None:
        raise not_found("this job has no payload")
    name = f"{id_text(row.head.job_id)}.bin"
    headers = {
        "content-disposition": f'attachment; filename="{name}"',
        "content-security-policy": DOWNLOAD_CSP,
    }
    return Response(row.content.payload, media_type="application/octet-stream", headers=headers)


ROUTES: Final = (
    PageRoute("/admin/queues/{name}/dead/{key:path}/payload", dead_payload),
    PageRoute("/admin/queues/{name}/dead/{key:path}", dead),
    PageRoute("/admin/jobs/{id}/payload", live_payload),
    PageRoute("/admin/jobs/{id}", live),
)
