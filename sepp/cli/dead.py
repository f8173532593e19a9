"""`sepp-trio dead …`: look at dead letters, take them out, send them again, delete them."""

import base64
import json as json_format
import sys
from collections.abc import Callable
from typing import Annotated, Any, Final, Literal

from attrs import frozen
from cyclopts import App, Parameter

from sepp import exits
from sepp.cli.api import PAGE, Api, part
from sepp.cli.connection import run_with
from sepp.cli.options import ADMIN_SIDE, SERVER, Admin, AsJson, Server, UsageError, Yes, whole
from sepp.cli.output import confirm, print_json, print_table
from sepp.cli.queues import pages
from sepp.cli.values import parse_instant, show_instant
from sepp.client import DeadLetterRecord, SeppClient
from sepp.client.convert import ms_of
from sepp.exits import StartError

DRAIN_COUNT: Final = 100
NONE_KEPT: Final = "note: this server keeps no dead letters: storage.dead_letter_retention_ms is 0"
Cause = Literal["attempts_exhausted", "rejected", "lease_expired", "admin"]

dead = App(name="dead", help="Look at dead letters, send them again, take them out, delete them.")


@Parameter(name="*")
@frozen
class Chosen:
    """Which dead letters."""

    cause: Annotated[Cause | None, Parameter(help="Only those that died of this.")] = None
    job_type: Annotated[str | None, Parameter(help="Only this job type.")] = None
    reason: Annotated[str | None, Parameter(help="Only where the last reason holds this.")] = None
    failed_before: Annotated[
        str | None, Parameter(help="Only what died before this time: 2026-01-31T08:00.")
    ] = None

    def as_query(self) -> dict[str, object]:
        """Return what is set, by the API's names."""
        before = self.failed_before
        found = {
            "cause": self.cause,
            "job_type": self.job_type,
            "reason": self.reason,
            "failed_before_ms": None if before is None else ms_of(parse_instant(before)),
        }
        return {name: value for name, value in found.items() if value is not None}


EVERY: Final = Chosen()

Queue = Annotated[str, Parameter(help="The queue.")]
Ids = Annotated[list[str] | None, Parameter(help="Ids of jobs.")]
All = Annotated[
    bool, Parameter(name="--all", negative="", help="All that match the filters, not ids.")
]


@dead.command(name="list")
def list_(
    queue: Queue,
    /,
    *,
    chosen: Chosen = EVERY,
    limit: Annotated[int, whole("Dead letters at most.")] = 50,
    admin: Admin = ADMIN_SIDE,
    json: AsJson = False,
) -> int:
    """List the dead letters of a queue, oldest first.

    Example: `sepp-trio dead list emails --cause rejected`
    """
    api = Api(admin)
    found = list(pages(api, queue, "dead_letter", limit, chosen.as_query()))
    if not found:
        facts = api.call("GET", "/overview", query={"points": 1})["server"]
        if not facts["dead_letter_retention_ms"]:
            print(NONE_KEPT, file=sys.stderr)
    if json:
        for one in found:
            print_json(one)
        return exits.OK
    rows = [
        (
            one["id"],
            one["job_type"],
            one["cause"],
            f"{one['attempt']}/{one['max_attempts']}",
            show_instant(one["failed_at_ms"]),
            one.get("last_reason", ""),
        )
        for one in found
    ]
    print_table(("job", "type", "cause", "attempt", "failed at", "reason"), rows)
    return exits.OK


@dead.command
def export(
    queue: Queue,
    /,
    *,
    chosen: Chosen = EVERY,
    output: Annotated[str | None, Parameter(help="Write to this file, not to stdout.")] = None,
    admin: Admin = ADMIN_SIDE,
) -> int:
    """Write dead letters as JSON, one a line, oldest first. They stay where they are.

    `enqueue --bulk` reads what this writes.

    Example: `sepp-trio dead export emails --output dead.jsonl`
    """
    lines = Api(admin).stream(
        "GET", f"/queues/{part(queue)}/dead-letters:export", query=chosen.as_query()
    )
    if output is None:
        for line in lines:
            sys.stdout.write(line.decode())
        return exits.OK
    try:
        with open(output, "wb") as file:
            file.writelines(lines)
    except OSError as error:
        raise StartError(f"cannot write {output!r}: {error.strerror}") from None
    return exits.OK


@dead.command
def requeue(
    queue: Queue,
    ids: Ids = None,
    /,
    *,
    all: All = False,
    chosen: Chosen = EVERY,
    note: Annotated[str, Parameter(help="For the audit trail.")] = "",
    admin: Admin = ADMIN_SIDE,
    json: AsJson = False,
) -> int:
    """Send dead letters to the back of their queue, with all their attempts anew.

    Exit code 1 if one of the ids is no dead letter of the queue.

    Example: `sepp-trio dead requeue emails --all --cause attempts_exhausted`
    """
    return move(Api(admin), queue, "requeue", ids, chosen if all else None, note, is_json=json)


@dead.command
def delete(
    queue: Queue,
    ids: Ids = None,
    /,
    *,
    all: All = False,
    chosen: Chosen = EVERY,
    note: Annotated[str, Parameter(help="For the audit trail.")] = "",
    yes: Yes = False,
    admin: Admin = ADMIN_SIDE,
    json: AsJson = False,
) -> int:
    """Delete dead letters for good.

    Exit code 1 if one of the ids is no dead letter of the queue.

    Example: `sepp-trio dead delete emails --all --failed-before 2026-01-01 --yes`
    """
    confirm(f"Delete dead letters of {queue!r}?", is_yes=yes)
    return move(Api(admin), queue, "delete", ids, chosen if all else None, note, is_json=json)


def move(
    api: Api,
    queue: str,
    verb: Literal["requeue", "delete"],
    ids: list[str] | None,
    chosen: Chosen | None,
    note: str,
    *,
    is_json: bool,
) -> int:
    """Requeue or delete by ids, or by filter where `chosen` is given; return the exit code."""
    if (chosen is None) == (not ids):
        raise UsageError("say which: ids, or --all with or without filters")
    path = f"/queues/{part(queue)}/dead-letters:{verb}"
    body: dict[str, Any] = {"reason": note} if note else {}
    field = f"{verb}d"
    if chosen is None:
        moved, missing = _move_ids(api, path, ids or [], body, field)
    else:
        moved, missing = _move_matching(api, path, chosen, body, field)
    if is_json:
        print_json({field: moved, "missing": missing})
    else:
        print(f"{moved} {field}" + (f", {missing} missing" if missing else ""))
    return exits.FAILED if missing and chosen is None else exits.OK


def _move_ids(
    api: Api, path: str, ids: list[str], body: dict[str, Any], field: str
) -> tuple[int, int]:
    moved = missing = 0
    for start in range(0, len(ids), PAGE):
        # A handle is the id's 16 bytes: without the time of death it is whichever death there is.
        keys = [handle_of(job_id) for job_id in ids[start : start + PAGE]]
        answer = api.call("POST", path, body={**body, "keys_b64": keys})
        moved += answer[field]
        missing += answer["missing"]
    return moved, missing


def handle_of(job_id: str) -> str:
    """Return the handle of a job's id.

    Raises:
        UsageError: It is no id.
    """
    try:
        raw = bytes.fromhex(job_id.replace("-", ""))
    except ValueError:
        raw = b""
    if len(raw) != 16:
        raise UsageError(f"{job_id!r} is no job's id")
    return base64.b64encode(raw).decode()


def _move_matching(
    api: Api, path: str, chosen: Chosen, body: dict[str, Any], field: str
) -> tuple[int, int]:
    # What dies while we are at it is not meant: the server's clock now is where we stop.
    until_ms = api.call("GET", "/overview", query={"points": 1})["server"]["now_ms"]
    wanted = {**body, "filter": chosen.as_query(), "until_ms": until_ms}
    moved = missing = 0
    cursor = None
    while True:
        answer = api.call("POST", path, body=wanted | ({"cursor": cursor} if cursor else {}))
        moved += answer[field]
        missing += answer["missing"]
        cursor = answer.get("next_cursor")
        if cursor is None:
            return moved, missing


@dead.command
def drain(
    queue: Annotated[str | None, Parameter(help="Only this queue's; all by default.")] = None,
    /,
    *,
    max_records: Annotated[int, whole("Dead letters at most.")] = 1,
    server: Server = SERVER,
) -> int:
    """Take the oldest dead letters out of the server and print them as JSON, one a line.

    They are gone from the server before they are printed: a broken connection loses up to a
    hundred. `dead export` leaves them where they are. `enqueue --bulk` reads what this prints.

    Example: `sepp-trio dead drain emails --max-records 1000 > dead.jsonl`
    """

    def show(record: DeadLetterRecord) -> None:
        print(json_format.dumps(line_of(record), ensure_ascii=False), flush=True)

    async def do(client: SeppClient) -> None:
        if await drain_all(client, queue, max_records, show):
            return
        if not (await client.get_server_info()).dead_letter_retention_enabled:
            print(NONE_KEPT, file=sys.stderr)

    run_with(server, do)
    return exits.OK


async def drain_all(
    client: SeppClient,
    queue: str | None,
    max_records: int,
    show: Callable[[DeadLetterRecord], None],
) -> int:
    """Drain until there are none or enough; show each batch before the next is taken; count."""
    count = 0
    while count < max_records:
        records = await client.drain_dead_letters(queue, min(DRAIN_COUNT, max_records - count))
        if not records:
            break
        for record in records:
            show(record)
        count += len(records)
    return count


def line_of(record: DeadLetterRecord) -> dict[str, object]:
    """Return a dead letter as the admin API writes it."""
    payload = record.payload
    found: dict[str, object] = {
        "id": record.job_id,
        "queue": record.queue,
        "job_type": record.job_type,
        "priority": int(record.priority),
        "attempt": record.final_attempt,
        "max_attempts": record.max_attempts,
        "enqueued_at_ms": ms_of(record.enqueued_at),
        "custom": record.custom,
        "payload": {
            "encoding": "" if payload is None else payload.encoding,
            "size_bytes": 0 if payload is None else len(payload.data),
            "data_b64": "" if payload is None else base64.b64encode(payload.data).decode(),
        },
        "failed_at_ms": ms_of(record.failed_at),
        "cause": record.cause.value,
    }
    if record.scheduled_at is not None:
        found["scheduled_at_ms"] = ms_of(record.scheduled_at)
    if record.last_reason is not None:
        found["last_reason"] = record.last_reason
    return found
