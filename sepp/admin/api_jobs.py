"""Jobs: lists, details, and what operators do to them."""

import base64
import binascii
from collections.abc import AsyncGenerator
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType
from starlette.responses import Response

from sepp.admin import actions, listing
from sepp.admin.actions import DeadVerb, Result
from sepp.admin.backend import CAUSES, EnqueueForm, State
from sepp.admin.endpoint import Call, Endpoint, Param, given, page_limit
from sepp.admin.errors import invalid, not_found
from sepp.admin.guard import DOWNLOAD_CSP
from sepp.admin.listing import INLINE_BYTES_MAX, Filter, Row
from sepp.admin.messages import EnqueuedBody, JobBody, JobPage, MovedBody, ReleasedBody
from sepp.admin.requests import (
    BuryBody,
    DeadFilter,
    EnqueueBody,
    PayloadForm,
    ReleaseBody,
    SelectBody,
)
from sepp.admin.streamed import StreamedResponse
from sepp.config.table import I64_MAX
from sepp.wire import id_bytes

I64_MIN: Final = -(2**63)
STATES: Final = tuple(state.value for state in State)
EXPORT_ROWS: Final = 100

FILTERS: Final = (
    Param("cause", "Only dead letters with this cause.", choices=tuple(CAUSES.values())),
    Param("job_type", "Only this job type, exactly."),
    Param("reason", "Only where the last reason holds this text, in any case."),
    Param("failed_before_ms", "Only what died before this time.", "ms"),
)

_encode = msgspec.json.Encoder().encode


def filter_of_query(query: dict[str, object]) -> Filter:
    """Return the filter that `FILTERS` describes."""
    found = msgspec.convert(
        {param.name: query[param.name] for param in FILTERS if param.name in query}, DeadFilter
    )
    return listing.filter_of(found)


# Reading


async def _list(call: Call) -> JobPage:
    state = State(call.query["state"])
    wanted = filter_of_query(call.query)
    if state is not State.DEAD_LETTER and not wanted.is_empty:
        raise invalid("the filters are for dead letters only")
    found = await listing.page(
        call.site.backend,
        call.params["name"],
        state,
        after=listing.parse_cursor(call.query.get("cursor")),
        limit=page_limit(call.query),
        is_newest_first=call.query.get("order") == "newest" and state is not State.READY,
        wanted=wanted,
    )
    return JobPage(
        jobs=[listing.job_body(row, inline_bytes_max=INLINE_BYTES_MAX) for row in found.rows],
        next_cursor=listing.cursor_of(found.next),
        truncated=found.is_truncated,
        examined=found.examined,
    )


async def find_row(call: Call, job_id: bytes | None) -> Row:
    """Return a job in any state with its contents; 404 when there is none."""
    backend = call.site.backend
    if job_id is not None:
        await backend.locate([job_id])
        head = backend.find(job_id)
        if head is not None:
            return (await listing.rows_of(backend, [head]))[0]
    raise not_found("no live job or dead letter has this id; it may be done, deleted or expired")


async def _job(call: Call) -> JobBody:
    row = await find_row(call, id_bytes(call.params["id"]))
    if row.head.state is State.DEAD_LETTER:
        raise not_found("the job is dead; see /dead-letters/{id}")
    return listing.job_body(row, inline_bytes_max=None, is_detail=True)


async def _dead_letter(call: Call) -> JobBody:
    row = await find_row(call, id_bytes(call.params["id"]))
    if row.head.state is not State.DEAD_LETTER:
        raise not_found("the job is alive; see /jobs/{id}")
    return listing.job_body(row, inline_bytes_max=None, is_detail=True)


async def _dead_letter_by_key(call: Call) -> JobBody:
    job_id, failed_ms = listing.parse_handle(call.params["key_b64"])
    row = await find_row(call, job_id)
    head = row.head
    is_same = failed_ms in (None, head.at_ms) and head.queue == call.params["name"]
    if head.state is not State.DEAD_LETTER or not is_same:
        raise not_found("this dead letter is gone")
    return listing.job_body(row, inline_bytes_max=None, is_detail=True)


async def _export(call: Call) -> Response:
    wanted = filter_of_query(call.query)
    queue, backend = call.params["name"], call.site.backend

    async def lines() -> AsyncGenerator[bytes]:
        after = None
        while True:
            found = await listing.page(
                backend, queue, State.DEAD_LETTER, after=after, limit=EXPORT_ROWS, wanted=wanted
            )
            for row in found.rows:
                yield _encode(listing.job_body(row, inline_bytes_max=None)) + b"\n"
            after = found.next
            if after is None:
                return

    headers = {
        "content-disposition": 'attachment; filename="dead-letters.jsonl"',
        "content-security-policy": DOWNLOAD_CSP,
    }
    return StreamedResponse(lines(), "application/jsonl", headers)


# Acting


def payload_of(form: PayloadForm | UnsetType) -> tuple[bytes | None, str]:
    """Return data and encoding of a payload; exactly one of base64 and text must be sent."""
    if form is UNSET or isinstance(form, UnsetType):
        return None, ""
    if (form.data_b64 is UNSET) == (form.data_text is UNSET):
        raise invalid("payload needs either data_b64 or data_text")
    if isinstance(form.data_text, str):
        return form.data_text.encode(), form.encoding
    try:
        return base64.b64decode(str(form.data_b64), validate=True), form.encoding
    except (binascii.Error, ValueError) as error:
        raise invalid("payload.data_b64 is not base64") from error


async def _enqueue(call: Call) -> EnqueuedBody:
    body: EnqueueBody = call.body
    data, encoding = payload_of(body.payload)
    custom = given(body.custom) or {}
    for key, value in custom.items():
        is_too_big = isinstance(value, int) and not I64_MIN <= value <= I64_MAX
        if is_too_big:
            raise invalid(f"custom.{key[:64]} does not fit into 64 bits")
    form = EnqueueForm(
        call.params["name"],
        body.job_type,
        data,
        encoding,
        priority=given(body.priority),
        max_attempts=given(body.max_attempts),
        scheduled_at_ms=given(body.scheduled_at_ms),
        idempotency_key=given(body.idempotency_key),
        custom=custom,
    )
    job_id, is_duplicate, _ = await actions.enqueue(call.site, call.actor, form)
    return EnqueuedBody(job_id=job_id, deduplicated=is_duplicate)


def _moved(result: Result, field: str, *, is_by_filter: bool = False) -> MovedBody:
    body = MovedBody(missing=result.missing)
    setattr(body, field, result.moved)
    if is_by_filter:
        body.examined = result.examined
        body.next_cursor = listing.cursor_of(result.next)
    if result.audit is not None:
        body.audit_seq = result.audit
    return body


async def _bury(call: Call) -> MovedBody:
    body: BuryBody = call.body
    result = await actions.bury(
        call.site,
        call.actor,
        call.params["name"],
        State(body.state),
        body.keys_b64,
        body.reason or "",
    )
    return _moved(result, "dead_lettered")


async def _release(call: Call) -> ReleasedBody:
    body: ReleaseBody = call.body
    result = await actions.release(
        call.site, call.actor, call.params["name"], body.id, body.attempt, body.reason or ""
    )
    answer = ReleasedBody(id=body.id.lower(), dead_lettered=result.is_dead)
    if result.audit is not None:
        answer.audit_seq = result.audit
    return answer


async def _move_dead(call: Call, verb: DeadVerb, field: str) -> MovedBody:
    body: SelectBody = call.body
    queue, reason = call.params["name"], body.reason or ""
    if (body.keys_b64 is UNSET) == (body.filter is UNSET):
        raise invalid("send either keys_b64, or filter and until_ms")
    if not isinstance(body.keys_b64, UnsetType):
        result = await actions.move_dead(call.site, call.actor, verb, queue, body.keys_b64, reason)
        return _moved(result, field)
    assert isinstance(body.filter, DeadFilter)
    result = await actions.move_matching(
        call.site,
        call.actor,
        verb,
        queue,
        listing.filter_of(body.filter, given(body.until_ms)),
        listing.parse_cursor(given(body.cursor)),
        reason,
    )
    return _moved(result, field, is_by_filter=True)


async def _requeue(call: Call) -> MovedBody:
    return await _move_dead(call, "requeue", "requeued")


async def _delete_dead(call: Call) -> MovedBody:
    return await _move_dead(call, "delete", "deleted")


ENDPOINTS: Final = (
    Endpoint(
        "GET",
        "/queues/{name}/jobs",
        "viewer",
        _list,
        "One page of the jobs in a state: in dispatch order, or by due time, lease end or death.",
        answer=JobPage,
        params=(
            Param("state", "Which jobs.", choices=STATES, is_required=True),
            Param("cursor", "Where the page before ended."),
            Param("limit", "Jobs a page, 1 to 100; default 50.", "count"),
            Param("order", "Default: oldest first.", choices=("oldest", "newest")),
            *FILTERS,
        ),
    ),
    Endpoint(
        "POST",
        "/queues/{name}/jobs",
        "operator",
        _enqueue,
        "Enqueue a job under the same rules as producers.",
        body=EnqueueBody,
        answer=EnqueuedBody,
        errors=("rejected", "resource_exhausted"),
    ),
    Endpoint(
        "POST",
        "/queues/{name}/jobs:dead-letter",
        "operator",
        _bury,
        "Send ready or scheduled jobs to the dead letters.",
        body=BuryBody,
        answer=MovedBody,
        errors=("resource_exhausted",),
    ),
    Endpoint(
        "POST",
        "/queues/{name}/jobs:release",
        "operator",
        _release,
        "End a lease at once; it counts as a failed attempt.",
        body=ReleaseBody,
        answer=ReleasedBody,
        errors=("not_found", "failed_precondition", "resource_exhausted"),
    ),
    Endpoint(
        "GET",
        "/queues/{name}/dead-letters/{key_b64:path}",
        "viewer",
        _dead_letter_by_key,
        "One dead letter by its key.",
        answer=JobBody,
        errors=("not_found",),
    ),
    Endpoint(
        "POST",
        "/queues/{name}/dead-letters:requeue",
        "operator",
        _requeue,
        "Send dead letters to the back of the queue, by keys or up to 1,000 by filter.",
        body=SelectBody,
        answer=MovedBody,
        errors=("resource_exhausted",),
    ),
    Endpoint(
        "POST",
        "/queues/{name}/dead-letters:delete",
        "operator",
        _delete_dead,
        "Delete dead letters, by keys or up to 1,000 by filter.",
        body=SelectBody,
        answer=MovedBody,
        errors=("resource_exhausted",),
    ),
    Endpoint(
        "GET",
        "/queues/{name}/dead-letters:export",
        "viewer",
        _export,
        "All dead letters that match, one JSON object a line, oldest first.",
        params=FILTERS,
        media_type="application/jsonl",
    ),
    Endpoint(
        "GET",
        "/jobs/{id}",
        "viewer",
        _job,
        "One live job by its id.",
        answer=JobBody,
        errors=("not_found",),
    ),
    Endpoint(
        "GET",
        "/dead-letters/{id}",
        "viewer",
        _dead_letter,
        "One dead letter by its job's id.",
        answer=JobBody,
        errors=("not_found",),
    ),
)
