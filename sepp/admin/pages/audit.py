"""The audit trail: every change, who and when."""

from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final

import msgspec
from attrs import define
from starlette.responses import Response

from sepp.admin import trail, wording
from sepp.admin.guard import DOWNLOAD_CSP
from sepp.admin.messages import AuditEntry
from sepp.admin.pages.view import PageRoute, View, queue_url, with_query
from sepp.admin.streamed import StreamedResponse

PAGE: Final = 50
FAMILIES: Final = (
    "dead_letters.",
    "jobs.",
    "job.",
    "queue.",
    "config.",
    "auth",
    "session.",
)
"""What the filter on actions offers: beginnings of their names."""

_encode = msgspec.json.Encoder().encode


@define
class Part:
    """A piece of what an entry says; with a URL it is a link."""

    text: str
    url: str = ""
    is_code: bool = False


@define
class EntryRow:
    """One entry as the table shows it."""

    entry: AuditEntry
    parts: list[Part]
    is_bad: bool


def entry_row(entry: AuditEntry) -> EntryRow:
    """Return an entry with its details in words."""
    is_bad = entry.action.endswith("_failed")
    return EntryRow(entry, describe(entry.action, entry.details), is_bad)


def describe(action: str, details: Mapping[str, Any]) -> list[Part]:
    """Return the details of an entry in words; whatever is not known is shown as it is."""
    left = dict(details)
    parts: list[Part] = []
    queue = left.pop("queue", None)
    if isinstance(queue, str):
        parts.append(Part(queue, queue_url(queue)))
    facts = [*_job_facts(left), *_queue_facts(left), *_config_facts(action, left)]
    reason = left.pop("reason", None)
    if isinstance(reason, str):
        facts.append(Part(f"“{reason}”"))
    facts += [Part(f"{name} {_plain(value)}") for name, value in left.items()]
    for place, fact in enumerate(facts):
        if parts and not fact.is_code:
            parts.append(Part(": " if place == 0 else ", "))
        elif parts:
            parts.append(Part(": " if place == 0 else " "))
        parts.append(fact)
    return parts


def _job_facts(left: dict[str, Any]) -> list[Part]:
    facts = []
    count, ids = left.pop("count", None), left.pop("job_ids", None)
    if isinstance(count, int):
        facts.append(Part(wording.plural(count, "job")))
    if isinstance(ids, list) and len(ids) == 1:
        facts.append(Part(f"{str(ids[0])[:8]}…", f"/admin/jobs/{ids[0]}", is_code=True))
    job_id = left.pop("job_id", None)
    if isinstance(job_id, str):
        facts.append(Part(f"{job_id[:8]}…", f"/admin/jobs/{job_id}", is_code=True))
    job_type = left.pop("job_type", None)
    if isinstance(job_type, str):
        facts.append(Part(job_type))
    if left.pop("deduplicated", False):
        facts.append(Part("was there already"))
    attempt = left.pop("attempt", None)
    if isinstance(attempt, int):
        facts.append(Part(f"attempt {attempt}"))
    if left.pop("dead_lettered", False):
        facts.append(Part("its last, so it died"))
    return facts


def _queue_facts(left: dict[str, Any]) -> list[Part]:
    facts = []
    purged, jobs = left.pop("purged", None), left.pop("jobs", None)
    if isinstance(purged, int):
        facts.append(Part(f"{wording.plural(purged, 'job')} purged"))
    if isinstance(jobs, int):
        facts.append(Part(f"{wording.plural(jobs, 'job')} to purge"))
    stopped_by = left.pop("stopped_by", None)
    if isinstance(stopped_by, str):
        facts.append(Part(f"stopped by {stopped_by}"))
    return facts


def _config_facts(action: str, left: dict[str, Any]) -> list[Part]:
    facts = []
    paths, overrides = left.pop("paths", None), left.pop("overrides", None)
    if isinstance(paths, list):
        facts.append(Part(", ".join(map(str, paths))))
    if isinstance(overrides, list):
        names = ", ".join(map(str, overrides))
        facts.append(Part(f"set {names}" if names else "declared"))
    if action.startswith("auth_key."):
        name = left.pop("name", None)
        if isinstance(name, str):
            facts.append(Part(name))
    client = left.pop("from", None)
    if isinstance(client, str):
        facts.append(Part(f"from {client}"))
    return facts


def _plain(value: object) -> str:
    return value if isinstance(value, str) else _encode(value).decode()


async def audit(view: View) -> Response:
    """The page, newest first."""
    actor, action = view.query.get("actor", "")[:256], view.query.get("action", "")[:256]
    before = _number(view.query.get("before", ""))
    found = await trail.page(
        view.site.backend,
        before=before,
        limit=PAGE,
        actor=actor or None,
        action_prefix=action or None,
    )
    rows = [entry_row(entry) for entry in found.entries]
    url = "/admin/audit"
    return view.render(
        "audit.html",
        nav="audit",
        rows=rows,
        actor_filter=actor,
        action_filter=action,
        families=FAMILIES,
        is_newest=before is None,
        first_url=with_query(url, actor=actor, action=action),
        next_url=with_query(url, actor=actor, action=action, before=found.next_before)
        if found.next_before
        else "",
        is_short=len(rows) < PAGE and found.next_before is not None,
        export_url=with_query(f"{url}/export", actor=actor, action=action),
        retention_ms=view.site.backend.config.running.admin.audit_retention_ms,
    )


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and 0 < len(text) < 16 else None


async def export(view: View) -> Response:
    """All entries that match, one JSON object a line, newest first."""
    actor, action = view.query.get("actor", "") or None, view.query.get("action", "") or None

    async def lines() -> AsyncGenerator[bytes]:
        before: int | None = None
        while True:
            found = await trail.page(
                view.site.backend, before=before, limit=100, actor=actor, action_prefix=action
            )
            for entry in found.entries:
                yield _encode(entry) + b"\n"
            before = found.next_before
            if before is None:
                return

    headers = {
        "content-disposition": 'attachment; filename="audit.jsonl"',
        "content-security-policy": DOWNLOAD_CSP,
    }
    return StreamedResponse(lines(), "application/jsonl", headers)


ROUTES: Final = (
    PageRoute("/admin/audit", audit, "admin"),
    PageRoute("/admin/audit/export", export, "admin"),
)
