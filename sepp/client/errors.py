"""What the client raises: the status of a call turned into a class that says whose fault it is.

`ClientError` is for calls as such; `LeaseError` and `ReserveError` for what only those calls can
meet; `JobRejectedError` and `BatchValidationError` for jobs that were refused.
"""

from typing import Final

from purerpc import StatusCode

from sepp.client.rejections import JobRejection, JobValidationError
from sepp.rpc.grpc import RpcError


class SeppError(Exception):
    """The base of all that this client raises about calls and jobs."""


class ClientError(SeppError):
    """A call failed as such; the subclass says how."""


class ConnectError(ClientError):
    """No server answered at the address. Is it running, and is the address right?"""

    def __init__(self, addr: str, reason: str) -> None:
        self.addr = addr
        self.reason = reason
        super().__init__(f"no connection to {addr}: {reason}")


class InvalidApiKeyError(ClientError):
    """The key holds characters that cannot be sent in a header."""

    def __init__(self) -> None:
        super().__init__("an API key consists of visible ASCII characters")


class TransportError(ClientError):
    """The connection broke, the deadline passed, or the server is stopping.

    Whether the call had its effect is not known unless `is_unprocessed` says that it had none.
    """

    def __init__(self, message: str, *, is_unprocessed: bool = False) -> None:
        self.is_unprocessed = is_unprocessed
        super().__init__(message)


class UnauthenticatedError(ClientError):
    """The server does not accept the key, or wants one."""


class OverloadedError(ClientError):
    """The server has no room just now; nothing was stored. Wait and call again."""


class InvalidRequestError(ClientError):
    """The server finds the request malformed. Calling again does not help."""


class ServerInternalError(ClientError):
    """The server had a fault of its own."""


class UnexpectedStatusError(ClientError):
    """The server answered with a status that has no place in this protocol."""

    def __init__(self, code: StatusCode, message: str) -> None:
        self.code = code
        self.status_message = message
        super().__init__(f"unexpected status {code.name}: {message}")


class EmptyBatchError(ClientError):
    """There is no job in the batch; nothing was sent."""

    def __init__(self) -> None:
        super().__init__("a batch needs at least one job")


class BatchResultCountMismatchError(ClientError):
    """The server answered for another number of jobs than it was sent."""

    def __init__(self, expected: int, got: int) -> None:
        self.expected = expected
        self.got = got
        super().__init__(f"{got} results for {expected} jobs")


class MalformedResponseError(ClientError):
    """An answer lacks what the protocol demands."""


class JobConversionError(SeppError):
    """A job in an answer lacks what the protocol demands. `reserve` logs it and leaves it out."""


class ServerInfoError(SeppError):
    """Server information lacks what the protocol demands."""


class MalformedJobError(ClientError):
    """An answer holds a job that cannot be read; `cause` says why."""

    def __init__(self, cause: JobConversionError) -> None:
        self.cause = cause
        super().__init__(f"malformed job in the answer: {cause}")


class MalformedServerInfoError(ClientError):
    """The answer to `get_server_info` cannot be read; `cause` says why."""

    def __init__(self, cause: ServerInfoError) -> None:
        self.cause = cause
        super().__init__(f"malformed server info in the answer: {cause}")


class JobRejectedError(SeppError):
    """`enqueue` sent a job that the server refused; `rejection` says why. Nothing was stored."""

    def __init__(self, rejection: JobRejection) -> None:
        self.rejection = rejection
        super().__init__(f"job refused: {rejection}")


class BatchValidationError(SeppError):
    """An atomic batch was refused as a whole; `errors` holds every reason. Nothing was stored."""

    def __init__(self, errors: list[JobValidationError]) -> None:
        self.errors = errors
        first = f", the first at {errors[0].index}: {errors[0].rejection}" if errors else ""
        super().__init__(f"batch refused for {len(errors)} of its jobs{first}")


class LeaseError(SeppError):
    """The caller does not hold the lease it wants to use; most likely it has run out."""


class JobNotFoundError(LeaseError):
    """No job with this id is leased: it is done, its lease ran out, or it never was.

    After a repeated ack or nack it may also mean that the first one had arrived.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(message or "no leased job has this id")


class AttemptMismatchError(LeaseError):
    """The job is leased under another attempt: it was delivered again since."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message or "the job was delivered again under another attempt")


class ReserveError(SeppError):
    """What only `reserve` can meet."""


class UnknownQueuesError(ReserveError):
    """The server takes declared queues only; the message names those that are not."""

    def __init__(self, message: str) -> None:
        super().__init__(f"queues are not declared: {message}")


RETRYABLE_CODES: Final = frozenset(
    {
        StatusCode.UNAVAILABLE,
        StatusCode.DEADLINE_EXCEEDED,
        StatusCode.ABORTED,
        StatusCode.RESOURCE_EXHAUSTED,
    }
)
"""What may be sent again when sending it twice does no harm."""

KEYLESS_ENQUEUE_RETRYABLE_CODES: Final = frozenset(
    {StatusCode.UNAVAILABLE, StatusCode.RESOURCE_EXHAUSTED}
)
"""What may be sent again when it would store a job twice: the server said it stored nothing."""

_TRANSPORT: Final = frozenset(
    {
        StatusCode.UNAVAILABLE,
        StatusCode.DEADLINE_EXCEEDED,
        StatusCode.ABORTED,
        StatusCode.CANCELLED,
    }
)
_PLAIN: Final[dict[StatusCode, type[ClientError]]] = {
    StatusCode.UNAUTHENTICATED: UnauthenticatedError,
    StatusCode.PERMISSION_DENIED: UnauthenticatedError,
    StatusCode.RESOURCE_EXHAUSTED: OverloadedError,
    StatusCode.INVALID_ARGUMENT: InvalidRequestError,
    StatusCode.INTERNAL: ServerInternalError,
    StatusCode.DATA_LOSS: ServerInternalError,
    StatusCode.UNKNOWN: ServerInternalError,
}


def client_error_from_rpc(error: RpcError) -> ClientError:
    """Return the error that a status means for any call."""
    code: StatusCode = error.code
    if code in _TRANSPORT:
        return TransportError(error.text, is_unprocessed=error.is_unprocessed)
    kind = _PLAIN.get(code)
    return UnexpectedStatusError(code, error.text) if kind is None else kind(error.text)


def lease_error_from_rpc(error: RpcError) -> SeppError:
    """Return the error that a status means for ack, nack and extend."""
    if error.code is StatusCode.NOT_FOUND:
        return JobNotFoundError()
    if error.code is StatusCode.FAILED_PRECONDITION:
        return AttemptMismatchError()
    return client_error_from_rpc(error)


def reserve_error_from_rpc(error: RpcError) -> SeppError:
    """Return the error that a status means for reserve."""
    if error.code is StatusCode.FAILED_PRECONDITION:
        return UnknownQueuesError(error.text)
    return client_error_from_rpc(error)
