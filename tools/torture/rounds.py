"""Rounds of load and death, in the ways a server can die, and the reckoning.

Each mode is one directory, one oracle and one server that is started again and again:

    black      SIGKILL at a random moment, one start in five already while it recovers
    white      SIGKILL as a thread of it enters the N-th call of one kind (strace)
    power      the volume under it stops writing, as in a power cut, and is mounted again
    snapshot   the volume is copied under load, and a second server drains the copy
"""

import random
import shutil
import signal
from collections import Counter
from pathlib import Path

import attrs
import trio

from sepp.rpc.poller import Poller
from tools.torture.clients import Client, drain
from tools.torture.oracle import PROMISES, Oracle
from tools.torture.server import ServerProcess
from tools.torture.volume import WITH_JOURNAL, WITH_NOTHING, Volume, why_no_volumes

MODES = ("black", "white", "power", "snapshot")

# The calls that change a disk, and up to which one of its kind a thread lives.
DEADLY_CALLS = {
    "pwritev2": 40,
    "io_submit": 40,
    "fsync": 8,
    "fdatasync": 3,
    "rename": 2,
    "unlink": 3,
    "ftruncate": 2,
    "fallocate": 2,
}
STORAGE_FAILED = 74  # exit code of a server whose disk failed
NOT_STARTED = 1  # the same while it was still opening it
FAIL_S_MAX = 5.0
TOLD_ROUNDS = 50
KILLED = -9


@attrs.define
class Plan:
    """How to torture."""

    rounds: int
    clients: int = 8
    load_s: float = 0.5
    segment_bytes: int = 1 << 20
    persist_mode: str = "sync_data"


@attrs.define
class Tally:
    """What was done."""

    kills: int = 0
    recovery_kills: int = 0
    at_call: Counter[str] = attrs.field(factory=Counter)
    cuts: int = 0
    snapshots: int = 0


def why_not(mode: str, directory: Path) -> str | None:
    """Say why a mode cannot be had on this machine; None: it can."""
    if mode == "white" and shutil.which("strace") is None:
        return "strace is missing"
    if mode in ("power", "snapshot"):
        return why_no_volumes(directory)
    return None


class Torture:
    """One mode in one directory.

    Args:
        mode: One of MODES.
        directory: An empty one.
        rng: Of all choices.
    """

    def __init__(self, mode: str, directory: Path, plan: Plan, rng: random.Random) -> None:
        self.oracle = Oracle()
        self.tally = Tally()
        self.is_ending = False  # after a signal: no more rounds, only the reckoning
        self._mode = mode
        self._directory = directory
        self._plan = plan
        self._rng = rng
        self._volume: Volume | None = None
        base = directory
        if mode in ("power", "snapshot"):
            self._volume = Volume(directory / "disk.img", directory / "disk")
            self._volume.mount()
            base = self._volume.mount_point
        self._server = self._new_server(directory, base)

    def _new_server(self, directory: Path, base: Path) -> ServerProcess:
        plan = self._plan
        return ServerProcess(
            directory,
            base / "data",
            segment_bytes=plan.segment_bytes,
            persist_mode=plan.persist_mode,
        )

    def close(self) -> None:
        """End the server and unmount."""
        self._server.close()
        if self._volume is not None:
            self._volume.unmount()

    async def run(self) -> None:
        """All rounds, then drain what is left."""
        poller = Poller()
        async with trio.open_nursery() as nursery:
            await nursery.start(poller.run)
            nursery.start_soon(self._heed_signals)
            await self._run_rounds(poller)
            # Whatever was on its way when the clients were stopped may have happened or not.
            if not self.oracle.refused:
                self._server.start()
                if await self._is_serving(poller, "last start"):
                    await drain(poller, self._server.port, self.oracle)
                    self._server.kill()
            nursery.cancel_scope.cancel()

    async def _heed_signals(self) -> None:
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async for _ in signals:
                self.is_ending = True

    async def _run_rounds(self, poller: Poller) -> None:
        plan, one_round = self._plan, getattr(self, f"_{self._mode}_round")
        async with trio.open_nursery() as nursery:
            for number in range(plan.clients):
                rng = random.Random(self._rng.random())
                client = Client(number, self._server.port, self.oracle, rng)
                nursery.start_soon(client.run, poller)
            for number in range(plan.rounds):
                if number % TOLD_ROUNDS == TOLD_ROUNDS - 1:
                    print(f"{self._mode}: round {number + 1} of {plan.rounds}", flush=True)
                await one_round(poller, f"round {number}")
                if self.oracle.refused or self.is_ending:
                    break
            nursery.cancel_scope.cancel()
        self._server.stop_if_running()

    async def _is_serving(self, poller: Poller, when: str) -> bool:
        failure = await self._server.wait_serving(poller)
        if failure is not None:
            self.oracle.refused.append(f"{when}: {failure}")
        return failure is None

    async def _load(self, factor: float = 1.0) -> None:
        await trio.sleep(self._rng.uniform(0.005, factor * self._plan.load_s))

    async def _black_round(self, poller: Poller, when: str) -> None:
        server, tally = self._server, self.tally
        server.start()
        if self._rng.random() < 0.2:
            await trio.sleep(self._rng.uniform(0.05, 0.5))
            server.kill()
            tally.recovery_kills += 1
            server.start()
        if await self._is_serving(poller, when):
            await self._load()
            server.kill()
            tally.kills += 1

    async def _white_round(self, poller: Poller, when: str) -> None:
        server, tally = self._server, self.tally
        name = self._rng.choice(list(DEADLY_CALLS))
        number = self._rng.randint(1, DEADLY_CALLS[name])
        inject = f"inject={name}:signal=SIGKILL:when={number}"
        # -D: the server stays our child, strace is beside it and ends with it.
        server.start(("strace", "-Dqqfo", "/dev/null", "-e", f"trace={name}", "-e", inject))
        failure = await server.wait_serving(poller)
        seconds = self._rng.uniform(0.1, 3 * self._plan.load_s)
        code = await server.wait_end(0 if failure else seconds)
        if code is None and failure is None:
            server.kill()
            tally.kills += 1
        elif code == KILLED:
            tally.at_call[name] += 1
        else:
            self.oracle.refused.append(f"{when}, {name} {number}: {failure or code}")

    async def _power_round(self, poller: Poller, when: str) -> None:
        server, volume, rng = self._server, self._volume, self._rng
        assert volume is not None
        server.start()
        due = {STORAGE_FAILED}
        if rng.random() < 0.2:
            due.add(NOT_STARTED)
            await trio.sleep(rng.uniform(0.05, 1.0))
        elif await self._is_serving(poller, when):
            await self._load()
        else:
            return
        self.oracle.era += 1
        volume.cut_power(rng.choice((WITH_JOURNAL, WITH_NOTHING)))
        self.tally.cuts += 1
        code = await server.wait_end(FAIL_S_MAX)
        if code is None:  # nobody wrote any more
            server.kill()
        elif code not in due:
            self.oracle.refused.append(f"{when}: exit code {code} when the disk failed")
        volume.unmount()
        volume.mount()

    async def _snapshot_round(self, poller: Poller, when: str) -> None:
        server, volume = self._server, self._volume
        assert volume is not None
        if not server.is_running():
            server.start()
            if not await self._is_serving(poller, when):
                return
        await self._load(4)
        oracle = self.oracle.snapshot()
        directory = self._directory / "copy"
        directory.mkdir()
        image = self._directory / "copy.img"
        volume.copy_frozen(image)
        copy = Volume(image, directory / "disk")
        copy.mount()
        second = self._new_server(directory, copy.mount_point)
        try:
            second.start()
            failure = await second.wait_serving(poller)
            if failure is not None:
                oracle.refused.append(failure)
            else:
                await drain(poller, second.port, oracle)
        finally:
            second.close()
            copy.unmount()
        self.tally.snapshots += 1
        for name in PROMISES:
            found = getattr(oracle, name)
            getattr(self.oracle, name).extend(f"{when}, copy: {each}" for each in found)
        if not oracle.broken():
            shutil.rmtree(directory)
            image.unlink()
