"""What is sent to the JSON API: one class a body.

Unknown fields are refused and every number and text is bounded, so that a handler sees only values
it can work with.
"""

from typing import Annotated, Final, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from sepp.config.table import U32_MAX
from sepp.core.jobs import LAST_MS

StateName = Literal["ready", "scheduled", "inflight", "dead_letter", "aside"]
CauseName = Literal["attempts_exhausted", "rejected", "lease_expired", "admin"]

REASON_CHARS_MAX: Final = 1000
KEYS_MAX: Final = 100

U32 = Annotated[int, Meta(ge=0, le=U32_MAX)]
Millis = Annotated[int, Meta(ge=0, le=LAST_MS)]
Reason = Annotated[str, Meta(max_length=REASON_CHARS_MAX)]
Handle = Annotated[str, Meta(max_length=64)]
JobId = Annotated[str, Meta(min_length=36, max_length=36)]
Etag = Annotated[str, Meta(max_length=64)]
KeyName = Annotated[str, Meta(max_length=256)]
Scalar = str | int | float | bool
Setting = Scalar | list[Annotated[str, Meta(max_length=4096)]] | None


class Request(Struct, kw_only=True, forbid_unknown_fields=True):
    """A body sent to the server."""


class Login(Request):
    """Name and secret of an admin key."""

    name: Annotated[str, Meta(max_length=256)]
    key: Annotated[str, Meta(max_length=4096)]


class PayloadForm(Request):
    """A payload as base64 or as text."""

    encoding: Annotated[str, Meta(max_length=1024)]
    data_b64: str | UnsetType = UNSET
    data_text: str | UnsetType = UNSET


class BackupForm(Request):
    """Where a backup goes: a new or empty directory on the server's machine, from the root on."""

    directory: Annotated[str, Meta(max_length=4095, pattern=r"^/[^\x00]*$")]


class EnqueueBody(Request):
    """A job to enqueue."""

    job_type: Annotated[str, Meta(max_length=65536)]
    payload: PayloadForm | UnsetType = UNSET
    priority: U32 | UnsetType = UNSET
    max_attempts: U32 | UnsetType = UNSET
    scheduled_at_ms: Millis | UnsetType = UNSET
    idempotency_key: Annotated[str, Meta(max_length=65536)] | UnsetType = UNSET
    custom: dict[str, Scalar] | UnsetType = UNSET


class BuryBody(Request):
    """Jobs to send to the dead letters."""

    state: Literal["ready", "scheduled"]
    keys_b64: Annotated[list[Handle], Meta(min_length=1, max_length=KEYS_MAX)]
    reason: Reason | UnsetType = UNSET


class ReleaseBody(Request):
    """A lease to end at once, fenced by the attempt."""

    id: JobId
    attempt: Annotated[int, Meta(ge=1, le=U32_MAX)]
    reason: Reason | UnsetType = UNSET


class DeadFilter(Request):
    """Which dead letters; all of what is set must hold."""

    cause: CauseName | UnsetType = UNSET
    job_type: Annotated[str, Meta(max_length=1024)] | UnsetType = UNSET
    reason: Annotated[str, Meta(max_length=1024)] | UnsetType = UNSET
    failed_before_ms: Millis | UnsetType = UNSET


class SelectBody(Request):
    """Dead letters by key, or all that match a filter and died up to `until_ms`."""

    keys_b64: Annotated[list[Handle], Meta(min_length=1, max_length=KEYS_MAX)] | UnsetType = UNSET
    filter: DeadFilter | UnsetType = UNSET
    until_ms: Millis | UnsetType = UNSET
    cursor: Annotated[str, Meta(max_length=64)] | UnsetType = UNSET
    reason: Reason | UnsetType = UNSET


class PurgeBody(Request):
    """Why a queue is emptied; goes into the audit trail."""

    reason: Reason | UnsetType = UNSET


class OverridesBody(Request):
    """Overrides of one queue; null removes one."""

    etag: Etag
    overrides: dict[str, Setting]


class Change(Request):
    """One setting; null removes it from the file."""

    path: Annotated[str, Meta(max_length=2048)]
    value: Setting


class ChangesBody(Request):
    """Settings to change, all or none."""

    etag: Etag
    changes: Annotated[list[Change], Meta(min_length=1, max_length=200)]


class ApiKeyBody(Request):
    """A new API key."""

    etag: Etag
    name: KeyName
    key: Annotated[str, Meta(max_length=4096)]
