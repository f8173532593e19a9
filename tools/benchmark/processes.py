"""Start, watch and end the programs of a run. Every process ended here was started here.

A server runs in a session of its own, so that its process group is its CPU account and a Ctrl-C
for tools/bench does not reach it before its driver is gone.
"""

import json
import os
import selectors
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tools.benchmark import procfs

START_SECONDS_MAX = 60
STOP_SECONDS_MAX = 30
LOG_TAIL_LINES = 15


class RunError(Exception):
    """A program of the run did not start, ended early or did not answer. The text says which."""


def free_port() -> int:
    """A loopback TCP port nobody listens on at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def tail(path: Path) -> str:
    """The last lines of a log, for an error text."""
    if not path.exists():
        return ""
    return "\n".join(path.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:])


class Program:
    """One started process with its log file. Ends it, by its id, when the block is left."""

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        *,
        folder: Path,
        environment: Mapping[str, str] | None = None,
        is_talking: bool = False,
    ) -> None:
        self.name = name
        self.log_path = folder / f"{name}.log"
        pipe = subprocess.PIPE if is_talking else None
        with self.log_path.open("ab") as log:
            try:
                self.process = subprocess.Popen(
                    argv,
                    cwd=folder,
                    env={**os.environ, **(environment or {})},
                    stdin=pipe or subprocess.DEVNULL,
                    stdout=pipe or log,
                    stderr=log,
                    start_new_session=True,
                )
            except OSError as error:
                raise RunError(f"{name}: cannot start {argv[0]}: {error}") from error

    def failed(self, what: str) -> RunError:
        """An error that carries the end of the program's log."""
        return RunError(f"{self.name}: {what}\n{tail(self.log_path)}".rstrip())

    def stop(self) -> None:
        """Ask it to end, and after a while make it."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()


class Server(Program):
    """A server under test, listening on a loopback port."""

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        *,
        port: int,
        folder: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(name, argv, folder=folder, environment=environment)
        self.port = port

    def wait_listening(self) -> None:
        """Wait until the port accepts a connection.

        Raises RunError when the process ends first or the time is over.
        """
        give_up = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < give_up:
            if self.process.poll() is not None:
                raise self.failed(f"ended with {self.process.returncode} at the start")
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                time.sleep(0.02)
        raise self.failed(f"port {self.port} not open after {START_SECONDS_MAX} s")

    def cpu_seconds(self) -> float:
        """CPU time of its process group so far."""
        return procfs.group_cpu_seconds(self.process.pid)

    def peak_bytes(self) -> int:
        """Peak resident memory of its process group so far."""
        return procfs.group_peak_bytes(self.process.pid)


class Driver(Program):
    """A load driver: one JSON line an order on its standard input, one an answer on its output."""

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        *,
        folder: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(name, argv, folder=folder, environment=environment, is_talking=True)
        assert self.process.stdout is not None
        self._buffer = b""
        self._selector = selectors.DefaultSelector()
        self._selector.register(self.process.stdout, selectors.EVENT_READ)

    def answer(self, seconds_max: float) -> dict[str, Any]:
        """The next line it writes. Raises RunError when none comes in time."""
        assert self.process.stdout is not None
        give_up = time.monotonic() + seconds_max
        while b"\n" not in self._buffer:
            left = give_up - time.monotonic()
            if left <= 0 or not self._selector.select(left):
                raise self.failed(f"no answer within {seconds_max:.0f} s")
            chunk = os.read(self.process.stdout.fileno(), 1 << 16)
            if not chunk:
                raise self.failed("ended without an answer")
            self._buffer += chunk
        line, self._buffer = self._buffer.split(b"\n", 1)
        try:
            answer = json.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise self.failed(f"said {line[:200]!r}")
        return answer

    def send(self, order: Mapping[str, Any]) -> None:
        """Send one line without waiting for what it brings."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(order).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError as error:
            raise self.failed("ended") from error

    def order(self, order: Mapping[str, Any], *, seconds_max: float) -> dict[str, Any]:
        """Send one line and wait for its answer."""
        self.send(order)
        return self.answer(seconds_max)

    def stop(self) -> None:
        """Close its input, which ends it by itself; only then insist."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.close()
            self.process.wait(5)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            pass  # it is gone already, or it will be asked less kindly
        super().stop()
        self._selector.close()
        assert self.process.stdout is not None
        self.process.stdout.close()
