"""Telling systemd how we are: the protocol of sd_notify(3), as far as a server needs it.

Everything is silent and free where no supervisor asks for it.
"""

import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import trio

# How much longer a start may take after each sign that the log is being read.
EXTEND_US: Final = 60_000_000


class Notifier:
    """Sends states to the socket that NOTIFY_SOCKET names, if any.

    Args:
        environ: The environment; WATCHDOG_USEC counts only when meant for this process.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        path = environ.get("NOTIFY_SOCKET", "")
        # A leading @ stands for the NUL of an abstract socket.
        self._address = "\0" + path[1:] if path.startswith("@") else path
        self.watchdog_s = 0.0
        usec = environ.get("WATCHDOG_USEC", "")
        is_meant = environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        if self._address and usec.isascii() and usec.isdecimal() and is_meant:
            self.watchdog_s = int(usec) / 1_000_000

    def ready(self) -> None:
        """The server serves."""
        self._send("READY=1")

    def stopping(self) -> None:
        """The server is on its way out."""
        self._send("STOPPING=1")

    def alive(self) -> None:
        """The start goes on: give it more time. May be called on any thread."""
        self._send(f"EXTEND_TIMEOUT_USEC={EXTEND_US}")

    async def pat_watchdog(self) -> None:
        """Say that the loop turns, twice in each span the supervisor allows, until cancelled."""
        if self.watchdog_s:
            while True:
                self._send("WATCHDOG=1")
                await trio.sleep(self.watchdog_s / 2)

    def _send(self, state: str) -> None:
        if not self._address:
            return
        # A supervisor that does not listen is its own affair.
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.setblocking(False)
            sock.sendto(state.encode(), self._address)
