"""The soft memory limit: when new jobs are refused, and when they are welcome again."""

import trio
import trio.testing

from sepp.memory import INTERVAL_S, MemoryWatch, resident_bytes
from tests.fakes.logs import captured
from tests.spine.desk import Desk, serving


class Gauge:
    """A watch on a committer whose figures the test sets."""

    def __init__(self, desk: Desk, limit: int) -> None:
        self.limit, self.resident, self.entries = limit, 0, 0
        self.committer = desk.committer
        self.watch = MemoryWatch(
            desk.committer, lambda: self.limit, lambda: self.entries, lambda: self.resident
        )

    def look(self, resident: int, entries: int = 100) -> bool:
        self.resident, self.entries = resident, entries
        self.watch.look()
        return self.committer.is_memory_short


async def test_above_the_limit_jobs_are_refused_until_five_percent_below() -> None:
    async with serving() as desk:
        gauge = Gauge(desk, 1000)

        assert [gauge.look(size) for size in (1000, 1001, 1000, 951, 950, 1000, 1001)] == [
            False,
            True,
            True,
            True,
            False,
            False,
            True,
        ]


async def test_off_means_off_also_while_short() -> None:
    async with serving() as desk:
        gauge = Gauge(desk, 1000)
        assert gauge.look(2000)
        gauge.limit = 0

        assert not gauge.look(2000)

        gauge.limit = 1000
        assert gauge.look(2000)


async def test_room_that_done_jobs_left_may_be_used_again_and_no_more_than_that() -> None:
    async with serving() as desk:
        gauge = Gauge(desk, 1000)
        assert gauge.look(1001, entries=1000)

        answers = [gauge.look(1001, entries=count) for count in (901, 900, 899, 899, 900, 500)]

        assert answers == [True, True, False, False, True, False]


async def test_a_limit_below_the_empty_server_refuses_and_says_so_once() -> None:
    async with serving() as desk:
        gauge = Gauge(desk, 1000)
        with captured() as entries:
            assert gauge.look(5000, entries=0)
            assert gauge.look(5000, entries=0)
            assert not gauge.look(900, entries=0)

    assert [(entry["level"], entry["message"]) for entry in entries()] == [
        ("WARN", "memory is short; new jobs are refused"),
        ("INFO", "memory is no longer short; new jobs are taken again"),
    ]
    assert (entries()[0]["resident_bytes"], entries()[0]["max_memory_bytes"]) == (5000, 1000)


async def test_it_looks_twice_a_second(autojump_clock: trio.testing.MockClock) -> None:
    async with serving() as desk:
        gauge = Gauge(desk, 1000)
        looks = 0

        def measure() -> int:
            nonlocal looks
            looks += 1
            return 0

        watch = MemoryWatch(desk.committer, lambda: gauge.limit, lambda: 0, measure)
        with trio.move_on_after(INTERVAL_S * 10.5):
            await watch.serve()

    assert looks == 11


def test_our_own_size_is_plausible() -> None:
    assert 10 << 20 < resident_bytes() < 10 << 30
