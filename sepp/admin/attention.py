"""What needs attention, worst first: worked out once a second from figures already at hand."""

from collections.abc import Iterable
from typing import Final

from attrs import define

from sepp.admin import wording
from sepp.admin.backend import QueueNumbers, Vitals
from sepp.admin.messages import Attention
from sepp.core.limits import QueueLimits

OLD_MS: Final = 300_000  # a ready job this old is late
STUCK_MS: Final = 60_000
DIED_SPAN_MS: Final = 600_000
FULL_SHARE: Final = 0.9
COMMAND_QUEUE_SHARE: Final = 0.8
LINES_MAX: Final = 100
_REASON_CHARS: Final = 120


@define
class Condition:
    """One queue with what was seen of it over time."""

    numbers: QueueNumbers
    limits: QueueLimits
    died_10_min: int
    stuck_since_ms: int | None  # jobs are ready, nothing is acked or in flight
    last_acked_ms: int | None


def lines(
    conditions: Iterable[Condition],
    vitals: Vitals,
    *,
    command_queue_capacity: int,
    now_ms: int,
) -> list[Attention]:
    """Return the lines for the server and its queues; at most one a queue, at most 100."""
    found: list[tuple[int, int, Attention]] = []
    for condition in conditions:
        line = _queue_line(condition, now_ms)
        if line is not None:
            found.append(line)
    found.sort(key=lambda line: (line[0], -line[1], str(line[2].queue)))
    server = _server_lines(vitals, command_queue_capacity)
    return (server + [line for _, _, line in found])[:LINES_MAX]


def _server_lines(vitals: Vitals, capacity: int) -> list[Attention]:
    found = []
    if vitals.is_disk_full:
        text = "the disk is nearly full: new jobs are refused, acks go on"
        found.append(Attention(level="bad", rule="disk_full", text=text))
    if vitals.is_memory_short:
        text = "the server is above server.max_memory_bytes: new jobs are refused, acks go on"
        found.append(Attention(level="bad", rule="memory_short", text=text))
    if vitals.command_queue_len >= COMMAND_QUEUE_SHARE * capacity:
        text = f"{vitals.command_queue_len:,} of {capacity:,} places of the command queue are taken"
        found.append(Attention(level="bad", rule="command_queue", text=text))
    if vitals.last_reload_error is not None:
        text = f"the last reload failed, the old configuration runs: {vitals.last_reload_error}"
        found.append(Attention(level="bad", rule="reload_failed", text=text))
    return found


def _queue_line(condition: Condition, now_ms: int) -> tuple[int, int, Attention] | None:
    """Return (rank, weight, line) of the worst that can be said of a queue."""
    numbers = condition.numbers
    name = numbers.name
    if condition.died_10_min:
        text = f"{wording.count(condition.died_10_min)} died in 10 min"
        if numbers.last_nack_reason:
            text += f": {numbers.last_nack_reason[:_REASON_CHARS]}"
        line = Attention(level="bad", rule="died", text=text, queue=name)
        return 0, condition.died_10_min, line
    if numbers.aside:
        text = f"{wording.plural(numbers.aside, 'job')} set aside: damaged on disk"
        return 0, 0, Attention(level="bad", rule="aside", text=text, queue=name)
    since_ms = condition.stuck_since_ms
    if numbers.ready and since_ms is not None and now_ms - since_ms >= STUCK_MS:
        idle_ms = now_ms - (condition.last_acked_ms or since_ms)
        text = f"{wording.count(numbers.ready)} ready, nothing acked for {wording.span(idle_ms)}"
        return 1, numbers.ready, Attention(level="warn", rule="stuck", text=text, queue=name)
    oldest = numbers.oldest_ready_at_ms
    if oldest is not None and now_ms - oldest >= OLD_MS:
        text = f"oldest job has waited {wording.span(now_ms - oldest)}"
        return 2, now_ms - oldest, Attention(level="warn", rule="old", text=text, queue=name)
    limit = condition.limits.max_queue_depth
    if limit and numbers.live >= FULL_SHARE * limit:
        share = 100 * numbers.live // limit
        text = f"at {share} % of its limit of {wording.count(limit)}"
        return 3, share, Attention(level="warn", rule="full", text=text, queue=name)
    return None
