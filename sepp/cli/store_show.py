"""How records, reports and losses of a store read: table names, job ids, states in words."""

import base64
from collections.abc import Callable, Iterator
from typing import Any, Final

from google.protobuf.message import DecodeError

from segstore import (
    Backup,
    BodyDamaged,
    Break,
    Dumped,
    DumpedLocal,
    RealVFS,
    Report,
    Salvaged,
    summarize,
)
from sepp.cli.output import print_table
from sepp.cli.values import show_instant
from sepp.core import slots as tables
from sepp.wire import decode_job, id_text

TABLES: Final = {
    tables.JOBS: "jobs",
    tables.REASONS: "reasons",
    tables.DEDUP: "dedup",
    tables.QUEUES: "queues",
    tables.CLOSING: "closing",
    tables.AUDIT: "audit",
}
STATES: Final = {
    tables.READY: "ready",
    tables.SCHEDULED: "scheduled",
    tables.LEASED: "leased",
    tables.DEAD: "dead",
    tables.LIVE: "live",
    tables.ASIDE: "aside",
}
_WITH_JOB_IDS: Final = frozenset({tables.JOBS, tables.REASONS})
_TEXTS: Final = frozenset({tables.REASONS, tables.QUEUES, tables.AUDIT})


def name_of(table: int, key: bytes) -> dict[str, object]:
    """Return table and key of an entry as people know them."""
    if table in _WITH_JOB_IDS:
        return {"table": TABLES[table], "id": id_text(key)}
    if table == tables.DEDUP or table not in TABLES:
        return {"table": TABLES.get(table, table), "key": key.hex()}
    return {"table": TABLES[table], "number": int.from_bytes(key, "big")}


# Records.


def record_of(found: Dumped | DumpedLocal | Break, *, has_payloads: bool) -> dict[str, object]:
    """Return the JSON object of a dumped record."""
    if isinstance(found, Break):
        return {"damage": str(found)}
    place = {"segment": found.segment, "frame": found.frame_offset}
    if isinstance(found, DumpedLocal):
        return {"record": found.kind, **place, **found.values}
    line: dict[str, object] = {"lsn": found.lsn, "record": found.kind, **place}
    if found.is_moved:
        line["moved"] = True
    if found.home:
        line["home"] = found.home
    if found.kind == "epoch":
        return line
    line |= name_of(found.table, found.key)
    head = dict(found.head)
    if "state" in head:
        line["state"] = STATES.get(head["state"], head["state"])
        del head["state"]
    line |= {name: value for name, value in head.items() if value}
    if found.body is not None:
        line |= _body_of(found, has_payloads=has_payloads)
    return line


def _body_of(found: Dumped, *, has_payloads: bool) -> dict[str, object]:
    body = found.body or b""
    line: dict[str, object] = {"body_bytes": len(body)}
    if found.is_body_damaged:
        return line | {"body_damaged": True}
    if found.table in _TEXTS:
        line["text"] = body.decode("utf-8", "replace")
    elif found.table == tables.JOBS:
        try:
            job = decode_job(body, attempt=0, enqueued_ms=0)
        except DecodeError:
            return line | {"body_damaged": True}
        line |= {"queue_name": job.queue, "job_type": job.job_type}
        if job.HasField("payload"):
            line["encoding"] = job.payload.encoding
            line["payload_bytes"] = len(job.payload.data)
            if has_payloads:
                line["payload_b64"] = base64.b64encode(job.payload.data).decode()
    return line


# Reports.


def report_of(report: Report, made: Backup | None = None) -> dict[str, Any]:
    """Return what `verify` found as a JSON object."""
    found: dict[str, Any] = {
        "directory": report.path,
        "segments": report.segment_count,
        "bytes": report.byte_count,
        "frames": report.frame_count,
        "records": report.record_count,
        "bodies": report.body_count,
        "entries": report.entry_count,
        "last_lsn": report.last_lsn,
        "damage": [break_of(each) for each in report.breaks]
        + [body_of(each.damage) | {"live": each.is_live} for each in report.bodies],
        "notes": report.notes,
    }
    if report.manifest is not None:
        found["backup"] = {
            "made_ms": report.manifest.made_ms,
            "last_lsn": report.manifest.last_lsn,
        }
    if made is not None:
        found["linked_bytes"] = made.linked_bytes
        found["copied_bytes"] = made.copied_bytes
    return found


def break_of(found: Break) -> dict[str, object]:
    """Return a break as a JSON object."""
    return {
        "path": found.path,
        "offset": found.offset,
        "length": found.length,
        "problem": found.problem,
        "lsn_first": found.lsn_first,
        "lsn_last": found.lsn_last,
        "perhaps": [name_of(table, key) for table, key in found.keys],
    }


def body_of(damage: BodyDamaged) -> dict[str, object]:
    """Return a damaged body as a JSON object."""
    return {
        "path": damage.path,
        "offset": damage.offset,
        "length": damage.length,
        "problem": f"body CRC mismatch: {damage.crc_expected:08x}, found {damage.crc_found:08x}",
        **name_of(damage.table, damage.key),
    }


def report_lines(report: Report) -> Iterator[str]:
    """Yield what `verify` found, a line each, the sum last."""
    for each in report.breaks:
        yield f"damage: {each}"
    for body in report.bodies:
        text = _body_text(body.damage)
        yield f"damage: {text}" + ("" if body.is_live else "; done or deleted since")
    for note in report.notes:
        yield f"note: {note}"
    count = report.damage_count
    verdict = "sound" if not count else "1 damage" if count == 1 else f"{count} damages"
    yield (
        f"{report.path}: {report.segment_count} segments, {report.byte_count} bytes,"
        f" {report.record_count} records, {report.entry_count} entries,"
        f" up to LSN {report.last_lsn}: {verdict}"
    )


def _body_text(damage: BodyDamaged) -> str:
    name = _name_text(damage.table, damage.key)
    return f"{damage.path}+{damage.offset}: body of {name} does not match its CRC"


def _name_text(table: int, key: bytes) -> str:
    return " ".join(str(part) for part in name_of(table, key).values())


# What was salvaged.


def salvage_of(found: Salvaged, target: str) -> dict[str, object]:
    """Return what became of a damaged store as a JSON object."""
    return {
        "target": target,
        "entries": found.entry_count,
        "breaks": [break_of(each) for each in found.breaks],
        "bodies": [body_of(each) for each in found.bodies],
        "perhaps": [name_of(table, key) for table, key in found.orphans],
        "notes": found.notes,
    }


def salvage_lines(found: Salvaged, target: str) -> Iterator[str]:
    """Yield what was lost, a line each, and the sum."""
    for each in found.breaks:
        yield f"lost: {each}"
        for entry in each.keys:
            yield f"  there, as far as it can be read: {_name_text(*entry)}"
    for body in found.bodies:
        yield f"lost: {_body_text(body)}"
    for table, key in found.orphans:
        name = _name_text(table, key)
        yield f"perhaps lost: {name}: a later state of it is there, and neither body nor end"
    for note in found.notes:
        yield f"note: {note}"
    yield (
        f"{target}: {found.entry_count} entries salvaged;"
        f" {len(found.breaks)} stretches of the log and {len(found.bodies)} bodies were not usable"
    )
    if found.breaks:
        yield "a job whose end was in such a stretch is there again, and may run once more"


# What there is.


def summary_of(path: str, on_progress: Callable[[int, int], None] | None) -> dict[str, Any]:
    """Return what a directory holds as a JSON object.

    Raises:
        StoreError, OSError: as `summarize`.
    """
    summary = summarize(path, vfs=RealVFS(), on_progress=on_progress)
    position, slots = summary.position, summary.slots
    entries = dict.fromkeys(TABLES.values(), 0)
    jobs = dict.fromkeys(STATES.values(), 0)
    del jobs["live"]
    for slot in slots.scan() if slots is not None else ():
        assert slots is not None
        table = slots.table(slot)
        name = TABLES.get(table, str(table))
        entries[name] = entries.get(name, 0) + 1
        if table == tables.JOBS:
            state = STATES.get(slots.state[slot], str(slots.state[slot]))
            jobs[state] = jobs.get(state, 0) + 1
    return {
        "directory": path,
        "store_uuid": position.store_uuid.hex(),
        "epoch": position.epoch,
        "last_lsn": position.last_lsn,
        "log_clock_ms": position.log_clock_ms,
        "jobs": jobs,
        "entries": entries,
        "records": summary.record_count,
        "needed_deletes": summary.needed_count,
        "torn_bytes": summary.cut_bytes,
        "segments": [
            {"segment": each.segment, "log_bytes": each.log_bytes, "live_bytes": each.live_bytes}
            for each in summary.segments
        ],
    }


def print_stats(found: dict[str, Any]) -> None:
    """Print what a directory holds for people."""
    segments = found["segments"]
    log_bytes = sum(each["log_bytes"] for each in segments)
    live_bytes = sum(each["live_bytes"] for each in segments)
    rows = [
        ("store", found["store_uuid"]),
        ("last change", f"{show_instant(found['log_clock_ms'] or None)} LSN {found['last_lsn']}"),
        *((f"jobs {state}", count) for state, count in found["jobs"].items()),
        *((name, count) for name, count in found["entries"].items() if name != "jobs"),
        ("segments", f"{len(segments)}, {log_bytes} bytes, of which {live_bytes} count"),
        ("needed deletes", found["needed_deletes"]),
        ("torn tail", f"{found['torn_bytes']} bytes"),
    ]
    print_table(("", ""), rows)
    print_table(
        ("segment", "log bytes", "live bytes"),
        [(each["segment"], each["log_bytes"], each["live_bytes"]) for each in segments],
    )
