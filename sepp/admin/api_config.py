"""The configuration, the API keys, and the trail of changes."""

from typing import Any, Final

import msgspec

from sepp.admin import config_edit, trail
from sepp.admin.endpoint import Call, Endpoint, Param, page_limit
from sepp.admin.errors import invalid
from sepp.admin.messages import Applied, AuditPage, ConfigBody
from sepp.admin.requests import ApiKeyBody, ChangesBody
from sepp.config.model import Config
from sepp.config.reload import RESTART_ONLY, restart_changes

_CHANGE_ERRORS: Final = (
    "etag_mismatch",
    "env_pinned",
    "invalid",
    "failed_precondition",
    "resource_exhausted",
)


def redacted(config: Config) -> dict[str, Any]:
    """Return the configuration without a secret in it."""
    found: dict[str, Any] = msgspec.to_builtins(config)
    api_keys, admin_keys = config.auth.api_keys, config.admin.keys
    if api_keys is not None:
        found["auth"]["api_keys"] = [{"name": key.name} for key in api_keys]
    if admin_keys is not None:
        found["admin"]["keys"] = [{"name": key.name, "role": key.role} for key in admin_keys]
    return found


async def _get(call: Call) -> ConfigBody:
    config = call.site.backend.config
    return ConfigBody(
        effective=redacted(config.running),
        etag=config_edit.read_file(config.path).etag,
        env_pinned=list(config.pinned()),
        restart_only=list(RESTART_ONLY),
        pending_restart=list(restart_changes(config.boot, config.running)),
    )


async def _put(call: Call) -> Applied:
    body: ChangesBody = call.body
    return await config_edit.change_settings(call.site, call.actor, body.etag, body.changes)


async def _add_key(call: Call) -> Applied:
    body: ApiKeyBody = call.body
    return await config_edit.add_api_key(call.site, call.actor, body.etag, body.name, body.key)


async def _revoke_key(call: Call) -> Applied:
    return await config_edit.revoke_api_key(call.site, call.actor, call.etag, call.params["name"])


async def _disable_auth(call: Call) -> Applied:
    return await config_edit.disable_auth(call.site, call.actor, call.etag)


async def _audit(call: Call) -> AuditPage:
    before = call.query.get("before")
    if before == 0:
        raise invalid("before starts at 1")
    return await trail.page(
        call.site.backend,
        before=before,
        limit=page_limit(call.query),
        actor=call.query.get("actor"),
        action_prefix=call.query.get("action_prefix"),
    )


ENDPOINTS: Final = (
    Endpoint(
        "GET",
        "/config",
        "viewer",
        _get,
        "The running configuration without secrets, and the etag of its file.",
        answer=ConfigBody,
        errors=("failed_precondition",),
    ),
    Endpoint(
        "PUT",
        "/config",
        "admin",
        _put,
        "Change settings in the file, all or none; comments and order stay.",
        body=ChangesBody,
        answer=Applied,
        errors=("admin_keys_immutable", "api_keys_immutable", "invalid_change", *_CHANGE_ERRORS),
    ),
    Endpoint(
        "POST",
        "/auth/keys",
        "admin",
        _add_key,
        "Add an API key; the first one turns authentication on.",
        body=ApiKeyBody,
        answer=Applied,
        errors=("invalid_change", *_CHANGE_ERRORS),
    ),
    Endpoint(
        "DELETE",
        "/auth/keys/{name}",
        "admin",
        _revoke_key,
        "Revoke an API key; revoking the last one locks everybody out.",
        answer=Applied,
        errors=("if_match_required", "not_found", *_CHANGE_ERRORS),
        wants_etag=True,
    ),
    Endpoint(
        "DELETE",
        "/auth/keys",
        "admin",
        _disable_auth,
        "Turn authentication of producers and workers off.",
        answer=Applied,
        errors=("if_match_required", "not_found", *_CHANGE_ERRORS),
        wants_etag=True,
    ),
    Endpoint(
        "GET",
        "/audit",
        "admin",
        _audit,
        "The trail, newest first. A short page with next_before set: keep paging.",
        answer=AuditPage,
        params=(
            Param("before", "Only entries below this number.", "count"),
            Param("limit", "Entries a page, 1 to 100; default 50.", "count"),
            Param("actor", "Only this actor, exactly."),
            Param("action_prefix", "Only actions that begin with this."),
        ),
    ),
)
