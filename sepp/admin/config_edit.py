"""Changing the configuration file: checked as a whole before, replaced in one step, on record.

The order of checks is part of the API: the etag, then what may not be changed this way, then what
the environment holds, then whether the change makes sense, then the candidate as a whole. The new
text is written and synced beside the file before the entry of the trail is committed; only then
does a rename put it in place. So there is never a moment without a file, and never a change that
is not on record.
"""

import hashlib
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import trio
from attrs import define

from sepp.admin.config_text import Draft, Unreadable, Value
from sepp.admin.errors import ApiError, invalid
from sepp.admin.messages import Applied
from sepp.admin.requests import Change
from sepp.admin.sessions import Actor
from sepp.admin.site import Site
from sepp.config.errors import ConfigError
from sepp.config.load import DEFAULT_PATH
from sepp.config.model import KEYS_BY_PATH, OVERRIDES, Config
from sepp.config.names import queue_name_fault
from sepp.config.reload import restart_changes
from sepp.config.sections import ApiKey

APPLY_S: Final = 3.0  # how long a caller waits for the watcher
NEW_FILE_MODE: Final = 0o600  # it may come to hold keys
_LIST_KINDS: Final = ("texts",)

Check = Callable[[], None]
Edit = Callable[[Draft], None]


@define
class File:
    """The file as it is: its text, and the hash of its bytes. A missing file is an empty one."""

    text: str
    etag: str


def read_file(path: Path) -> File:
    """Return the file.

    Raises:
        ApiError: It cannot be read, or is no text.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        data = b""
    except OSError as error:
        raise _failed(f"the configuration cannot be read: {error.strerror}") from error
    try:
        return File(data.decode("utf-8-sig"), hashlib.sha256(data).hexdigest())
    except UnicodeDecodeError as error:
        raise _failed("the configuration on disk is not UTF-8") from error


async def change_settings(
    site: Site, actor: Actor, etag: str, changes: Sequence[Change]
) -> Applied:
    """Set, or with None remove, single settings: all or none."""
    check, edit = _settings(site, changes)
    details = {"paths": [change.path for change in changes]}
    return await _save(site, actor, etag, check, edit, "config.put", details)


def try_settings(site: Site, etag: str, changes: Sequence[Change]) -> None:
    """Raise what `change_settings` would, as far as that can be known, and change nothing."""
    _prepare(site, etag, *_settings(site, changes))


def _settings(site: Site, changes: Sequence[Change]) -> tuple[Check, Edit]:
    targets = [(change.path, *_split(change.path)) for change in changes]

    def check() -> None:
        for path, section, _ in targets:
            _refuse_keys(path, section)
        for path, _, _ in targets:
            _refuse_pinned(site, path)
        for change, (path, section, field) in zip(changes, targets, strict=True):
            _refuse_nonsense(path, section, field, change.value)

    def edit(draft: Draft) -> None:
        for change, (_, section, field) in zip(changes, targets, strict=True):
            if section.startswith("queues."):
                name = section.removeprefix("queues.")
                if change.value is not None:
                    draft.declare(name)
                draft.set_override(name, field, change.value)
            else:
                draft.set(section, field, change.value)

    return check, edit


async def put_queue(
    site: Site, actor: Actor, etag: str, name: str, overrides: Mapping[str, Value]
) -> Applied:
    """Declare a queue and set, or with None remove, its overrides."""

    def check() -> None:
        _refuse_pinned(site, "queues")
        for field, value in overrides.items():
            _refuse_nonsense(f"queues.{name}.{field}", f"queues.{name}", field, value)

    def edit(draft: Draft) -> None:
        draft.declare(name)
        for field, value in overrides.items():
            draft.set_override(name, field, value)

    details = {"queue": name, "overrides": list(overrides)}
    return await _save(site, actor, etag, check, edit, "queue.put", details)


async def undeclare_queue(
    site: Site, actor: Actor, etag: str, name: str, details: Mapping[str, object]
) -> Applied:
    """Remove a queue's entry; records `queue.delete` also when there was none."""
    return await _save(
        site,
        actor,
        etag,
        lambda: None,
        lambda draft: draft.undeclare(name),
        "queue.delete",
        details,
    )


def check_may_undeclare(site: Site, name: str) -> None:
    """Refuse to delete a queue whose entry the environment holds."""
    if any(queue.name == name for queue in site.backend.config.running.queues):
        _refuse_pinned(site, "queues")


async def add_api_key(site: Site, actor: Actor, etag: str, name: str, key: str) -> Applied:
    """Add a key for producers and workers. The first one turns authentication on."""

    def check() -> None:
        if not name or not key:
            raise invalid("name and key must not be empty")
        if queue_name_fault(name) is not None:
            raise invalid("the name must not be . or .. or hold a slash or control characters")
        if not all("!" <= char <= "~" for char in key):
            raise invalid("the key must be visible ASCII without spaces")
        _refuse_pinned(site, "auth.api_keys")
        for entry in _api_keys(site):
            if entry.name == name:
                raise _nonsense(f"a key named {name} is there already")
            if entry.key == key:
                raise _nonsense("this key is in use already")

    return await _save(
        site,
        actor,
        etag,
        check,
        lambda draft: draft.add_api_key(name, key),
        "auth_key.add",
        {"name": name},
    )


async def revoke_api_key(site: Site, actor: Actor, etag: str, name: str) -> Applied:
    """Remove a key. Revoking the last one leaves an empty list: nobody gets in."""

    def check() -> None:
        _refuse_pinned(site, "auth.api_keys")
        if all(entry.name != name for entry in _api_keys(site)):
            raise ApiError(404, "not_found", f"no API key is named {name}")

    return await _save(
        site,
        actor,
        etag,
        check,
        lambda draft: draft.remove_api_key(name),
        "auth_key.revoke",
        {"name": name},
    )


async def disable_auth(site: Site, actor: Actor, etag: str) -> Applied:
    """Remove the list of API keys: producers and workers need none any more."""

    def check() -> None:
        _refuse_pinned(site, "auth.api_keys")
        if site.backend.config.running.auth.api_keys is None:
            raise ApiError(404, "not_found", "API keys are off already")

    return await _save(
        site, actor, etag, check, lambda draft: draft.remove_api_keys(), "auth.disable", {}
    )


def _api_keys(site: Site) -> tuple[ApiKey, ...]:
    return site.backend.config.running.auth.api_keys or ()


# Refusals


def check_etag(site: Site, etag: str) -> File:
    """Return the file if it is still the one the caller has seen.

    Raises:
        ApiError: 412, it is not.
    """
    file = read_file(site.backend.config.path)
    if file.etag != etag:
        text = "not saved: the file changed since you read it; read it again"
        raise ApiError(412, "etag_mismatch", text)
    return file


def _split(path: str) -> tuple[str, str]:
    section, _, field = path.rpartition(".")
    return section, field


def _refuse_keys(path: str, section: str) -> None:
    if path == "admin.keys" or section.startswith("admin.keys"):
        text = "admin keys are changed in the file only"
        raise ApiError(400, "admin_keys_immutable", text)
    if path == "auth.api_keys" or section.startswith("auth.api_keys"):
        text = "API keys are changed by their own routes only"
        raise ApiError(400, "api_keys_immutable", text)


def _refuse_pinned(site: Site, path: str) -> None:
    for pinned in site.backend.config.pinned():
        if path == pinned or path.startswith(f"{pinned}."):
            text = f"not saved: {path} is set by the environment"
            raise ApiError(400, "env_pinned", text)


def _refuse_nonsense(path: str, section: str, field: str, value: Value) -> None:
    """Refuse paths that name nothing, and lists where one value belongs or the other way round."""
    if section.startswith("queues."):
        name = section.removeprefix("queues.")
        if field not in OVERRIDES:
            raise _nonsense(f"a queue has no setting {field}")
        is_list = field in ("allowed_encodings", "allowed_job_types")
        if not name:
            raise _nonsense(f"{path} names no queue")
    else:
        key = KEYS_BY_PATH.get(path)
        if key is None or key.kind == "tables":
            raise _nonsense(f"there is no setting {path}")
        is_list = key.kind in _LIST_KINDS
    if value is not None and isinstance(value, list) is not is_list:
        raise _nonsense(f"{path} takes {'a list' if is_list else 'one value'}")


def _nonsense(text: str) -> ApiError:
    return ApiError(400, "invalid_change", f"not saved: {text}")


def _failed(text: str) -> ApiError:
    return ApiError(409, "failed_precondition", text)


# Saving


def _prepare(site: Site, etag: str, check: Check, edit: Edit) -> tuple[File, str, Config]:
    """Return the file, the text it would have, and what would hold then."""
    file = check_etag(site, etag)
    check()
    try:
        draft = Draft(file.text)
        edit(draft)
        text = draft.text
    except Unreadable as error:
        raise _failed(f"the file on disk is not valid TOML: {error}") from error
    try:
        return file, text, site.backend.config.candidate(text)
    except ConfigError as error:
        raise ApiError(422, "invalid", f"not saved: {error}") from error


async def _save(
    site: Site,
    actor: Actor,
    etag: str,
    check: Check,
    edit: Edit,
    action: str,
    details: Mapping[str, object],
) -> Applied:
    config = site.backend.config
    async with site.config_lock:
        file, text, candidate = _prepare(site, etag, check, edit)
        waits = restart_changes(config.running, candidate)
        seen = config.reload_count
        if text == file.text:
            await site.record(actor, action, details)
        else:
            await _replace(site, actor, text, action, details)
        is_applied = await _wait_applied(site, candidate, seen)
        fresh = hashlib.sha256(text.encode()).hexdigest() if text != file.text else file.etag
        return Applied(applied=is_applied, requires_restart=list(waits), etag=fresh)


async def _replace(
    site: Site, actor: Actor, text: str, action: str, details: Mapping[str, object]
) -> None:
    """Write the text beside the file, put the change on record, then rename it over the file."""
    path = _target(site.backend.config.path)
    beside = path.with_name(f".{path.name}.tmp")
    try:
        _write(path, beside, text.encode())
    except OSError as error:
        raise _failed(f"not saved: {beside.name} cannot be written: {error.strerror}") from error
    try:
        await site.record(actor, action, details)
        try:
            os.replace(beside, path)
            _sync_directory(path.parent)
        except OSError as error:
            text = f"not saved: {path.name} cannot be replaced: {error.strerror}"
            await site.record(actor, f"{action}_failed", {**details, "error": text})
            raise _failed(text) from error
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)


def _target(path: Path) -> Path:
    """Through a link the file it leads to is replaced, not the link."""
    return Path(os.path.realpath(path))


def _write(path: Path, beside: Path, data: bytes) -> None:
    """Write and sync `beside` with the owner and mode of `path`."""
    with suppress(FileNotFoundError):
        beside.unlink()
    known = os.stat(path) if path.exists() else None
    mode = NEW_FILE_MODE if known is None else stat.S_IMODE(known.st_mode)
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    with open(descriptor, "wb") as file:
        os.fchmod(descriptor, mode)
        if known is not None:
            with suppress(PermissionError):  # only root may give files away
                os.fchown(descriptor, known.st_uid, known.st_gid)
        file.write(data)
        file.flush()
        os.fsync(descriptor)


def _sync_directory(path: Path) -> None:
    """Sync the directory too: without it the rename can vanish on power loss."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


async def _wait_applied(site: Site, candidate: Config, seen: int) -> bool:
    config = site.backend.config
    with trio.move_on_after(APPLY_S):
        while config.running != candidate:
            await config.wait_reload(seen)
            seen = config.reload_count
    return config.running == candidate


def file_name(site: Site) -> str:
    """Return the file's name for people."""
    return site.backend.config.path.name or DEFAULT_PATH
