"""How our figures hold when the work grows: one thing is varied at a time, the rest stays.

The servers of one group run side by side, prepared first, and are then measured in turn, round by
round; the ones not measured at the moment do nothing. The first case of a group is its small case,
and the others are given as a share of it.
"""

import contextlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.benchmark import ours
from tools.benchmark.chart import Row, bars
from tools.benchmark.figures import ratio
from tools.benchmark.processes import RunError
from tools.benchmark.rounds import WARM_JOBS, WARM_SECONDS, Plan, Summary, summarize
from tools.benchmark.subjects import Result, Session, Subject, running
from tools.benchmark.table import NOTHING, lay_out, per_second

FILL_SECONDS_MAX = 240
FILL_BATCH = 200  # below the server's default of 256 jobs a call
FILL_PARTIES = 8
FAR_FUTURE_SECONDS = 7 * 86_400  # within the default schedule horizon
PAYLOAD_BYTES_A_PHASE = 512 << 20


@dataclass(frozen=True)
class Case:
    """One server of a group: what is prepared on it and how it is then measured."""

    label: str
    subject: Subject
    prepare: Sequence[Mapping[str, Any]] = ()
    measure: Mapping[str, Any] = field(default_factory=dict)


def _count(number: int) -> str:
    for size, unit in ((1_000_000, "M"), (1_000, "k")):
        if number >= size and number % size == 0:
            return f"{number // size} {unit}"
    return str(number)


def _bytes(number: int) -> str:
    for size, unit in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if number >= size and number % size == 0:
            return f"{number // size} {unit}"
    return f"{number} B"


def _fill(jobs: int, queue: str, **changes: Any) -> dict[str, Any]:
    return {
        "phase": "enqueue",
        "queue": queue,
        "jobs": jobs,
        "seconds": FILL_SECONDS_MAX,
        "parties": FILL_PARTIES,
        "batch": FILL_BATCH,
        **changes,
    }


def _connections(python: str) -> list[Case]:
    # As many parties as the largest case has connections, so that only the connections differ.
    return [
        Case(
            f"{count} connections" if count > 1 else "1 connection",
            ours.thin(python, name=f"connections-{count}", connections=count),
            measure={"parties": 128},
        )
        for count in (1, 8, 64, 256)
    ]


def _backlog(python: str) -> list[Case]:
    return [
        Case(
            f"backlog of {_count(jobs)}",
            ours.thin(python, name=f"backlog-{jobs}"),
            prepare=[_fill(jobs, "line")],
        )
        for jobs in (10_000, 100_000, 1_000_000)
    ]


def _queues(python: str) -> list[Case]:
    return [
        Case(
            f"{count:,} queues" if count > 1 else "1 queue",
            ours.thin(python, name=f"queues-{count}"),
            # A job in each, so that they all exist and stay while others are worked through. And
            # each was worked in once: what is measured is not a queue's first use.
            prepare=[
                _fill(count, "line", queues=count, batch=1, parties=50),
                _fill(count, "line", queues=count, batch=1, parties=50, phase="both"),
            ],
            measure={"queues": count},
        )
        for count in (1, 100, 10_000)
    ]


def _payload(python: str) -> list[Case]:
    return [
        Case(
            f"payload {_bytes(size)}",
            ours.thin(python, name=f"payload-{size}", payload_bytes=size),
            measure={"jobs": max(200, PAYLOAD_BYTES_A_PHASE // size)},
        )
        for size in (256, 16, 4096, 65_536, 1 << 20)
    ]


def _persist(python: str) -> list[Case]:
    return [
        Case(mode, ours.thin(python, name=f"persist-{mode}", persist_mode=mode))
        for mode in ours.PERSIST_MODES
    ]


def _scheduled(python: str) -> list[Case]:
    cases = []
    for jobs in (0, 1_000_000):
        fill = _fill(jobs, "later", scheduled_s=FAR_FUTURE_SECONDS)
        subject = ours.thin(python, name=f"scheduled-{jobs}")
        cases.append(
            Case(f"{_count(jobs)} scheduled jobs", subject, prepare=[fill] if jobs else [])
        )
    return cases


def _waiting(python: str) -> list[Case]:
    cases = []
    for count in (0, 10_000):
        park = {
            "phase": "park",
            "queue": "idle",
            "queues": 100,
            "jobs": count,
            "connections": 100,
            "seconds": 30,
            "parties": 0,
        }
        subject = ours.thin(python, name=f"waiting-{count}")
        cases.append(
            Case(f"{_count(count)} idle waiting reserves", subject, prepare=[park] if count else [])
        )
    return cases


GROUPS: dict[str, Callable[[str], list[Case]]] = {
    "connections": _connections,
    "backlog": _backlog,
    "queues": _queues,
    "payload": _payload,
    "persist": _persist,
    "scheduled": _scheduled,
    "waiting": _waiting,
}


def _prepare(session: Session, case: Case, plan: Plan) -> None:
    warm = {"jobs": WARM_JOBS, "seconds": WARM_SECONDS}
    session.order(plan.order("both", "warm", **warm))
    for order in case.prepare:
        answer = session.order(order)
        if answer["enqueued"] != order["jobs"]:
            raise RunError(f"{case.label}: prepared {answer['enqueued']} of {order['jobs']}")


def measure_group(
    cases: Sequence[Case], plan: Plan, folder: Path, *, tell: Callable[[str], None]
) -> list[Result]:
    """Prepare all cases of a group, then measure them in turn, `plan.rounds` times."""
    results: list[Result] = []
    with contextlib.ExitStack() as stack:
        sessions = []
        for case in cases:
            turn = folder / case.subject.name
            stack.callback(shutil.rmtree, turn, ignore_errors=True)
            session = stack.enter_context(running(case.subject, turn))
            _prepare(session, case, plan)
            tell(f"{case.label}: prepared, {session.server.peak_bytes() / 2**20:.0f} MiB")
            sessions.append(session)
        for round_index in range(plan.rounds):
            for case, session in zip(cases, sessions, strict=True):
                order = plan.order("both", "line", **case.measure)
                result = session.measure(order, round_index)
                results.append(result)
                tell(f"{case.label}: both {result.jobs_per_second:,.0f}/s")
    return results


def table(groups: Mapping[str, Sequence[Case]], found: Mapping[tuple[str, str], Summary]) -> str:
    """One row a case, its rate also as a share of the group's small case."""
    rows = []
    for cases in groups.values():
        base = found[cases[0].subject.name, "both"].jobs_per_second
        for case in cases:
            summary = found[case.subject.name, "both"]
            share = ratio(summary.jobs_per_second, base)
            rows.append(
                [
                    case.label,
                    per_second(summary),
                    NOTHING if share is None else f"{share:.2f} ×",
                    f"{summary.server_us_per_job:.0f}",
                    f"{summary.client_us_per_job:.0f}",
                    f"{summary.server_peak_bytes / 2**20:.0f}",
                ]
            )
    header = ["both at once", "jobs/s", "of small", "server µs/job", "client µs/job", "peak MiB"]
    return lay_out(header, rows)


def chart(
    groups: Mapping[str, Sequence[Case]],
    found: Mapping[tuple[str, str], Summary],
    notes: Sequence[str],
) -> str:
    """Rates and server CPU of all cases."""
    rows = []
    for cases in groups.values():
        for case in cases:
            summary = found[case.subject.name, "both"]
            values = (summary.jobs_per_second, summary.server_us_per_job)
            rows.append(Row(case.label, values, is_ours=True))
    panels = [("both at once", "jobs a second"), ("server CPU", "microseconds a job")]
    return bars("sepp-trio as the work grows", panels, rows, notes)


def run(
    names: Sequence[str], python: str, plan: Plan, folder: Path, *, tell: Callable[[str], None]
) -> tuple[dict[str, list[Case]], list[Result], dict[tuple[str, str], Summary]]:
    """Measure the named groups: their cases, all results, and the medians."""
    groups = {name: GROUPS[name](python) for name in names}
    results: list[Result] = []
    for name, cases in groups.items():
        tell(f"-- {name}")
        results += measure_group(cases, plan, folder / name, tell=tell)
    return groups, results, summarize(results)
