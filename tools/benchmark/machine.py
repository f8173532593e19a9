"""Facts of the machine a figure was measured on: without them a figure says little."""

import os
import platform
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from tools.benchmark.figures import percentile

PROBE_COUNT = 300
PROBE_BYTES = 512
CPU_PROBE_STEPS = 500_000


@dataclass(frozen=True)
class Facts:
    """Machine and disk. Times in milliseconds, memory in bytes."""

    cores: int
    cpu: str
    memory_bytes: int
    kernel: str
    file_system: str
    python: str
    fdatasync_p50_ms: float
    fdatasync_p99_ms: float
    cpu_probe_ms: float
    load_at_start: float
    measured_at: str

    def lines(self) -> list[str]:
        """The facts as a few lines of text, for tables and charts."""
        return [
            f"{self.cores} cores ({self.cpu}), {self.memory_bytes / 2**30:.0f} GiB, "
            f"Linux {self.kernel}, {self.file_system}",
            f"one fdatasync of {PROBE_BYTES} B: p50 {self.fdatasync_p50_ms:.3f} ms, "
            f"p99 {self.fdatasync_p99_ms:.3f} ms; {CPU_PROBE_STEPS:,} steps of a Python loop: "
            f"{self.cpu_probe_ms:.0f} ms; load at the start {self.load_at_start:.2f}; "
            f"{self.measured_at}",
        ]

    def as_dict(self) -> dict[str, object]:
        """The facts as they go into the JSON file."""
        return asdict(self)


def probe_fdatasync(folder: Path) -> list[float]:
    """Sorted times in milliseconds of small writes, each synced, into blocks written before.

    Blocks that exist already are what a log that prepares its segments writes to.
    """
    path = folder / "fdatasync.probe"
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.pwrite(handle, b"\0" * (PROBE_COUNT * PROBE_BYTES), 0)
        os.fsync(handle)
        times: list[float] = []
        for i in range(PROBE_COUNT):
            started = time.perf_counter()
            os.pwrite(handle, b"x" * PROBE_BYTES, i * PROBE_BYTES)
            os.fdatasync(handle)
            times.append((time.perf_counter() - started) * 1e3)
    finally:
        os.close(handle)
        path.unlink()
    return sorted(times)


def probe_cpu() -> float:
    """Milliseconds of a fixed loop, the best of five: shows a core that is shared or throttled."""
    times = []
    for _ in range(5):
        started = time.perf_counter()
        total = 0
        for i in range(CPU_PROBE_STEPS):
            total += i
        times.append((time.perf_counter() - started) * 1e3)
    return min(times)


def file_system_of(folder: Path, mounts: str) -> str:
    """Type and device of the file system that holds `folder`; `mounts` is /proc/mounts."""
    best = ("", "unknown")
    where = str(folder.resolve())
    for line in mounts.splitlines():
        device, point, kind = line.split()[:3]
        inside = where == point or where.startswith(point.rstrip("/") + "/")
        # The deepest mount point wins, and of two on the same point the later one.
        if inside and len(point) >= len(best[0]):
            best = (point, f"{kind} on {device}")
    return best[1]


def cpu_name(cpuinfo: str) -> str:
    """The model name of the first core in /proc/cpuinfo, or the architecture without one."""
    for line in cpuinfo.splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def facts(folder: Path) -> Facts:
    """Measure and read the facts; the data of the run will lie in `folder`."""
    load = os.getloadavg()[0]  # before the probe adds to it
    times = probe_fdatasync(folder)
    return Facts(
        cores=os.cpu_count() or 1,
        cpu=cpu_name(Path("/proc/cpuinfo").read_text()),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        kernel=platform.release(),
        file_system=file_system_of(folder, Path("/proc/mounts").read_text()),
        python=platform.python_version(),
        fdatasync_p50_ms=percentile(times, 0.5),
        fdatasync_p99_ms=percentile(times, 0.99),
        cpu_probe_ms=probe_cpu(),
        load_at_start=load,
        measured_at=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
    )
