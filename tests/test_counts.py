"""Counters of commits and calls."""

import pytest

from sepp.counts import (
    BUCKETS_MS,
    OTHER,
    RECORD_BUCKETS,
    CommitStatistics,
    MethodStatistics,
    RejectionStatistics,
)


@pytest.mark.parametrize(
    ("ms", "bucket"), [(0, 0), (0.001, 1), (5, 1), (5.001, 2), (10_000, 14), (10_001, 15)]
)
def test_a_commit_falls_into_the_bucket_that_ends_at_or_above_its_time(
    ms: float, bucket: int
) -> None:
    statistics = CommitStatistics()

    statistics.observe(1, ms / 1000)

    assert [index for index, count in enumerate(statistics.buckets) if count] == [bucket]
    assert len(statistics.buckets) == len(BUCKETS_MS) + 1


@pytest.mark.parametrize(("records", "bucket"), [(1, 0), (2, 1), (3, 2), (4096, 12), (4097, 13)])
def test_a_commit_falls_into_the_bucket_of_its_records(records: int, bucket: int) -> None:
    statistics = CommitStatistics()

    statistics.observe(records, 0.001)

    assert [i for i, count in enumerate(statistics.record_buckets) if count] == [bucket]
    assert len(statistics.record_buckets) == len(RECORD_BUCKETS) + 1


def test_a_refusal_counts_as_an_error_that_took_no_time() -> None:
    statistics = MethodStatistics()

    statistics.observe_refusal()

    assert (statistics.oks, statistics.errors, statistics.seconds) == (0, 1, 0.0)
    assert sum(statistics.buckets) == statistics.buckets[0] == 1


def test_rejections_of_made_up_queues_are_bounded_and_none_is_lost() -> None:
    statistics = RejectionStatistics(2)
    declared = {"known"}

    for queue in ("a", "b", "c", "a", "known", "d", "x" * 513):
        statistics.add(queue, "unknown_queue", declared)
        statistics.add(queue, "queue_full", declared)

    assert {queue: n for (queue, reason), n in statistics.counts.items() if reason == "queue_full"}
    assert statistics.counts == {
        (queue, reason): count
        for queue, count in (("a", 2), ("b", 1), ("known", 1), (OTHER, 3))
        for reason in ("unknown_queue", "queue_full")
    }
