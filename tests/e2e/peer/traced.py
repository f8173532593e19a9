"""One job from a producer to a worker, both traced by the official client; prints their spans.

Runs under the official client's Python, with SEPP_TEST_ADDR naming the server. Each span is one
object in a JSON list: name, kind, trace, id, parent, links.
"""

import asyncio
import json
import os
from datetime import timedelta

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from sepp import EnqueueRequest, SeppClient, Worker

LEASE = timedelta(seconds=30)


async def enqueue_and_work(tracer: trace.Tracer) -> None:
    client = await SeppClient.connect(os.environ["SEPP_TEST_ADDR"])
    with tracer.start_as_current_span("producer"):
        await client.enqueue(EnqueueRequest("traced", "welcome"))
    worker = Worker(client, ["traced"], LEASE, wait_timeout=timedelta(seconds=1), max_in_flight=1)
    is_done = asyncio.Event()

    async def handle(_payload: object, _ctx: object) -> None:
        is_done.set()

    worker.handle("welcome", handle)
    running = asyncio.create_task(worker.run())
    await is_done.wait()
    worker.shutdown_handle().shutdown()
    await running
    await client.close()


def described(span: ReadableSpan) -> dict[str, object]:
    return {
        "name": span.name,
        "kind": span.kind.name,
        "trace": f"{span.context.trace_id:032x}",
        "id": f"{span.context.span_id:016x}",
        "parent": f"{span.parent.span_id:016x}" if span.parent else "",
        "links": [f"{link.context.span_id:016x}" for link in span.links],
    }


def main() -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    asyncio.run(enqueue_and_work(trace.get_tracer("test")))
    print(json.dumps([described(span) for span in exporter.get_finished_spans()]))


if __name__ == "__main__":
    main()
