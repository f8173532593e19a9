"""Rounds: each subject in turn, several times over, and what comes out in the middle.

Turns are interleaved and their order moves on by one each round, so that a machine which grows
slower or busier during a run does so for all subjects alike. Each turn has fresh data and a fresh
server.
"""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tools.benchmark.figures import median, spread
from tools.benchmark.subjects import Result, Session, Subject, running

PHASES = ("enqueue", "drain", "both")
JOBS_MAX = 2_000_000
WARM_SECONDS = 1
WARM_JOBS = 2_000


@dataclass(frozen=True)
class Plan:
    """How long and how much. `seconds` is the time of one phase, at most `jobs` go through it."""

    rounds: int = 5
    seconds: float = 3.0
    jobs: int = JOBS_MAX
    parties: int = 50
    connections: int = 2
    payload_bytes: int = 256

    def order(self, phase: str, queue: str, **changes: Any) -> dict[str, Any]:
        """An order of this plan for a driver; `changes` win over plan and subject."""
        order: dict[str, Any] = {
            "phase": phase,
            "queue": queue,
            "jobs": self.jobs,
            "seconds": self.seconds,
            "parties": self.parties,
        }
        return {**order, **changes}

    def as_dict(self) -> dict[str, Any]:
        """The plan as it goes into the JSON file."""
        return asdict(self)


def measure_phases(
    session: Session, plan: Plan, phases: Sequence[str], round_index: int
) -> list[Result]:
    """Enqueue until stored, drain what was stored, then both at once on a queue of its own."""
    warm = {"jobs": WARM_JOBS, "seconds": WARM_SECONDS}
    session.order(plan.order("both", "warm", **warm))
    results: list[Result] = []
    stored = 0
    for phase in phases:
        order = plan.order(phase, "both" if phase == "both" else "line")
        if phase == "drain":
            order["jobs"] = stored
        result = session.measure(order, round_index)
        stored = result.enqueued if phase == "enqueue" else stored
        results.append(result)
    return results


def interleave(
    subjects: Sequence[Subject],
    plan: Plan,
    folder: Path,
    *,
    tell: Callable[[str], None],
    phases: Sequence[str] = PHASES,
) -> tuple[list[Result], dict[str, str]]:
    """All rounds of all subjects: the results, and what each driver said it is by subject name.

    Raises RunError when a subject cannot be run; a figure that is missing is no figure of zero.
    """
    results: list[Result] = []
    clients: dict[str, str] = {}
    for round_index in range(plan.rounds):
        shift = round_index % len(subjects)
        for subject in [*subjects[shift:], *subjects[:shift]]:
            turn = folder / f"{round_index}-{subject.name}"
            with running(subject, turn) as session:
                clients[subject.name] = session.client
                found = measure_phases(session, plan, phases, round_index)
            results += found
            figures = ", ".join(f"{r.phase} {r.jobs_per_second:,.0f}/s" for r in found)
            tell(f"round {round_index + 1} of {plan.rounds}, {subject.title}: {figures}")
            shutil.rmtree(turn)  # a run of many rounds must not fill the disk
    return results, clients


@dataclass(frozen=True)
class Summary:
    """Medians of one subject's rounds in a phase; `spread` of the rate as figures.py has it."""

    subject: str
    phase: str
    rounds: int
    jobs_per_second: float
    spread: float
    server_us_per_job: float
    client_us_per_job: float
    elsewhere_cores: float
    server_peak_bytes: int


def summarize(results: Sequence[Result]) -> dict[tuple[str, str], Summary]:
    """Medians by (subject, phase); the peak memory is the largest of all rounds."""
    groups: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        groups.setdefault((result.subject, result.phase), []).append(result)
    return {
        key: Summary(
            subject=key[0],
            phase=key[1],
            rounds=len(group),
            jobs_per_second=median([r.jobs_per_second for r in group]),
            spread=spread([r.jobs_per_second for r in group]),
            server_us_per_job=median([r.server_us_per_job for r in group]),
            client_us_per_job=median([r.client_us_per_job for r in group]),
            elsewhere_cores=median([r.elsewhere_cores for r in group]),
            server_peak_bytes=max(r.server_peak_bytes for r in group),
        )
        for key, group in groups.items()
    }


def disturbance(results: Sequence[Result]) -> str:
    """How busy the machine was with other things while it measured, as a line for the table."""
    cores = [result.elsewhere_cores for result in results]
    return (
        f"CPU used by neither server nor driver: median {median(cores):.2f} cores, "
        f"at most {max(cores):.2f}; the kernel's threads, which sync for sepp-trio, are in it"
    )


def as_json(
    results: Sequence[Result], summaries: Mapping[tuple[str, str], Summary]
) -> dict[str, Any]:
    """Every round and the medians, for the JSON file."""
    return {
        "summary": [asdict(summary) for summary in summaries.values()],
        "rounds": [
            {**asdict(result), "jobs_per_second": result.jobs_per_second} for result in results
        ],
    }
