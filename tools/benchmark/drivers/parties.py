"""The parties of a phase: producers, workers, and the one that takes a job its whole way.

Each has one thing under way at a time and goes on from the answer's callback.
"""

import time
from typing import Any, Protocol

from lines import Meter
from wire import RESERVE_TIMEOUT, CallError, Wire, frame, request_headers

from sepp._generated import queue_pb2 as pb

SERVICE = b"/sepp.v1.QueueService/"
ENQUEUE = request_headers(SERVICE + b"EnqueueBatch")
RESERVE = request_headers(SERVICE + b"Reserve", timeout=RESERVE_TIMEOUT)
ACK = request_headers(SERVICE + b"Ack")
SERVER_INFO = request_headers(SERVICE + b"GetServerInfo")

LEASE_SECONDS = 120
# Short, so that at the end of a phase no reserve is left that would take a job of the next one.
WAIT_SECONDS = 1


class Phase(Protocol):
    """What a party needs to know of the generator that runs it."""

    meter: Meter
    answer: dict[str, Any] | None  # set once the phase is over
    active_count: int
    stalled: list["Producer"]

    def finish(self) -> None:
        """The goal is met: the phase's figures are taken now."""

    def producer_ended(self) -> None:
        """A producer has used up count or time."""


def queue_names(order: dict[str, Any]) -> list[str]:
    """The queues of an order: one of the given name, or that many numbered ones."""
    count = order.get("queues", 1)
    if count == 1:
        return [order["queue"]]
    return [f"{order['queue']}-{i}" for i in range(count)]


def share_of(things: list[Any], party: int, parties: int) -> list[Any]:
    """What one party takes in turn, so that producer i and worker i meet in the same queues."""
    return things[party % len(things) :: parties]


def reserve_request(queues: list[str], jobs_max: int, wait_seconds: int = WAIT_SECONDS) -> bytes:
    """An encoded Reserve."""
    request = pb.ReserveRequest(queues=queues, max_jobs=jobs_max)
    request.wait_timeout.seconds = wait_seconds
    request.lease_duration.seconds = LEASE_SECONDS
    return request.SerializeToString()


class Producer:
    """One call under way at a time: enqueue, wait until it is stored, enqueue again."""

    __slots__ = ("batch", "bodies", "index", "phase", "requests", "response", "wanted", "wire")

    def __init__(
        self,
        phase: Phase,
        wire: Wire,
        requests: list[pb.EnqueueBatchRequest],
        batch: int,
    ) -> None:
        self.phase = phase
        self.wire = wire
        self.requests = requests
        self.bodies = [frame(request.SerializeToString()) for request in requests]
        self.batch = batch
        self.index = 0
        self.wanted = 0
        self.response = pb.EnqueueBatchResponse()

    def go_on(self) -> None:
        phase = self.phase
        meter = phase.meter
        is_over = phase.answer is not None
        if not is_over and meter.is_ahead_of_pace():
            phase.stalled.append(self)
            return
        count = 0 if is_over else meter.take(self.batch)
        if count == 0:
            phase.producer_ended()
            return
        self.wanted = count
        body = self.bodies[self.index]
        if count < self.batch:
            request = pb.EnqueueBatchRequest(jobs=self.requests[self.index].jobs[:count])
            body = frame(request.SerializeToString())
        self.index = (self.index + 1) % len(self.bodies)
        self.wire.call(ENQUEUE, body, self.stored)

    def stored(self, message: bytes) -> None:
        response = self.response
        response.ParseFromString(message)
        results = response.results
        if len(results) != self.wanted:
            raise CallError(f"{len(results)} results for {self.wanted} jobs")
        for result in results:
            if not result.HasField("success"):
                raise CallError(f"a job was rejected: {result}")
        self.phase.meter.enqueued += self.wanted
        self.go_on()


class Worker:
    """Reserve, acknowledge each job got, reserve again."""

    __slots__ = ("ack", "bodies", "index", "leased", "phase", "response", "unacked", "wire")

    def __init__(self, phase: Phase, wire: Wire, bodies: list[bytes]) -> None:
        self.phase = phase
        self.wire = wire
        self.bodies = bodies
        self.index = 0
        self.leased = 0
        self.unacked = 0
        self.response = pb.ReserveResponse()
        self.ack = pb.AckRequest()

    def go_on(self) -> None:
        phase = self.phase
        if phase.answer is not None:
            phase.active_count -= 1
            return
        self.wire.call(RESERVE, self.bodies[self.index], self.reserved)

    def reserved(self, message: bytes) -> None:
        if not message:  # nothing within the wait: the same queue again, its jobs are still to come
            self.go_on()
            return
        response = self.response
        response.ParseFromString(message)
        self.index = (self.index + 1) % len(self.bodies)
        self.leased = self.unacked = len(response.jobs)
        ack = self.ack
        for job in response.jobs:
            ack.job_id = job.id
            ack.attempt = job.attempt
            self.wire.call(ACK, frame(ack.SerializeToString()), self.acked)

    def acked(self, message: bytes) -> None:
        self.unacked -= 1
        if self.unacked:
            return
        meter = self.phase.meter
        meter.completed += self.leased
        if meter.goal is not None and meter.completed >= meter.goal:
            self.phase.finish()
        self.go_on()


class Traveller:
    """One job at a time its whole way, each step timed: enqueue, reserve, ack."""

    def __init__(
        self, phase: Phase, wire: Wire, request: pb.EnqueueBatchRequest, reserve_body: bytes
    ) -> None:
        self.phase = phase
        self.wire = wire
        self.enqueue_body = frame(request.SerializeToString())
        self.reserve_body = reserve_body
        self.at = 0.0
        self.trip_at = 0.0
        self.times: dict[str, list[float]] = {"enqueue": [], "reserve": [], "ack": [], "trip": []}

    def _step(self, name: str) -> None:
        now = time.perf_counter()
        self.times[name].append((now - self.at) * 1e3)
        self.at = now

    def go_on(self) -> None:
        phase = self.phase
        if phase.answer is not None or not phase.meter.take(1):
            phase.finish()
            assert phase.answer is not None
            phase.answer["times_ms"] = self.times
            phase.active_count -= 1
            return
        self.at = self.trip_at = time.perf_counter()
        self.wire.call(ENQUEUE, self.enqueue_body, self.stored)

    def stored(self, message: bytes) -> None:
        self._step("enqueue")
        if not pb.EnqueueBatchResponse.FromString(message).results[0].HasField("success"):
            raise CallError("a job was rejected")
        self.phase.meter.enqueued += 1
        self.wire.call(RESERVE, self.reserve_body, self.reserved)

    def reserved(self, message: bytes) -> None:
        self._step("reserve")
        job = pb.ReserveResponse.FromString(message).jobs[0]
        ack = pb.AckRequest(job_id=job.id, attempt=job.attempt)
        self.wire.call(ACK, frame(ack.SerializeToString()), self.acked)

    def acked(self, message: bytes) -> None:
        self._step("ack")
        self.times["trip"].append((self.at - self.trip_at) * 1e3)
        self.phase.meter.completed += 1
        self.go_on()
