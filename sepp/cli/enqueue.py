"""`sepp-trio enqueue`: one job from the command line, or many from a file."""

import os
import sys
from datetime import UTC, datetime
from typing import Annotated, Final

from attrs import frozen
from cyclopts import Parameter

from sepp import exits
from sepp.cli.bulk import enqueue_lines
from sepp.cli.connection import run_with
from sepp.cli.options import SERVER, AsJson, Server, UsageError, whole
from sepp.cli.output import print_json
from sepp.cli.values import parse_custom, parse_instant, parse_span
from sepp.client import EnqueueRequest, Payload
from sepp.exits import StartError

STDIN: Final = "-"


@Parameter(name="*")
@frozen
class Fields:
    """What a job may have beside queue, type and payload."""

    encoding: Annotated[str, Parameter(help="What the payload is.")] = "text/plain"
    priority: Annotated[int | None, whole("0 to 9; higher ones go first.", least=0, most=9)] = None
    max_attempts: Annotated[int | None, whole("Deliveries before it is a dead letter.")] = None
    idempotency_key: Annotated[
        str | None, Parameter(help="A second job with this key is not stored.")
    ] = None
    custom: Annotated[
        list[str] | None,
        Parameter(negative="", help="NAME=VALUE beside the payload; may be repeated."),
    ] = None
    schedule_in: Annotated[str | None, Parameter(help="Not before this span: 30s, 5m, 2h.")] = None
    schedule_at: Annotated[
        str | None, Parameter(help="Not before this time: 2026-01-31T08:00.")
    ] = None

    def as_job(self, queue: str, job_type: str, data: bytes | None) -> EnqueueRequest:
        """Return the job.

        Raises:
            UsageError: A field is malformed.
        """
        try:
            return EnqueueRequest(
                queue,
                job_type,
                None if data is None else Payload(data, self.encoding),
                idempotency_key=self.idempotency_key,
                priority=self.priority,
                max_attempts=self.max_attempts,
                custom=parse_custom(self.custom or []),
                scheduled_at=when(self.schedule_in, self.schedule_at),
            )
        except ValueError as error:
            raise UsageError(str(error)) from None


NO_FIELDS: Final = Fields()


def enqueue(
    queue: Annotated[str, Parameter(help="The queue.")],
    job_type: Annotated[
        str | None, Parameter(help="The job type; with --bulk the one of lines that name none.")
    ] = None,
    payload: Annotated[
        str | None, Parameter(help="The payload as text; - reads stdin.", allow_leading_hyphen=True)
    ] = None,
    /,
    *,
    file: Annotated[
        str | None,
        Parameter(allow_leading_hyphen=True, help="Read the payload from this file; - is stdin."),
    ] = None,
    fields: Fields = NO_FIELDS,
    bulk: Annotated[
        str | None,
        Parameter(
            allow_leading_hyphen=True,
            help="Enqueue the jobs of this file, a JSON object a line; - is stdin.",
        ),
    ] = None,
    server: Server = SERVER,
    json: AsJson = False,
) -> int:
    """Store a job and print its id; durable when that is printed.

    Exit code 0: stored, or its idempotency key was known; 1: refused, or no server.

    With --bulk each line of the file is an object like the body of the admin API's enqueue, or like
    a line of `dead export`: job_type, payload {encoding, data_text or data_b64}, priority,
    max_attempts, idempotency_key, custom, scheduled_at_ms, queue. Exit code 1 if any was refused.

    Example: `sepp-trio enqueue emails welcome '{"user": 42}' --encoding application/json`
    """
    if bulk is not None:
        if payload is not None or file is not None:
            raise UsageError("--bulk takes its payloads from its file")
        return enqueue_lines(server, bulk, queue, job_type, is_json=json)
    if job_type is None:
        raise UsageError("a job needs a job type")
    if payload is not None and payload.startswith("-") and payload != STDIN:
        # It is an option that is not ours; a payload like that comes by --file or stdin.
        raise UsageError(f"unknown option {payload!r}")
    job = fields.as_job(queue, job_type, read_payload(payload, file))
    ack = run_with(server, lambda client: client.enqueue(job))
    if json:
        print_json({"job_id": ack.job_id, "deduplicated": ack.deduplicated})
    else:
        print(ack.job_id, "(was there already)" if ack.deduplicated else "")
    return exits.OK


def read_payload(text: str | None, file: str | None) -> bytes | None:
    """Return the payload from wherever it is.

    Raises:
        UsageError: It is given twice.
        StartError: It cannot be read.
    """
    if text is not None and file is not None:
        raise UsageError("the payload comes from the command line or from --file, not from both")
    if file is not None and file != STDIN:
        try:
            with open(file, "rb") as opened:
                return opened.read()
        except OSError as error:
            raise StartError(f"cannot read {file!r}: {error.strerror}") from None
    if STDIN in (text, file):
        return sys.stdin.buffer.read()
    return None if text is None else os.fsencode(text)  # the bytes as they were given


def when(span: str | None, instant: str | None) -> datetime | None:
    """Return the time a job is scheduled at.

    Raises:
        UsageError: Both are given, or one is malformed.
    """
    if span is not None and instant is not None:
        raise UsageError("--schedule-in and --schedule-at are two ways to say one thing")
    if span is not None:
        return datetime.now(UTC) + parse_span(span)
    return None if instant is None else parse_instant(instant)
