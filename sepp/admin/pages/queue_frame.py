"""What every page of one queue has above its tab: name, marks, ages, rates, chart."""

from typing import Any

from sepp.admin.api_queues import declaration, overrides_of
from sepp.admin.backend import CAUSES, QueueNumbers
from sepp.admin.pages import charts, prefs
from sepp.admin.pages.dashboard import CHART_POINTS
from sepp.admin.pages.view import View


def context(view: View, name: str, tab: str, numbers: QueueNumbers | None = None) -> dict[str, Any]:
    """Return what the head of a queue's page shows: depths of this moment, or those given."""
    site = view.site
    numbers = site.backend.queue(name) if numbers is None else numbers
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
        "queue": site.stats.queue_frame(numbers),
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
