"""The thin load generator for our server: callbacks on `sepp.rpc.channel`, no task a call.

One process, one loop. Requests are encoded once where they do not change; answers are parsed with
protobuf, so each job is known to have been stored, leased and acknowledged. Orders come as in
lines.py; between orders the loop goes on, so connections that only wait answer the server's pings.

Order fields beyond lines.js: `batch` jobs in one EnqueueBatch, `reserve` as max_jobs, `queues` to
spread the jobs over, `scheduled_s` to put them into the future, `pace` in jobs a second.
"""

import gc
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import trio
from lines import Meter, say
from parties import (
    CALL_SECONDS,
    RESERVE,
    SERVER_INFO,
    Answer,
    Producer,
    Traveller,
    Worker,
    enqueue_request,
    queue_names,
    reserve_request,
    share_of,
)

from sepp.rpc.channel import Channel, RpcError
from sepp.rpc.poller import Poller

HOST = "127.0.0.1"
PARK_SECONDS = 300
START_SECONDS_MAX = 60
RETRY_SECONDS = 0.05
PACE_SECONDS = 0.002

Party = Producer | Worker | Traveller


class PhaseFailedError(Exception):
    """The server answered something that makes the figures worthless."""


class Generator:
    """Connections, the phase under way and the parties in it."""

    def __init__(self, poller: Poller, options: dict[str, Any]) -> None:
        self.poller = poller
        self.options = options
        self.payload = b"x" * options["payload_bytes"]
        self.producer_channels: list[Channel] = []
        self.worker_channels: list[Channel] = []
        self.meter: Meter
        self.answer: dict[str, Any] | None = None
        self.stalled: list[Producer] = []
        self.active_count = 0  # parties that still go on
        self.producer_count = 0
        self.failure: object = None
        self.over = trio.Event()  # the figures are taken
        self.ended = trio.Event()  # and no call is under way any more

    # Connections

    async def connect(self) -> None:
        """Connect once the server serves: one half for the producers, one for the workers."""
        with trio.fail_after(START_SECONDS_MAX):
            await self.wait_ready()
            opened = [await self.open_channel() for _ in range(self.options["connections"])]
        half = len(opened) // 2
        self.producer_channels = opened[:half] or opened  # a single connection serves both
        self.worker_channels = opened[half:]

    async def open_channel(self) -> Channel:
        """One more connection."""
        return await Channel.connect(self.poller, HOST, self.options["port"])

    async def wait_ready(self) -> None:
        """Ask until the server answers: it listens before it has read its data."""
        channel = await self.open_channel()
        while True:
            try:
                await channel.unary(SERVER_INFO, b"", timeout_s=CALL_SECONDS)
            except RpcError:
                await trio.sleep(RETRY_SECONDS)
            else:
                channel.close()
                return

    async def park(self, order: dict[str, Any]) -> dict[str, Any]:
        """Leave `jobs` reserves waiting on queues of their own, over connections of their own."""
        names = queue_names(order)
        messages = [reserve_request([name], 1, wait_seconds=PARK_SECONDS) for name in names]
        opened = [await self.open_channel() for _ in range(order["connections"])]
        for i in range(order["jobs"]):
            message = messages[i % len(messages)]
            opened[i % len(opened)].start(
                RESERVE, message, self.parked_answered, timeout_s=PARK_SECONDS + CALL_SECONDS
            )
        for channel in opened:
            # Once a call sent behind them is answered, they are all with the server.
            await channel.unary(SERVER_INFO, b"", timeout_s=CALL_SECONDS)
        figures = {"enqueued": order["jobs"], "completed": 0, "seconds": 0.0}
        return {"phase": "park", **figures, "client_cpu_seconds": 0.0}

    def parked_answered(self, answer: Answer) -> None:
        """A parked reserve came back, so what is measured beside it is not what it says."""
        self.fail(f"a reserve that should only wait was answered: {answer!r}")

    # A phase

    def parties(self, order: dict[str, Any]) -> list[Party]:
        """The parties an order asks for, not started yet."""
        phase, count = order["phase"], order["parties"]
        names = queue_names(order)
        batch, scheduled_s = order["batch"], order.get("scheduled_s")
        requests = [enqueue_request(name, self.payload, batch, scheduled_s) for name in names]
        reserves = [reserve_request([name], order["reserve"]) for name in names]
        if phase == "latency":
            return [Traveller(self, self.producer_channels[0], requests[0], reserves[0])]
        found: list[Party] = []
        for i in range(count):
            if phase in ("drain", "both"):
                channel = self.worker_channels[i % len(self.worker_channels)]
                found.append(Worker(self, channel, share_of(reserves, i, count)))
            if phase in ("enqueue", "both"):
                channel = self.producer_channels[i % len(self.producer_channels)]
                found.append(Producer(self, channel, share_of(requests, i, count)))
        return found

    async def run(self, order: dict[str, Any]) -> dict[str, Any]:
        """Carry out a phase; returns its result when no call is left under way.

        Raises PhaseFailedError.
        """
        if order["phase"] == "park":
            return await self.park(order)
        parties = self.parties(order)
        self.answer = None
        self.stalled = []
        self.active_count = len(parties)
        self.producer_count = sum(type(party) is Producer for party in parties)
        self.over, self.ended = trio.Event(), trio.Event()
        self.meter = meter = Meter(order)
        for party in parties:
            party.go_on()
        async with trio.open_nursery() as nursery:
            if meter.pace is not None:
                nursery.start_soon(self.keep_pace)
            with trio.move_on_after(meter.hard_end - meter.started):
                await self.over.wait()
            self.finish()
            with trio.move_on_after(CALL_SECONDS):
                await self.ended.wait()
            nursery.cancel_scope.cancel()
        if self.failure is not None:
            raise PhaseFailedError(f"{order['phase']}: {self.failure}")
        assert self.answer is not None
        return self.answer

    async def keep_pace(self) -> None:
        """Wake producers whose next job has become due."""
        while True:
            await trio.sleep(PACE_SECONDS)
            stalled, self.stalled = self.stalled, []
            for producer in stalled:
                producer.go_on()

    def finish(self) -> None:
        """The phase is over: take its result now; the parties end with their next answer."""
        if self.answer is None:
            self.answer = self.meter.result()
            self.over.set()

    def fail(self, what: object) -> None:
        """End the phase at once; calls still under way are not waited for."""
        self.failure = what
        self.over.set()
        self.ended.set()

    def party_ended(self, party: object) -> None:
        """A party has no call under way and starts no more."""
        self.active_count -= 1
        if type(party) is Producer:
            self.producer_count -= 1
            if self.producer_count == 0:
                self.producers_ended()
        if self.active_count == 0:
            self.ended.set()

    def producers_ended(self) -> None:
        """Either that was all, or the workers now know how far they have to go."""
        if self.meter.phase == "both":
            self.meter.goal = self.meter.enqueued
        if self.meter.phase != "both" or self.meter.is_drained():
            self.finish()


async def input_lines() -> AsyncIterator[bytes]:
    """Lines of standard input as they come, without blocking the loop."""
    rest = b""
    while True:
        await trio.lowlevel.wait_readable(0)
        chunk = os.read(0, 1 << 16)
        if not chunk:
            return
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line


async def main() -> None:
    """Connect, say what we are, then orders until the end of input."""
    poller = Poller()
    async with trio.open_nursery() as nursery:
        await nursery.start(poller.run)
        generator = Generator(poller, json.loads(sys.argv[1]))
        await generator.connect()
        # Nothing here makes cycles; a collection would only show up as a stall of the server.
        gc.disable()
        say({"client": f"thin generator, Python {sys.version.split()[0]}"})
        order: dict[str, Any] | None = None
        async for line in input_lines():
            if order is None:
                order = json.loads(line)
                say({"prepared": True})
            else:
                say(await generator.run(order))
                order = None
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        trio.run(main)
