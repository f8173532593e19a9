"""Spans and figures by OpenTelemetry, where the `otel` extra is installed; nothing otherwise.

The program that uses the client owns provider and exporter. While it has set none, no span is made:
a span that nobody records costs more than the call it is about.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final

try:
    from opentelemetry import context as otel_context
    from opentelemetry import metrics, trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError:
    IS_AVAILABLE = False
else:
    IS_AVAILABLE = True
    _propagator: Final = TraceContextTextMapPropagator()
    _tracer: Final = trace.get_tracer("sepp")

SCOPE: Final = "sepp"
_NOTHING: Final = nullcontext()


def _is_recording() -> bool:
    return IS_AVAILABLE and not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


def client_span(name: str) -> AbstractContextManager[Any]:
    """Return a span around one call to the server."""
    if not _is_recording():
        return _NOTHING
    return _tracer.start_as_current_span(name, kind=trace.SpanKind.CLIENT)


def consumer_span(
    name: str, traceparent: str | None, tracestate: str | None
) -> AbstractContextManager[Any]:
    """Return a span around the handling of a job, linked to the producer's."""
    if not _is_recording():
        return _NOTHING
    producer = None if traceparent is None else span_context(traceparent, tracestate)
    links = [] if producer is None else [trace.Link(producer)]
    return _tracer.start_as_current_span(name, kind=trace.SpanKind.CONSUMER, links=links)


def current_headers() -> tuple[str, str | None] | None:
    """Return traceparent and tracestate of the active span, None when there is none."""
    if not IS_AVAILABLE or not trace.get_current_span().get_span_context().is_valid:
        return None
    carrier: dict[str, str] = {}
    _propagator.inject(carrier)
    traceparent = carrier.get("traceparent")
    return None if traceparent is None else (traceparent, carrier.get("tracestate") or None)


def metadata() -> Sequence[tuple[bytes, bytes]]:
    """Return the headers that tell a server of the active span."""
    headers = current_headers()
    if headers is None:
        return ()
    traceparent, tracestate = headers
    found = [(b"traceparent", traceparent.encode())]
    if tracestate:
        found.append((b"tracestate", tracestate.encode()))
    return found


def _extract(traceparent: str, tracestate: str | None) -> Any:
    carrier = {"traceparent": traceparent}
    if tracestate is not None:
        carrier["tracestate"] = tracestate
    return _propagator.extract(carrier)


def span_context(traceparent: str, tracestate: str | None) -> Any:
    """Return OpenTelemetry's SpanContext, None when it is none or the extra is missing."""
    if not IS_AVAILABLE:
        return None
    found = trace.get_current_span(_extract(traceparent, tracestate)).get_span_context()
    return found if found.is_valid else None


@contextmanager
def attached(traceparent: str, tracestate: str | None) -> Iterator[None]:
    """Make a trace the current one within the block."""
    if not IS_AVAILABLE:
        yield
        return
    token = otel_context.attach(_extract(traceparent, tracestate))
    try:
        yield
    finally:
        otel_context.detach(token)


class WorkerMetrics:
    """The figures of workers, under the names all clients of the protocol use."""

    def __init__(self) -> None:
        if not IS_AVAILABLE:
            return
        meter = metrics.get_meter(SCOPE)
        self._processed = meter.create_counter("sepp.jobs.processed", description="Jobs acked.")
        self._nacked = meter.create_counter(
            "sepp.jobs.nacked", description="Jobs nacked; outcome is retry or dead_letter."
        )
        self._in_flight = meter.create_up_down_counter(
            "sepp.jobs.in_flight", description="Jobs in the hands of handlers."
        )
        self._reserved = meter.create_counter(
            "sepp.reserves.completed", description="Reserve calls answered; jobs is some or empty."
        )
        self._failed = meter.create_counter(
            "sepp.reserves.failed", description="Reserve calls that failed."
        )

    def processed(self) -> None:
        """A job was acked."""
        if IS_AVAILABLE:
            self._processed.add(1)

    def nacked(self, *, is_dead: bool) -> None:
        """A job was nacked."""
        if IS_AVAILABLE:
            self._nacked.add(1, {"outcome": "dead_letter" if is_dead else "retry"})

    def in_flight(self, change: int) -> None:
        """That many more jobs are with handlers."""
        if IS_AVAILABLE:
            self._in_flight.add(change)

    def reserved(self, *, is_empty: bool) -> None:
        """A reserve call was answered."""
        if IS_AVAILABLE:
            self._reserved.add(1, {"jobs": "empty" if is_empty else "some"})

    def reserve_failed(self) -> None:
        """A reserve call failed."""
        if IS_AVAILABLE:
            self._failed.add(1)
