"""Emptying and deleting queues, in chunks of 1,000 jobs so that nobody else waits long.

A purge that needs one chunk is on record in that chunk's commit. A longer one is on record twice:
that it began, with its first chunk, and how it ended, with its last.
"""

from typing import Final

import trio
from attrs import define

from sepp.admin import config_edit
from sepp.admin.backend import CommandRefusedError, QueueNumbers
from sepp.admin.errors import ApiError
from sepp.admin.sessions import Actor
from sepp.admin.site import Site
from sepp.core.commands import Close, Open, Purge
from sepp.core.outcomes import Outcome, Purged

CLOSED_MS: Final = 30_000  # if the server dies half-way the queue takes jobs again after this
CHUNK: Final = 1000
ROUNDS_SPARE: Final = 1000  # chunks of a purge beyond what its jobs need, for dedup records
REOPEN_S: Final = 5.0


@define
class _Chunk:
    jobs: int
    outcome: Purged
    sequence: int | None


async def purge(site: Site, actor: Actor, queue: str, reason: str) -> tuple[int, int | None]:
    """Delete all ready, scheduled and dead jobs, and what is remembered of idempotency keys.

    Jobs in flight stay, and so may jobs that arrive meanwhile: the queue goes on taking them.
    Returns how many jobs went, and the audit entry.
    """
    extra: dict[str, object] = {"reason": reason} if reason else {}
    total = _held(site.backend.queue(queue))
    purged = 0
    for _round in range(total // CHUNK + ROUNDS_SPARE):
        chunk = await _purge_chunk(site, actor, queue, purged, total, extra, is_sparing=True)
        purged += chunk.jobs
        if not chunk.outcome.has_more:
            return purged, chunk.sequence
    details = {"queue": queue, "purged": purged, "stopped_by": "new jobs", **extra}
    return purged, await site.record(actor, "queue.purge", details)


async def delete(
    site: Site, actor: Actor, queue: str, etag: str, *, is_purge: bool
) -> tuple[int, str]:
    """Purge a queue if asked to, then remove its entry from the configuration.

    Enqueues are refused while it runs. Returns how many jobs went and the etag of the new file.

    Raises:
        ApiError: 409 `inflight` or `not_empty`; 412 when the file changed. A purge that met a
            lease half-way stays half done, and on record.
    """
    config_edit.check_etag(site, etag)
    config_edit.check_may_undeclare(site, queue)
    try:
        await _close(site, queue)
        numbers = site.backend.queue(queue)
        if numbers.inflight:
            raise _inflight(numbers.inflight)
        if _held(numbers) and not is_purge:
            text = f"not deleted: the queue holds {_held(numbers):,} jobs; purge it too"
            raise ApiError(409, "not_empty", text)
        purged = await _purge_closed(site, actor, queue, _held(numbers))
    finally:
        # Also when the caller is gone: else enqueues would be refused until the deadline.
        with trio.move_on_after(REOPEN_S, shield=True):
            await _run(site, Open(queue))
    details = {"queue": queue, "purged": purged}
    applied = await config_edit.undeclare_queue(site, actor, etag, queue, details)
    return purged, applied.etag


async def _purge_closed(site: Site, actor: Actor, queue: str, total: int) -> int:
    purged = 0
    while True:
        await _close(site, queue)
        chunk = await _purge_chunk(site, actor, queue, purged, total, {}, is_sparing=False)
        purged += chunk.jobs
        if chunk.outcome.in_flight:
            if purged:
                details = {"queue": queue, "purged": purged, "stopped_by": "inflight"}
                await site.record(actor, "queue.purge", details)
            raise _inflight(chunk.outcome.in_flight)
        if not chunk.outcome.has_more:
            return purged


async def _purge_chunk(
    site: Site,
    actor: Actor,
    queue: str,
    purged: int,
    total: int,
    extra: dict[str, object],
    *,
    is_sparing: bool,
) -> _Chunk:
    """Purge one chunk. Not sparing is part of a delete, whose own entry says how it ended."""
    is_first_of_many = purged == 0 and total > CHUNK
    held = _held(site.backend.queue(queue))  # the command counts dedup records too

    def details(outcomes: list[Outcome]) -> dict[str, object] | None:
        outcome = outcomes[0]
        assert isinstance(outcome, Purged)
        if is_first_of_many and outcome.count:
            return {"queue": queue, "jobs": total, **extra}
        if not is_sparing or outcome.has_more:
            return None
        return {"queue": queue, "purged": purged + min(outcome.count, held), **extra}

    action = "queue.purge_begun" if is_first_of_many else "queue.purge"
    command = Purge(queue, CHUNK, spares_leased=is_sparing)
    done = await site.act(actor, action, [command], details)
    outcome = done.outcomes[0]
    assert isinstance(outcome, Purged)
    return _Chunk(min(outcome.count, held), outcome, done.sequence)


async def _close(site: Site, queue: str) -> None:
    await _run(site, Close(queue, site.backend.now_ms() + CLOSED_MS))


async def _run(site: Site, command: Close | Open) -> None:
    try:
        await site.backend.run([command])
    except CommandRefusedError as error:
        raise ApiError(409, "resource_exhausted", str(error)) from error


def _held(numbers: QueueNumbers) -> int:
    return numbers.ready + numbers.scheduled + numbers.dead_lettered


def _inflight(count: int) -> ApiError:
    jobs = "1 job is" if count == 1 else f"{count:,} jobs are"
    return ApiError(
        409, "inflight", f"not deleted: {jobs} in flight; wait for them or release them"
    )
