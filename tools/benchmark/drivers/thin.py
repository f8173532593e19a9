"""The thin load generator for our server: one process, one loop, no task a call.

Requests are encoded once where they do not change; answers are parsed with protobuf, so each job is
known to have been stored, leased and acknowledged. Orders come as in lines.py; between orders the
loop goes on, so connections that only wait answer the server's pings.

Order fields beyond lines.js: `batch` jobs in one EnqueueBatch, `reserve` as max_jobs, `queues` to
spread the jobs over, `scheduled_s` to put them into the future, `pace` in jobs a second.
"""

import contextlib
import gc
import json
import os
import select
import sys
import time
from typing import Any

from lines import Meter, say
from parties import (
    RESERVE,
    SERVER_INFO,
    Producer,
    Traveller,
    Worker,
    queue_names,
    reserve_request,
    share_of,
)
from wire import CallError, Wire, frame

from sepp._generated import queue_pb2 as pb

PARK_SECONDS = 300
START_SECONDS_MAX = 30
POLL_SECONDS = 0.05
PACED_POLL_SECONDS = 0.002


class Generator:
    """Connections, the phase under way and the parties in it."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.port: int = options["port"]
        self.payload = b"x" * options["payload_bytes"]
        self.epoll = select.epoll()
        self.wires: dict[int, Wire] = {}
        self.wait_ready()
        opened = [self.open_wire() for _ in range(options["connections"])]
        # One half for the producers, one for the workers; a single connection serves both.
        half = len(opened) // 2
        self.producer_wires = opened[:half] or opened
        self.worker_wires = opened[half:]
        self.meter: Meter
        self.answer: dict[str, Any] | None = None
        self.active_count = 0  # parties with a call under way
        self.producer_count = 0
        self.stalled: list[Producer] = []

    def open_wire(self) -> Wire:
        """One more connection."""
        wire = Wire(self.port, self.epoll)
        self.wires[wire.socket.fileno()] = wire
        return wire

    def wait_ready(self) -> None:
        """Call until the server answers: it listens before it has read its data."""
        give_up = time.monotonic() + START_SECONDS_MAX
        ready: list[bytes] = []
        while not ready:
            wire = self.open_wire()
            try:
                wire.call(SERVER_INFO, frame(b""), ready.append)
                wire.flush()
                while not ready:
                    self.poll(START_SECONDS_MAX)
            except CallError:
                if time.monotonic() > give_up:
                    raise
                time.sleep(0.05)
            finally:
                del self.wires[wire.socket.fileno()]
                wire.close()

    def poll(self, seconds: float) -> None:
        """Wait for answers and handle what came."""
        wires = self.wires
        for handle, _ in self.epoll.poll(seconds):
            wire = wires.get(handle)
            if wire is not None:
                wire.receive()

    # Parties

    def parties(self, order: dict[str, Any]) -> list[Producer | Worker | Traveller]:
        """The parties an order asks for, not started yet."""
        phase, count = order["phase"], order["parties"]
        queues = queue_names(order)
        found: list[Producer | Worker | Traveller] = []
        if phase == "latency":
            request = self.batch(queues[0], order)
            body = frame(reserve_request(queues, 1))
            return [Traveller(self, self.producer_wires[0], request, body)]
        if phase in ("drain", "both"):
            bodies = [frame(reserve_request([name], order["reserve"])) for name in queues]
            for i in range(count):
                wire = self.worker_wires[i % len(self.worker_wires)]
                found.append(Worker(self, wire, share_of(bodies, i, count)))
        if phase in ("enqueue", "both"):
            batches = [self.batch(name, order) for name in queues]
            for i in range(count):
                wire = self.producer_wires[i % len(self.producer_wires)]
                found.append(Producer(self, wire, share_of(batches, i, count), order["batch"]))
        return found

    def batch(self, queue: str, order: dict[str, Any]) -> pb.EnqueueBatchRequest:
        """An enqueue request of the order's batch size for one queue."""
        job = pb.EnqueueRequest(queue=queue, job_type="bench")
        job.payload.data = self.payload
        job.payload.encoding = "raw"
        if "scheduled_s" in order:
            job.scheduled_at.FromSeconds(int(time.time()) + order["scheduled_s"])
        return pb.EnqueueBatchRequest(jobs=[job] * order["batch"])

    def park(self, order: dict[str, Any]) -> dict[str, Any]:
        """Leave `jobs` reserves waiting on queues of their own, over connections of their own."""
        queues = queue_names(order)
        bodies = [frame(reserve_request([name], 1, wait_seconds=PARK_SECONDS)) for name in queues]
        opened = [self.open_wire() for _ in range(order["connections"])]
        for i in range(order["jobs"]):
            opened[i % len(opened)].call(RESERVE, bodies[i % len(bodies)], unexpected)
        for wire in opened:
            wire.flush()
        # They are all with the server once it has answered a call sent behind them.
        echoes: list[bytes] = []
        for wire in opened:
            wire.call(SERVER_INFO, frame(b""), echoes.append)
            wire.flush()
        while len(echoes) < len(opened):
            self.poll(POLL_SECONDS)
        return {"phase": "park", "enqueued": order["jobs"], "completed": 0, "seconds": 0.0}

    # A phase

    def run(self, order: dict[str, Any]) -> dict[str, Any]:
        """Carry out a phase and give its result; returns when no call is left under way."""
        if order["phase"] == "park":
            return {**self.park(order), "client_cpu_seconds": 0.0}
        parties = self.parties(order)
        self.meter = meter = Meter(order)
        self.answer = None
        self.stalled = []
        self.active_count = len(parties)
        self.producer_count = sum(isinstance(party, Producer) for party in parties)
        for party in parties:
            party.go_on()
        self.flush_all()
        is_paced = meter.pace is not None
        while self.active_count:
            self.poll(PACED_POLL_SECONDS if is_paced else POLL_SECONDS)
            if self.answer is None and time.perf_counter() >= meter.hard_end:
                self.finish()
            if self.stalled:
                stalled, self.stalled = self.stalled, []
                for producer in stalled:
                    producer.go_on()
                self.flush_all()
        assert self.answer is not None
        return self.answer

    def flush_all(self) -> None:
        """Send what was queued outside an answer's handling."""
        for wire in self.wires.values():
            wire.flush()

    def finish(self) -> None:
        """The phase is over: take its result now; the parties end with their next answer."""
        if self.answer is None:
            self.answer = self.meter.result()

    def producer_ended(self) -> None:
        """A producer has used up count or time."""
        self.active_count -= 1
        self.producer_count -= 1
        if self.producer_count == 0:
            if self.meter.phase == "both":
                self.meter.goal = self.meter.enqueued
                if self.meter.is_drained():
                    self.finish()
            else:
                self.finish()


def unexpected(message: bytes) -> None:
    """A parked reserve was answered, so what is measured beside it is not what it says."""
    raise CallError(f"a reserve that should only wait was answered: {message!r}")


def main() -> None:
    """Connect, say what we are, then orders until the end of input."""
    generator = Generator(json.loads(sys.argv[1]))
    # Nothing here makes cycles; a collection would only show up as a stall of the server.
    gc.disable()
    say({"client": f"thin generator on ngh2, Python {sys.version.split()[0]}"})
    generator.epoll.register(0, select.EPOLLIN | select.EPOLLHUP)
    rest = b""
    order: dict[str, Any] | None = None
    while True:
        for handle, _ in generator.epoll.poll(1):
            if handle in generator.wires:
                generator.wires[handle].receive()
                continue
            chunk = os.read(0, 1 << 16)
            if not chunk:
                return
            rest += chunk
        while b"\n" in rest:
            line, rest = rest.split(b"\n", 1)
            if order is None:
                order = json.loads(line)
                say({"prepared": True})
            else:
                generator.epoll.unregister(0)  # level-triggered: it would keep a phase spinning
                say(generator.run(order))
                generator.epoll.register(0, select.EPOLLIN | select.EPOLLHUP)
                order = None


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
