"""What can go wrong with a store, whose fault it is, and what to do.

Faults are exceptions; a body that cannot be read is a value: one bad body must not harm others.
"""

from dataclasses import dataclass


class StoreError(Exception):
    """Base of all faults of a store."""


class StoreLocked(StoreError):
    """Somebody has the directory open. Stop that one, or wait for it; the text says which."""


class FormatRefused(StoreError):
    """The directory was written by a version, or with head fields, that this one cannot serve.

    Nothing was changed.

    Attributes:
        problem: what does not fit.
        advice: what to do.
    """

    def __init__(self, problem: str, advice: str) -> None:
        self.problem = problem
        self.advice = advice
        super().__init__(problem, advice)

    def __str__(self) -> str:
        return f"{self.problem}; nothing was changed; {self.advice}"


class MarkerDamaged(FormatRefused):
    """The format marker is not intact, so nothing can be said about who may read the rest.

    Nothing was changed. Restore a backup, or salvage what is provable into a new directory.
    """

    def __init__(self, problem: str) -> None:
        super().__init__(
            problem, "restore a backup, or salvage what is provable into a new directory"
        )


class NoStore(StoreError):
    """The directory holds neither a format marker nor segments. Name the right one."""


class NotAFile(StoreError, OSError):
    """A directory, FIFO, socket or device has the name of a file of the store. It was not opened.

    Move it out of the directory. If a file is missed then, restore a backup or salvage.
    """

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}"


class TargetRefused(StoreError):
    """Where a copy should go is not an empty or new directory of its own. Name another."""


class NoRoom(StoreError):
    """The disk has no room to begin a segment, not even a small one. Nothing was changed.

    Free some space, or wait until somebody does, and try again.
    """


class StoreFailed(StoreError):
    """A write or a sync failed; what it should have stored may or may not be there.

    Final: every later call raises it too. End the process and start again; the open finds out what
    survived. Trying again would be wrong: after a failed sync the kernel takes its pages for clean.
    """


class StoreDamaged(StoreError):
    """Acknowledged bytes are missing or changed. The open was refused and nothing was changed.

    Restore a backup, or salvage what is provable into a new directory.

    Attributes:
        path: the file.
        offset: where in it, bytes.
        problem: what was found there.
        lsn_expected: the next LSN the log should have there, if known.
        lsn_found: the LSN of the next provable batch behind the damage, if there is one.
    """

    def __init__(
        self,
        path: str,
        offset: int,
        problem: str,
        *,
        lsn_expected: int | None = None,
        lsn_found: int | None = None,
        advice: str = "",
    ) -> None:
        self.path = path
        self.offset = offset
        self.problem = problem
        self.lsn_expected = lsn_expected
        self.lsn_found = lsn_found
        self.advice = advice
        super().__init__(path, offset, problem)

    def __str__(self) -> str:
        parts = [f"{self.path}+{self.offset}: {self.problem}"]
        if self.lsn_expected is not None:
            parts.append(f"expected LSN {self.lsn_expected}")
        if self.lsn_found is not None:
            parts.append(f"next provable batch has LSN {self.lsn_found}")
        if self.advice:
            parts.append(f"nothing was changed; {self.advice}")
        return "; ".join(parts)


@dataclass(frozen=True, slots=True)
class BodyDamaged:
    """In place of a body whose bytes do not match their CRC. It stays stored, never handed out.

    Attributes:
        table, key: whose body it is.
        path, offset, length: where it lies, bytes.
        crc_expected, crc_found: of the body; found is 0 when it could not be read at all.
    """

    table: int
    key: bytes
    path: str
    offset: int
    length: int
    crc_expected: int
    crc_found: int

    def __str__(self) -> str:
        return (
            f"body CRC mismatch at {self.path}+{self.offset} ({self.length} bytes of table"
            f" {self.table}, key {self.key.hex()}): expected {self.crc_expected:08x},"
            f" found {self.crc_found:08x}"
        )
