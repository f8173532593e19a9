"""Deadlines: none early, none lost, and their number bounded whatever is set and cleared."""

import random
import sys

import pytest

from sepp.rpc.timers import NEVER, TICKS_PER_S, Timers


class Entry:
    def __init__(self, timers: Timers, at_s: float) -> None:
        self.timer_tick = 0
        self.timers = timers
        self.at_s = at_s
        self.fired_s: float | None = None
        self.looked_count = 0

    def on_time(self, now_s: float) -> None:
        self.looked_count += 1
        if now_s < self.at_s:
            self.timers.set(self, self.at_s)  # as everything with a deadline far away does
        else:
            assert self.fired_s is None
            self.fired_s = now_s


def ignore(at_s: float) -> None:
    """Nobody sleeps in these tests."""


def run(timers: Timers, until_s: float) -> None:
    """Go through time as the poller does, from one due time to the next."""
    while (due := timers.next_s()) <= until_s:
        timers.run_due(due)
    timers.run_due(until_s)


@pytest.mark.parametrize(
    "delay_s", [0.0, 0.001, 0.5, 7.9, 8.1, 64.1, 600.0, 3599.0, 3601.0, 90_000.0]
)
def test_a_deadline_fires_at_most_one_tick_late(delay_s):
    timers = Timers(1000.0, ignore)
    entry = Entry(timers, 1000.0 + delay_s)
    timers.set(entry, entry.at_s)

    run(timers, 1000.0 + delay_s + 2)

    assert entry.fired_s is not None
    assert entry.at_s <= entry.fired_s <= entry.at_s + 2 / TICKS_PER_S
    assert entry.looked_count == 1 or delay_s > 8


def test_random_deadlines_fire_once_in_time_unless_cleared():
    seed = random.randrange(2**32)
    print("seed", seed)
    rng = random.Random(seed)
    timers = Timers(50.0, ignore)
    entries = [Entry(timers, 50.0 + 10 ** rng.uniform(-3, 4)) for _ in range(3000)]
    for entry in entries:
        timers.set(entry, entry.at_s)
    cleared = set(rng.sample(entries, 1000))
    for entry in cleared:
        timers.clear(entry)

    run(timers, 20_000.0)

    for entry in entries:
        if entry in cleared:
            assert entry.fired_s is None
        else:
            assert entry.fired_s is not None
            assert 0 <= entry.fired_s - entry.at_s <= 2 / TICKS_PER_S
    assert timers.next_s() == NEVER


def test_setting_again_replaces_the_deadline():
    timers = Timers(0.0, ignore)
    entry = Entry(timers, 0.0)
    timers.set(entry, 1.0)
    entry.at_s = 5.0
    timers.set(entry, 5.0)

    run(timers, 4.9)
    assert entry.fired_s is None
    run(timers, 5.1)
    assert entry.fired_s is not None


def test_deadlines_set_and_cleared_leave_nothing_behind():
    timers = Timers(0.0, ignore)
    rng = random.Random(1)
    for _ in range(50_000):
        entry = Entry(timers, 0.0)
        timers.set(entry, 10 ** rng.uniform(-3, 11))
        timers.clear(entry)

    assert len(timers._ticks) == len(timers._buckets) <= 4_200
    assert timers.next_s() == NEVER
    assert (len(timers._ticks), len(timers._buckets)) == (0, 0)


def test_an_emptied_bucket_gives_back_its_room():
    timers = Timers(0.0, ignore)
    entries = [Entry(timers, 1.0) for _ in range(10_000)]
    for entry in entries:
        timers.set(entry, 1.0)
    for entry in entries:
        timers.clear(entry)

    assert [sys.getsizeof(bucket) for bucket in timers._buckets.values()] == [sys.getsizeof({})]


def test_a_handler_that_raises_does_not_keep_others_waiting(caplog):
    timers = Timers(0.0, ignore)

    class Faulty(Entry):
        def on_time(self, now_s: float) -> None:
            raise ValueError("a bug")

    last = Entry(timers, 1.0)
    for entry in (Faulty(timers, 1.0), last):
        timers.set(entry, 1.0)

    timers.run_due(1.1)

    assert last.fired_s == 1.1
    assert "a bug" in caplog.text


def test_an_entry_set_anew_by_one_before_it_is_not_due():
    timers = Timers(0.0, ignore)
    second = Entry(timers, 1.0)

    class First(Entry):
        def on_time(self, now_s: float) -> None:
            second.at_s = 9.0
            timers.set(second, 9.0)

    for entry in (First(timers, 1.0), second):
        timers.set(entry, 1.0)
    timers.run_due(1.1)

    assert second.looked_count == 0
    assert second.timer_tick != 0


def test_whoever_sleeps_hears_when_the_earliest_deadline_moves_forward():
    heard: list[float] = []
    timers = Timers(0.0, heard.append)
    for at_s in (9.0, 10.0, 5.0, 7.0, 4.0, 4.0):
        timers.set(Entry(timers, at_s), at_s)

    assert [round(at_s) for at_s in heard] == [9, 5, 4]


class Asker:
    """A call with a deadline."""

    def __init__(self, deadline: float) -> None:
        self.deadline: float | None = deadline
        self.is_open = True
        self.timer_tick = 0
        self.called_at: list[float] = []

    def on_time(self, now_s: float) -> None:
        self.called_at.append(now_s)


def test_a_young_call_gets_its_timer_at_the_next_look_unless_it_was_answered_or_is_gone() -> None:
    timers = Timers(100.0, lambda _: None)
    open_call, answered = Asker(101.0), Asker(101.0)
    timers.young += [({1: open_call, 3: answered}, stream_id) for stream_id in (5, 1, 3)]
    timers.run_due(100.0)
    assert timers.next_s() < 100.5
    answered.is_open = False
    timers.run_due(100.4)
    assert not timers.young
    assert open_call.timer_tick
    assert not answered.timer_tick
    timers.run_due(100.99)
    assert not open_call.called_at
    timers.run_due(101.1)
    assert open_call.called_at == [101.1]
    assert not answered.called_at
