"""Figures and times in words."""

import pytest

from sepp.admin import wording

NOW = 1_795_956_307_000  # 2026-11-29 12:45:07 UTC


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (0, "0"),
        (1284, "1,284"),
        (9_999_999, "9,999,999"),
        (12_400_000, "12.4 M"),
        (21_000_000_000, "21.0 G"),
    ],
)
def test_counts_are_grouped_and_from_ten_million_on_shortened(number: int, words: str) -> None:
    assert wording.count(number) == words


@pytest.mark.parametrize(
    ("number", "words"),
    [(0, "0.0"), (41.23, "41.2"), (99.94, "99.9"), (331.4, "331"), (1e4, "10,000")],
)
def test_rates_have_a_decimal_below_a_hundred(number: float, words: str) -> None:
    assert wording.rate(number) == words


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (0, "0 B"),
        (658, "658 B"),
        (1800, "1.8 KB"),
        (1_048_576, "1.0 MB"),
        (999_960, "1.0 MB"),
        (5 * 10**15, "5.0 PB"),
    ],
)
def test_sizes_go_by_thousands(number: int, words: str) -> None:
    assert wording.size(number) == words


@pytest.mark.parametrize(
    ("ms", "units", "words"),
    [
        (0, 1, "0 s"),
        (999, 1, "0 s"),
        (21_000, 1, "21 s"),
        (14 * 60_000 + 5000, 1, "14 min"),
        (923_000, 2, "15 min 23 s"),
        (533_000_000, 2, "6 d 4 h"),
        (86_400_000, 2, "1 d"),
        (86_460_000, 2, "1 d"),
    ],
)
def test_spans_are_rounded_down(ms: int, units: int, words: str) -> None:
    assert wording.span(ms, units) == words


@pytest.mark.parametrize(
    ("ms", "words"),
    [(300_000, "5 min"), (1_209_600_000, "14 d"), (1500, "1 s 500 ms"), (0, "0 ms")],
)
def test_configured_spans_lose_nothing(ms: int, words: str) -> None:
    assert wording.exact_span(ms) == words


@pytest.mark.parametrize(
    ("number", "words"), [(1_048_576, "1 MiB"), (1536, "1.5 KiB"), (1000, ""), (16_777_217, "")]
)
def test_configured_sizes_lose_nothing(number: int, words: str) -> None:
    assert wording.exact_size(number) == words


@pytest.mark.parametrize(
    ("ms", "words"),
    [
        (NOW - 120_000, "2 min ago"),
        (NOW + 21_400, "in 21 s"),
        (NOW - 300, "now"),
        (NOW - 3 * 86_400_000, "26 Nov 12:45"),
        (NOW - 400 * 86_400_000, "25 Oct 2025 12:45"),
    ],
)
def test_relative_times(ms: int, words: str) -> None:
    assert wording.relative(ms, NOW) == words


@pytest.mark.parametrize("ms", [0, -5, 253_402_300_799_999, 2**63])
def test_no_time_crashes_a_listing(ms: int) -> None:
    assert wording.moment(ms).endswith("UTC")
    assert wording.relative(ms, NOW)
