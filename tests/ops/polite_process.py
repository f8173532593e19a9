"""Starting the well-behaved client, and what it found."""

import json
import subprocess
import sys

import trio
from attrs import define

from tests.e2e.server_process import ROOT, clean_environment


@define
class Service:
    """How a client was served."""

    calls: int
    errors: list[str]
    enqueued: int
    acked: int
    p99_ms: float


class PoliteProcess:
    """One client process; `end` stops it and tells how it was served."""

    def __init__(self, port: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.ops.polite", str(port)],
            cwd=ROOT,
            env=clean_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def end(self) -> Service:
        out, _ = self._process.communicate(timeout=60)
        found = json.loads(out)
        times = sorted(found["times_ms"])
        p99_ms = times[len(times) * 99 // 100] if times else 0.0
        return Service(
            len(times), found["errors"], found["enqueued"], found["acked"], round(p99_ms, 2)
        )


async def polite(port: int) -> PoliteProcess:
    """Start one."""
    return await trio.to_thread.run_sync(PoliteProcess, port)
