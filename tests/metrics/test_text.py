"""The page is what Prometheus' own parser reads, and made in bounded pieces."""

from prometheus_client.parser import text_string_to_metric_families

from sepp.metrics.families import Family
from sepp.metrics.reading import Histogram
from sepp.metrics.text import POINTS_PER_SLICE, render

COUNTER = Family("sepp_x_total", "sepp.x", "counter", "Things.", ("queue",))
GAUGE = Family("sepp_y", "sepp.y", "gauge", "Now.")
TIMES = Family("sepp_z_milliseconds", "sepp.z", "histogram", "Spans.", ("method",), "ms")


def parsed(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def page(*series: object) -> str:
    return b"".join(render(list(series))).decode()  # type: ignore[arg-type]  # tuples as written


def test_odd_names_of_queues_come_back_as_they_are() -> None:
    names = ['a"b', "a\\b", "a\nb", "…", "<img>", "a{b=1}", "x" * 512]

    found = parsed(page((COUNTER, [((name,), 1) for name in names])))

    assert [dict(labels)["queue"] for _, labels in found] == names


def test_a_histogram_is_cumulative_and_ends_with_its_count() -> None:
    found = parsed(page((TIMES, [(("ack",), Histogram((0, 5, 10), (1, 2, 0, 4), 12.5))])))

    of = {
        (name, dict(labels).get("le")): value
        for (name, labels), value in found.items()
        if dict(labels)["method"] == "ack"
    }
    assert of == {
        ("sepp_z_milliseconds_bucket", "0"): 1,
        ("sepp_z_milliseconds_bucket", "5"): 3,
        ("sepp_z_milliseconds_bucket", "10"): 3,
        ("sepp_z_milliseconds_bucket", "+Inf"): 7,
        ("sepp_z_milliseconds_sum", None): 12.5,
        ("sepp_z_milliseconds_count", None): 7,
    }


def test_a_family_without_points_is_left_out() -> None:
    assert page((COUNTER, []), (GAUGE, [((), 7)])) == (
        "# HELP sepp_y Now.\n# TYPE sepp_y gauge\nsepp_y 7\n"
    )


def test_no_piece_holds_more_points_than_a_slice_may_write() -> None:
    many = [((str(number),), number) for number in range(POINTS_PER_SLICE * 2 + 1)]

    pieces = list(render([(GAUGE, [((), 1)]), (COUNTER, many), (GAUGE, [((), 2)])]))

    points = [sum(not line.startswith(b"#") for line in piece.splitlines()) for piece in pieces]
    assert points == [POINTS_PER_SLICE, POINTS_PER_SLICE, 3]
