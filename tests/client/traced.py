"""A producer and a worker with OpenTelemetry on; prints what was recorded, as JSON.

A program of its own: a tracer provider is set once in the life of a process.
"""

import json
import sys
from datetime import timedelta

import trio
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from sepp.client import EnqueueRequest, HandlerError, SeppClient, TraceContext, Worker

spans = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))
trace.set_tracer_provider(provider)
reader = InMemoryMetricReader()
metrics.set_meter_provider(MeterProvider([reader]))


async def main() -> None:
    """Do one job well and one badly."""
    async with SeppClient.connect(sys.argv[1]) as client:
        with trace.get_tracer("app").start_as_current_span("app"):
            await client.enqueue_batch([EnqueueRequest("q", "good"), EnqueueRequest("q", "bad")])
            assert TraceContext.from_current_otel() is not None
        worker = Worker(client, ["q"], timedelta(seconds=30))

        @worker.handler("good")
        async def good(payload: object, ctx: object) -> None: ...

        @worker.handler("bad")
        async def bad(payload: object, ctx: object) -> None:
            raise HandlerError.permanent("no use")

        await worker.run(job_count_max=2)


trio.run(main)
recorded = [
    {
        "name": span.name,
        "kind": span.kind.name,
        "trace": span.context.trace_id,
        "span": span.context.span_id,
        "links": [link.context.span_id for link in span.links],
    }
    for span in spans.get_finished_spans()
]
data = reader.get_metrics_data()
figures = {
    metric.name: sum(point.value for point in metric.data.data_points)
    for resource in data.resource_metrics
    for scope in resource.scope_metrics
    for metric in scope.metrics
}
print(json.dumps({"spans": recorded, "figures": figures}))
