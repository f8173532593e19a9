"""What a Reserve asks for, remembered by the bytes it came in.

A worker asks for the same again and again, and its client encodes that to the same bytes. What they
mean depends on the limits alone, so it is worked out once for each configuration.
"""

from typing import Final

from purerpc import StatusCode

from sepp import validate, wire
from sepp._generated import queue_pb2 as pb
from sepp.config.policy import QueuePolicy

# The arguments of a Reserve command: queues, lease, wait, jobs, bytes of the answer.
Wish = tuple[tuple[str, ...], int, int, int, int]

WISHES_MAX: Final = 16_384  # of as many queues in turn
WISH_BYTES_MAX: Final = 512


class Wishes:
    """The requests that passed under one configuration; emptied when there are too many."""

    __slots__ = ("_known", "_policy", "get")

    def __init__(self, policy: QueuePolicy) -> None:
        self._policy = policy
        self._known: dict[bytes, Wish] = {}
        self.get: Final = self._known.get

    def learn(self, message: bytes, request: pb.ReserveRequest) -> Wish | tuple[StatusCode, str]:
        """Check `request`, decoded from `message`; return what it asks for or why it is refused."""
        policy = self._policy
        fault = validate.reserve_fault(request, policy)
        if fault is not None:
            return StatusCode.INVALID_ARGUMENT, fault
        queues = tuple(request.queues)
        if policy.is_strict:
            unknown = [name for name in queues if not policy.is_declared(name)]
            if unknown:
                names = ", ".join(dict.fromkeys(unknown))
                return StatusCode.FAILED_PRECONDITION, f"unknown queues: {names}"
        limits = policy.global_limits
        wait, lease = request.wait_timeout, request.lease_duration
        wish = (
            queues,
            max(1, wire.span_ms(lease.seconds, lease.nanos)),
            min(wire.span_ms(wait.seconds, wait.nanos), limits.max_wait_timeout_ms),
            min(request.max_jobs or 1, limits.max_reserve_batch),
            limits.max_response_bytes,
        )
        if len(message) <= WISH_BYTES_MAX:
            if len(self._known) >= WISHES_MAX:
                self._known.clear()
            self._known[message] = wish
        return wish
