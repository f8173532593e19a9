"""What a conformance test says to a server: each RPC as a method, messages in and out."""

import math
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import trio
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from purerpc import StatusCode

from sepp._generated import queue_pb2 as pb
from sepp.rpc.channel import Channel, Metadata, RpcError, open_channel

M = TypeVar("M", bound=Message)

SERVICE = "/sepp.v1.QueueService/"
CALL_SECONDS_MAX = 30  # hang guard

REQUESTS: dict[str, type[Message]] = {
    "EnqueueBatch": pb.EnqueueBatchRequest,
    "EnqueueAtomic": pb.EnqueueBatchRequest,
    "Reserve": pb.ReserveRequest,
    "Ack": pb.AckRequest,
    "Nack": pb.NackRequest,
    "Extend": pb.ExtendRequest,
    "DrainDeadLetters": pb.DrainDeadLettersRequest,
    "GetServerInfo": pb.GetServerInfoRequest,
}
RESPONSES: dict[str, type[Message]] = {
    "EnqueueBatch": pb.EnqueueBatchResponse,
    "EnqueueAtomic": pb.EnqueueAtomicResponse,
    "Reserve": pb.ReserveResponse,
    "Ack": pb.AckResponse,
    "Nack": pb.NackResponse,
    "Extend": pb.ExtendResponse,
    "DrainDeadLetters": pb.DrainDeadLettersResponse,
    "GetServerInfo": pb.GetServerInfoResponse,
}
Fault = tuple[StatusCode, str]


def span(ms: float) -> Duration:
    """A Duration of milliseconds, negative ones and parts of them included."""
    whole = math.trunc(ms * 1_000_000)
    seconds = abs(whole) // 1_000_000_000
    nanos = abs(whole) % 1_000_000_000
    sign = -1 if whole < 0 else 1
    return Duration(seconds=sign * seconds, nanos=sign * nanos)


def moment(at_ms: int) -> Timestamp:
    """A Timestamp of milliseconds since the epoch."""
    return Timestamp(seconds=at_ms // 1000, nanos=at_ms % 1000 * 1_000_000)


def in_ms(at: Timestamp | Duration) -> int:
    """Milliseconds of a Timestamp or Duration."""
    return int(at.seconds * 1000 + at.nanos // 1_000_000)


def job(queue: str, **fields: Any) -> pb.EnqueueRequest:
    """An enqueue that has nothing wrong with it; fields that are given replace or join its own."""
    return pb.EnqueueRequest(**{"queue": queue, "job_type": "test", **fields})


def payload(data: bytes = b"data", encoding: str = "raw") -> pb.Payload:
    """A payload."""
    return pb.Payload(data=data, encoding=encoding)


def text(value: str) -> pb.PrimitiveValue:
    """A custom value."""
    return pb.PrimitiveValue(string_value=value)


DEFAULT = pb.NackRetry(default={})
DEAD_LETTER = pb.NackRetry(dead_letter={})


def later(ms: float) -> pb.NackRetry:
    """The directive that names a delay."""
    return pb.NackRetry(delay=span(ms))


class Client:
    """The RPCs over any transport; a subclass says how one call is made."""

    async def raw(self, method: str, message: bytes, metadata: Metadata = ()) -> bytes:
        """Make one call; raise RpcError for a status other than OK."""
        raise NotImplementedError

    async def call(self, method: str, request: Message, metadata: Metadata = ()) -> Any:
        """Make one call with messages."""
        answer = await self.raw(method, request.SerializeToString(), metadata)
        return RESPONSES[method].FromString(answer)

    async def fault(self, method: str, request: Message, metadata: Metadata = ()) -> Fault:
        """Make one call that must fail; return its status code and text."""
        try:
            answer = await self.call(method, request, metadata)
        except RpcError as error:
            return error.code, error.text
        raise AssertionError(f"{method} was answered with OK: {answer}")

    async def batch(self, *jobs: pb.EnqueueRequest) -> list[pb.JobResult]:
        """EnqueueBatch."""
        return list((await self.call("EnqueueBatch", pb.EnqueueBatchRequest(jobs=jobs))).results)

    async def atomic(self, *jobs: pb.EnqueueRequest) -> pb.EnqueueAtomicResponse:
        """EnqueueAtomic."""
        answer = await self.call("EnqueueAtomic", pb.EnqueueBatchRequest(jobs=jobs))
        assert isinstance(answer, pb.EnqueueAtomicResponse)
        return answer

    async def enqueue(self, queue: str, **fields: Any) -> str:
        """Enqueue one job that must be accepted as new; return its id."""
        (result,) = await self.batch(job(queue, **fields))
        assert result.WhichOneof("outcome") == "success", result
        assert not result.success.deduplicated
        return result.success.job_id

    async def rejection(self, queue: str, **fields: Any) -> pb.JobRejection:
        """Enqueue one job that must be rejected; return why."""
        (result,) = await self.batch(job(queue, **fields))
        assert result.WhichOneof("outcome") == "rejection", result
        return result.rejection

    async def reserve(
        self,
        *queues: str,
        lease_ms: float = 60_000,
        wait_ms: float | None = None,
        max_jobs: int | None = None,
    ) -> list[pb.Job]:
        """Reserve."""
        request = pb.ReserveRequest(queues=queues, lease_duration=span(lease_ms))
        if max_jobs is not None:
            request.max_jobs = max_jobs
        if wait_ms is not None:
            request.wait_timeout.CopyFrom(span(wait_ms))
        return list((await self.call("Reserve", request)).jobs)

    async def take(self, *queues: str, lease_ms: float = 60_000) -> pb.Job:
        """Reserve the one job that must be ready."""
        (found,) = await self.reserve(*queues, lease_ms=lease_ms)
        return found

    async def ack(self, of: pb.Job) -> None:
        """Ack a job as reserved."""
        answer = await self.call("Ack", pb.AckRequest(job_id=of.id, attempt=of.attempt))
        assert answer.job_id == of.id

    async def nack(self, of: pb.Job, **fields: Any) -> bool:
        """Nack a job as reserved; return whether it became a dead letter."""
        request = pb.NackRequest(job_id=of.id, attempt=of.attempt, **fields)
        answer = await self.call("Nack", request)
        assert answer.job_id == of.id
        return bool(answer.dead_lettered)

    async def extend(self, of: pb.Job, lease_ms: float) -> int:
        """Extend the lease of a job as reserved; return its new end in ms."""
        request = pb.ExtendRequest(job_id=of.id, attempt=of.attempt, lease_duration=span(lease_ms))
        answer = await self.call("Extend", request)
        assert answer.job_id == of.id
        return in_ms(answer.lease_expires_at)

    async def drain(self, queue: str | None = None, most: int | None = 100) -> Sequence[Any]:
        """DrainDeadLetters."""
        request = pb.DrainDeadLettersRequest()
        if queue is not None:
            request.queue = queue
        if most is not None:
            request.max = most
        return list((await self.call("DrainDeadLetters", request)).records)

    async def info(self) -> pb.GetServerInfoResponse:
        """GetServerInfo."""
        answer = await self.call("GetServerInfo", pb.GetServerInfoRequest())
        assert isinstance(answer, pb.GetServerInfoResponse)
        return answer


class SocketClient(Client):
    """A client on a channel to a server process."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel

    async def raw(self, method: str, message: bytes, metadata: Metadata = ()) -> bytes:
        """See `Client.raw`; every call has a deadline far away."""
        with trio.fail_after(CALL_SECONDS_MAX):
            return await self.channel.unary(
                SERVICE + method, message, timeout_s=CALL_SECONDS_MAX, metadata=metadata
            )


@asynccontextmanager
async def connected(port: int, **options: Any) -> AsyncIterator[SocketClient]:
    """A client on a connection of its own."""
    async with open_channel("127.0.0.1", port, **options) as channel:
        yield SocketClient(channel)
