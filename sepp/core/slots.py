"""What core needs of the slot table: which columns an entry has, and the way to new and known
slots.

Every entry of the store (job, reason, dedup record, queue name, closing tombstone, audit row) lives
in one slot, an integer. Its mutable facts are columns, one `array` a field; its body stays on disk.
The store owns the table; core reads and writes the columns through `SlotTable`, so core's tests run
on plain arrays (`tests/fakes/slots.py`).

Table numbers, field order and state numbers are on disk: never reuse or reorder them.
"""

from array import array
from typing import Final, Protocol

# Tables. A key is unique within its table.
JOBS: Final = 1  # key: job id, 16 bytes; body: see sepp/wire.py
REASONS: Final = 2  # key: the job's id; body: the nack's reason in UTF-8
DEDUP: Final = 3  # key: BLAKE2b-128 over queue and idempotency key; no body
QUEUES: Final = 4  # key: queue number, 16 bytes big-endian; body: the name in UTF-8
CLOSING: Final = 5  # key: queue number; no body
AUDIT: Final = 6  # key: sequence number, 16 bytes big-endian; body: one audit entry
ROW_TABLES: Final = (REASONS, DEDUP, QUEUES, CLOSING, AUDIT)  # all but JOBS

# States of a job. Entries of other tables are LIVE.
FREE: Final = 0
READY: Final = 1
SCHEDULED: Final = 2
LEASED: Final = 3
DEAD: Final = 4
LIVE: Final = 5
ASIDE: Final = 6  # its body is damaged: kept, never delivered

# Bits of the `flags` field.
HAS_REASON: Final = 1  # a row of REASONS exists under this job's id
REASON_IS_FINAL: Final = 2  # that row says why the job is dead, not why an earlier attempt failed
WAS_REQUEUED: Final = 4  # the schedule it was enqueued with is over and no longer shown

# Name and `array` typecode of each head field, in the order they are packed on disk.
FIELDS: Final[tuple[tuple[str, str], ...]] = (
    ("state", "B"),
    ("priority", "B"),
    ("cause", "B"),  # dead letters: the DeadLetterCause number
    ("flags", "B"),
    ("attempt", "I"),
    ("max_attempts", "I"),
    ("queue", "I"),  # queue number
    ("at_ms", "Q"),  # wall ms: due, lease end, failed at, dedup or closing deadline, audit time
    ("order", "Q"),  # commit sequence of the enqueue; dedup: first half of the job id
    ("enqueued_ms", "Q"),  # wall ms; dedup: second half of the job id
)


class SlotTable(Protocol):
    """The columns of all live entries and the directory from keys to slots.

    A slot freed by a delete is not handed out again before the batch with that delete was built.
    """

    state: "array[int]"
    priority: "array[int]"
    cause: "array[int]"
    flags: "array[int]"
    attempt: "array[int]"
    max_attempts: "array[int]"
    queue: "array[int]"
    at_ms: "array[int]"
    order: "array[int]"
    enqueued_ms: "array[int]"
    body_length: "array[int]"  # bytes; core sets it with each put, the store when it opens

    def allocate(self, table: int, key: bytes) -> int:
        """Return a free slot that now answers to `key`; its fields are all 0."""
        ...

    def find(self, table: int, key: bytes) -> int:
        """Return the slot of a live entry, or -1; at once, but for an old key whose page of the
        index file is in no cache: that waits for one read.
        """
        ...

    def expect(self, table: int, key: bytes, slot: int) -> None:
        """`find` will soon be asked for the key of `slot`; only its speed depends on this."""
        ...

    def key(self, slot: int) -> bytes:
        """Return the 16-byte key of `slot`."""
        ...

    def table(self, slot: int) -> int:
        """Return the table number of `slot`."""
        ...
