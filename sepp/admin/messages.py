"""What the JSON API answers, in the order of its sections.

What does not apply is left out (UNSET); `null` is said only where the API says so. The request
bodies are in `requests.py`.
"""

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from sepp.admin.requests import CauseName, Scalar, Setting, StateName
from sepp.config.sections import Role


class Answer(Struct, kw_only=True, forbid_unknown_fields=True, gc=False):
    """A body sent by the server.

    Bodies are trees, so the collector need not walk the thousand of a frame.
    """


# Errors


class RejectionBody(Answer):
    """Why a job was refused."""

    reason: str
    detail: str


class ErrorBody(Answer):
    """The body of every answer of 400 and above."""

    error: str
    code: str
    rejection: RejectionBody | UnsetType = UNSET


# Session


class LoggedIn(Answer):
    """A session was made; its token is in the cookie."""

    name: str
    role: Role
    expires_at_ms: int


class Session(Answer):
    """Who is asking."""

    name: str | None
    role: Role | None
    auth_enabled: bool


# Queues and figures


class Depths(Answer):
    """Jobs a queue holds."""

    ready: int
    scheduled: int
    inflight: int
    dead_lettered: int


class LastNack(Answer):
    """The last nack of a queue; the reason is cut to 200 characters in frames."""

    at_ms: int
    reason: str | UnsetType = UNSET


class Moments(Answer):
    """The earliest moments in a queue, its last nack, its dead letters by cause, and how many jobs
    are set aside because their bodies are damaged.
    """

    oldest_ready_at_ms: int | UnsetType = UNSET
    next_due_ms: int | UnsetType = UNSET
    next_lease_end_ms: int | UnsetType = UNSET
    last_nack: LastNack | UnsetType = UNSET
    dead_by_cause: dict[str, int] | UnsetType = UNSET
    aside: int | UnsetType = UNSET


class QueueBody(Moments, kw_only=True):
    """A queue with its limits."""

    name: str
    declared: bool
    depths: Depths
    overrides: dict[str, Setting] | None
    effective: dict[str, Setting]


class Totals(Answer):
    """What happened since the start."""

    enqueued: int
    reserved: int
    acked: int
    nacked: int
    dead_lettered: int


class Rates(Answer):
    """What happens each second, two decimals."""

    enqueued: float
    acked: float
    nacked: float
    dead_lettered: float


class QueueFrame(Moments, kw_only=True):
    """One queue in a frame."""

    ready: int
    scheduled: int
    inflight: int
    dead_lettered: int
    totals: Totals
    rates: Rates
    died_10_min: int | UnsetType = UNSET


class Attention(Answer):
    """One line of what needs attention. No queue: the server itself."""

    level: Literal["bad", "warn"]
    rule: str
    text: str
    queue: str | UnsetType = UNSET


class FrameServer(Answer):
    """The server in a frame."""

    command_queue_len: int


class Frame(Answer):
    """All figures of one second."""

    seq: int
    ts_ms: int
    server: FrameServer
    queues: dict[str, QueueFrame]
    attention: list[Attention]
    all: QueueFrame  # the queues together, also those a narrowed frame leaves out


class Point(Answer):
    """Rates over the span that ends at `ts_ms`."""

    ts_ms: int
    enqueued: float
    acked: float
    nacked: float
    dead_lettered: float


History = dict[str, list[Point]]


class OverviewServer(Answer):
    """The server in an overview; the retention is the one it booted with."""

    version: str
    started_at_ms: int
    now_ms: int
    strict_queues: bool
    dead_letter_retention_ms: int
    command_queue_len: int


class Overview(Answer):
    """Everything a dashboard starts from."""

    server: OverviewServer
    frame: Frame
    history: History
    server_history: list[Point]


class Hello(Answer):
    """The first event of a stream."""

    history: History
    server_history: list[Point]
    frame: Frame


class ServerInfo(Answer):
    """What the server runs with; restart-only items as they were at the start."""

    version: str
    started_at_ms: int
    listen_addr: str
    tls: bool
    auth_enforcing: bool
    strict_queues: bool
    db_path: str


# Jobs


class Payload(Answer):
    """A payload; `data_b64` in lists only up to 4,096 bytes. No payload: encoding "", size 0."""

    encoding: str
    size_bytes: int
    data_b64: str | UnsetType = UNSET


class JobBody(Answer, kw_only=True):
    """A job that is ready, scheduled or in flight; the dead-letter fields are set for dead ones."""

    id: str
    key_b64: str
    job_type: str
    priority: int
    attempt: int
    max_attempts: int
    enqueued_at_ms: int
    scheduled_at_ms: int | UnsetType = UNSET
    retry_at_ms: int | UnsetType = UNSET
    lease_expires_at_ms: int | UnsetType = UNSET
    custom: dict[str, Scalar]
    payload: Payload
    queue: str | UnsetType = UNSET
    state: StateName | UnsetType = UNSET
    failed_at_ms: int | UnsetType = UNSET
    cause: CauseName | UnsetType = UNSET
    last_reason: str | UnsetType = UNSET
    damaged: bool | UnsetType = UNSET


class JobPage(Answer):
    """One page of a list. `truncated`: a filter stopped looking; go on with the cursor."""

    jobs: list[JobBody]
    next_cursor: str | None
    truncated: bool
    examined: int


class EnqueuedBody(Answer):
    """The job, new or, if `deduplicated`, the one that has this idempotency key."""

    job_id: str
    deduplicated: bool


class MovedBody(Answer, kw_only=True):
    """What an action did; exactly one of the counts is set. With a filter also how to go on."""

    dead_lettered: int | UnsetType = UNSET
    requeued: int | UnsetType = UNSET
    deleted: int | UnsetType = UNSET
    missing: int
    examined: int | UnsetType = UNSET
    next_cursor: str | UnsetType | None = UNSET
    audit_seq: int | UnsetType = UNSET


class ReleasedBody(Answer):
    """The job is ready again, or dead if that was its last attempt."""

    id: str
    dead_lettered: bool
    audit_seq: int | UnsetType = UNSET


class PurgedBody(Answer):
    """How many jobs went; the etag is that of the configuration after a delete."""

    purged: int
    etag: str | UnsetType = UNSET
    audit_seq: int | UnsetType = UNSET


class BackupBody(Answer):
    """A backup is complete, and is up to this LSN; `sepp-trio store verify` checks it."""

    directory: str
    last_lsn: int
    segments: int
    bytes: int
    audit_seq: int | UnsetType = UNSET


# Configuration


class Applied(Answer):
    """The file is written. `applied`: the server runs with it now."""

    applied: bool
    requires_restart: list[str]
    etag: str


class ConfigBody(Answer):
    """The configuration without its secrets."""

    effective: dict[str, Any]
    etag: str
    env_pinned: list[str]
    restart_only: list[str]
    pending_restart: list[str]


class AuditEntry(Answer):
    """Who did what, when."""

    seq: int
    ts_ms: int
    actor: str
    role: str | None
    action: str
    details: dict[str, Any]


class AuditPage(Answer):
    """Newest first. A short page with `next_before` set means: keep paging."""

    entries: list[AuditEntry]
    next_before: int | None
