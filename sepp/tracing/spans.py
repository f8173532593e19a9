"""The spans of calls, deliveries and sweeps, as OpenTelemetry has them; needs the extra `otel`.

W3C trace context only. A call's span is a child of what its metadata names; a job's stored context
is linked, never a parent, because the job may be worked long after its enqueue and more than once.
"""

import time
from typing import Any, Final

from opentelemetry.context import Context
from opentelemetry.trace import (
    Link,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    get_current_span,
    set_span_in_context,
)
from opentelemetry.trace import Span as OtelSpan
from opentelemetry.trace import Tracer as OtelTracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from purerpc import StatusCode as RpcStatus

from sepp import wire
from sepp._generated import queue_pb2 as pb
from sepp.clock import wall_ms
from sepp.core import outcomes
from sepp.core.outcomes import Accepted, LeasedJob, Outcome, SweptJob
from sepp.core.statistics import JobRow
from sepp.tracing import Header

Attributes = dict[str, Any]

NAMES: Final = {
    f"/sepp.v1.QueueService/{rpc}": f"sepp.{name}"
    for rpc, name in (
        ("EnqueueBatch", "enqueue"),
        ("EnqueueAtomic", "enqueue_atomic"),
        ("Reserve", "reserve"),
        ("Ack", "ack"),
        ("Nack", "nack"),
        ("Extend", "extend"),
        ("DrainDeadLetters", "drain_dead_letters"),
        ("GetServerInfo", "get_server_info"),
    )
}
ATOMIC: Final = "sepp.enqueue_atomic"

# What the server is to blame for. All else is an answer like any other.
ERRORS: Final = (RpcStatus.INTERNAL, RpcStatus.UNKNOWN, RpcStatus.DATA_LOSS)

_propagator: Final = TraceContextTextMapPropagator()


def remote_context(traceparent: str, tracestate: str = "") -> Context:
    """The context that two headers carry; an empty one when they cannot be read."""
    carrier = {"traceparent": traceparent}
    if tracestate:
        carrier["tracestate"] = tracestate
    return _propagator.extract(carrier, Context())


def linked(context: pb.TraceContext | None) -> SpanContext | None:
    """What a span is linked to: a job's stored context, None when there is none worth it."""
    if context is None:
        return None
    found = get_current_span(remote_context(context.traceparent, context.tracestate))
    span_context = found.get_span_context()
    return span_context if span_context.is_valid else None


def carried(span: OtelSpan) -> pb.TraceContext:
    """The context of a span as a job carries it."""
    carrier: dict[str, str] = {}
    _propagator.inject(carrier, set_span_in_context(span, Context()))
    context = pb.TraceContext(traceparent=carrier["traceparent"])
    if "tracestate" in carrier:
        context.tracestate = carrier["tracestate"]
    return context


class RpcSpan:
    """One RPC; see `sepp.tracing.Span`."""

    __slots__ = ("_batch_size", "_name", "_span", "_tracer")

    def __init__(self, tracer: OtelTracer, name: str, parent: Context) -> None:
        self._tracer = tracer
        self._name = name
        self._batch_size = 0
        self._span = tracer.start_span(name, parent, SpanKind.SERVER)

    def request(self, message: Any) -> None:
        if isinstance(message, pb.EnqueueBatchRequest):
            self._batch_size = len(message.jobs)
        self._span.set_attributes(request_attributes(message, time.time()))

    def context(self) -> pb.TraceContext:
        return carried(self._span)

    def hold(self, job: JobRow, body: bytes | None) -> None:
        self._span.set_attribute("queue", job.queue)
        context = linked(None if body is None else wire.stored_trace(body))
        if context is not None:
            self._span.add_link(context)

    def deliver(self, job: LeasedJob, body: bytes, expires_ms: int) -> bytes:
        context = linked(wire.stored_trace(body))
        known = wire.decode_job(body, attempt=job.attempt, enqueued_ms=job.enqueued_ms)
        span = self._tracer.start_span(
            "sepp.deliver",
            set_span_in_context(self._span, Context()),
            links=[] if context is None else [Link(context)],
            attributes={
                "job_id": known.id,
                "job_type": known.job_type,
                "attempt": job.attempt,
                "priority": known.priority,
                "max_attempts": known.max_attempts,
                "lease_expires_at": expires_ms,
            },
        )
        span.end()
        return wire.trace_field(carried(span).SerializeToString())

    def end(self, outcome: Outcome) -> None:
        self._span.set_attributes(outcome_attributes(outcome, self._name, self._batch_size))
        self._span.end()

    def finish(self) -> None:
        if self._name == ATOMIC:
            self._span.set_attributes({"outcome": "rejected", "accepted": 0})
        self._span.end()

    def fail(self, code: RpcStatus, text: str) -> None:
        self._span.set_attribute("error", text)
        if code in ERRORS:
            self._span.set_status(Status(StatusCode.ERROR, text))
        self._span.end()


class SpanMaker:
    """Begins spans; see `sepp.tracing.Tracer`."""

    def __init__(self, tracer: OtelTracer) -> None:
        self._tracer = tracer

    def begin(self, path: str, header: Header) -> RpcSpan:
        traceparent = header(b"traceparent")
        parent = Context()
        if traceparent is not None:
            tracestate = header(b"tracestate") or b""
            parent = remote_context(traceparent.decode("latin-1"), tracestate.decode("latin-1"))
        return RpcSpan(self._tracer, NAMES[path], parent)

    def swept(self, job: SweptJob, body: bytes | None) -> None:
        attributes: Attributes = {
            "job_id": wire.id_text(job.job_id),
            "queue": job.queue,
            "attempt": job.attempt,
        }
        if job.kind == "redeliver":
            attributes["reason"] = "lease_expired"
        elif job.kind == "dead_letter":
            attributes["cause"] = "lease_expired"
        context = linked(None if body is None else wire.stored_trace(body))
        links = [] if context is None else [Link(context)]
        self._tracer.start_span(
            f"sepp.{job.kind}", Context(), links=links, attributes=attributes
        ).end()


def request_attributes(message: Any, now_s: float) -> Attributes:
    """What a request tells of itself."""
    match message:
        case pb.EnqueueBatchRequest():
            jobs = message.jobs
            return {
                "batch_size": len(jobs),
                "queues": sorted({job.queue for job in jobs}),
                "job_types": sorted({job.job_type for job in jobs}),
                "scheduled": sum(job.scheduled_at.seconds > now_s for job in jobs),
            }
        case pb.ReserveRequest():
            lease, wait = message.lease_duration, message.wait_timeout
            return {
                "worker_id": message.worker_id or "<none>",
                "queues": list(message.queues),
                "max_jobs": message.max_jobs or 1,
                "lease_ms": wire.span_ms(lease.seconds, lease.nanos),
                "wait_ms": wire.span_ms(wait.seconds, wait.nanos),
            }
        case pb.DrainDeadLettersRequest():
            return {"queue": message.queue or "<all>", "max": message.max or 1}
        case pb.AckRequest() | pb.NackRequest() | pb.ExtendRequest():
            return _holder_attributes(message)
    return {}


def _holder_attributes(message: Any) -> Attributes:
    attributes: Attributes = {
        "job_id": message.job_id,
        "attempt": message.attempt,
        "worker_id": message.worker_id or "<none>",
    }
    if isinstance(message, pb.NackRequest):
        attributes["reason"] = message.reason
        attributes["retry"] = message.retry.WhichOneof("strategy") or "default"
    elif isinstance(message, pb.ExtendRequest):
        lease = message.lease_duration
        attributes["lease_duration_ms"] = wire.span_ms(lease.seconds, lease.nanos)
    return attributes


def outcome_attributes(outcome: Outcome, name: str, batch_size: int) -> Attributes:
    """What became of an RPC."""
    match outcome:
        case outcomes.Enqueued():
            accepted = [result for result in outcome.results if isinstance(result, Accepted)]
            attributes: Attributes = {
                "accepted": len(accepted),
                "rejected": batch_size - len(accepted),
                "deduplicated": sum(result.is_duplicate for result in accepted),
                "job_ids": [wire.id_text(result.job_id) for result in accepted],
            }
            return {**attributes, "outcome": "committed"} if name == ATOMIC else attributes
        case outcomes.AtomicRefused():
            return {"outcome": "rejected", "accepted": 0, "rejected": len(outcome.errors)}
        case outcomes.Leased():
            return {
                "job_count": len(outcome.jobs),
                "timed_out": not outcome.jobs,
                "job_ids": [wire.id_text(job.job_id) for job in outcome.jobs],
            }
        case outcomes.Nacked():
            delay_ms = max(0, outcome.retry_at_ms - wall_ms())
            return {"dead_lettered": outcome.is_dead, "retry_delay_ms": delay_ms}
        case outcomes.Extended():
            return {"lease_expires_at": outcome.expires_ms}
        case outcomes.Drained():
            return {"drained": len(outcome.records)}
        case outcomes.NotFound():
            return {"error": "not found"}
        case outcomes.AttemptMismatch():
            return {"error": "attempt mismatch"}
    return {}
