"""What the Python drivers share: the answers they write and the counting of a phase.

The line protocol is the one of lines.js: an order, {"prepared": true}, a line that lets go, a
result.
"""

import json
import sys
import time
from typing import Any


def say(answer: dict[str, Any]) -> None:
    """Write one answer line."""
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


class Meter:
    """Counts one phase: who may still start a job, how many are done, when it is over.

    Times are of the monotonic clock, in seconds. `goal` is the number of completions after which
    draining is over; None while the producers of a `both` phase are still at work.
    """

    __slots__ = (
        "completed",
        "deadline",
        "enqueued",
        "goal",
        "hard_end",
        "issued",
        "jobs_max",
        "pace",
        "phase",
        "started",
        "started_cpu",
    )

    def __init__(self, order: dict[str, Any]) -> None:
        self.phase: str = order["phase"]
        self.jobs_max: int = order["jobs"]
        self.pace: float | None = order.get("pace")  # jobs a second, for background load
        self.issued = 0
        self.enqueued = 0
        self.completed = 0
        self.goal: int | None = order["jobs"] if self.phase == "drain" else None
        self.started_cpu = time.process_time()
        self.started = time.perf_counter()
        self.deadline: float = self.started + order["seconds"]
        # After the producers' time the workers may take three times as long again.
        self.hard_end: float = self.deadline
        if self.phase == "both":
            self.hard_end += 3 * order["seconds"]

    def take(self, count: int) -> int:
        """Take the right to enqueue up to `count` more jobs; 0 once count or time is used up."""
        if time.perf_counter() >= self.deadline:
            return 0
        count = min(count, self.jobs_max - self.issued)
        self.issued += count
        return count

    def is_ahead_of_pace(self) -> bool:
        """Whether a paced phase has issued all that is due by now; never past its time."""
        if self.pace is None:
            return False
        now = time.perf_counter()
        return now < self.deadline and self.issued >= self.pace * (now - self.started)

    def is_drained(self) -> bool:
        """Whether the workers have met their goal."""
        return self.goal is not None and self.completed >= self.goal

    def result(self) -> dict[str, Any]:
        """The phase's figures, ended now."""
        return {
            "phase": self.phase,
            "enqueued": self.enqueued,
            "completed": self.completed,
            "seconds": time.perf_counter() - self.started,
            "client_cpu_seconds": time.process_time() - self.started_cpu,
        }
