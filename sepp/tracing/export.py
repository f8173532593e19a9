"""Spans on their way to a collector over OTLP; needs the extra `otel`.

Ended spans wait in a bounded queue; one task takes them out and a worker thread encodes and sends
them. A collector that is slow or gone costs spans, never time of a call.
"""

from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Final

import trio
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

from sepp import __version__
from sepp.config.model import Config
from sepp.logs import get_logger
from sepp.tracing.spans import SpanMaker

log = get_logger("sepp.tracing")

WAITING_MAX: Final = 8192
BATCH_MAX: Final = 512
INTERVAL_S: Final = 2.0
SEND_S: Final = 10.0
LAST_SEND_S: Final = 3.0


class Waiting(SpanProcessor):
    """Ended spans that wait to be sent; beyond `WAITING_MAX` they are counted and dropped."""

    def __init__(self) -> None:
        self.spans: deque[ReadableSpan] = deque()
        self.dropped_count = 0
        self.has_batch = trio.Event()

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Nothing to do."""

    def on_end(self, span: ReadableSpan) -> None:
        """Keep a span that is sampled."""
        context = span.get_span_context()
        if context is None or not context.trace_flags.sampled:
            return
        if len(self.spans) >= WAITING_MAX:
            self.dropped_count += 1
            return
        self.spans.append(span)
        if len(self.spans) >= BATCH_MAX:
            self.has_batch.set()

    def take(self) -> Sequence[ReadableSpan]:
        """Take the next batch out."""
        spans = self.spans
        return [spans.popleft() for _ in range(min(len(spans), BATCH_MAX))]


class Tracing:
    """The tracer and the task behind it.

    Args:
        exporter: Blocks; called in worker threads only.

    Attributes:
        tracer: For service and sweeper.
    """

    def __init__(self, exporter: SpanExporter, service_name: str, sample_ratio: float) -> None:
        self._exporter = exporter
        self._waiting = Waiting()
        self._limiter = trio.CapacityLimiter(1)
        provider = TracerProvider(
            # What the caller has decided holds; our ratio is for traces that begin here.
            sampler=ParentBased(TraceIdRatioBased(sample_ratio)),
            resource=Resource.create(
                {"service.name": service_name, "service.version": __version__}
            ),
            shutdown_on_exit=False,
        )
        provider.add_span_processor(self._waiting)
        self.tracer = SpanMaker(provider.get_tracer("sepp", __version__))

    async def run(self) -> None:
        """Send what ends, until cancelled; then what is left."""
        try:
            while True:
                with trio.move_on_after(INTERVAL_S):
                    await self._waiting.has_batch.wait()
                self._waiting.has_batch = trio.Event()
                await self._send_all(SEND_S)
        finally:
            with trio.CancelScope(shield=True):
                await self._send_all(LAST_SEND_S)
                with trio.move_on_after(LAST_SEND_S):
                    await trio.to_thread.run_sync(self._exporter.shutdown, abandon_on_cancel=True)

    async def _send_all(self, seconds_max: float) -> None:
        dropped, self._waiting.dropped_count = self._waiting.dropped_count, 0
        with trio.move_on_after(seconds_max):
            while batch := self._waiting.take():
                result = await trio.to_thread.run_sync(
                    partial(self._exporter.export, batch),
                    abandon_on_cancel=True,
                    limiter=self._limiter,
                )
                if result is not SpanExportResult.SUCCESS:
                    dropped += len(batch)
                    break
        if dropped:
            log.warning("spans were lost on their way to the collector", count=dropped)


def open_otlp(config: Config) -> Tracing:
    """Return the tracing that the configuration asks for; nothing is connected yet."""
    tracing = config.tracing
    exporter = OTLPSpanExporter(endpoint=tracing.otlp_endpoint, timeout=SEND_S)
    return Tracing(exporter, tracing.service_name, tracing.sample_ratio)
