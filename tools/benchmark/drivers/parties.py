"""The parties of a phase: producers, workers, and the one that takes a job its whole way.

Each has one thing under way at a time and goes on from the callback of the answer; no party is a
task. What is answered otherwise than expected ends the phase: a load that is refused measures
nothing.
"""

import time
from typing import Any, Protocol

from lines import Meter

from sepp._generated import queue_pb2 as pb
from sepp.rpc.channel import Channel, RpcError

SERVICE = "/sepp.v1.QueueService/"
ENQUEUE = SERVICE + "EnqueueBatch"
RESERVE = SERVICE + "Reserve"
ACK = SERVICE + "Ack"
SERVER_INFO = SERVICE + "GetServerInfo"

# Sent with each call, as the official clients do: a deadline is part of what a call costs.
CALL_SECONDS = 30.0
LEASE_SECONDS = 120
# Short, so that at the end of a phase no reserve is left that would take a job of the next one.
WAIT_SECONDS = 1

Answer = bytes | RpcError


class Phase(Protocol):
    """What a party needs to know of the generator that runs it."""

    meter: Meter
    answer: dict[str, Any] | None  # set once the phase is over
    stalled: list["Producer"]

    def finish(self) -> None:
        """The goal is met: the phase's figures are taken now."""

    def fail(self, what: object) -> None:
        """Something was answered that makes the phase worthless."""

    def party_ended(self, party: object) -> None:
        """A party has no call under way and starts no more."""


class Producer:
    """Enqueue, wait until it is stored, enqueue again."""

    __slots__ = ("batch", "channel", "index", "messages", "phase", "requests", "response", "wanted")

    def __init__(
        self, phase: Phase, channel: Channel, requests: list[pb.EnqueueBatchRequest]
    ) -> None:
        self.phase = phase
        self.channel = channel
        self.requests = requests
        self.messages = [request.SerializeToString() for request in requests]
        self.batch = len(requests[0].jobs)
        self.index = 0
        self.wanted = 0
        self.response = pb.EnqueueBatchResponse()

    def go_on(self) -> None:
        """Send the next call, unless the phase is over or its pace is met."""
        phase = self.phase
        meter = phase.meter
        is_over = phase.answer is not None
        if not is_over and meter.is_ahead_of_pace():
            phase.stalled.append(self)
            return
        count = 0 if is_over else meter.take(self.batch)
        if count == 0:
            phase.party_ended(self)
            return
        self.wanted = count
        index = self.index
        message = self.messages[index]
        if count < self.batch:
            request = pb.EnqueueBatchRequest(jobs=self.requests[index].jobs[:count])
            message = request.SerializeToString()
        self.index = (index + 1) % len(self.messages)
        self.channel.start(ENQUEUE, message, self.stored, timeout_s=CALL_SECONDS)

    def stored(self, answer: Answer) -> None:
        """The jobs are durable, each of them."""
        if type(answer) is not bytes:
            self.phase.fail(answer)
            return
        response = self.response
        response.ParseFromString(answer)
        stored = sum(result.HasField("success") for result in response.results)
        if stored != self.wanted:
            self.phase.fail(f"{stored} of {self.wanted} jobs stored: {response}")
            return
        self.phase.meter.enqueued += stored
        self.go_on()


class Worker:
    """Reserve, acknowledge each job got, reserve again."""

    __slots__ = ("ack", "channel", "index", "leased", "messages", "phase", "response", "unacked")

    def __init__(self, phase: Phase, channel: Channel, messages: list[bytes]) -> None:
        self.phase = phase
        self.channel = channel
        self.messages = messages
        self.index = 0
        self.leased = 0
        self.unacked = 0
        self.response = pb.ReserveResponse()
        self.ack = pb.AckRequest()

    def go_on(self) -> None:
        """Reserve, unless the phase is over."""
        if self.phase.answer is not None:
            self.phase.party_ended(self)
            return
        message = self.messages[self.index]
        self.channel.start(RESERVE, message, self.reserved, timeout_s=CALL_SECONDS)

    def reserved(self, answer: Answer) -> None:
        """Jobs are leased, or the wait was over without one."""
        if type(answer) is not bytes:
            self.phase.fail(answer)
            return
        if not answer:  # the same queue again: its jobs are still to come
            self.go_on()
            return
        response = self.response
        response.ParseFromString(answer)
        jobs = response.jobs
        self.index = (self.index + 1) % len(self.messages)
        self.leased = self.unacked = len(jobs)
        ack = self.ack
        start = self.channel.start
        for job in jobs:
            ack.job_id = job.id
            ack.attempt = job.attempt
            start(ACK, ack.SerializeToString(), self.acked, timeout_s=CALL_SECONDS)

    def acked(self, answer: Answer) -> None:
        """A job is gone for good."""
        if type(answer) is not bytes:
            self.phase.fail(answer)
            return
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
        self, phase: Phase, channel: Channel, request: pb.EnqueueBatchRequest, reserve: bytes
    ) -> None:
        self.phase = phase
        self.channel = channel
        self.enqueue_message = request.SerializeToString()
        self.reserve_message = reserve
        self.at = 0.0
        self.trip_at = 0.0
        self.times_ms: dict[str, list[float]] = {
            "enqueue": [],
            "reserve": [],
            "ack": [],
            "trip": [],
        }

    def go_on(self) -> None:
        """Send the next job on its way."""
        if self.phase.answer is not None or not self.phase.meter.take(1):
            self.phase.finish()
            assert self.phase.answer is not None
            self.phase.answer["times_ms"] = self.times_ms
            self.phase.party_ended(self)
            return
        self.at = self.trip_at = time.perf_counter()
        self._call(ENQUEUE, self.enqueue_message, self.stored)

    def _call(self, path: str, message: bytes, when_done: Any) -> None:
        self.channel.start(path, message, when_done, timeout_s=CALL_SECONDS)

    def _step(self, name: str) -> None:
        now = time.perf_counter()
        self.times_ms[name].append((now - self.at) * 1e3)
        self.at = now

    def stored(self, answer: Answer) -> None:
        """Next it is reserved."""
        self._step("enqueue")
        if type(answer) is not bytes:
            self.phase.fail(answer)
            return
        result = pb.EnqueueBatchResponse.FromString(answer).results[0]
        if not result.HasField("success"):
            self.phase.fail(result)
            return
        self.phase.meter.enqueued += 1
        self._call(RESERVE, self.reserve_message, self.reserved)

    def reserved(self, answer: Answer) -> None:
        """Next it is acknowledged."""
        self._step("reserve")
        if type(answer) is not bytes or not answer:
            self.phase.fail(answer)
            return
        job = pb.ReserveResponse.FromString(answer).jobs[0]
        ack = pb.AckRequest(job_id=job.id, attempt=job.attempt)
        self._call(ACK, ack.SerializeToString(), self.acked)

    def acked(self, answer: Answer) -> None:
        """The trip is over."""
        self._step("ack")
        if type(answer) is not bytes:
            self.phase.fail(answer)
            return
        self.times_ms["trip"].append((self.at - self.trip_at) * 1e3)
        self.phase.meter.completed += 1
        self.go_on()


def queue_names(order: dict[str, Any]) -> list[str]:
    """The queues of an order: one of the given name, or that many numbered ones."""
    count = order.get("queues", 1)
    if count == 1:
        return [order["queue"]]
    return [f"{order['queue']}-{i}" for i in range(count)]


def share_of(things: list[Any], party: int, parties: int) -> list[Any]:
    """What one party takes in turn, so that producer i and worker i meet in the same queues."""
    return things[party % len(things) :: parties]


def enqueue_request(
    queue: str, payload: bytes, batch: int, scheduled_s: int | None
) -> pb.EnqueueBatchRequest:
    """A batch of equal jobs; `scheduled_s` seconds from now, if given."""
    job = pb.EnqueueRequest(queue=queue, job_type="bench")
    job.payload.data = payload
    job.payload.encoding = "raw"
    if scheduled_s is not None:
        job.scheduled_at.FromSeconds(int(time.time()) + scheduled_s)
    return pb.EnqueueBatchRequest(jobs=[job] * batch)


def reserve_request(queues: list[str], jobs_max: int, wait_seconds: int = WAIT_SECONDS) -> bytes:
    """An encoded Reserve."""
    request = pb.ReserveRequest(queues=queues, max_jobs=jobs_max)
    request.wait_timeout.seconds = wait_seconds
    request.lease_duration.seconds = LEASE_SECONDS
    return request.SerializeToString()
