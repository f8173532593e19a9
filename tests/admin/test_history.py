"""Three resolutions of what happened."""

from sepp.admin.history import Sample, Series

START = 1_800_000_000_000


def filled(seconds: int, counts: tuple[int, int, int, int] = (2, 1, 0, 0)) -> tuple[Series, int]:
    series = Series()
    now_ms = START
    for _second in range(seconds):
        now_ms += 1000
        series.add(now_ms, counts)
    return series, now_ms


def test_five_minutes_are_kept_by_the_second() -> None:
    series, now_ms = filled(400)

    samples = series.samples(now_ms, 300_000, 300)

    assert len(samples) == 300
    assert {sample.enqueued for sample in samples} == {2.0}
    assert samples[-1].ts_ms == now_ms
    assert samples[1].ts_ms - samples[0].ts_ms == 1000


def test_an_hour_is_kept_by_ten_seconds() -> None:
    series, now_ms = filled(4000)

    samples = series.samples(now_ms, 3_600_000, 360)

    assert len(samples) == 360
    assert {sample.acked for sample in samples} == {1.0}


def test_six_hours_are_kept_by_the_minute() -> None:
    series, now_ms = filled(22_000)

    samples = series.samples(now_ms, 21_600_000, 360)

    assert len(samples) == 360
    assert {sample.enqueued for sample in samples[:-1]} == {2.0}


def test_a_narrower_answer_has_wider_samples() -> None:
    series, now_ms = filled(900)

    samples = series.samples(now_ms, 900_000, 45)

    assert len(samples) == 45
    assert samples[1].ts_ms - samples[0].ts_ms == 20_000
    assert samples[10].enqueued == 2.0


def test_the_sample_under_way_is_a_rate_over_its_past_part() -> None:
    series, now_ms = filled(903)

    newest = series.samples(now_ms, 900_000, 45)[-1]

    assert newest.ts_ms == now_ms
    assert newest.enqueued == 2.0


def test_a_gap_reads_as_zero() -> None:
    series, now_ms = filled(10)
    later_ms = now_ms + 50_000

    series.add(later_ms, (7, 0, 0, 0))

    samples = series.samples(later_ms, 300_000, 300)
    assert samples[-1].enqueued == 7.0
    assert samples[-2].enqueued == 0.0
    assert samples[-51].enqueued == 2.0


def test_a_gap_longer_than_a_ring_empties_it() -> None:
    series, now_ms = filled(300)
    later_ms = now_ms + 400_000

    series.add(later_ms, (1, 0, 0, 0))

    samples = series.samples(later_ms, 300_000, 300)
    assert [sample.enqueued for sample in samples if sample.enqueued] == [1.0]
    assert sum(sample.enqueued * 10 for sample in series.samples(later_ms, 3_600_000, 360)) == 601


def test_old_steps_do_not_come_back_when_nothing_happens() -> None:
    series, now_ms = filled(300)

    assert series.samples(now_ms + 600_000, 300_000, 300)[0] == Sample(
        now_ms + 301_000, 0.0, 0.0, 0.0, 0.0, 0
    )


def test_deaths_of_ten_minutes_are_counted() -> None:
    series = Series()
    series.add(START + 10_000, (0, 0, 0, 3))
    series.add(START + 500_000, (0, 0, 0, 4))

    assert series.died(START + 500_000, 600_000) == 7
    assert series.died(START + 900_000, 600_000) == 4
    assert series.died(START + 2_000_000, 600_000) == 0
