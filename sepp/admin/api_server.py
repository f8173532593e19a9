"""The whole server at a glance, and the stream of its figures."""

from functools import partial
from typing import Final

from msgspec import UNSET
from starlette.responses import Response

from sepp.admin import stream
from sepp.admin.backend import Backend, BackupFailedError
from sepp.admin.endpoint import Call, Endpoint, Param, identify
from sepp.admin.errors import ApiError
from sepp.admin.history import HISTORY_MS_MAX
from sepp.admin.messages import BackupBody, Hello, Overview, OverviewServer, ServerInfo
from sepp.admin.requests import BackupForm
from sepp.admin.sessions import Unauthorized
from sepp.admin.stats import POINTS_MAX
from sepp.admin.streamed import StreamedResponse

NAMES_MAX: Final = 200

NARROWING: Final = (
    Param("queues", "Only these queues; repeat it for more than one.", "names"),
    Param("points", f"Samples a queue, 1 to {POINTS_MAX}.", "count"),
    Param("span_ms", "How far back; default: all that is kept.", "ms"),
)


async def _overview(call: Call) -> Overview:
    site, backend = call.site, call.site.backend
    frame = stream.narrow(await site.stats.frame(), _names(call))
    history, server_history = await site.stats.history(frame.queues, *_shape(call))
    return Overview(
        server=_server(backend),
        frame=frame,
        history=history,
        server_history=server_history,
    )


def _server(backend: Backend) -> OverviewServer:
    return OverviewServer(
        version=backend.facts.version,
        started_at_ms=backend.facts.started_at_ms,
        now_ms=backend.now_ms(),
        strict_queues=backend.config.running.server.strict_queues,
        dead_letter_retention_ms=backend.facts.retention_ms,
        command_queue_len=backend.vitals().command_queue_len,
    )


async def _server_info(call: Call) -> ServerInfo:
    facts, running = call.site.backend.facts, call.site.backend.config.running
    return ServerInfo(
        version=facts.version,
        started_at_ms=facts.started_at_ms,
        listen_addr=facts.listen_addr,
        tls=facts.is_tls,
        auth_enforcing=running.auth.api_keys is not None,
        strict_queues=running.server.strict_queues,
        db_path=facts.db_path,
    )


async def _backup(call: Call) -> BackupBody:
    site, directory = call.site, call.body.directory
    try:
        made = await site.backend.backup(directory)
    except BackupFailedError as error:
        raise ApiError(409, "failed_precondition", f"no backup was made: {error}") from error
    details = {"directory": directory, "last_lsn": made.last_lsn}
    sequence = await site.record(call.actor, "store.backup", details)
    return BackupBody(
        directory=directory,
        last_lsn=made.last_lsn,
        segments=made.segment_count,
        bytes=made.byte_count,
        audit_seq=UNSET if sequence is None else sequence,
    )


async def _events(call: Call) -> Response:
    site, names = call.site, _names(call)
    span_ms, points = _shape(call)
    subscriber = site.hub.subscribe(names, is_admin=call.actor.may("admin"))
    if subscriber is None:
        raise ApiError(409, "resource_exhausted", "too many streams are open")
    # Subscribed first: a frame between the two is queued, not lost.
    try:
        frame = stream.narrow(await site.stats.frame(), names)
        history, server_history = await site.stats.history(frame.queues, span_ms, points)
    except BaseException:
        site.hub.leave(subscriber)
        raise
    hello = Hello(history=history, server_history=server_history, frame=frame)

    def may_stay() -> bool:
        actor = identify(site, call.request)
        return not isinstance(actor, Unauthorized) and (
            actor.may("admin") or not subscriber.is_admin
        )

    return StreamedResponse(
        stream.events(subscriber, hello, may_stay),
        "text/event-stream",
        {"cache-control": "no-cache", "x-accel-buffering": "no"},
        at_end=partial(site.hub.leave, subscriber),
    )


def _names(call: Call) -> frozenset[str] | None:
    names = call.query.get("queues")
    return None if names is None else frozenset(names[:NAMES_MAX])


def _shape(call: Call) -> tuple[int | None, int | None]:
    points, span_ms = call.query.get("points"), call.query.get("span_ms")
    return (
        None if span_ms is None else max(1000, min(span_ms, HISTORY_MS_MAX)),
        None if points is None else max(1, min(points, POINTS_MAX)),
    )


ENDPOINTS: Final = (
    Endpoint(
        "GET",
        "/overview",
        "viewer",
        _overview,
        "Server, figures of this second, history, and what needs attention.",
        answer=Overview,
        params=NARROWING,
    ),
    Endpoint(
        "GET",
        "/server-info",
        "viewer",
        _server_info,
        "What the server runs with.",
        answer=ServerInfo,
    ),
    Endpoint(
        "POST",
        "/backup",
        "admin",
        _backup,
        "Copy the whole store to a new directory on the server's machine, while it works.",
        body=BackupForm,
        answer=BackupBody,
        errors=("failed_precondition", "resource_exhausted"),
    ),
    Endpoint(
        "GET",
        "/events",
        "viewer",
        _events,
        "Server-sent events: hello, stats each second, config, audit (admins), lagged.",
        params=NARROWING,
        errors=("resource_exhausted",),
        media_type="text/event-stream",
    ),
)
