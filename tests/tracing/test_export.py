"""Spans wait in a bounded queue, and a collector that fails costs only them."""

import sys
from collections.abc import Sequence

import pytest
import trio
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from sepp.config.model import Config
from sepp.config.sections import Metrics, Tracing
from sepp.exits import StartError
from sepp.metrics import serving
from sepp.tracing import export, open_tracing
from tests.fakes.logs import captured
from tests.metrics.stand import standing


class Collector(SpanExporter):
    """Keeps the sizes of what it is given; answers as told."""

    def __init__(self, result: SpanExportResult = SpanExportResult.SUCCESS) -> None:
        self.result = result
        self.sizes: list[int] = []
        self.is_shut = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.sizes.append(len(spans))
        return self.result

    def shutdown(self) -> None:
        self.is_shut = True


def trace(tracing: export.Tracing, count: int) -> None:
    for _ in range(count):
        tracing.tracer.begin("/sepp.v1.QueueService/GetServerInfo", lambda _: None).finish()


async def run_to_the_end(tracing: export.Tracing) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(tracing.run)
        await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()


async def test_what_is_left_leaves_in_batches_at_the_end() -> None:
    collector = Collector()
    tracing = export.Tracing(collector, "sepp", 1.0)
    trace(tracing, export.BATCH_MAX + 3)

    await run_to_the_end(tracing)

    assert collector.sizes == [export.BATCH_MAX, 3]
    assert collector.is_shut


async def test_beyond_the_bound_spans_are_dropped_and_counted() -> None:
    collector = Collector()
    tracing = export.Tracing(collector, "sepp", 1.0)
    trace(tracing, export.WAITING_MAX + 5)

    with captured() as entries:
        await run_to_the_end(tracing)

    assert sum(collector.sizes) == export.WAITING_MAX
    (entry,) = entries()
    assert entry["message"] == "spans were lost on their way to the collector"
    assert entry["count"] == 5


async def test_a_refused_batch_is_counted_as_lost() -> None:
    collector = Collector(SpanExportResult.FAILURE)
    tracing = export.Tracing(collector, "sepp", 1.0)
    trace(tracing, 7)

    with captured() as entries:
        await run_to_the_end(tracing)

    assert [entry["count"] for entry in entries()] == [7]


async def test_spans_that_are_not_sampled_never_wait() -> None:
    collector = Collector()
    tracing = export.Tracing(collector, "sepp", 0.0)
    trace(tracing, 10)

    await run_to_the_end(tracing)

    assert collector.sizes == []


async def test_an_inherited_decision_wins_over_the_ratio() -> None:
    collector = Collector()
    tracing = export.Tracing(collector, "sepp", 0.0)
    headers = {b"traceparent": b"00-" + b"1" * 32 + b"-" + b"2" * 16 + b"-01"}

    tracing.tracer.begin("/sepp.v1.QueueService/GetServerInfo", headers.get).finish()

    await run_to_the_end(tracing)
    assert collector.sizes == [1]


@pytest.mark.parametrize("value", [b"", b"nonsense", b"00-\xff-\xff-01", b"0" * 4000])
async def test_a_traceparent_that_cannot_be_read_begins_a_trace_of_our_own(value: bytes) -> None:
    collector = Collector()
    tracing = export.Tracing(collector, "sepp", 1.0)

    tracing.tracer.begin("/sepp.v1.QueueService/Ack", {b"traceparent": value}.get).finish()

    await run_to_the_end(tracing)
    assert collector.sizes == [1]


def test_off_there_is_no_tracer() -> None:
    assert open_tracing(Config()) is None


async def test_without_the_extra_the_start_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [*sys.modules]:
        if name.startswith(("opentelemetry", "sepp.tracing.", "sepp.metrics.otlp")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)

    with pytest.raises(StartError, match=r"tracing\.enabled needs the extra otel"):
        open_tracing(Config(tracing=Tracing(enabled=True)))
    async with standing() as (_, sources):
        with pytest.raises(StartError, match=r"metrics\.enabled needs the extra otel"):
            await serving.serve(Config(metrics=Metrics(enabled=True)), sources)
