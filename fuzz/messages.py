"""Random messages: any value of any field, biased towards those that get past the first check."""

from collections import deque
from random import Random
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from tests.conformance.client import REQUESTS

QUEUES = ["a", "b", "größe", "🚚"]
STRINGS = [
    "",
    ".",
    "..",
    "a/b",
    "\0",
    "\n",
    "\x7f",
    "\u202e",
    "e\u0301",
    "x" * 63,
    "ü" * 32,
    "x" * 300,
    "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01",
    "'\"<&>%s{}",
]
INTEGERS = [0, 1, 2, 3, 9, 10, 255, 2**31 - 1, 2**31, 2**32 - 1]
BIG_INTEGERS = [-(2**63), -(2**31), -1, 0, 1, 1_000, 1_800_000_000, 2**31, 2**53 + 1, 2**63 - 1]
DOUBLES = [0.0, -0.0, 1.5, float("nan"), float("inf"), float("-inf"), 5e-324, 1.7e308]
DEPTH_MAX = 4


class Messages:
    """Makes requests; remembers ids and attempts it saw, so that later ones hit."""

    def __init__(self, dice: Random) -> None:
        self._dice = dice
        self._held: deque[tuple[str, int]] = deque(maxlen=200)

    def learn(self, method: str, response: Any) -> None:
        """Look at an answer."""
        if method == "Reserve":
            self._held.extend((job.id, job.attempt) for job in response.jobs)

    def make(self, method: str) -> Message:
        """Return a request for one RPC."""
        request: Any = REQUESTS[method]()
        if self._dice.random() < 0.6:
            self._make_likely(method, request)
        for field in request.DESCRIPTOR.fields:
            if self._dice.random() < 0.12:
                self._set(request, field, 0)
        return request

    def _make_likely(self, method: str, request: Any) -> None:
        """Fill in what a good request has; a random field may still spoil it."""
        dice = self._dice
        if method.startswith("Enqueue"):
            for _ in range(dice.randrange(1, 5)):
                job = request.jobs.add(queue=dice.choice(QUEUES), job_type="t")
                for field in job.DESCRIPTOR.fields:
                    if dice.random() < 0.15:
                        self._set(job, field, 1)
        elif method == "Reserve":
            request.queues.extend(dice.choices(QUEUES, k=dice.randrange(1, 4)))
            request.lease_duration.nanos = dice.randrange(1, 50_000_000)
            if dice.random() < 0.5:
                request.max_jobs = dice.randrange(1, 20)
        elif method in ("Ack", "Nack", "Extend") and self._held:
            request.job_id, request.attempt = dice.choice(self._held)
            if method == "Extend":
                request.lease_duration.seconds = dice.randrange(1, 3)
            elif method == "Nack" and dice.random() < 0.5:
                dice.choice((request.retry.default, request.retry.dead_letter)).SetInParent()

    def _set(self, message: Any, field: FieldDescriptor, depth: int) -> None:
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            self._set_map(message, field)
        elif field.is_repeated:
            for _ in range(self._dice.choice((0, 1, 2, 12))):
                self._add(getattr(message, field.name), field, depth)
        elif field.message_type is not None:
            child = getattr(message, field.name)
            child.SetInParent()
            self._fill(child, field.message_type, depth + 1)
        else:
            setattr(message, field.name, self._value(field))

    def _set_map(self, message: Any, field: FieldDescriptor) -> None:
        entries = getattr(message, field.name)
        value = field.message_type.fields_by_name["value"]
        for _ in range(self._dice.choice((1, 2, 65))):
            key = self._dice.choice(STRINGS) or str(self._dice.random())
            self._fill(entries[key], value.message_type, DEPTH_MAX)

    def _add(self, values: Any, field: FieldDescriptor, depth: int) -> None:
        if field.message_type is not None:
            self._fill(values.add(), field.message_type, depth + 1)
        else:
            values.append(self._value(field))

    def _fill(self, message: Any, kind: Descriptor, depth: int) -> None:
        for field in kind.fields:
            if self._dice.random() < (0.4 if depth < DEPTH_MAX else 0.6) and (
                field.message_type is None or depth < DEPTH_MAX
            ):
                self._set(message, field, depth)

    def _value(self, field: FieldDescriptor) -> Any:
        dice = self._dice
        if field.type == FieldDescriptor.TYPE_STRING:
            if "queue" in field.name and dice.random() < 0.5:
                return dice.choice(QUEUES)
            if "id" in field.name and self._held and dice.random() < 0.5:
                return dice.choice(self._held)[0]
            return dice.choice(STRINGS)
        if field.type == FieldDescriptor.TYPE_BYTES:
            return dice.randbytes(dice.choice((0, 1, 50, 4_096, 4_097)))
        if field.type == FieldDescriptor.TYPE_BOOL:
            return dice.random() < 0.5
        if field.type == FieldDescriptor.TYPE_DOUBLE:
            return dice.choice(DOUBLES)
        if field.type == FieldDescriptor.TYPE_UINT32:
            return dice.choice(INTEGERS)
        if field.type == FieldDescriptor.TYPE_INT32:
            return dice.choice([-(2**31), -1, 0, 1, 999_999_999, 2**31 - 1])
        return dice.choice(BIG_INTEGERS)


def damage(data: bytes, dice: Random) -> bytes:
    """Return `data` with a few bytes changed, lost, doubled or put in."""
    changed = bytearray(data)
    for _ in range(dice.randrange(1, 4)):
        at = dice.randrange(len(changed) + 1)
        what = dice.randrange(5)
        if what == 0 and at < len(changed):
            changed[at] ^= 1 << dice.randrange(8)
        elif what == 1:
            del changed[at:]
        elif what == 2:
            changed[at:at] = dice.randbytes(dice.randrange(1, 5))
        elif what == 3:
            del changed[at : at + dice.randrange(1, 9)]
        else:
            changed += changed[at : at + 40]
    return bytes(changed)
