"""One connection, one call at a time: how long an enqueue, a reserve and an ack take.

First the three persist modes on a quiet server. Then the default mode beside a steady background
load and on a log that is half dead, once with segments of the default size and once with such small
ones that the log rolls, compacts and takes snapshots all the time: the load is the same, so the
difference is theirs.
"""

import contextlib
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.benchmark import ours
from tools.benchmark.chart import Row, bars
from tools.benchmark.figures import median, percentile
from tools.benchmark.machine import probe_fdatasync
from tools.benchmark.rounds import Plan
from tools.benchmark.subjects import ANSWER_SLACK_SECONDS, Session, driving, running
from tools.benchmark.table import lay_out

STEPS = ("enqueue", "reserve", "ack", "trip")
SHARES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}
SMALL_SEGMENT_BYTES = 256 << 10
LITTER_JOBS = 20_000  # every second of them is taken out again, the others stay in the log
BACKGROUND_PACE = 1_500  # jobs a second: some MiB of log, and time left for the timed connection
BACKGROUND_PARTIES = 4


@dataclass(frozen=True)
class Latencies:
    """Sorted times in milliseconds of each step of one case, and what the log did meanwhile."""

    label: str
    times_ms: dict[str, list[float]]
    log_activity: str = ""

    def at(self, step: str, share: float) -> float:
        """The time in milliseconds that `share` of the step's calls did not exceed."""
        return percentile(self.times_ms[step], share)

    def as_dict(self) -> dict[str, Any]:
        """Percentiles and largest values, for the JSON file."""
        steps = {
            step: {
                "count": len(times),
                **{name: percentile(times, share) for name, share in SHARES.items()},
                "max": times[-1],
            }
            for step, times in self.times_ms.items()
        }
        return {"label": self.label, "log_activity": self.log_activity, "steps_ms": steps}


def _pool(parts: Sequence[dict[str, list[float]]]) -> dict[str, list[float]]:
    return {step: sorted(time for part in parts for time in part[step]) for step in STEPS}


def measure_modes(
    python: str, plan: Plan, folder: Path, *, tell: Callable[[str], None]
) -> tuple[list[Latencies], float]:
    """Round trips on a quiet server in each persist mode, in turn.

    Beside them the middle time of one fdatasync in milliseconds, taken anew in each round: the disk
    is to be compared with itself at the same time.
    """
    found: dict[str, list[dict[str, list[float]]]] = {mode: [] for mode in ours.PERSIST_MODES}
    syncs: list[float] = []
    with contextlib.ExitStack() as stack:
        sessions: dict[str, Session] = {}
        for mode in ours.PERSIST_MODES:
            turn = folder / mode
            stack.callback(shutil.rmtree, turn, ignore_errors=True)
            subject = ours.thin(python, name=mode, connections=1, persist_mode=mode)
            sessions[mode] = stack.enter_context(running(subject, turn))
            sessions[mode].order(plan.order("latency", "warm", seconds=1))
        for round_index in range(plan.rounds):
            syncs.append(percentile(probe_fdatasync(folder), 0.5))
            for mode, session in sessions.items():
                answer = session.order(plan.order("latency", "line"))
                found[mode].append(answer["times_ms"])
                middle = percentile(sorted(answer["times_ms"]["trip"]), 0.5)
                tell(f"round {round_index + 1}, {mode}: round trip p50 {middle:.2f} ms")
    latencies = [Latencies(f"{mode}, quiet", _pool(parts)) for mode, parts in found.items()]
    return latencies, median(syncs)


@dataclass
class LogActivity:
    """What became of the log's files between looks at its folder, by their names."""

    begun_count: int = 0
    dropped_count: int = 0
    snapshot_count: int = 0

    def add(self, before: set[str], after: set[str]) -> None:
        """Count the differences of two looks."""
        self.begun_count += sum(name.endswith(".seg") for name in after - before)
        self.dropped_count += sum(name.endswith(".seg") for name in before - after)
        self.snapshot_count += sum(name.endswith(".snap") for name in after - before)

    def __str__(self) -> str:
        return (
            f"{self.begun_count} segments begun, {self.dropped_count} dropped, "
            f"{self.snapshot_count} snapshots taken"
        )


def log_files(data: Path) -> set[str]:
    """Names of the files in a data folder."""
    return {path.name for path in data.rglob("*") if path.is_file()}


def measure_busy(
    python: str, plan: Plan, folder: Path, *, tell: Callable[[str], None]
) -> list[Latencies]:
    """Round trips beside a background load, with segments of two sizes, in turn."""
    cases = {"default segments": None, "256 KiB segments": SMALL_SEGMENT_BYTES}
    found: dict[str, list[dict[str, list[float]]]] = {label: [] for label in cases}
    activity = {label: LogActivity() for label in cases}
    with contextlib.ExitStack() as stack:
        sessions: dict[str, Session] = {}
        for index, (label, segment_bytes) in enumerate(cases.items()):
            turn = folder / f"busy-{index}"
            stack.callback(shutil.rmtree, turn, ignore_errors=True)
            subject = ours.thin(
                python, name=f"busy-{index}", connections=1, segment_bytes=segment_bytes
            )
            sessions[label] = stack.enter_context(running(subject, turn))
            sessions[label].order(plan.order("latency", "warm", seconds=1))
        for round_index in range(plan.rounds):
            for label, session in sessions.items():
                data = session.server.log_path.parent / "data"
                _litter(session, plan)
                before = log_files(data)
                found[label].append(_beside_load(session, plan))
                activity[label].add(before, log_files(data))
                late = percentile(sorted(found[label][-1]["trip"]), 0.99)
                tell(f"round {round_index + 1}, {label}: round trip p99 {late:.2f} ms")
    return [
        Latencies(f"sync_all, background load, {label}", _pool(parts), str(activity[label]))
        for label, parts in found.items()
    ]


def _litter(session: Session, plan: Plan) -> None:
    """Leave a log of which every second job is dead: something to compact."""
    fill = plan.order("enqueue", "litter", queues=2, jobs=LITTER_JOBS, seconds=60, batch=10)
    stored = session.order(fill)["enqueued"]
    # The two queues may differ by a few jobs; what is left over in the one does no harm.
    session.order(plan.order("drain", "litter-0", jobs=stored * 9 // 20, seconds=60))


def _beside_load(session: Session, plan: Plan) -> dict[str, list[float]]:
    """Times of round trips while a second driver keeps a steady load on another queue."""
    folder = session.server.log_path.parent
    load = plan.order(
        "both", "load", seconds=plan.seconds + 1, parties=BACKGROUND_PARTIES, pace=BACKGROUND_PACE
    )
    subject = session.subject.with_options(connections=2)
    with driving(subject, session.server, folder) as (driver, _):
        driver.order({**subject.order, **load}, seconds_max=ANSWER_SLACK_SECONDS)
        driver.send({"go": True})
        answer = session.order(plan.order("latency", "line"))
        driver.answer(4 * load["seconds"] + ANSWER_SLACK_SECONDS)
    times: dict[str, list[float]] = answer["times_ms"]
    return times


def table(found: Sequence[Latencies], fdatasync_ms: float) -> str:
    """Milliseconds of each step, and the whole trip's middle as a multiple of one fdatasync."""
    header = ["milliseconds"]
    header += [f"{step} p50" for step in STEPS[:-1]]
    header += [f"round trip {name}" for name in SHARES]
    header += ["of an fdatasync"]
    rows = []
    for latencies in found:
        cells = [latencies.label]
        cells += [f"{latencies.at(step, 0.5):.2f}" for step in STEPS[:-1]]
        cells += [f"{latencies.at('trip', share):.2f}" for share in SHARES.values()]
        cells += [f"{latencies.at('trip', 0.5) / fdatasync_ms:.1f} ×"]
        rows.append(cells)
    activities = [f"{item.label}: {item.log_activity}" for item in found if item.log_activity]
    sync = f"one fdatasync between the rounds: {fdatasync_ms:.3f} ms"
    return "\n".join([lay_out(header, rows), sync, *activities])


def chart(found: Sequence[Latencies], notes: Sequence[str]) -> str:
    """Round trips of all cases at three shares."""
    panels = [(f"round trip {name}", "milliseconds") for name in SHARES]
    rows = [
        Row(item.label, [item.at("trip", share) for share in SHARES.values()], is_ours=True)
        for item in found
    ]
    return bars("sepp-trio, one connection: enqueue, reserve, ack", panels, rows, notes)
