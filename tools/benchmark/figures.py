"""Statistics of a few rounds and of many latencies. No third party, nothing kept."""

import math
from collections.abc import Sequence


def median(values: Sequence[float]) -> float:
    """The middle value; the mean of the two middle ones when there is an even number.

    Raises ValueError for an empty sequence: no rounds is not a figure of zero.
    """
    if not values:
        raise ValueError("median of nothing")
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2


def percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` (0..1) of the already sorted values do not exceed.

    Nearest rank, so the result is always a value that was measured.
    """
    if not ordered:
        raise ValueError("percentile of nothing")
    if not 0 <= share <= 1:
        raise ValueError(f"share {share} is not within 0..1")
    # Rounded first, because a product such as 0.07 * 100 lies a hair above the rank it means.
    rank = math.ceil(round(share * len(ordered), 9))
    return ordered[max(rank, 1) - 1]


def spread(values: Sequence[float]) -> float:
    """(largest - smallest) / median, how far the rounds lie apart; 0 for a single round."""
    middle = median(values)
    return (max(values) - min(values)) / middle if middle else 0.0


def ratio(ours: float, theirs: float) -> float | None:
    """How many times theirs ours is; None when there is nothing to divide by."""
    return ours / theirs if theirs else None


def microseconds_per_job(cpu_seconds: float, jobs: int) -> float | None:
    """CPU time a job cost, in microseconds; None when no job was done."""
    return cpu_seconds / jobs * 1e6 if jobs else None
