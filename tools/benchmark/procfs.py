"""What the operating system says about CPU time and memory, of a process group and the machine.

Linux only. Read from outside, so no subject needs to report anything about itself.
"""

import os
from pathlib import Path

PROC = Path("/proc")
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def parse_stat(text: str) -> tuple[int, float]:
    """Process group and CPU seconds (user and system, all threads) of one /proc/<pid>/stat."""
    # The command name may hold spaces and brackets; everything after the last one is numbers.
    fields = text[text.rindex(")") + 2 :].split()
    return int(fields[2]), (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND


def group_members(group: int) -> dict[int, float]:
    """Living processes of a group, with the CPU seconds each has used so far."""
    members: dict[int, float] = {}
    for entry in PROC.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            of_group, seconds = parse_stat((entry / "stat").read_text())
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended while we looked
        if of_group == group:
            members[int(entry.name)] = seconds
    return members


def group_cpu_seconds(group: int) -> float:
    """CPU seconds the living processes of a group have used; in steps of one clock tick."""
    return sum(group_members(group).values())


def parse_busy_seconds(text: str) -> float:
    """CPU seconds all cores were busy since boot, from /proc/stat: neither idle nor waiting."""
    # cpu user nice system idle iowait irq softirq steal ...
    ticks = [int(field) for field in text.split("\n", 1)[0].split()[1:9]]
    return (sum(ticks) - ticks[3] - ticks[4]) / TICKS_PER_SECOND


def machine_busy_seconds() -> float:
    """CPU seconds all cores of the machine were busy since boot."""
    return parse_busy_seconds((PROC / "stat").read_text())


def parse_peak_bytes(status: str) -> int:
    """VmHWM of one /proc/<pid>/status in bytes; 0 for a kernel thread or a zombie."""
    for line in status.splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def group_peak_bytes(group: int) -> int:
    """Sum of the peak resident memory of a group's living processes, in bytes."""
    total = 0
    for pid in group_members(group):
        try:
            total += parse_peak_bytes((PROC / str(pid) / "status").read_text())
        except (FileNotFoundError, ProcessLookupError):
            continue
    return total
