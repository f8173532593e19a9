"""Jobs as lists show them: pages by cursor, filters that stop looking, handles that fence actions.

A page costs the same with ten jobs behind it or two hundred thousand: it starts with a seek and
ends after its rows. Only a filter has to look at jobs it does not show; it stops after 10,000, or
a quarter of a second, and says so.
"""

import base64
import binascii
import math
from typing import Final

import trio
from attrs import define, frozen
from msgspec import UNSET

from sepp.admin.backend import (
    CAUSES,
    Backend,
    CustomValue,
    JobContent,
    JobHead,
    QueueNumbers,
    State,
)
from sepp.admin.errors import invalid
from sepp.admin.messages import JobBody, Payload
from sepp.admin.requests import DeadFilter
from sepp.wire import id_text

LOOKED_AT_MAX: Final = 10_000
LOOKING_S: Final = 0.25
INLINE_BYTES_MAX: Final = 4096  # of a payload in a list
_CHUNK: Final = 100
_CURSOR_BYTES: Final = 15


@define
class Row:
    """A job with what its body and its reason say; `content` is None when it is gone or damaged."""

    head: JobHead
    content: JobContent | None
    reason: str | None


@define
class Page:
    """Rows, and where to go on. `is_truncated`: the filter stopped before it knew of a next row.

    `numbers` are the queue's of the very moment the rows were listed.
    """

    rows: list[Row]
    next: int | None
    is_truncated: bool
    examined: int
    numbers: QueueNumbers


@frozen
class Filter:
    """Which jobs; all of what is set must hold. `until_ms` is inclusive, `before_ms` is not."""

    cause: str | None = None
    job_type: str | None = None
    reason: str | None = None
    before_ms: int | None = None
    until_ms: int | None = None

    @property
    def needs_bodies(self) -> bool:
        """Whether columns alone cannot tell."""
        return bool(self.job_type or self.reason)

    @property
    def is_empty(self) -> bool:
        """Whether every job matches."""
        return self == Filter()

    def may_match(self, head: JobHead) -> bool:
        """Return whether the columns fit."""
        if self.cause is not None and CAUSES.get(head.cause) != self.cause:
            return False
        if self.before_ms is not None and head.at_ms >= self.before_ms:
            return False
        if self.until_ms is not None and head.at_ms > self.until_ms:
            return False
        return not (self.reason and head.reason_slot < 0)

    def matches(self, row: Row) -> bool:
        """Return whether body and reason fit too."""
        if self.job_type and (row.content is None or row.content.job_type != self.job_type):
            return False
        return not (self.reason and self.reason.lower() not in (row.reason or "").lower())


def filter_of(body: DeadFilter, until_ms: int | None = None) -> Filter:
    """Return a filter as the API takes it."""
    return Filter(
        cause=None if body.cause is UNSET else body.cause,
        job_type=None if body.job_type is UNSET else body.job_type,
        reason=None if body.reason is UNSET else body.reason,
        before_ms=None if body.failed_before_ms is UNSET else body.failed_before_ms,
        until_ms=until_ms,
    )


async def page(
    backend: Backend,
    queue: str,
    state: State,
    *,
    after: int | None = None,
    limit: int = 50,
    is_newest_first: bool = False,
    wanted: Filter = Filter(),  # frozen
) -> Page:
    """Return the next `limit` matching jobs behind `after`, with their contents."""
    if is_newest_first and wanted.before_ms is not None:
        start = backend.seek(wanted.before_ms)
        after = start if after is None else min(after, start)
    if wanted.is_empty:
        heads = backend.heads(queue, state, after, limit + 1, is_newest_first=is_newest_first)
        numbers = backend.queue(queue)
        shown = heads[:limit]
        rows = await rows_of(backend, shown)
        following = shown[-1].position if len(heads) > limit else None
        return Page(rows, following, False, len(shown), numbers)
    return await _look(backend, queue, state, after, limit, wanted, is_newest_first)


async def _look(
    backend: Backend,
    queue: str,
    state: State,
    after: int | None,
    limit: int,
    wanted: Filter,
    is_newest_first: bool,
) -> Page:
    found: list[Row] = []
    examined = 0
    stop_at = trio.current_time() + LOOKING_S
    while True:
        heads = backend.heads(queue, state, after, _CHUNK, is_newest_first=is_newest_first)
        numbers = backend.queue(queue)
        candidates = [head for head in heads if wanted.may_match(head)]
        if wanted.needs_bodies:
            rows = await rows_of(backend, candidates)
            matching = [row for row in rows if wanted.matches(row)]
        else:
            matching = [Row(head, None, None) for head in candidates]
            await trio.lowlevel.checkpoint()
        for row in matching:
            if len(found) == limit:
                following = found[-1].head.position
                page = Page(found, following, False, examined, numbers)
                return await _finished(backend, page, wanted)
            found.append(row)
        examined += len(heads)
        is_past = (
            not is_newest_first
            and wanted.until_ms is not None
            and heads
            and heads[-1].at_ms > wanted.until_ms
        )
        if len(heads) < _CHUNK or is_past:
            return await _finished(backend, Page(found, None, False, examined, numbers), wanted)
        after = heads[-1].position
        if examined >= LOOKED_AT_MAX or trio.current_time() > stop_at:
            return await _finished(backend, Page(found, after, True, examined, numbers), wanted)


async def _finished(backend: Backend, page: Page, wanted: Filter) -> Page:
    if not wanted.needs_bodies:
        page.rows = await rows_of(backend, [row.head for row in page.rows])
    return page


async def rows_of(backend: Backend, heads: list[JobHead]) -> list[Row]:
    """Return the jobs with their contents and reasons."""
    contents = await backend.contents(heads)
    reasons = await backend.reasons(heads)
    return [
        Row(head, content, reason)
        for head, content, reason in zip(heads, contents, reasons, strict=True)
    ]


# Bodies of the API


def job_body(row: Row, *, inline_bytes_max: int | None, is_detail: bool = False) -> JobBody:
    """Return a job as the API shows it, its data inline up to `inline_bytes_max` (None: always)."""
    head, content = row.head, row.content
    body = JobBody(
        id=id_text(head.job_id),
        key_b64=handle_of(head),
        job_type=content.job_type if content else "",
        priority=head.priority,
        attempt=head.attempt,
        max_attempts=head.max_attempts,
        enqueued_at_ms=head.enqueued_ms,
        custom={key: json_value(value) for key, value in content.custom.items()} if content else {},
        payload=_payload(content, inline_bytes_max),
    )
    if content is None:
        body.damaged = True
    elif content.scheduled_at_ms is not None:
        body.scheduled_at_ms = content.scheduled_at_ms
    if head.state is State.SCHEDULED and head.attempt > 1:
        body.retry_at_ms = head.at_ms
    if head.state is State.INFLIGHT:
        body.lease_expires_at_ms = head.at_ms
    if head.state is State.DEAD_LETTER:
        body.failed_at_ms = head.at_ms
        body.cause = CAUSES[head.cause]  # type: ignore[assignment]  # the names are these literals
    if row.reason is not None:
        body.last_reason = row.reason
    if is_detail:
        body.queue = head.queue
        body.state = head.state.value
    return body


def _payload(content: JobContent | None, inline_bytes_max: int | None) -> Payload:
    if content is None or content.payload is None:
        return Payload(encoding="", size_bytes=0)
    payload = Payload(encoding=content.encoding, size_bytes=len(content.payload))
    if inline_bytes_max is None or len(content.payload) <= inline_bytes_max:
        payload.data_b64 = base64.b64encode(content.payload).decode()
    return payload


def json_value(value: CustomValue) -> CustomValue:
    """Return a custom value as JSON can say it: NaN and the infinities become texts."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


# Handles and cursors


def handle_of(head: JobHead) -> str:
    """Return what names this job in an action: its id, and for a dead letter also when it died.

    A dead letter that was sent again and died again is another one.
    """
    fence = head.at_ms.to_bytes(8, "big") if head.state is State.DEAD_LETTER else b""
    return base64.b64encode(head.job_id + fence).decode()


def parse_handle(text: str) -> tuple[bytes, int | None]:
    """Return job id and time of death (None for a live job) of a handle.

    Raises:
        ApiError: It is none.
    """
    data = _unbase64(text, "key")
    if len(data) == 16:
        return data, None
    if len(data) == 24:
        return data[:16], int.from_bytes(data[16:], "big")
    raise invalid("not a key of this server")


def cursor_of(position: int | None) -> str | None:
    """Return the cursor for a position."""
    if position is None:
        return None
    return base64.b64encode(position.to_bytes(_CURSOR_BYTES, "big")).decode()


def parse_cursor(text: str | None) -> int | None:
    """Return the position of a cursor, None for none.

    Raises:
        ApiError: It is none of ours.
    """
    if not text:
        return None
    data = _unbase64(text, "cursor")
    if len(data) != _CURSOR_BYTES:
        raise invalid("not a cursor of this server")
    return int.from_bytes(data, "big")


def _unbase64(text: str, what: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise invalid(f"the {what} is not base64") from error
