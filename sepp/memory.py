"""server.max_memory_bytes: refusing new jobs before the kernel ends the process.

A soft limit on the resident size, looked at twice a second and never on the road of a call. Above
it new jobs are refused and all else goes on; 5 % below it they are taken again. What jobs occupied
is often not given back to the system when they are done, though it is free for new ones: so jobs
are also taken again once a tenth of the entries is gone that were there when the limit was met, and
refused again when they are back.
"""

import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import trio

from sepp.committer import Committer
from sepp.logs import get_logger

log = get_logger("sepp.memory")

INTERVAL_S: Final = 0.5
ENOUGH: Final = 0.95  # of the limit: from here on down new jobs are welcome
_STATM: Final = Path("/proc/self/statm")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_M_MMAP_THRESHOLD: Final = -3  # malloc.h
_MAPPED_BYTES: Final = 128 * 1024  # the C library's own threshold before it begins to move it


def resident_bytes() -> int:
    """Return the resident size of this process."""
    return int(_STATM.read_text().split()[1]) * _PAGE_BYTES


def map_large_blocks() -> bool:
    """Have each large block of memory mapped for itself, so that it grows and goes without a trace.

    Left alone, the C library raises the size from which it does so with every large block that is
    freed. The columns of the slot table then grow inside its heap, each leaving behind holes where
    it was: 40 bytes a job, measured at a million. Returns whether the library could be told.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and mallopt(_M_MMAP_THRESHOLD, _MAPPED_BYTES) == 1


class MemoryWatch:
    """Sets `is_memory_short` of a committer.

    Args:
        committer: Whom to tell.
        limit_bytes: The limit as configured now; 0: off.
        entry_count: Entries of the store now.
        measure: The resident size now.
    """

    def __init__(
        self,
        committer: Committer,
        limit_bytes: Callable[[], int],
        entry_count: Callable[[], int],
        measure: Callable[[], int] = resident_bytes,
    ) -> None:
        self._committer = committer
        self._limit_bytes = limit_bytes
        self._entry_count = entry_count
        self._measure = measure
        self._entries_max: int | None = None  # as many as this are refused while above the limit

    async def serve(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            self.look()
            await trio.sleep(INTERVAL_S)

    def look(self) -> None:
        """Measure and decide."""
        limit = self._limit_bytes()
        if not limit:
            self._entries_max = None
            self._set(False, 0, limit)
            return
        resident, entries = self._measure(), self._entry_count()
        if resident <= limit * ENOUGH:
            self._entries_max = None
            self._set(False, resident, limit)
        elif resident > limit or self._entries_max is not None:
            if self._entries_max is None:
                self._entries_max = entries - entries // 10
            self._set(entries >= self._entries_max, resident, limit)

    def _set(self, is_short: bool, resident: int, limit: int) -> None:
        if is_short is self._committer.is_memory_short:
            return
        self._committer.is_memory_short = is_short
        facts = {"resident_bytes": resident, "max_memory_bytes": limit}
        if is_short:
            log.warning("memory is short; new jobs are refused", **facts)
        else:
            log.info("memory is no longer short; new jobs are taken again", **facts)
