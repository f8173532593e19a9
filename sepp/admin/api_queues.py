"""Queues: figures, limits, overrides, emptying, deleting."""

from typing import Final

import msgspec
import trio

from sepp.admin import config_edit, queue_actions
from sepp.admin.backend import Backend
from sepp.admin.endpoint import Call, Endpoint, Param
from sepp.admin.messages import Applied, Depths, PurgedBody, QueueBody
from sepp.admin.requests import OverridesBody, PurgeBody, Setting
from sepp.admin.stats import SLICE, fill_moments
from sepp.config.limits import Queue
from sepp.config.model import OVERRIDES
from sepp.core.limits import QueueLimits


def queue_body(backend: Backend, name: str, declared: Queue | None) -> QueueBody:
    """Return a queue as the API shows it; one that nobody knows is empty and undeclared."""
    numbers = backend.queue(name)
    body = QueueBody(
        name=name,
        declared=declared is not None,
        depths=Depths(
            ready=numbers.ready,
            scheduled=numbers.scheduled,
            inflight=numbers.inflight,
            dead_lettered=numbers.dead_lettered,
        ),
        overrides=None if declared is None else overrides_of(declared),
        effective=effective_of(backend.limits(name)),
    )
    fill_moments(body, numbers)
    return body


def declaration(backend: Backend, name: str) -> Queue | None:
    """Return the entry of a queue in the running configuration."""
    return next((queue for queue in backend.config.running.queues if queue.name == name), None)


def overrides_of(queue: Queue) -> dict[str, Setting]:
    """Return what the entry of a queue sets."""
    found: dict[str, Setting] = msgspec.to_builtins(queue)
    return {name: value for name, value in found.items() if name != "name" and value is not None}


def effective_of(limits: QueueLimits) -> dict[str, Setting]:
    """Return the sixteen limits a queue has, by the names of their settings."""
    found: dict[str, Setting] = {}
    for name in OVERRIDES:
        if name == "retry_backoff":
            found[name] = "exponential" if limits.retry_is_exponential else "none"
        else:
            value = getattr(limits, name)
            found[name] = list(value) if isinstance(value, tuple) else value
    return found


async def _list(call: Call) -> list[QueueBody]:
    backend = call.site.backend
    declared = {queue.name: queue for queue in backend.config.running.queues}
    found = []
    for place, name in enumerate(call.site.stats.names()):
        if place % SLICE == SLICE - 1:
            await trio.lowlevel.checkpoint()
        found.append(queue_body(backend, name, declared.get(name)))
    return found


async def _get(call: Call) -> QueueBody:
    backend, name = call.site.backend, call.params["name"]
    return queue_body(backend, name, declaration(backend, name))


async def _put(call: Call) -> Applied:
    body: OverridesBody = call.body
    name = call.params["name"]
    return await config_edit.put_queue(call.site, call.actor, body.etag, name, body.overrides)


async def _delete(call: Call) -> PurgedBody:
    purged, etag = await queue_actions.delete(
        call.site,
        call.actor,
        call.params["name"],
        call.etag,
        is_purge=call.query.get("purge", False),
    )
    return PurgedBody(purged=purged, etag=etag)


async def _purge(call: Call) -> PurgedBody:
    reason = call.body.reason or ""
    purged, sequence = await queue_actions.purge(call.site, call.actor, call.params["name"], reason)
    body = PurgedBody(purged=purged)
    if sequence is not None:
        body.audit_seq = sequence
    return body


ENDPOINTS: Final = (
    Endpoint(
        "GET",
        "/queues",
        "viewer",
        _list,
        "All queues that are declared, hold something or were in use lately, by name.",
        answer=list[QueueBody],
    ),
    Endpoint(
        "GET",
        "/queues/{name}",
        "viewer",
        _get,
        "One queue; a name nobody knows is an empty one.",
        answer=QueueBody,
    ),
    Endpoint(
        "PUT",
        "/queues/{name}",
        "admin",
        _put,
        "Declare a queue and change its overrides; null removes one.",
        body=OverridesBody,
        answer=Applied,
        errors=(
            "etag_mismatch",
            "env_pinned",
            "invalid_change",
            "invalid",
            "failed_precondition",
            "resource_exhausted",
        ),
    ),
    Endpoint(
        "DELETE",
        "/queues/{name}",
        "admin",
        _delete,
        "Remove the entry of a queue without jobs, or purge it first; not with jobs in flight.",
        answer=PurgedBody,
        params=(Param("purge", "Delete its jobs too.", "flag"),),
        errors=(
            "if_match_required",
            "etag_mismatch",
            "inflight",
            "not_empty",
            "env_pinned",
            "invalid",
            "failed_precondition",
            "resource_exhausted",
        ),
        wants_etag=True,
    ),
    Endpoint(
        "POST",
        "/queues/{name}:purge",
        "admin",
        _purge,
        "Delete all ready, scheduled and dead jobs of a queue; those in flight stay.",
        body=PurgeBody,
        answer=PurgedBody,
        errors=("resource_exhausted",),
    ),
)
