"""The reason of a rejected job in a sentence, and the field of the enqueue form it is about."""

from collections.abc import Callable
from typing import Any, Final

from sepp import wire
from sepp._generated import queue_pb2 as pb
from sepp.admin import wording
from sepp.admin.backend import Rejection

_ALLOWED_SHOWN: Final = 20


def _names(names: Any) -> str:
    shown = ", ".join(list(names)[:_ALLOWED_SHOWN])
    return shown or "none"


def _limit(what: str) -> Callable[[Any], str]:
    return lambda fact: f"{what} has {fact.actual:,} bytes, the limit is {fact.limit:,}"


_SENTENCES: Final[dict[str, Callable[[Any], str]]] = {
    "unknown_queue": lambda fact: f"strict mode is on and {fact.queue!r} is not declared",
    "payload_too_large": _limit("the payload"),
    "encoding_not_allowed": lambda fact: (
        f"the encoding {fact.encoding!r} is not allowed; allowed: {_names(fact.allowed)}"
    ),
    "job_type_not_allowed": lambda fact: (
        f"the job type {fact.job_type!r} is not allowed; allowed: {_names(fact.allowed)}"
    ),
    "custom_entries_too_many": lambda fact: (
        f"{fact.actual:,} custom entries, the limit is {fact.limit:,}"
    ),
    "custom_map_too_large": lambda fact: (
        f"the custom entries have {fact.actual:,} bytes, the limit is {fact.limit:,}"
    ),
    "custom_key_too_long": lambda fact: (
        f"a custom key has {fact.actual:,} bytes, the limit is {fact.limit:,}"
    ),
    "queue_name_too_long": _limit("the queue name"),
    "job_type_name_too_long": _limit("the job type"),
    "idempotency_key_too_long": _limit("the idempotency key"),
    "scheduled_too_far": lambda fact: (
        "the time is further away than the limit of "
        + wording.exact_span(wire.span_ms(fact.horizon.seconds, fact.horizon.nanos))
    ),
    "invalid_request": lambda fact: str(fact.message),
}

FIELDS: Final[dict[str, str]] = {
    "payload_too_large": "data",
    "encoding_not_allowed": "encoding",
    "job_type_not_allowed": "job_type",
    "job_type_name_too_long": "job_type",
    "custom_entries_too_many": "custom",
    "custom_map_too_large": "custom",
    "custom_key_too_long": "custom",
    "idempotency_key_too_long": "idempotency_key",
    "scheduled_too_far": "scheduled_at",
}
"""Which field of the form a reason is about; the others are about the job as a whole."""


def describe(rejection: pb.JobRejection) -> Rejection:
    """Return label and sentence of a rejection."""
    reason = rejection.WhichOneof("reason")
    assert reason is not None
    return Rejection(reason, _SENTENCES[reason](getattr(rejection, reason)))
