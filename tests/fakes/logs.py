"""Log lines as a test sees them."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sepp import logs

Entry = dict[str, Any]


class Captured:
    """Call it for the entries so far, also after the end of the capture.

    An entry has `timestamp`, `level`, `target`, `message` and, beside them, the event's own fields.
    """

    def __init__(self) -> None:
        self.fd = os.memfd_create("log")
        self._lines: list[str] | None = None

    def close(self) -> None:
        """Keep what was written and give the memory file back."""
        self._lines = self.lines()
        os.close(self.fd)

    def lines(self) -> list[str]:
        """Return the lines as they were written."""
        if self._lines is not None:
            return self._lines
        return os.pread(self.fd, os.fstat(self.fd).st_size, 0).decode().split("\n")[:-1]

    def __call__(self) -> list[Entry]:
        entries = [json.loads(line) for line in self.lines()]
        return [{**entry.pop("fields"), **entry} for entry in entries]


@contextmanager
def captured(level: str = "debug", format: str = "json", rust_log: str = "") -> Iterator[Captured]:
    """Let every logger write into memory; afterwards all are silent again."""
    capture = Captured()
    try:
        logs.configure(level, format, rust_log=rust_log, fd=capture.fd)
        yield capture
    finally:
        logs.configure("off", "text")
        capture.close()
