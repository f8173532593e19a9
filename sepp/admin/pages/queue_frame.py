"""What every page of one queue has above its tab: name, marks, ages, rates, chart."""

from typing import Any

from sepp.admin.api_queues import declaration, overrides_of
from sepp.admin.backend import CAUSES, QueueNumbers
from sepp.admin.messages import QueueFrame, Rates
from sepp.admin.pages import charts, prefs
from sepp.admin.pages.dashboard import CHART_POINTS
from sepp.admin.pages.view import View
from sepp.admin.stats import queue_frame

TABS = ("jobs", "settings", "enqueue", "danger")


async def context(view: View, name: str, tab: str) -> dict[str, Any]:
    """Return what the head of a queue's page shows."""
    site = view.site
    frame = await site.stats.frame()
    numbers = site.backend.queue(name)
    declared = declaration(site.backend, name)
    span = view.query.get("range", view.prefs.range)
    span = span if span in prefs.RANGES else view.prefs.range
    span_ms = prefs.RANGES[span][0]
    samples = site.stats.samples(name, span_ms, CHART_POINTS)
    return {
        "nav": "queues",
        "live": [name],
        "name": name,
        "tab": tab,
        "queue": frame.queues.get(name) or _unknown(numbers),
        "numbers": numbers,
        "overrides": None if declared is None else len(overrides_of(declared)),
        "span": span,
        "history_ms": site.stats.history_ms,
        "chart": charts.draw(samples, width=600, height=56, span_ms=span_ms),
        "axis": charts.axis,
        "causes": [
            (word, numbers.dead_by_cause[number])
            for number, word in CAUSES.items()
            if numbers.dead_by_cause[number]
        ],
    }


def _unknown(numbers: QueueNumbers) -> QueueFrame:
    rates = Rates(enqueued=0.0, acked=0.0, nacked=0.0, dead_lettered=0.0)
    return queue_frame(numbers, rates, 0)
