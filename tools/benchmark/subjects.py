"""A subject: a server, started durable, and the driver that loads it. And one run of it."""

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tools.benchmark import procfs
from tools.benchmark.figures import microseconds_per_job
from tools.benchmark.processes import Driver, RunError, Server, free_port

DRIVERS = Path(__file__).parent / "drivers"
# An answer may come this long after a phase's own time: workers that lag behind, then the tail.
ANSWER_SLACK_SECONDS = 30
BOTH_FACTOR = 4


@dataclass(frozen=True)
class Subject:
    """One line of a comparison.

    `serve` writes the server's configuration into a fresh folder and gives its command line;
    `drive` gives the driver's. `options` reach the driver at its start, `order` with each order.
    """

    name: str
    title: str
    durable: str
    serve: Callable[[Path, int], list[str]]
    drive: Callable[[], list[str]]
    options: Mapping[str, Any] = field(default_factory=dict)
    order: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    server_environment: Mapping[str, str] = field(default_factory=dict)

    def with_options(self, **options: Any) -> "Subject":
        """The same subject with some driver options changed."""
        return replace(self, options={**self.options, **options})


@dataclass(frozen=True)
class Result:
    """One phase of one round. Times in seconds, memory in bytes.

    `elsewhere_cores` is the CPU that neither server nor driver used meanwhile, in cores.
    """

    subject: str
    phase: str
    round_index: int
    jobs: int
    enqueued: int
    completed: int
    seconds: float
    server_cpu_seconds: float
    client_cpu_seconds: float
    elsewhere_cores: float
    server_peak_bytes: int

    @property
    def jobs_per_second(self) -> float:
        """The rate the phase is about."""
        return self.jobs / self.seconds if self.seconds else 0.0

    @property
    def server_us_per_job(self) -> float:
        """Server CPU a job, in microseconds."""
        return microseconds_per_job(self.server_cpu_seconds, self.jobs) or 0.0

    @property
    def client_us_per_job(self) -> float:
        """Load generator's CPU a job, in microseconds."""
        return microseconds_per_job(self.client_cpu_seconds, self.jobs) or 0.0


def jobs_of(phase: str, answer: Mapping[str, Any]) -> int:
    """How many jobs went the phase's whole way."""
    if phase == "drain":
        return int(answer["completed"])
    if phase == "both":
        return int(min(answer["enqueued"], answer["completed"]))
    return int(answer["enqueued"])


class Session:
    """A running server with its driver connected; measures one phase after another."""

    def __init__(self, subject: Subject, server: Server, driver: Driver, client: str) -> None:
        self.subject = subject
        self.server = server
        self.driver = driver
        self.client = client

    def order(self, order: Mapping[str, Any]) -> dict[str, Any]:
        """Let the driver carry out an order; its answer plus what the CPUs did meanwhile.

        Raises RunError when the driver ends or does not answer in time.
        """
        whole = {**self.subject.order, **order}
        seconds_max = BOTH_FACTOR * whole["seconds"] + ANSWER_SLACK_SECONDS
        self.driver.order(whole, seconds_max=ANSWER_SLACK_SECONDS)
        busy_before = procfs.machine_busy_seconds()
        started = time.monotonic()
        cpu_before = self.server.cpu_seconds()
        answer = self.driver.order({"go": True}, seconds_max=seconds_max)
        server_cpu = self.server.cpu_seconds() - cpu_before
        elsewhere = procfs.machine_busy_seconds() - busy_before - server_cpu
        elsewhere -= answer["client_cpu_seconds"]
        answer["server_cpu_seconds"] = server_cpu
        # Not below zero: the three accounts are kept in ticks of their own.
        answer["elsewhere_cores"] = max(0.0, elsewhere) / (time.monotonic() - started)
        if self.server.process.poll() is not None:
            raise self.server.failed(f"ended with {self.server.process.returncode}")
        return answer

    def measure(self, order: Mapping[str, Any], round_index: int = 0) -> Result:
        """One phase as a result. Raises RunError when not a single job went through."""
        answer = self.order(order)
        phase = order["phase"]
        jobs = jobs_of(phase, answer)
        if jobs == 0:
            raise RunError(f"{self.subject.name}: {phase} moved no job")
        return Result(
            subject=self.subject.name,
            phase=phase,
            round_index=round_index,
            jobs=jobs,
            enqueued=answer["enqueued"],
            completed=answer["completed"],
            seconds=answer["seconds"],
            server_cpu_seconds=answer["server_cpu_seconds"],
            client_cpu_seconds=answer["client_cpu_seconds"],
            elsewhere_cores=answer["elsewhere_cores"],
            server_peak_bytes=self.server.peak_bytes(),
        )


@contextlib.contextmanager
def running(subject: Subject, folder: Path) -> Iterator[Session]:
    """Start the subject's server on fresh data in `folder`, connect its driver, end both after."""
    folder.mkdir(parents=True)
    port = free_port()
    argv = subject.serve(folder, port)
    with Server(
        f"{subject.name}-server",
        argv,
        port=port,
        folder=folder,
        environment=subject.server_environment,
    ) as server:
        server.wait_listening()
        with driving(subject, server, folder) as (driver, client):
            yield Session(subject, server, driver, client)


@contextlib.contextmanager
def driving(subject: Subject, server: Server, folder: Path) -> Iterator[tuple[Driver, str]]:
    """Start a driver against a running server; gives it and what it says it is."""
    argv = [*subject.drive(), json.dumps({"port": server.port, **subject.options})]
    with Driver(
        f"{subject.name}-driver", argv, folder=folder, environment=subject.environment
    ) as driver:
        yield driver, driver.answer(ANSWER_SLACK_SECONDS)["client"]


def python_driver(python: str, name: str) -> list[str]:
    """The command of a driver written in Python."""
    return [python or sys.executable, str(DRIVERS / name)]
