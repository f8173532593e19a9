"""`enqueue --bulk`: the jobs of a file, in batches, in order."""

import base64
import binascii
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import BinaryIO, Final

import msgspec
from attrs import define
from rich.console import Console
from rich.progress import Progress

from sepp import exits
from sepp.cli.connection import run_with
from sepp.cli.options import Server
from sepp.cli.output import print_json
from sepp.client import ClientError, EnqueueAck, EnqueueRequest, Payload, SeppClient
from sepp.exits import StartError

# Far below any server's limit on a message, however large the jobs are.
BATCH_BYTES_MAX: Final = 2_000_000
SHOWN_MAX: Final = 20


class PayloadLine(msgspec.Struct, forbid_unknown_fields=True):
    """The payload of a line."""

    encoding: str
    data_text: str | None = None
    data_b64: str | None = None
    size_bytes: int | None = None


class Line(msgspec.Struct, forbid_unknown_fields=True):
    """A job of the file. The lower half is what `dead export` writes and a new job has not."""

    job_type: str | None = None
    queue: str | None = None
    payload: PayloadLine | None = None
    priority: int | None = None
    max_attempts: int | None = None
    idempotency_key: str | None = None
    custom: dict[str, str | int | float | bool] = {}
    scheduled_at_ms: int | None = None

    id: object = None
    key_b64: object = None
    attempt: object = None
    enqueued_at_ms: object = None
    retry_at_ms: object = None
    lease_expires_at_ms: object = None
    state: object = None
    failed_at_ms: object = None
    cause: object = None
    last_reason: object = None
    damaged: object = None


@define
class Tally:
    """What became of the lines so far."""

    stored: int = 0
    known: int = 0
    refused: int = 0
    lines: int = 0


def enqueue_lines(
    server: Server, path: str, queue: str, job_type: str | None, *, is_json: bool
) -> int:
    """Enqueue the file's jobs and return the exit code."""
    tally = Tally()

    async def send(client: SeppClient) -> None:
        info = await client.get_server_info()
        with opened(path) as file:
            batch: list[tuple[int, EnqueueRequest]] = []
            size = 0
            for number, line in enumerate(file, 1):
                if not line.strip():
                    continue
                batch.append((number, parse(line, number, queue, job_type)))
                size += len(line)
                if len(batch) == info.max_enqueue_batch or size >= BATCH_BYTES_MAX:
                    await send_batch(client, batch, tally)
                    batch, size = [], 0
            if batch:
                await send_batch(client, batch, tally)

    run_with(server, send)
    if is_json:
        print_json({"stored": tally.stored, "deduplicated": tally.known, "refused": tally.refused})
    else:
        print(f"{tally.stored} stored, {tally.known} were there already, {tally.refused} refused")
    return exits.FAILED if tally.refused else exits.OK


async def send_batch(
    client: SeppClient, batch: list[tuple[int, EnqueueRequest]], tally: Tally
) -> None:
    """Send one batch and count.

    Raises:
        StartError: The call failed; the text says up to which line all is certain.
    """
    first, last = batch[0][0], batch[-1][0]
    try:
        results = await client.enqueue_batch(job for _, job in batch)
    except ClientError as error:
        raise StartError(
            f"stopped: {error}. Answered up to line {tally.lines}; lines {first} to {last} may be "
            "stored or not, later ones are not"
        ) from error
    for (number, _), result in zip(batch, results, strict=True):
        if isinstance(result, EnqueueAck):
            tally.stored += not result.deduplicated
            tally.known += result.deduplicated
        else:
            tally.refused += 1
            if tally.refused <= SHOWN_MAX:
                print(f"line {number}: refused: {result}", file=sys.stderr)
            elif tally.refused == SHOWN_MAX + 1:
                print("more refused lines are only counted", file=sys.stderr)
    tally.lines = last


def parse(line: bytes, number: int, queue: str, job_type: str | None) -> EnqueueRequest:
    """Return the job of a line; what it leaves out is taken from the command line.

    Raises:
        StartError: It is no such object.
    """
    try:
        found = msgspec.json.decode(line, type=Line)
        return EnqueueRequest(
            found.queue or queue,
            found.job_type or job_type or "",
            payload_of(found.payload),
            idempotency_key=found.idempotency_key,
            priority=found.priority,
            max_attempts=found.max_attempts,
            custom=found.custom,
            scheduled_at=instant_of(found.scheduled_at_ms),
        )
    except (msgspec.DecodeError, ValueError, OverflowError) as error:
        raise StartError(f"line {number}: {error}") from None


def instant_of(ms: int | None) -> datetime | None:
    """Return milliseconds since 1970 as an instant."""
    return None if ms is None else datetime.fromtimestamp(ms / 1000, UTC)


def payload_of(line: PayloadLine | None) -> Payload | None:
    """Return a payload; an export writes one of no bytes where there is none.

    Raises:
        ValueError: It has not exactly one kind of data.
    """
    if line is None or (not line.encoding and line.size_bytes == 0):
        return None
    if (line.data_text is None) == (line.data_b64 is None):
        raise ValueError("payload needs either data_text or data_b64")
    if line.data_text is not None:
        return Payload(line.data_text.encode(), line.encoding)
    try:
        return Payload(base64.b64decode(line.data_b64 or "", validate=True), line.encoding)
    except binascii.Error:
        raise ValueError("payload.data_b64 is no base64") from None


@contextmanager
def opened(path: str) -> Iterator[BinaryIO]:
    """Open a file, or stdin for -, with a progress bar where there is a terminal to show it.

    Raises:
        StartError: It cannot be read.
    """
    if path == "-":
        yield sys.stdin.buffer
        return
    try:
        file = open(path, "rb")  # noqa: SIM115  closed below, whatever is around it
    except OSError as error:
        raise StartError(f"cannot read {path!r}: {error.strerror}") from None
    with file:
        console = Console(stderr=True)
        if not console.is_terminal:
            yield file
            return
        with Progress(console=console, transient=True) as progress:
            size = file.seek(0, 2)
            file.seek(0)
            yield progress.wrap_file(file, total=size, description="enqueueing")
