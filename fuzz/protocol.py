"""Invariant: whatever bytes reach an RPC, its call ends in a status the protocol names for it.

    python -m fuzz.protocol --seconds 60 --seed 7

Random messages, made from the descriptors and biased towards what is nearly right, some of them
damaged byte by byte, go to every RPC of a server process on a fresh directory. Beyond the status:

- INTERNAL is answered exactly to what is no protobuf of the request's type, OUT_OF_RANGE exactly to
  what is too long;
- an OK answer is whole: one result a job, every oneof set, every job with what clients demand;
- the connection lives, the server logs no bug, stops with exit code 0, and starts again on what the
  calls have left behind.

Exit code 0 when it held, 1 with the seed and the request when it did not.
"""

import random
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import trio
from google.protobuf.message import DecodeError
from purerpc import StatusCode

from fuzz.command_line import seed_and_seconds
from fuzz.messages import Messages, damage
from sepp.rpc.channel import Channel, RpcError, open_channel
from tests.conformance.client import REQUESTS, RESPONSES, SERVICE
from tests.e2e.server_process import ServerProcess

MESSAGE_BYTES_MAX = 65_536
SETTINGS = {
    "limits": {
        "max_message_bytes": MESSAGE_BYTES_MAX,
        "max_payload_bytes": 4_096,
        "max_enqueue_batch": 8,
        "max_wait_timeout_ms": 50,
        "max_queue_depth": 200,
        "max_queue_name_bytes": 64,
        "retry_delay_ms": 5,
    },
    "storage": {"segment_bytes": 1 << 20},
    "logging": {"level": "warn,sepp.server=info"},
}
WORKERS = 8
CALL_SECONDS_MAX = 30  # hang guard

_OK, _INVALID = StatusCode.OK, StatusCode.INVALID_ARGUMENT
_HOLDER = {_OK, _INVALID, StatusCode.NOT_FOUND, StatusCode.FAILED_PRECONDITION}
# What a well-formed request of each RPC may be answered with; the server is open and not strict.
ALLOWED: dict[str, set[StatusCode]] = {
    "EnqueueBatch": {_OK, _INVALID},
    "EnqueueAtomic": {_OK, _INVALID},
    "Reserve": {_OK, _INVALID},
    "Ack": _HOLDER,
    "Nack": _HOLDER,
    "Extend": _HOLDER,
    "DrainDeadLetters": {_OK, _INVALID},
    "GetServerInfo": {_OK},
}


class Broken(Exception):
    """The invariant does not hold."""


class Fuzz:
    """One run: its dice, and what it has seen."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.messages = Messages(self.dice)
        self.counts: Counter[tuple[str, str]] = Counter()

    async def run(self, port: int, seconds: float) -> None:
        """Call until the time is up."""
        async with open_channel("127.0.0.1", port, receive_bytes_max=1 << 26) as channel:
            with trio.move_on_after(seconds):
                async with trio.open_nursery() as nursery:
                    for _ in range(WORKERS):
                        nursery.start_soon(self._call_on, channel)
            await self._call(channel, "GetServerInfo", b"")

    async def _call_on(self, channel: Channel) -> None:
        while True:
            method = self.dice.choice(list(REQUESTS))
            await self._call(channel, method, self._request(method))

    def _request(self, method: str) -> bytes:
        dice = self.dice
        if dice.random() < 0.05:
            return dice.randbytes(dice.choice((0, 1, 7, 60, 900)))
        data = self.messages.make(method).SerializeToString()
        if dice.random() < 0.01:
            data += b"\xfa\x3f\x80\x80\x04" + bytes(dice.choice((65_500, 65_536, 70_000)))
        return damage(data, dice) if dice.random() < 0.3 else data

    async def _call(self, channel: Channel, method: str, data: bytes) -> None:
        try:
            with trio.fail_after(CALL_SECONDS_MAX):
                answer: bytes | RpcError = await channel.unary(SERVICE + method, data)
        except RpcError as error:
            answer = error
        except trio.TooSlowError:
            raise Broken(f"{method} was not answered: {data.hex()}") from None
        code = answer.code if isinstance(answer, RpcError) else StatusCode.OK
        self.counts[method, code.name] += 1
        fault = self._fault(method, data, code, answer)
        if fault is not None:
            raise Broken(f"{method} answered {answer!r}: {fault}; the request was {data.hex()}")

    def _fault(
        self, method: str, data: bytes, code: StatusCode, answer: bytes | RpcError
    ) -> str | None:
        """Return what is wrong with an answer."""
        if len(data) > MESSAGE_BYTES_MAX:
            return None if code is StatusCode.OUT_OF_RANGE else "too long"
        try:
            request = REQUESTS[method].FromString(data)
        except DecodeError:
            return None if code is StatusCode.INTERNAL else "no protobuf"
        if code not in ALLOWED[method]:
            return "a status that is not named"
        if not isinstance(answer, bytes):
            return None if answer.text else "no message"
        response = RESPONSES[method].FromString(answer)
        self.messages.learn(method, response)
        check = CHECKS.get(method)
        return None if check is None else check(request, response)


def _batch_fault(request: Any, response: Any) -> str | None:
    if len(response.results) != len(request.jobs):
        return "not one result a job"
    for result in response.results:
        outcome = result.WhichOneof("outcome")
        if outcome is None or (
            outcome == "rejection" and result.rejection.WhichOneof("reason") is None
        ):
            return "a result says nothing"
    return None


def _atomic_fault(request: Any, response: Any) -> str | None:
    if response.WhichOneof("outcome") == "success":
        is_whole = len(response.success.responses) == len(request.jobs)
        return None if is_whole else "not one response a job"
    indexes = [error.index for error in response.rejection.errors]
    if not indexes or indexes != sorted(set(indexes)) or indexes[-1] >= len(request.jobs):
        return "indexes out of order or range"
    if any(error.rejection.WhichOneof("reason") is None for error in response.rejection.errors):
        return "an error says nothing"
    return None


def _job_fault(job: Any) -> str | None:
    if len(job.id) != 36 or not job.job_type or not job.queue:
        return "a job without id, type or queue"
    if job.priority > 9 or job.attempt < 1 or job.attempt > job.max_attempts:
        return "a job whose numbers are out of range"
    if not (job.HasField("enqueued_at") and job.HasField("lease_expires_at")):
        return "a job without its times"
    if any(value.WhichOneof("value") is None for value in job.custom.values()):
        return "a custom value that is not set"
    return None


def _reserve_fault(request: Any, response: Any) -> str | None:
    if len(response.jobs) > max(1, request.max_jobs):
        return "more jobs than asked for"
    if any(job.queue not in request.queues for job in response.jobs):
        return "a job of another queue"
    return next(filter(None, map(_job_fault, response.jobs)), None)


def _holder_fault(request: Any, response: Any) -> str | None:
    return None if response.job_id == request.job_id else "another job_id"


def _drain_fault(request: Any, response: Any) -> str | None:
    if len(response.records) > max(1, request.max):
        return "more records than asked for"
    for record in response.records:
        if not record.cause or record.final_attempt < 1 or not record.HasField("failed_at"):
            return "a record without cause, attempt or time"
    return next(filter(None, (_job_fault(record.job) for record in response.records)), None)


CHECKS: dict[str, Any] = {
    "EnqueueBatch": _batch_fault,
    "EnqueueAtomic": _atomic_fault,
    "Reserve": _reserve_fault,
    "Ack": _holder_fault,
    "Nack": _holder_fault,
    "Extend": _holder_fault,
    "DrainDeadLetters": _drain_fault,
}


def check_server(server: ServerProcess) -> None:
    """Stop, look at what was logged, start again and stop."""
    server.stop()
    server.start()
    server.stop()
    for piece in ("bug:", "Traceback"):
        if piece in server.output:
            raise Broken(f"the server logged a bug:\n{server.output}")


def leaf(fault: BaseException) -> BaseException:
    """Return the first fault inside of groups."""
    while isinstance(fault, BaseExceptionGroup):
        fault = fault.exceptions[0]
    return fault


def main() -> int:
    """Run as the command line says."""
    seed, seconds = seed_and_seconds(__doc__, seconds=60.0)
    fuzz = Fuzz(seed)
    with tempfile.TemporaryDirectory() as directory:
        server = ServerProcess(Path(directory), SETTINGS)
        server.start()
        try:
            trio.run(fuzz.run, server.port, seconds)
            check_server(server)
        except (Broken, AssertionError, BaseExceptionGroup) as fault:
            print(f"seed {seed} broke it: {leaf(fault)!r}")
            return 1
        finally:
            if server.is_running:
                server.kill()
    for (method, code), count in sorted(fuzz.counts.items()):
        print(f"{count:7} {method} {code}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
