"""The push carries the same reading, in bounded requests, and ends with a last one."""

import trio
import trio.testing
from opentelemetry.sdk.metrics import export as sdk
from opentelemetry.sdk.resources import Resource

from sepp.metrics.otlp import POINTS_PER_REQUEST, Push, batches
from sepp.metrics.reading import NamedQueues, read
from tests.metrics.stand import no_pause, standing
from tests.spine.desk import enqueue


class Collector(sdk.MetricExporter):
    """Keeps what it is given; `failures` many times it refuses."""

    def __init__(self, failures: int = 0) -> None:
        super().__init__()
        self.pushes: list[dict[str, sdk.Metric]] = []
        self.failures = failures
        self.is_shut = False

    def export(self, metrics_data, timeout_millis=10_000, **kwargs):  # type: ignore[no-untyped-def]  # the SDK's signature
        if self.failures:
            self.failures -= 1
            return sdk.MetricExportResult.FAILURE
        (resource,) = metrics_data.resource_metrics
        (scope,) = resource.scope_metrics
        self.pushes.append({metric.name: metric for metric in scope.metrics})
        return sdk.MetricExportResult.SUCCESS

    def force_flush(self, timeout_millis=10_000):  # type: ignore[no-untyped-def]  # the SDK's signature
        return True

    def shutdown(self, timeout_millis=30_000, **kwargs):  # type: ignore[no-untyped-def]  # the SDK's signature
        self.is_shut = True


async def test_each_kind_of_metric_is_pushed_as_such() -> None:
    async with standing() as (desk, sources):
        desk.submit(enqueue(1, "mail"))
        await trio.testing.wait_all_tasks_blocked()
        series = await read(sources, NamedQueues(10), no_pause)

    metrics = {m.name: m for batch in batches(series, 5, 9) for m in batch}

    enqueued = metrics["sepp.jobs.enqueued"].data
    assert isinstance(enqueued, sdk.Sum)
    assert enqueued.is_monotonic
    assert enqueued.aggregation_temporality is sdk.AggregationTemporality.CUMULATIVE
    (point,) = enqueued.data_points
    assert (point.attributes, point.value) == ({"queue": "mail"}, 1)
    assert (point.start_time_unix_nano, point.time_unix_nano) == (5, 9)
    assert isinstance(metrics["sepp.queue.ready"].data, sdk.Gauge)
    times = metrics["sepp.commit.duration"].data
    assert isinstance(times, sdk.Histogram)
    assert times.data_points[0].count == 1
    assert times.data_points[0].explicit_bounds[:3] == (0, 5, 10)
    assert metrics["sepp.commit.duration"].unit == "ms"


async def test_requests_are_bounded_and_hold_every_point() -> None:
    async with standing() as (desk, sources):
        for number in range(200):
            desk.machine.handle(enqueue(number + 1, f"q{number}"), desk.clock.now())
        series = await read(sources, NamedQueues(1000), no_pause)

    counts = [
        sum(len(metric.data.data_points) for metric in batch) for batch in batches(series, 0, 0)
    ]

    assert sum(counts) == sum(len(points) for _, points in series)
    assert set(counts[:-1]) == {POINTS_PER_REQUEST}
    assert 0 < counts[-1] <= POINTS_PER_REQUEST


async def test_it_pushes_at_its_interval_survives_refusals_and_once_more_at_the_end() -> None:
    collector = Collector(failures=1)
    stop = trio.Event()
    async with standing() as (_, sources), trio.open_nursery() as nursery:
        push = Push(sources, collector, Resource.create({}), interval_s=0.001, queues_max=10)
        nursery.start_soon(push.run, stop)
        while not collector.pushes:
            await trio.lowlevel.checkpoint()
        count = len(collector.pushes)
        stop.set()

    assert len(collector.pushes) > count
    assert collector.is_shut
    assert collector.failures == 0
