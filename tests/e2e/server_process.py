"""A `sepp-trio serve` process under test: started on a free port, watched, stopped."""

import re
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tomlkit

ROOT = Path(__file__).resolve().parents[2]

# What supervisors and the official client's tests wait for.
READY_TEXT = "queue server listening"

COMMAND = (sys.executable, "-m", "sepp", "serve")

# Hang guards, ten times what a slow machine needs; nothing is measured by them.
START_SECONDS_MAX = 60
STOP_SECONDS_MAX = 60


class ServerProcess:
    """One server process on a directory of its own.

    A second `start` on the same object is a restart on the same data.

    Args:
        directory: Holds the configuration file and the data; made if it is not there.
        settings: Configuration by section, laid over what every test server gets.
        environment: Variables the process gets beside the ones of the test run.
        prefix: A command that runs the server, such as `prlimit`.
        command: What is run instead of `sepp-trio serve`.
    """

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, Any] | None = None,
        environment: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
        command: Sequence[str] = COMMAND,
    ) -> None:
        self.directory = directory
        self.config_path = directory / "sepp.toml"
        self.data_path = directory / "data"
        self.port = 0
        self._environment = dict(environment or {})
        self._command = [*prefix, *command]
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._lines: list[str] = []
        self._printed = threading.Condition()
        self._ready_or_ended = threading.Event()
        directory.mkdir(parents=True, exist_ok=True)
        self.configure(settings or {})

    @property
    def address(self) -> str:
        """Where it listens, as host:port."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The id of the process now running."""
        assert self._process is not None
        return self._process.pid

    @property
    def output(self) -> str:
        """All it has printed, over all its starts."""
        return "".join(self._lines)

    @property
    def is_running(self) -> bool:
        """Whether a process was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Write the configuration file, by rename as careful editors do."""
        fresh = self.config_path.with_suffix(".new")
        fresh.write_text(tomlkit.dumps(self._configuration(settings)), "utf-8")
        fresh.replace(self.config_path)

    def start(self) -> None:
        """Start it and return when it serves."""
        self.start_nowait()
        assert self._ready_or_ended.wait(START_SECONDS_MAX), f"not ready\n{self.output}"
        assert self.port != 0, f"ended before it was ready\n{self.output}"

    def start_nowait(self) -> None:
        """Start it and return at once, for starts that are meant to fail."""
        assert not self.is_running
        self.port = 0
        self._ready_or_ended.clear()
        self._process = subprocess.Popen(
            [*self._command, "--config", str(self.config_path)],
            cwd=ROOT,
            env={**clean_environment(), **self._environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, args=[self._process], daemon=True)
        self._reader.start()

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def wait(self) -> int:
        """Wait for its end and return the exit code; minus the signal number if one ended it."""
        assert self._process is not None
        assert self._reader is not None
        try:
            code = self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise AssertionError(f"it did not stop\n{self.output}") from None
        finally:
            self._reader.join()
        return code

    def wait_until_says(self, text: str, times: int = 1) -> None:
        """Return once it has printed `text` so many times."""
        with self._printed:
            found = self._printed.wait_for(
                lambda: self.output.count(text) >= times, STOP_SECONDS_MAX
            )
        assert found, f"it never said {text!r}\n{self.output}"

    def stop(self) -> None:
        """End it with SIGTERM; it must go with 0."""
        self.send(signal.SIGTERM)
        code = self.wait()
        assert code == 0, f"exit code {code}\n{self.output}"

    def kill(self) -> None:
        """End it as a crash does."""
        self.send(signal.SIGKILL)
        self.wait()

    def _configuration(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        base: dict[str, Any] = {
            "server": {"listen_addr": "127.0.0.1:0", "db_path": str(self.data_path)},
            "admin": {"enabled": False},
            "storage": {"dead_letter_retention_ms": 3_600_000},
        }
        for section, keys in settings.items():
            # A list of tables ([[queues]]) has nothing to be laid over.
            base[section] = keys if isinstance(keys, list) else {**base.get(section, {}), **keys}
        return base

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                with self._printed:
                    self._lines.append(line)
                    self._printed.notify_all()
                address = re.search(r"127\.0\.0\.1:(\d+)", line)
                if READY_TEXT in line and address:
                    self.port = int(address[1])
                    self._ready_or_ended.set()
        self._ready_or_ended.set()


def clean_environment() -> dict[str, str]:
    """Return an environment that finds our package and sets nothing of the server's."""
    return {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "PYTHONPATH": str(ROOT), "LC_ALL": "C.UTF-8"}
