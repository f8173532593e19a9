"""Run a command of Python with a note of every long step: `stepped.py FILE python -m module ...`.

A step is what a task does between two moments at which others may run; while it lasts no commit can
begin and no answer leaves. Steps of 1 ms of CPU time and more are written to FILE, one a line: when
it ended, how long it took in ms, how much of that Python's collector took, the task, and where it
waits now.
"""

import gc
import runpy
import sys
import time
from typing import TextIO

import trio

LONG_NS = 1_000_000


class Steps(trio.abc.Instrument):
    """Notes long steps."""

    def __init__(self, notes: TextIO) -> None:
        self._notes = notes
        self._begun_ns = 0
        self._collecting_since_ns = 0
        self._collected_ns = 0
        gc.callbacks.append(self._collect)

    def _collect(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._collecting_since_ns = time.thread_time_ns()
        else:
            self._collected_ns += time.thread_time_ns() - self._collecting_since_ns

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._collected_ns = 0
        self._begun_ns = time.thread_time_ns()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        took_ns = time.thread_time_ns() - self._begun_ns
        if took_ns >= LONG_NS:
            figures = f"{took_ns / 1e6:.2f} {self._collected_ns / 1e6:.2f}"
            where = " < ".join(reversed(waits(task)[-4:]))
            self._notes.write(f"{time.monotonic():.4f} {figures} {task.name} {where}\n")


def waits(task: trio.lowlevel.Task) -> list[str]:
    """Return the functions a task is in, the innermost last."""
    found = []
    inner = task.coro
    while inner is not None and hasattr(inner, "cr_frame") and inner.cr_frame is not None:
        found.append(f"{inner.cr_code.co_qualname}:{inner.cr_frame.f_lineno}")
        inner = inner.cr_await
    return found


def main() -> None:
    """Put the instrument into every `trio.run` of the command, then run it."""
    path, _python, _m, module, *arguments = sys.argv[1:]
    run = trio.run
    with open(path, "w", buffering=1, encoding="utf-8") as notes:

        def noted(*args: object, **more: object) -> object:
            return run(*args, **more, instruments=[Steps(notes)])  # type: ignore[arg-type]  # as given

        trio.run = noted  # type: ignore[assignment]  # on purpose
        sys.argv = [module, *arguments]
        runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
