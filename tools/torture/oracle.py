"""What the clients of a tortured server were told, and what may follow from it."""

import copy

import attrs

PROMISES = ("lost", "undone", "repeated", "refused")


@attrs.define
class Oracle:
    """The truth about one data directory.

    Attributes:
        enqueued: Job id to tag, of acknowledged enqueues.
        acked: Jobs whose ack was acknowledged.
        acking: Jobs whose ack was sent and never answered: either outcome is right.
        attempts: Deliveries seen.
        era: Grows at each power cut. Nothing counts that was asked for in an earlier one and
            answered later: a kernel whose disk is cut off may still call a sync under way done.
    """

    enqueued: dict[str, str] = attrs.field(factory=dict)
    acked: set[str] = attrs.field(factory=set)
    acking: set[str] = attrs.field(factory=set)
    attempts: set[tuple[str, int]] = attrs.field(factory=set)
    lost: list[str] = attrs.field(factory=list)
    undone: list[str] = attrs.field(factory=list)
    repeated: list[str] = attrs.field(factory=list)
    refused: list[str] = attrs.field(factory=list)
    operations: int = 0
    era: int = 0

    def delivered(self, job_id: str, attempt: int) -> None:
        """Check one delivery."""
        if job_id in self.acked:
            self.undone.append(f"{job_id} attempt {attempt}")
        if (job_id, attempt) in self.attempts:
            self.repeated.append(f"{job_id} attempt {attempt}")
        self.attempts.add((job_id, attempt))

    def missing(self) -> set[str]:
        """Acknowledged jobs that nobody has acked, as far as anyone knows."""
        return set(self.enqueued) - self.acked - self.acking

    def settle(self) -> None:
        """Count what is missing as lost: all that was to come has come."""
        self.lost.extend(sorted(self.missing()))

    def broken(self) -> int:
        """How many promises were broken."""
        return sum(len(getattr(self, name)) for name in PROMISES)

    def snapshot(self) -> "Oracle":
        """A copy, taken right before a snapshot of the directory: what must be in that."""
        return copy.deepcopy(self)
