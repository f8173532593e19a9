"""What operators do to jobs. Pages and API call the same functions; each leaves one audit entry.

Every action is fenced: it names jobs by handles, and a job that moved on meanwhile is counted as
missing, never hit.
"""

from collections.abc import Callable, Sequence
from typing import Final, Literal, TypeVar

from attrs import define

from sepp.admin import listing
from sepp.admin.backend import EnqueueForm, JobHead, Rejection, State
from sepp.admin.errors import ApiError, invalid, not_found
from sepp.admin.listing import Filter
from sepp.admin.messages import RejectionBody
from sepp.admin.sessions import Actor
from sepp.admin.site import Site
from sepp.core.commands import Command, DeadLetter, DeleteDead, Enqueue, Release, Requeue
from sepp.core.outcomes import (
    Accepted,
    AttemptMismatch,
    Enqueued,
    Moved,
    Nacked,
    Outcome,
    QueueClosing,
    QueueFull,
)
from sepp.wire import id_bytes, id_text

BATCH_MAX: Final = 1000  # jobs of one call by filter

DeadVerb = Literal["requeue", "delete"]

T = TypeVar("T")


@define
class Result:
    """How many jobs an action moved, how many had gone, and its audit entry.

    By filter also how many were looked at, and where to go on.
    """

    moved: int
    missing: int
    audit: int | None
    examined: int = 0
    next: int | None = None
    is_dead: bool = False


async def bury(
    site: Site, actor: Actor, queue: str, state: State, handles: Sequence[str], reason: str
) -> Result:
    """Send ready or scheduled jobs to the dead letters."""
    ids = [listing.parse_handle(handle)[0] for handle in handles]
    await site.backend.locate(ids)
    current = _current(site, ids, lambda head: head.queue == queue and head.state is state)
    command = DeadLetter(queue, current, reason.encode() if reason else None)
    return await _move(site, actor, "jobs.dead_letter", command, queue, ids, current, reason)


async def move_dead(
    site: Site, actor: Actor, verb: DeadVerb, queue: str, handles: Sequence[str], reason: str
) -> Result:
    """Requeue or delete the dead letters with these handles."""
    fences = dict(listing.parse_handle(handle) for handle in handles)
    return await _move_fenced(site, actor, verb, queue, fences, reason)


async def move_matching(
    site: Site,
    actor: Actor,
    verb: DeadVerb,
    queue: str,
    wanted: Filter,
    after: int | None,
    reason: str,
) -> Result:
    """Requeue or delete up to 1,000 dead letters that match, oldest first, behind `after`.

    One that dies again meanwhile died after `wanted.until_ms` and is not taken twice.
    """
    if wanted.until_ms is None:
        raise invalid("until_ms is missing: it keeps a job that dies again from being taken twice")
    found = await listing.page(
        site.backend, queue, State.DEAD_LETTER, after=after, limit=BATCH_MAX, wanted=wanted
    )
    fences: dict[bytes, int | None] = {row.head.job_id: row.head.at_ms for row in found.rows}
    result = await _move_fenced(site, actor, verb, queue, fences, reason, is_matching=True)
    result.examined = found.examined
    result.next = found.next
    return result


async def _move_fenced(
    site: Site,
    actor: Actor,
    verb: DeadVerb,
    queue: str,
    fences: dict[bytes, int | None],
    reason: str,
    *,
    is_matching: bool = False,
) -> Result:
    ids = list(fences)
    await site.backend.locate(ids)
    current = _current(
        site,
        ids,
        lambda head: (
            head.queue == queue
            and head.state is State.DEAD_LETTER
            and fences[head.job_id] in (None, head.at_ms)
        ),
    )
    kind = Requeue if verb == "requeue" else DeleteDead
    action = f"dead_letters.{verb}"
    command = kind(queue, current)
    return await _move(
        site, actor, action, command, queue, ids, current, reason, is_matching=is_matching
    )


async def _move(
    site: Site,
    actor: Actor,
    action: str,
    command: Command,
    queue: str,
    asked: list[bytes],
    current: list[bytes],
    reason: str,
    *,
    is_matching: bool = False,
) -> Result:
    """Run one command over jobs. Nothing awaits between `_current` and the command's turn."""

    def details(outcomes: list[Outcome]) -> dict[str, object] | None:
        moved = _only(outcomes, Moved)
        if not moved.job_ids and is_matching:
            return None  # a step of a long action that found nothing
        found: dict[str, object] = {
            "queue": queue,
            "count": len(moved.job_ids),
            "job_ids": [id_text(job_id) for job_id in moved.job_ids],
        }
        if reason:
            found["reason"] = reason
        return found

    if not current:
        return Result(0, len(asked), None)
    done = await site.act(actor, action, [command], details)
    moved = len(_only(done.outcomes, Moved).job_ids)
    return Result(moved, len(asked) - moved, done.sequence)


async def release(
    site: Site, actor: Actor, queue: str, job_id: str, attempt: int, reason: str
) -> Result:
    """End a lease at once: the job is ready again, or dead if that was its last attempt."""
    parsed = id_bytes(job_id)
    if parsed is None:
        raise invalid("the id must be a UUID of 36 characters")
    await site.backend.locate([parsed])
    head = site.backend.find(parsed)
    if head is None or head.queue != queue or head.state is not State.INFLIGHT:
        raise not_found("no job with this id is in flight in this queue")

    def details(outcomes: list[Outcome]) -> dict[str, object] | None:
        if not isinstance(outcomes[0], Nacked):
            return None
        found: dict[str, object] = {
            "queue": queue,
            "job_id": job_id.lower(),
            "attempt": attempt,
            "dead_lettered": outcomes[0].is_dead,
        }
        if reason:
            found["reason"] = reason
        return found

    command = Release(parsed, attempt, reason.encode() if reason else None)
    done = await site.act(actor, "jobs.release", [command], details)
    outcome = done.outcomes[0]
    if isinstance(outcome, AttemptMismatch):
        text = f"not released: it is leased under attempt {outcome.attempt}, not {attempt}"
        raise ApiError(409, "failed_precondition", text)
    if not isinstance(outcome, Nacked):
        raise not_found("no job with this id is in flight in this queue")
    return Result(1, 0, done.sequence, is_dead=outcome.is_dead)


async def enqueue(site: Site, actor: Actor, form: EnqueueForm) -> tuple[str, bool, int | None]:
    """Enqueue one job; return its id, whether it was there already, and the audit entry.

    Raises:
        ApiError: 422 with the reason of the rejection.
    """
    prepared = site.backend.prepare(form)
    if isinstance(prepared, Rejection):
        raise _rejected(prepared.reason, prepared.detail)

    def details(outcomes: list[Outcome]) -> dict[str, object] | None:
        result = _only(outcomes, Enqueued).results[0]
        if not isinstance(result, Accepted):
            return None
        found: dict[str, object] = {
            "queue": form.queue,
            "job_id": id_text(result.job_id),
            "job_type": form.job_type,
        }
        if result.is_duplicate:
            found["deduplicated"] = True
        return found

    done = await site.act(actor, "job.enqueue", [Enqueue([prepared])], details)
    result = _only(done.outcomes, Enqueued).results[0]
    if isinstance(result, QueueFull):
        text = f"the queue holds its limit of {result.limit} live jobs"
        raise _rejected("queue_full", text)
    if isinstance(result, QueueClosing):
        raise _rejected("queue_closing", "the queue is being deleted")
    return id_text(result.job_id), result.is_duplicate, done.sequence


def _rejected(reason: str, detail: str) -> ApiError:
    rejection = RejectionBody(reason=reason, detail=detail)
    return ApiError(422, "rejected", f"not enqueued: {detail}", rejection=rejection)


def _current(site: Site, ids: list[bytes], is_same: Callable[[JobHead], bool]) -> list[bytes]:
    """Return the ids whose job is still the one that was meant."""
    found = []
    for job_id in ids:
        head = site.backend.find(job_id)
        if head is not None and is_same(head):
            found.append(job_id)
    return found


def _only(outcomes: list[Outcome], kind: type[T]) -> T:
    outcome = outcomes[0]
    assert isinstance(outcome, kind)
    return outcome
