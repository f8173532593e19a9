"""The audit trail: who did what, when. Entries are rows of the store, written with their action."""

from collections.abc import Mapping
from typing import Final

import msgspec

from sepp.admin.backend import AuditRow, Backend
from sepp.admin.messages import AuditEntry, AuditPage
from sepp.admin.sessions import Actor
from sepp.logs import get_logger

LOOKED_AT_MAX: Final = 1000  # rows of one call
_BATCH: Final = 100

_log = get_logger("sepp.admin.audit")
_encode = msgspec.json.Encoder().encode


class _Stored(msgspec.Struct):
    """The body of a row. These names are on disk: never rename one."""

    ts_ms: int
    actor: str
    role: str | None
    action: str
    details: dict[str, object] = {}


_decode = msgspec.json.Decoder(_Stored).decode


def encode_entry(
    actor: Actor | str, action: str, details: Mapping[str, object], now_ms: int
) -> bytes:
    """Return the body of an entry. A plain name is somebody without a role: a failed sign-in."""
    role = actor.role if isinstance(actor, Actor) else None
    name = actor.name if isinstance(actor, Actor) else actor
    return _encode(_Stored(now_ms, name, role, action, dict(details)))


def decode_entry(sequence: int, body: bytes, at_ms: int = 0) -> AuditEntry:
    """Return an entry as the API shows it; a body nobody can read is shown as such."""
    try:
        stored = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        stored = _Stored(at_ms, "?", None, "unreadable")
    return AuditEntry(
        seq=sequence,
        ts_ms=stored.ts_ms,
        actor=stored.actor,
        role=stored.role,
        action=stored.action,
        details=stored.details,
    )


def log_entry(entry: AuditEntry) -> None:
    """Write the entry to the log as well."""
    write = _log.warning if entry.action == "session.login_failed" else _log.info
    write(
        "audit",
        seq=entry.seq,
        actor=entry.actor,
        role=entry.role,
        action=entry.action,
        details=_encode(entry.details).decode(),
    )


async def page(
    backend: Backend,
    *,
    before: int | None,
    limit: int,
    actor: str | None = None,
    action_prefix: str | None = None,
) -> AuditPage:
    """Return up to `limit` entries below `before` that match, newest first.

    Looks at no more than 1,000 rows; `next_before` says where to go on, also on a short page.
    """
    found: list[AuditEntry] = []
    looked_at = 0
    while True:
        rows: list[AuditRow] = await backend.audit_rows(before, min(_BATCH, limit + 1))
        for row in rows:
            looked_at += 1
            before = row.sequence
            entry = decode_entry(row.sequence, row.body, row.at_ms)
            if (actor is None or entry.actor == actor) and (
                action_prefix is None or entry.action.startswith(action_prefix)
            ):
                found.append(entry)
                if len(found) == limit:
                    return AuditPage(entries=found, next_before=_more(before))
        if len(rows) < min(_BATCH, limit + 1):
            return AuditPage(entries=found, next_before=None)
        if looked_at >= LOOKED_AT_MAX:
            return AuditPage(entries=found, next_before=_more(before))


def _more(before: int | None) -> int | None:
    return before if before is not None and before > 1 else None
