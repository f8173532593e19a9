"""Rate limits."""

from sepp.rpc.watch import BURST_S, Allowance


def taken(allowance: Allowance, now_s: float, count_max: int = 100_000) -> int:
    """Take until there is none left; return how many there were."""
    count = 0
    while count < count_max and allowance.take(now_s):
        count += 1
    return count


def test_a_rate_limit_admits_a_burst_and_then_its_rate():
    allowance = Allowance(100, 0.0)

    assert [taken(allowance, now_s) for now_s in (0.0, 0.0, 1.0, 3.0)] == [1000, 0, 100, 200]


def test_a_long_silence_earns_no_more_than_a_burst():
    allowance = Allowance(100, 0.0)
    taken(allowance, 0.0)

    assert taken(allowance, 1e6) == 100 * BURST_S


def test_what_is_earned_by_work_is_bounded_as_well():
    allowance = Allowance(100, 0.0)
    for _ in range(100_000):
        allowance.earn(2)

    assert taken(allowance, 0.0) <= 100 * BURST_S + 2
