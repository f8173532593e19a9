"""Jobs and what belongs to them, as producers and workers see them.

Instants are aware datetimes in UTC (a naive one is taken as UTC), spans are timedeltas; the server
counts whole milliseconds.
"""

import enum
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Any, ClassVar, Final, Protocol

from attrs import Factory, define, field, frozen

from sepp.client import telemetry

Primitive = str | int | float | bool
"""A value of a custom map: text, 64-bit integer, double or truth."""

PRIORITY_MAX: Final = 9
_TRACEPARENT: Final = re.compile(
    r"[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}", re.IGNORECASE
)


@frozen
class Payload:
    """The body of a job: bytes the queue never looks into, and the name of their encoding.

    Neither may be empty; a job without data has no payload at all.
    """

    data: bytes
    encoding: str


class PriorityOutOfRangeError(ValueError):
    """A priority is a whole number from 0 to 9."""

    def __init__(self, value: object) -> None:
        self.value = value
        super().__init__(f"a priority is 0 to {PRIORITY_MAX}, not {value!r}")


@frozen(order=True)
class Priority:
    """A priority from 0 to 9; higher ones are delivered first. P0 to P9, MIN, MAX are ready-made.

    Raises:
        PriorityOutOfRangeError: The value is none.
    """

    value: int

    MIN: ClassVar["Priority"]
    MAX: ClassVar["Priority"]
    P0: ClassVar["Priority"]
    P1: ClassVar["Priority"]
    P2: ClassVar["Priority"]
    P3: ClassVar["Priority"]
    P4: ClassVar["Priority"]
    P5: ClassVar["Priority"]
    P6: ClassVar["Priority"]
    P7: ClassVar["Priority"]
    P8: ClassVar["Priority"]
    P9: ClassVar["Priority"]

    def __attrs_post_init__(self) -> None:
        value = self.value
        is_number = isinstance(value, int) and not isinstance(value, bool)
        if not is_number or not 0 <= value <= PRIORITY_MAX:
            raise PriorityOutOfRangeError(value)

    def __int__(self) -> int:
        return self.value

    def __str__(self) -> str:
        return str(self.value)


PRIORITIES: Final = tuple(Priority(value) for value in range(PRIORITY_MAX + 1))
for _priority in PRIORITIES:
    setattr(Priority, f"P{_priority.value}", _priority)
Priority.MIN, Priority.MAX = PRIORITIES[0], PRIORITIES[-1]


class TraceContextError(ValueError):
    """A traceparent has not the form that W3C Trace Context gives it."""


@frozen
class TraceContext:
    """The W3C trace a job belongs to; it travels from the producer to the worker.

    With the `otel` extra client and Worker do that by themselves.

    Raises:
        TraceContextError: The traceparent is malformed.
    """

    traceparent: str
    tracestate: str | None = None

    def __attrs_post_init__(self) -> None:
        if _TRACEPARENT.fullmatch(self.traceparent) is None:
            raise TraceContextError(
                "a traceparent is version-trace-span-flags in hex digits (2-32-16-2), trace and "
                f"span not zero; this is {self.traceparent!r}"
            )

    @classmethod
    def from_current_otel(cls) -> "TraceContext | None":
        """Return the context of the span now active in OpenTelemetry, None when there is none."""
        headers = telemetry.current_headers()
        return None if headers is None else cls(*headers)

    def attach_to_otel(self) -> AbstractContextManager[None]:
        """Make this the current OpenTelemetry context within a `with` block."""
        return telemetry.attached(self.traceparent, self.tracestate)

    def otel_span_context(self) -> Any:
        """Return this as OpenTelemetry's SpanContext, to link to; None without the extra."""
        return telemetry.span_context(self.traceparent, self.tracestate)


@define
class EnqueueRequest:
    """A job to be stored. What is left out gets the queue's default.

    Args:
        queue: The queue; it need not exist yet unless the server is strict.
        job_type: Which handler is to do it.
        payload: Its data.
        idempotency_key: A second job of this queue with the same key, within the server's dedup
            window, is not stored; the answer names the first. It also makes repeating the call
            safe.
        priority: 0 to 9, as number or Priority.
        max_attempts: Deliveries before it becomes a dead letter, from 1.
        custom: Small values beside the payload.
        trace_context: The trace it belongs to.
        scheduled_at: Not before this time.

    Raises:
        ValueError: Queue or job type is empty, or the priority is none.
    """

    queue: str
    job_type: str
    payload: Payload | None = None
    idempotency_key: str | None = None
    priority: Priority | int | None = None
    max_attempts: int | None = None
    custom: Mapping[str, Primitive] = Factory(dict)
    trace_context: TraceContext | None = None
    scheduled_at: datetime | None = None

    def __attrs_post_init__(self) -> None:
        if not self.queue:
            raise ValueError("the queue's name is empty")
        if not self.job_type:
            raise ValueError("the job type is empty")
        if self.priority is not None and not isinstance(self.priority, Priority):
            self.priority = Priority(self.priority)


@define
class EnqueueAck:
    """The server has the job; durable as far as its persist mode promises.

    Args:
        job_id: The job's id, a UUID; of the job stored before if `deduplicated`.
        deduplicated: Its idempotency key was known, so nothing was stored.
    """

    job_id: str
    deduplicated: bool


class LeaseHandle(Protocol):
    """What renews a lease: the client that got the job."""

    worker_id: str | None

    async def extend(self, job_id: str, attempt: int, by: timedelta) -> datetime:
        """Renew, counted from now, and return the new end."""
        ...


@define
class JobCtx:
    """A leased job without its payload.

    Args:
        attempt: Which delivery this is, from 1.
        lease_expires_at: When the lease ends; `extend` moves it.
        scheduled_at: When the producer wanted it run, None for at once.
    """

    id: str
    queue: str
    job_type: str
    priority: Priority
    attempt: int
    max_attempts: int
    enqueued_at: datetime
    custom: dict[str, Primitive]
    trace_context: TraceContext | None
    lease_expires_at: datetime
    scheduled_at: datetime | None = None
    _lease: LeaseHandle | None = field(default=None, repr=False, eq=False)

    @property
    def worker_id(self) -> str | None:
        """The name under which the job was reserved."""
        return None if self._lease is None else self._lease.worker_id

    async def extend(self, extension: timedelta) -> datetime:
        """Renew the lease to `extension` from now and return its new end; durable on return.

        Raises:
            LeaseError: It was lost.
            ClientError: The call failed.
            RuntimeError: The job was not reserved but made by hand.
        """
        if self._lease is None:
            raise RuntimeError("this job was not reserved; it has no lease")
        self.lease_expires_at = await self._lease.extend(self.id, self.attempt, extension)
        return self.lease_expires_at

    def __str__(self) -> str:
        return (
            f"job {self.id} ({self.job_type}, attempt {self.attempt} of {self.max_attempts}, "
            f"priority {self.priority})"
        )


@define
class Job:
    """A leased job."""

    payload: Payload | None
    ctx: JobCtx


@define
class ReserveOptions:
    """What `reserve` asks for.

    Args:
        queues: Looked at in this order.
        lease_duration: How long the jobs are ours; the server may grant less.
        wait_timeout: How long to wait for a first job.
        worker_id: A name for the server's traces.
        max_jobs: Jobs at most; None: one.

    Raises:
        ValueError: A queue or the worker id is empty, or a number is too small.
    """

    queues: Sequence[str]
    lease_duration: timedelta
    wait_timeout: timedelta = timedelta(seconds=30)
    worker_id: str | None = None
    max_jobs: int | None = None

    def __attrs_post_init__(self) -> None:
        self.queues = list(self.queues)
        if not self.queues:
            raise ValueError("reserve needs at least one queue")
        if "" in self.queues:
            raise ValueError(f"the queue name at index {self.queues.index('')} is empty")
        if self.lease_duration <= timedelta(0):
            raise ValueError("lease_duration is at least 1 ms")
        if self.max_jobs is not None and self.max_jobs < 1:
            raise ValueError("max_jobs is at least 1")
        if self.worker_id == "":
            raise ValueError("worker_id is empty; leave it out instead")


@frozen(kw_only=True)
class ServerInfo:
    """The server's version and its limits for queues without limits of their own."""

    version: str
    supported_protocol_versions: list[str]
    server_time: datetime
    restricts_encodings: bool
    allowed_encodings: list[str]
    max_payload_bytes: int
    max_custom_entries: int
    max_custom_total_bytes: int
    max_custom_key_bytes: int
    max_queue_name_bytes: int
    max_job_type_bytes: int
    max_idempotency_key_bytes: int
    max_schedule_horizon: timedelta
    max_enqueue_batch: int
    max_reserve_batch: int
    max_reserve_queues: int
    max_wait_timeout: timedelta
    max_lease_duration: timedelta
    strict_queues: bool
    dead_letter_retention_enabled: bool


class DeadLetterCause(enum.Enum):
    """Why a job is dead."""

    UNSPECIFIED = "unspecified"  # a cause newer than this client
    ATTEMPTS_EXHAUSTED = "attempts_exhausted"
    REJECTED = "rejected"  # a worker said there is no use in trying again
    LEASE_EXPIRED = "lease_expired"  # the last attempt's lease ran out
    ADMIN = "admin"  # an operator did it


@frozen(kw_only=True)
class DeadLetterRecord:
    """A dead letter that was drained: the server has it no more."""

    queue: str
    job_id: str
    job_type: str
    payload: Payload | None
    priority: Priority
    max_attempts: int
    custom: dict[str, Primitive]
    trace_context: TraceContext | None
    enqueued_at: datetime
    scheduled_at: datetime | None
    cause: DeadLetterCause
    failed_at: datetime
    final_attempt: int
    last_reason: str | None

    def to_enqueue_request(self) -> EnqueueRequest:
        """Return a new job for the same queue with the same contents, to run at once.

        It has neither id, attempts nor idempotency key of the old one, nor its scheduled time.
        """
        return EnqueueRequest(
            queue=self.queue,
            job_type=self.job_type,
            payload=self.payload,
            priority=self.priority,
            max_attempts=self.max_attempts or None,
            custom=dict(self.custom),
            trace_context=self.trace_context,
        )
