"""What a supervisor hears."""

import os
import socket
from pathlib import Path

import pytest
import trio
import trio.testing

from sepp.notify import Notifier


@pytest.fixture
def supervisor(tmp_path: Path):  # type: ignore[no-untyped-def]  # a generator of a socket
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "notify"))
        sock.setblocking(False)
        yield sock


def heard(sock: socket.socket) -> list[str]:
    states = []
    while True:
        try:
            states.append(sock.recv(4096).decode())
        except BlockingIOError:
            return states


def test_each_stage_is_told(supervisor: socket.socket) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": supervisor.getsockname()})

    notifier.alive()
    notifier.ready()
    notifier.stopping()

    assert heard(supervisor) == ["EXTEND_TIMEOUT_USEC=60000000", "READY=1", "STOPPING=1"]


def test_an_abstract_socket_is_reached() -> None:
    name = f"sepp-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(f"\0{name}")
        sock.setblocking(False)

        Notifier({"NOTIFY_SOCKET": f"@{name}"}).ready()

        assert heard(sock) == ["READY=1"]


def test_without_a_supervisor_nothing_happens(tmp_path: Path) -> None:
    Notifier({}).ready()
    Notifier({"NOTIFY_SOCKET": str(tmp_path / "gone")}).ready()


async def test_the_watchdog_is_patted_twice_in_each_span(
    supervisor: socket.socket, autojump_clock: trio.testing.MockClock
) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": supervisor.getsockname(), "WATCHDOG_USEC": "30000000"})

    with trio.move_on_after(61):
        await notifier.pat_watchdog()

    assert heard(supervisor) == ["WATCHDOG=1"] * 5  # at 0, 15, 30, 45 and 60 s


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"},
        {"WATCHDOG_USEC": "often"},
        {"WATCHDOG_USEC": "0"},
    ],
)
async def test_a_watchdog_that_is_not_ours_is_left_alone(
    supervisor: socket.socket, environ: dict[str, str]
) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": supervisor.getsockname(), **environ})

    await notifier.pat_watchdog()

    assert heard(supervisor) == []
