"""Why a server refuses a job: one value class a reason, named as on the wire.

A rejection is an answer, not an exception: `enqueue_batch` returns it in the job's place. All but
QueueFull and QueueClosing come again when the same job is sent to the same configuration.
"""

from datetime import datetime, timedelta

from attrs import frozen


class JobRejection:
    """The reason one job was refused. `message` is for people; tell the reason by its class."""

    __slots__ = ()

    @property
    def message(self) -> str:
        """Say what was refused, with the values."""
        return "refused for a reason this client does not know"

    def __str__(self) -> str:
        return self.message


@frozen
class UnknownQueue(JobRejection):
    """The server takes declared queues only, and this one is not declared."""

    queue: str

    @property
    def message(self) -> str:
        """Say what was refused, with the values."""
        return f"queue {self.queue!r} is not declared, and the server is strict"


@frozen
class PayloadTooLarge(JobRejection):
    """The payload has more bytes than the queue takes."""

    limit: int
    actual: int

    @property
    def message(self) -> str:
        """Say what was refused, with the values."""
        return f"payload of {self.actual} bytes, limit {self.limit}"


@frozen
class EncodingNotAllowed(JobRejection):
    """The queue takes certain encodings only."""

    encoding: str
    allowed: list[str]

    @property
    def message(self) -> str:
        """Say what was refused, with the values."""
        return f"encoding {self.encoding!r} is not among {self.allowed}"


@frozen
class JobTypeNotAllowed(JobRejection):
    """The queue takes certain job types only."""

    job_type: str
    allowed: list[str]

    @property
    def message(self) -> str:
        """Say what was refused, with the values."""
        return f"job type {self.job_type!r} is not among {self.allowed}"


@frozen
class CustomEntriesTooMany(JobRejection):
    """The custom map has too many entries."""

    limit: int
    actual: int

    @property
    def message(self) -> str:
        """Say what was refused, with the values."""
        return f"custom map of {self.actual} entries, limit {self.limit}"


@frozen
class CustomMapTooLarge(JobRejection):
    """Keys and values of the custom map have too many bytes together."""

    limit: int
    actual: int

    @property
    def message(self) -> str:
        """Say what was refused, with the values."""
        return f"custom map of {self.actual} bytes, limit {self.limit}"


@frozen
class CustomKeyTooLong(JobRejection):
    """A key of the custom map has too many bytes."""

    key: str
    limit: int
    actual: int

    @property
    def message(self) -> str:
        """Say what was refused, with the values."""
        return f"custom key {self.key!r} of {self.actual} bytes, limit {self.limit}"


@frozen
class QueueNameTooLong(JobRejection):
    """The queue's name has too many bytes."""

    limit: int
    actual: int

    @property
    def message(self) -> str:
        """Say what was refused, with the values."""
        return f"queue name of {self.actual} bytes, limit {self.limit}"


@frozen
class JobTypeNameTooLong(JobRejection):
    """The job type has too many bytes."""

    limit: int
    actual: int

    @property
    def message(self) -> str:
        """Say what was refused, with the values."""
        return f"job type of {self.actual} bytes, limit {self.limit}"


@frozen
class IdempotencyKeyTooLong(JobRejection):
    """The idempotency key has too many bytes."""

    limit: int
    actual: int

    @property
    def message(self) -> str:
        """Say what was refused, with the values."""
        return f"idempotency key of {self.actual} bytes, limit {self.limit}"


@frozen
class ScheduledTooFar(JobRejection):
    """The job is to run later than the server plans ahead.

    Args:
        horizon: How far ahead it plans.
        actual: The time that was asked for.
    """

    horizon: timedelta
    actual: datetime

    @property
    def message(self) -> str:
        """Say what was refused, with the values."""
        return f"scheduled at {self.actual.isoformat()}, more than {self.horizon} ahead"


@frozen
class InvalidRequest(JobRejection):
    """The job is malformed; `detail` says how."""

    detail: str

    @property
    def message(self) -> str:
        """Say what was refused, with the values."""
        return f"malformed: {self.detail}"


@frozen
class QueueFull(JobRejection):
    """The queue holds as many jobs as it may. Later there may be room."""

    queue: str
    limit: int

    @property
    def message(self) -> str:
        """Say what was refused, with the values."""
        return f"queue {self.queue!r} is full, limit {self.limit} jobs"


@frozen
class QueueClosing(JobRejection):
    """The queue is being deleted. Later it may be open again."""

    queue: str

    @property
    def message(self) -> str:
        """Say what was refused, with the values."""
        return f"queue {self.queue!r} is being deleted"


@frozen
class UnknownRejection(JobRejection):
    """The server gave a reason that is newer than this client."""


@frozen
class JobValidationError:
    """A rejection within an atomic batch, with the job's place in it, from 0."""

    index: int
    rejection: JobRejection
