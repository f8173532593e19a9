"""Messages of the plain form, read without decoding them.

A producer names the same queue and job type again and again, and most jobs have a payload and
nothing else. The bytes of such a message up to the payload are remembered once a job that begins
with them passed every check; of the next one only the payload's size and the bytes behind it are
looked at. Likewise an ack is an id, an attempt and perhaps a worker that was named before.

Whatever does not have exactly this form is left to the decoder and the checks of `validate`, so
nobody can tell which way a message went. The wire format is that of protobuf ("Encoding").
"""

from typing import Final

from sepp import wire
from sepp.config.policy import QueuePolicy
from sepp.core.commands import NewJob
from sepp.validate import Checked

HEADS_MAX: Final = 16_384  # more than this many queues in turn, and none is remembered
TAILS_MAX: Final = 64
TAIL_BYTES_MAX: Final = 256

_LONG: Final = 0x80  # a length byte from here on is not the last one
_JOBS: Final = 0x0A  # EnqueueBatchRequest.jobs
_DATA: Final = 0x0A  # Payload.data
_ACK_ID: Final = b"\x0a\x24"  # AckRequest.job_id, 36 bytes
_ACK_ATTEMPT: Final = 0x10


class _Head:
    """What holds for all jobs whose messages begin alike up to the payload.

    Attributes:
        fields: The fields of a Job that all of them share.
        tails: What stood behind the data of payloads that passed: their encodings.
    """

    __slots__ = ("attempts", "bytes_max", "fields", "priority", "queue", "tails")

    def __init__(self, checked: Checked, bytes_max: int) -> None:
        self.queue = checked.queue
        self.priority = checked.priority
        self.attempts = checked.max_attempts
        self.bytes_max = bytes_max
        self.fields = wire.common_fields(
            checked.queue, checked.job_type, checked.priority, checked.max_attempts
        )
        self.tails: set[bytes] = set()


class PlainMessages:
    """The forms that passed under one configuration; emptied when there are too many."""

    __slots__ = ("_heads", "_policy", "_workers")

    def __init__(self, policy: QueuePolicy) -> None:
        self._policy = policy
        self._heads: dict[bytes, _Head] = {}
        self._workers: set[bytes] = {b""}

    def jobs(self, message: bytes, count_max: int) -> tuple[list[NewJob], list[str]] | None:
        """Return the jobs of an EnqueueBatchRequest as they go to the committer, and their ids.

        None: one has another form, or nothing like it passed before, or there are too many or none.
        """
        jobs: list[NewJob] = []
        texts: list[str] = []
        heads, at, size = self._heads, 0, len(message)
        while at < size:
            try:
                begin, payload, data, end, at = _places(message, at)
            except IndexError:
                return None
            head = heads.get(message[begin : payload + 1])
            if (
                head is None
                or message[end:at] not in head.tails
                or not 0 < end - data <= head.bytes_max
            ):
                return None
            job_id, text = wire.new_named_id()
            body = wire.plain_body(text, head.fields, message[payload:at])
            jobs.append(NewJob(head.queue, job_id, body, head.priority, head.attempts))
            texts.append(text)
        return (jobs, texts) if 0 < len(jobs) <= count_max else None

    def learn_job(self, message: bytes, checked: Checked) -> None:
        """Remember the form of an EnqueueBatchRequest whose first job passed as `checked`."""
        payload = checked.payload
        if (
            payload is None
            or checked.idempotency_key is not None
            or checked.trace is not None
            or checked.custom is not None
            or checked.scheduled is not None
        ):
            return
        try:
            begin, payload_at, data_at, end, next_at = _places(message, 0)
        except IndexError:
            return
        tail = wire.string_field(2, payload.encoding)
        form = wire.string_field(1, checked.queue) + wire.string_field(2, checked.job_type)
        head = message[begin : payload_at + 1]
        if (
            head != form + wire.PAYLOAD_TAG
            or message[data_at:end] != payload.data
            or message[end:next_at] != tail
            or len(tail) > TAIL_BYTES_MAX
        ):
            return
        known = self._heads.get(head)
        if known is None:
            if len(self._heads) >= HEADS_MAX:
                self._heads.clear()
            limits = self._policy.limits(checked.queue)
            known = self._heads[head] = _Head(checked, limits.max_payload_bytes)
        if len(known.tails) >= TAILS_MAX:
            known.tails.clear()
        known.tails.add(tail)

    def lease(self, message: bytes) -> tuple[str, bytes, int] | None:
        """Return job id as sent, job id and attempt of an AckRequest; None: it must be decoded."""
        if (
            len(message) < 40
            or message[:2] != _ACK_ID
            or message[38] != _ACK_ATTEMPT
            or not 0 < message[39] < _LONG
            or message[40:] not in self._workers
        ):
            return None
        text = message[2:38].decode("latin-1")
        job_id = wire.id_bytes(text)
        return None if job_id is None else (text, job_id, message[39])

    def learn_lease(self, message: bytes, worker_id: str) -> None:
        """Remember the worker of an AckRequest that passed."""
        tail = message[40:]
        if len(tail) <= TAIL_BYTES_MAX and tail == wire.string_field(3, worker_id):
            if len(self._workers) >= TAILS_MAX:
                self._workers = {b""}
            self._workers.add(tail)


def _places(message: bytes, start: int) -> tuple[int, int, int, int, int]:
    """Look at the job that begins at `start` with the tag of its field.

    Return where its fields begin, where its payload field, where the payload's data, where that
    ends and where the job ends. They mean something only if what lies before the payload is known;
    of another message they are numbers like others.

    Raises:
        IndexError: It cannot be of the plain form.
    """
    begin = start + 2
    length = message[start + 1]
    if length >= _LONG:
        length, begin = _length(message, start + 1)
    end = begin + length
    at = begin + 2 + message[begin + 1]  # job_type
    payload = at + 2 + message[at + 1]
    at = payload + 2
    length = message[payload + 1]
    if length >= _LONG:
        length, at = _length(message, payload + 1)
    if message[start] != _JOBS or message[at] != _DATA or at + length != end or end > len(message):
        raise IndexError
    data = at + 2
    length = message[at + 1]
    if length >= _LONG:
        length, data = _length(message, at + 1)
    if data + length > end:
        raise IndexError
    return begin, payload, data, data + length, end


def _length(message: bytes, at: int) -> tuple[int, int]:
    """Read a varint of at most four bytes; return it and the place behind it."""
    value = shift = 0
    for place in range(at, at + 4):
        byte = message[place]
        value |= (byte & 0x7F) << shift
        if byte < _LONG:
            return value, place + 1
        shift += 7
    raise IndexError
