"""Pushing metrics over OTLP; needs the extra `otel`.

The same reading that Prometheus would get, under OpenTelemetry's names, every
`metrics.export_interval_ms`. Points are made in slices of the loop; a worker thread encodes and
sends them, a bounded number at a time. A collector that does not answer costs figures, nothing
else; the exporter logs it.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, TypeVar

import trio
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import export as sdk
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from sepp import __version__
from sepp.config.model import Config
from sepp.logs import get_logger
from sepp.metrics.families import Family
from sepp.metrics.reading import Histogram, NamedQueues, Points, Series, Sources, read

log = get_logger("sepp.metrics")

T = TypeVar("T")

POINTS_PER_REQUEST: Final = 500
SEND_S: Final = 10.0
LAST_SEND_S: Final = 3.0

_SCOPE: Final = InstrumentationScope("sepp", __version__)
_CUMULATIVE: Final = sdk.AggregationTemporality.CUMULATIVE


def open_push(config: Config, sources: Sources) -> "Push":
    """Return the push that the configuration asks for."""
    metrics = config.metrics
    return Push(
        sources,
        OTLPMetricExporter(endpoint=metrics.otlp_endpoint, timeout=SEND_S),
        Resource.create(
            {"service.name": config.tracing.service_name, "service.version": __version__}
        ),
        interval_s=metrics.export_interval_ms / 1000,
        queues_max=metrics.max_queues,
    )


class Push:
    """The task. `exporter` blocks and is called in worker threads only."""

    def __init__(
        self,
        sources: Sources,
        exporter: sdk.MetricExporter,
        resource: Resource,
        *,
        interval_s: float,
        queues_max: int,
    ) -> None:
        self._sources = sources
        self._exporter = exporter
        self._resource = resource
        self._interval_s = interval_s
        self._named = NamedQueues(queues_max)
        self._start_ns = time.time_ns()
        self._limiter = trio.CapacityLimiter(1)

    async def run(self, stop: trio.Event) -> None:
        """Push until `stop`, and once more then."""
        with trio.CancelScope(shield=True):  # it ends by `stop`
            is_last = False
            while not is_last:
                with trio.move_on_after(self._interval_s):
                    await stop.wait()
                is_last = stop.is_set()
                with trio.move_on_after(LAST_SEND_S if is_last else SEND_S):
                    await self._push()
            with trio.move_on_after(LAST_SEND_S):
                await self._in_thread(partial(self._exporter.shutdown, timeout_millis=1000))

    async def _push(self) -> None:
        series = await read(self._sources, self._named, trio.lowlevel.checkpoint)
        now_ns = time.time_ns()
        for metrics in batches(series, self._start_ns, now_ns):
            scope = sdk.ScopeMetrics(_SCOPE, metrics, "")
            data = sdk.MetricsData([sdk.ResourceMetrics(self._resource, [scope], "")])
            if await self._in_thread(partial(self._exporter.export, data)) != _SUCCESS:
                log.warning("metrics could not be pushed")
                return

    async def _in_thread(self, function: Callable[[], T]) -> T:
        return await trio.to_thread.run_sync(
            function, abandon_on_cancel=True, limiter=self._limiter
        )


_SUCCESS: Final = sdk.MetricExportResult.SUCCESS


def batches(series: list[Series], start_ns: int, now_ns: int) -> Iterator[list[sdk.Metric]]:
    """Yield the metrics of one request after the other, each with a bounded number of points."""
    metrics: list[sdk.Metric] = []
    room = POINTS_PER_REQUEST
    for family, points in series:
        at = 0
        while at < len(points):
            part = points[at : at + room]
            at += len(part)
            room -= len(part)
            metrics.append(_metric(family, part, start_ns, now_ns))
            if not room:
                yield metrics
                metrics, room = [], POINTS_PER_REQUEST
    if metrics:
        yield metrics


def _metric(family: Family, points: Points, start_ns: int, now_ns: int) -> sdk.Metric:
    data: sdk.DataT
    if family.kind == "histogram":
        data = sdk.Histogram(
            [_histogram(family, labels, value, start_ns, now_ns) for labels, value in points],
            _CUMULATIVE,
        )
    else:
        numbers = [
            sdk.NumberDataPoint(
                dict(zip(family.labels, labels, strict=True)), start_ns, now_ns, _number(value)
            )
            for labels, value in points
        ]
        is_counter = family.kind == "counter"
        data = sdk.Sum(numbers, _CUMULATIVE, True) if is_counter else sdk.Gauge(numbers)
    return sdk.Metric(family.otel, family.text, family.unit, data)


def _number(value: object) -> int | float:
    assert isinstance(value, int | float)
    return value


def _histogram(
    family: Family, labels: tuple[str, ...], value: object, start_ns: int, now_ns: int
) -> sdk.HistogramDataPoint:
    assert isinstance(value, Histogram)
    return sdk.HistogramDataPoint(
        dict(zip(family.labels, labels, strict=True)),
        start_ns,
        now_ns,
        sum(value.counts),
        value.sum,
        value.counts,
        value.bounds,
        min=None,  # type: ignore[arg-type]  # not known; the protocol has it optional
        max=None,  # type: ignore[arg-type]  # as min
    )
