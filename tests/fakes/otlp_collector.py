"""An OTLP collector in this process: takes traces and metrics over gRPC and keeps them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import purerpc
import trio
from attrs import define, field
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from sepp.rpc.call import Call
from sepp.rpc.server import Server


@define
class SpanSeen:
    """One span as it was sent; ids in hex."""

    name: str
    kind: int
    trace: str
    id: str
    parent: str
    links: list[str]
    attributes: dict[str, Any]
    is_error: bool


class _Service:
    """One method that takes one kind of message."""

    def __init__(self, name: str, request: Any, response: Any, take: Any) -> None:
        self.name, self.request, self.response, self.take = name, request, response, take

    @property
    def service(self) -> purerpc.Service:
        service = purerpc.Service(self.name)
        kind = purerpc.Cardinality.UNARY_UNARY
        signature = purerpc.RPCSignature(kind, self.request, self.response)
        service.add_method("Export", self.export, signature)
        return service

    def export(self, call: Call) -> None:
        self.take(self.request.FromString(call.message))
        call.respond(self.response().SerializeToString())


@define(eq=False)
class Collector:
    """What has arrived so far.

    Attributes:
        metrics: Name -> label values -> last number (count of a histogram).
    """

    port: int = 0
    spans: list[SpanSeen] = field(factory=list)
    metrics: dict[str, dict[tuple[str, ...], float]] = field(factory=dict)
    resource: dict[str, Any] = field(factory=dict)
    arrived: trio.Event = field(factory=trio.Event)

    @property
    def endpoint(self) -> str:
        """As it stands in a configuration."""
        return f"http://127.0.0.1:{self.port}"

    async def until_span(self, name: str) -> SpanSeen:
        """Wait for the first span of that name."""
        while True:
            for span in self.spans:
                if span.name == name:
                    return span
            await self._until_more()

    async def until_metric(self, name: str) -> dict[tuple[str, ...], float]:
        """Wait for a metric of that name."""
        while name not in self.metrics:
            await self._until_more()
        return self.metrics[name]

    async def _until_more(self) -> None:
        self.arrived = trio.Event()
        with trio.fail_after(30):  # hang guard
            await self.arrived.wait()

    def take_spans(self, request: ExportTraceServiceRequest) -> None:
        for resource in request.resource_spans:
            self.resource = values(resource.resource.attributes)
            for scope in resource.scope_spans:
                self.spans += map(seen, scope.spans)
        self.arrived.set()

    def take_metrics(self, request: ExportMetricsServiceRequest) -> None:
        for resource in request.resource_metrics:
            self.resource = values(resource.resource.attributes)
            for metric in resource.scope_metrics[0].metrics:
                points = self.metrics.setdefault(metric.name, {})
                for point in getattr(metric, metric.WhichOneof("data")).data_points:
                    labels = tuple(map(str, values(point.attributes).values()))
                    number = getattr(point, "count", None)
                    if number is None:
                        number = getattr(point, point.WhichOneof("value"))
                    points[labels] = number
        self.arrived.set()


def values(attributes: Any) -> dict[str, Any]:
    """Attributes as plain values."""
    found: dict[str, Any] = {}
    for attribute in attributes:
        kind = attribute.value.WhichOneof("value")
        value = getattr(attribute.value, kind)
        if kind == "array_value":
            value = [getattr(each, each.WhichOneof("value")) for each in value.values]
        found[attribute.key] = value
    return found


def seen(span: Any) -> SpanSeen:
    """A span of the protocol as tests compare it."""
    return SpanSeen(
        span.name,
        span.kind,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        [link.span_id.hex() for link in span.links],
        values(span.attributes),
        span.status.code == 2,
    )


@asynccontextmanager
async def collecting() -> AsyncIterator[Collector]:
    """A collector on a free port of the loopback interface."""
    collector, server = Collector(), Server()
    kinds = (
        (
            "opentelemetry.proto.collector.trace.v1.TraceService",
            ExportTraceServiceRequest,
            ExportTraceServiceResponse,
            collector.take_spans,
        ),
        (
            "opentelemetry.proto.collector.metrics.v1.MetricsService",
            ExportMetricsServiceRequest,
            ExportMetricsServiceResponse,
            collector.take_metrics,
        ),
    )
    for kind in kinds:
        server.add_service(_Service(*kind).service)
    async with trio.open_nursery() as nursery:
        collector.port = await nursery.start(server.serve_async)
        yield collector
        nursery.cancel_scope.cancel()
