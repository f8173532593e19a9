"""Settings of a queue, the form that enqueues one job, and the two ways to get rid of a queue."""

import base64
import binascii
from datetime import UTC, datetime
from typing import Final

import msgspec
from starlette.responses import Response

from sepp.admin import actions, config_edit, queue_actions, wording
from sepp.admin.api_jobs import I64_MIN
from sepp.admin.api_queues import declaration, effective_of, overrides_of
from sepp.admin.backend import CustomValue, EnqueueForm
from sepp.admin.errors import ApiError
from sepp.admin.pages import fields, queue_frame
from sepp.admin.pages.fields import Field
from sepp.admin.pages.view import PageRoute, View, queue_url
from sepp.admin.rejections import FIELDS
from sepp.config.model import QUEUE_KEYS
from sepp.config.table import I64_MAX

CUSTOM_ROWS: Final = 4
_KEYS: Final = {key.name: key for key in QUEUE_KEYS}


# Settings


async def settings(view: View) -> Response:
    """Every override with the server's value beside it."""
    return await _settings_page(view, 200, {}, "", "")


async def _settings_page(
    view: View, status: int, posted: dict[str, str], error: str, error_path: str
) -> Response:
    name, backend = view.params["name"], view.site.backend
    declared = declaration(backend, name)
    overrides = {} if declared is None else overrides_of(declared)
    # No queue has the empty name, so its limits are those of a queue without overrides.
    shown = fields.of_queue(overrides, effective_of(backend.limits("")))
    _refill(shown, posted, error, error_path)
    context = queue_frame.context(view, name, "settings")
    pinned = "queues" in backend.config.pinned()
    return view.render(
        "settings.html",
        status=status,
        **context,
        fields=shown,
        etag=config_edit.read_file(backend.config.path).etag,
        may_save=view.actor.may("admin") and not pinned,
        is_pinned=pinned,
        error="" if error_path else error,
    )


def _refill(shown: list[Field], posted: dict[str, str], error: str, error_path: str) -> None:
    for field in shown:
        field.text = posted.get(field.path, field.text)
        if field.path == error_path:
            field.error = error


async def save_settings(view: View) -> Response:
    """Save the overrides; an empty field takes the server's value."""
    name, backend = view.params["name"], view.site.backend
    declared = declaration(backend, name)
    current = {} if declared is None else overrides_of(declared)
    posted = {field: view.text(field, 20_000) for field in _KEYS if field in view.form}
    texts = {field: fields.to_text(current.get(field)) for field in posted}
    changes = fields.changed(texts, posted, _KEYS)
    if not changes and declared is not None:
        return view.done(queue_url(name, "/settings"), "Nothing was changed.", "part")
    try:
        applied = await config_edit.put_queue(
            view.site,
            view.actor,
            view.text("etag"),
            name,
            {change.path: change.value for change in changes},
        )
    except ApiError as error:
        if error.status not in (400, 422, 412):
            raise
        return await _settings_page(view, error.status, posted, *_placed(error.text, posted))
    text = f"Saved {wording.plural(len(changes), 'override')} of {name}."
    if applied.requires_restart:
        text += " The idempotency window waits for a restart."
    return view.done(queue_url(name, "/settings"), text)


def _placed(text: str, posted: dict[str, str]) -> tuple[str, str]:
    """Return an error and the field it names, if it names one of these."""
    found = sorted((name for name in posted if name in text), key=len, reverse=True)
    return text, found[0] if found else ""


# Enqueue


async def enqueue_form(view: View) -> Response:
    """The empty form."""
    return await _enqueue_page(view, 200, {}, "", "")


async def _enqueue_page(
    view: View, status: int, posted: dict[str, str], error: str, field: str
) -> Response:
    name, backend = view.params["name"], view.site.backend
    limits = backend.limits(name)
    return view.render(
        "enqueue.html",
        status=status,
        **queue_frame.context(view, name, "enqueue"),
        limits=limits,
        posted=posted,
        error=error,
        error_field=field,
        rows=max(CUSTOM_ROWS, sum(1 for key in posted if key.startswith("ck")) + 1),
        reading=wording.exact_size(limits.max_payload_bytes),
    )


class _Fault(Exception):
    """A field of the form cannot be used as it is."""

    def __init__(self, field: str, text: str) -> None:
        super().__init__(text)
        self.field = field
        self.text = text


async def enqueue(view: View) -> Response:
    """Enqueue the job; a rejection stands at its field and nothing typed is lost."""
    name = view.params["name"]
    posted = {key: value for key, value in view.form.items() if isinstance(value, str)}
    try:
        form = _form_of(view, name)
    except _Fault as fault:
        return await _enqueue_page(view, 422, posted, fault.text, fault.field)
    try:
        job_id, is_duplicate, audit = await actions.enqueue(view.site, view.actor, form)
    except ApiError as error:
        if error.rejection is None:
            raise
        field = FIELDS.get(error.rejection.reason, "")
        return await _enqueue_page(view, 422, posted, error.rejection.detail, field)
    text = f"Enqueued {job_id[:8]} to {name}."
    if is_duplicate:
        text = f"Not enqueued again: {job_id[:8]} has this idempotency key."
    return view.done(
        f"/admin/jobs/{job_id}" if view.site.backend.find(_bytes(job_id)) else view.here,
        text,
        "part" if is_duplicate else "good",
        audit,
    )


def _bytes(job_id: str) -> bytes:
    return bytes.fromhex(job_id.replace("-", ""))


def _form_of(view: View, name: str) -> EnqueueForm:
    return EnqueueForm(
        name,
        view.text("job_type", 70_000),
        _data(view.text("data", 2**26).replace("\r\n", "\n"), view.text("form")),
        view.text("encoding", 2048) or ("json" if view.text("form") == "json" else ""),
        priority=_whole(view, "priority"),
        max_attempts=_whole(view, "max_attempts"),
        scheduled_at_ms=_moment(view.text("scheduled_at")),
        idempotency_key=view.text("idempotency_key", 70_000) or None,
        custom=_custom(view),
    )


def _data(text: str, form: str) -> bytes | None:
    if not text:
        return None
    data = text.encode("utf-8", "surrogatepass")
    if form == "base64":
        try:
            data = base64.b64decode("".join(text.split()), validate=True)
        except (binascii.Error, ValueError):
            raise _Fault("data", "This is not base64.") from None
    elif form == "json":
        try:
            msgspec.json.decode(data)
        except (msgspec.DecodeError, RecursionError) as fault:
            what = str(fault).removeprefix("JSON is malformed: ")
            text = f"This is not JSON: {what}. Choose Text to send it as it stands."
            raise _Fault("data", text) from None
    return data


def _whole(view: View, field: str) -> int | None:
    text = view.text(field).strip()
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise _Fault(field, "This must be a whole number.")
    return int(text)


def _moment(text: str) -> int | None:
    """Return the wall ms of a `datetime-local` value, which is taken as UTC."""
    if not text.strip():
        return None
    try:
        at = datetime.fromisoformat(text.strip())
    except ValueError:
        raise _Fault("scheduled_at", "Write it as 2026-11-29 12:45.") from None
    at = at.replace(tzinfo=UTC) if at.tzinfo is None else at
    return max(0, int(at.timestamp() * 1000))


def _custom(view: View) -> dict[str, CustomValue]:
    found: dict[str, CustomValue] = {}
    for place in range(100):
        key = view.text(f"ck{place}", 70_000)
        if key:
            found[key] = _typed(view.text(f"ct{place}"), view.text(f"cv{place}", 70_000))
    return found


def _typed(kind: str, text: str) -> CustomValue:
    try:
        if kind == "integer":
            number = int(text)
            if not I64_MIN <= number <= I64_MAX:
                raise ValueError
            return number
        if kind == "double":
            return float(text)
    except ValueError:
        raise _Fault("custom", f"{text[:40]!r} is no {kind}.") from None
    return text.strip().lower() == "true" if kind == "bool" else text


# Danger


async def danger(view: View) -> Response:
    """Delete; purge and delete; purge."""
    return await _danger_page(view, 200, "", "")


async def _danger_page(view: View, status: int, error: str, verb: str) -> Response:
    name = view.params["name"]
    return view.render(
        "danger.html",
        status=status,
        **queue_frame.context(view, name, "danger"),
        etag=config_edit.read_file(view.site.backend.config.path).etag,
        error=error,
        error_verb=verb,
    )


async def get_rid(view: View) -> Response:
    """Do one of the three, once the name was typed."""
    name, verb = view.params["name"], view.text("verb")
    if view.text("typed").strip() != name:
        return await _danger_page(view, 422, f"Type {name} to go on.", verb)
    reason = view.text("reason", 1000).strip()
    try:
        if verb == "purge":
            purged, audit = await queue_actions.purge(view.site, view.actor, name, reason)
            text = f"Purged {wording.plural(purged, 'job')} of {name}."
            return view.done(queue_url(name, "/danger"), text, "good", audit)
        purged, _ = await queue_actions.delete(
            view.site, view.actor, name, view.text("etag"), is_purge=verb == "purge_delete"
        )
    except ApiError as error:
        return await _danger_page(view, error.status, error.text, verb)
    text = f"Deleted {name}."
    if purged:
        text = f"Deleted {name} and {wording.plural(purged, 'job')}."
    return view.done("/admin/", text)


ROUTES: Final = (
    PageRoute("/admin/queues/{name}/settings", settings),
    PageRoute("/admin/queues/{name}/settings", save_settings, "admin", ("POST",)),
    PageRoute("/admin/queues/{name}/enqueue", enqueue_form, "operator"),
    PageRoute("/admin/queues/{name}/enqueue", enqueue, "operator", ("POST",)),
    PageRoute("/admin/queues/{name}/danger", danger, "admin"),
    PageRoute("/admin/queues/{name}/danger", get_rid, "admin", ("POST",)),
)
