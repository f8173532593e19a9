"""Traces: what the server tells of each call, job and sweep, when `tracing.enabled` says so.

The faces here are all that the rest of the server knows; where tracing is off there is no tracer,
and a call costs one comparison with None. The spans themselves are in `sepp.tracing.spans`, their
way out in `sepp.tracing.export`; both need the extra `otel` and are imported only when it is on.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from purerpc import StatusCode

from sepp import exits
from sepp._generated import queue_pb2 as pb
from sepp.config.model import Config
from sepp.core.outcomes import LeasedJob, Outcome, SweptJob
from sepp.core.statistics import JobRow

if TYPE_CHECKING:
    from sepp.tracing.export import Tracing

# The value of a request header, or None.
Header = Callable[[bytes], bytes | None]


class Span(Protocol):
    """One RPC, from its request to its answer. `end` or `fail` is called exactly once."""

    def request(self, message: Any) -> None:
        """Take note of the decoded request."""
        ...

    def context(self) -> pb.TraceContext:
        """Return what is stored with a job that brings no context of its own."""
        ...

    def hold(self, job: JobRow, body: bytes | None) -> None:
        """Take note of the job an Ack, Nack or Extend is about, and link to its context."""
        ...

    def deliver(self, job: LeasedJob, body: bytes, expires_ms: int) -> bytes:
        """Tell of one delivery; return the trace_context field that its worker receives."""
        ...

    def end(self, outcome: Outcome) -> None:
        """The RPC was answered with `outcome`."""
        ...

    def finish(self) -> None:
        """The RPC was answered without asking the committer."""
        ...

    def fail(self, code: StatusCode, text: str) -> None:
        """The RPC ended with a status other than OK."""
        ...


class Tracer(Protocol):
    """Begins spans."""

    def begin(self, path: str, header: Header) -> Span:
        """Begin the span of an RPC, under the parent its metadata names."""
        ...

    def swept(self, job: SweptJob, body: bytes | None) -> None:
        """Tell of one job that a sweep moved, linked to its context."""
        ...


def open_tracing(config: Config) -> "Tracing | None":
    """Return what traces calls and sends them away; None while `tracing.enabled` is false.

    Raises:
        StartError: The extra `otel` is not installed.
    """
    if not config.tracing.enabled:
        return None
    try:
        from sepp.tracing.export import open_otlp
    except ModuleNotFoundError as fault:
        raise exits.missing_extra("tracing.enabled", fault) from None
    return open_otlp(config)
