"""The load generator of tools/bench against a real server: every job it counts went its way."""

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tools.benchmark import ours
from tools.benchmark.rounds import Plan
from tools.benchmark.subjects import Session, running

PLAN = Plan(jobs=120, seconds=60, parties=5)  # the count ends a phase, the time only a hang


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    folder = tmp_path_factory.mktemp("bench") / "turn"
    with running(ours.thin(sys.executable, connections=4), folder) as running_session:
        yield running_session


def done(session: Session, phase: str, queue: str, **changes: Any) -> tuple[int, int]:
    answer = session.order(PLAN.order(phase, queue, **changes))
    return answer["enqueued"], answer["completed"]


def test_what_was_stored_is_drained_and_then_the_queue_is_empty(session: Session) -> None:
    assert done(session, "enqueue", "line") == (120, 0)
    assert done(session, "drain", "line") == (0, 120)
    assert done(session, "drain", "line", seconds=0.2) == (0, 0)


def test_both_at_once_ends_when_as_many_are_done_as_were_stored(session: Session) -> None:
    assert done(session, "both", "both") == (120, 120)


def test_batches_count_their_jobs_and_the_last_one_may_be_smaller(session: Session) -> None:
    assert done(session, "enqueue", "batches", jobs=130, batch=50) == (130, 0)
    assert done(session, "drain", "batches", jobs=130, reserve=16) == (0, 130)


def test_jobs_spread_over_many_queues_meet_their_workers(session: Session) -> None:
    assert done(session, "both", "many", queues=40) == (120, 120)


def test_scheduled_jobs_are_stored_and_not_delivered(session: Session) -> None:
    assert done(session, "enqueue", "later", scheduled_s=3600) == (120, 0)
    assert done(session, "drain", "later", seconds=0.2) == (0, 0)


def test_parked_reserves_wait_while_others_are_served(session: Session) -> None:
    assert done(session, "park", "idle", jobs=50, connections=3, queues=7) == (50, 0)
    assert done(session, "both", "beside") == (120, 120)


def test_a_paced_phase_does_no_more_than_its_pace(session: Session) -> None:
    enqueued, completed = done(session, "both", "paced", seconds=0.5, pace=100)

    # Each of the five parties may be one job ahead of the pace.
    assert 1 <= enqueued <= 50 + 5
    assert completed == enqueued


def test_latency_times_each_step_of_each_job(session: Session) -> None:
    answer = session.order(PLAN.order("latency", "trips", jobs=30))

    times = answer["times_ms"]
    assert {step: len(values) for step, values in times.items()} == {
        "enqueue": 30,
        "reserve": 30,
        "ack": 30,
        "trip": 30,
    }
    for i in range(30):
        steps = times["enqueue"][i] + times["reserve"][i] + times["ack"][i]
        assert times["trip"][i] == pytest.approx(steps)
