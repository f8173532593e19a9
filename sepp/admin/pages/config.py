"""The configuration: settings by section, API keys, admin keys, and the file itself."""

import secrets
import tomllib
from typing import Any, Final

from starlette.responses import Response

from sepp.admin import config_edit, wording
from sepp.admin.config_text import Draft, Unreadable
from sepp.admin.errors import ApiError
from sepp.admin.guard import DOWNLOAD_CSP
from sepp.admin.notes import Note
from sepp.admin.pages import fields
from sepp.admin.pages.fields import SECTION_NOTES, Field
from sepp.admin.pages.view import PageRoute, View
from sepp.admin.requests import Change
from sepp.config.model import KEYS_BY_PATH

KEY_BYTES: Final = 32  # of a key made here

_TITLES: Final = {"auth": "Authentication"}


def _sections(view: View) -> dict[str, list[Field]]:
    config = view.site.backend.config
    set_paths = _set_in_file(view)
    return fields.of_config(
        config.running, config.boot, config.pinned(), lambda path: path in set_paths
    )


def _set_in_file(view: View) -> set[str]:
    """Return the paths the file sets; nothing if it cannot be read now."""
    try:
        tree = tomllib.loads(config_edit.read_file(view.site.backend.config.path).text)
    except (tomllib.TOMLDecodeError, ApiError):
        return set()
    return {
        f"{section}.{key}"
        for section, table in tree.items()
        if isinstance(table, dict)
        for key in table
    }


# Settings


async def settings(view: View) -> Response:
    """All sections."""
    return await _settings_page(view, 200, {}, "")


async def _settings_page(
    view: View, status: int, posted: dict[str, str], error: str, **more: Any
) -> Response:
    config = view.site.backend.config
    sections = _sections(view)
    placed = False
    for field in (field for group in sections.values() for field in group):
        field.text = posted.get(field.path, field.text)
        if error and field.path in error and not placed:
            field.error, placed = error, True
    return view.render(
        "config.html",
        status=status,
        nav="config",
        tab="settings",
        sections=sections,
        section_titles={name: _TITLES.get(name, name.capitalize()) for name in sections},
        section_notes=SECTION_NOTES,
        etag=config_edit.read_file(config.path).etag,
        file_name=config_edit.file_name(view.site),
        may_save=view.actor.may("admin"),
        error="" if placed else error,
        waiting=[f for group in sections.values() for f in group if f.waits],
        last_error=config.last_error,
        queues=config.running.queues,
        **{"conflict": None, **more},
    )


def _posted(view: View) -> dict[str, str]:
    """Return the posted fields; a switch sends `false` and, when it is on, `true` behind it."""
    found = {}
    for path in KEYS_BY_PATH:
        values = view.texts(path)
        if values:
            found[path] = values[-1]
    return found


async def save(view: View) -> Response:
    """Show what would change; once confirmed, save it."""
    posted = _posted(view)
    shown = {f.path: f.text for group in _sections(view).values() for f in group if not f.variable}
    changes = fields.changed(shown, posted, KEYS_BY_PATH)
    if not changes:
        return view.done("/admin/config", "Nothing was changed.", "part")
    etag = view.text("etag")
    try:
        if not view.is_confirmed:
            config_edit.try_settings(view.site, etag, changes)
            return _review(view, posted, shown, changes)
        applied = await config_edit.change_settings(view.site, view.actor, etag, changes)
    except ApiError as error:
        if error.status == 412:
            return _conflict(view, posted, shown, changes)
        if error.status not in (400, 422):
            raise
        return await _settings_page(view, error.status, posted, error.text)
    text = f"Saved {wording.plural(len(changes), 'setting')}."
    if applied.requires_restart:
        text += f" Waiting for a restart: {', '.join(applied.requires_restart)}."
    elif not applied.applied:
        text += " The server has not taken them up yet."
    return view.done("/admin/config", text, "good" if applied.applied else "part")


def _review(
    view: View, posted: dict[str, str], shown: dict[str, str], changes: list[Change]
) -> Response:
    rows = []
    for change in changes:
        key = KEYS_BY_PATH[change.path]
        is_restart = any(
            f.path == change.path and f.is_restart for g in _sections(view).values() for f in g
        )
        old, new = shown[change.path], posted[change.path].strip()
        default = fields.to_text(key.default) or "not set"
        rows.append((change.path, old or "not set", new or f"{default} (default)", is_restart))
    return view.render(
        "ask_config.html",
        nav="config",
        rows=rows,
        fields=[(change.path, posted[change.path]) for change in changes],
        etag=view.text("etag"),
    )


def _conflict(
    view: View, posted: dict[str, str], shown: dict[str, str], changes: list[Change]
) -> Response:
    """Somebody else saved the file: keep the reader's edits and let them decide."""
    config = view.site.backend.config
    return view.render(
        "ask_conflict.html",
        status=412,
        nav="config",
        file_name=config_edit.file_name(view.site),
        rows=[(change.path, posted[change.path], shown[change.path]) for change in changes],
        fields=[(change.path, posted[change.path]) for change in changes],
        etag=config_edit.read_file(config.path).etag,
    )


async def download(view: View) -> Response:
    """The file as it is on disk, with every secret blanked."""
    file = config_edit.read_file(view.site.backend.config.path)
    try:
        draft = Draft(file.text)
    except Unreadable as error:
        raise ApiError(409, "failed_precondition", f"the file is no valid TOML: {error}") from error
    draft.blank_secrets()
    headers = {
        "content-disposition": 'attachment; filename="sepp.toml"',
        "content-security-policy": DOWNLOAD_CSP,
    }
    return Response(draft.text, media_type="application/toml", headers=headers)


# Keys


async def keys(view: View) -> Response:
    """The API keys by name."""
    return _keys_page(view, 200, "", "")


def _keys_page(view: View, status: int, error: str, name: str) -> Response:
    config = view.site.backend.config
    return view.render(
        "config_keys.html",
        status=status,
        nav="config",
        tab="keys",
        keys=config.running.auth.api_keys,
        etag=config_edit.read_file(config.path).etag,
        file_name=config_edit.file_name(view.site),
        is_pinned="auth.api_keys" in config.pinned(),
        is_tls=view.site.backend.facts.is_tls,
        error=error,
        typed_name=name,
    )


async def add_key(view: View) -> Response:
    """Add a key; one made here is shown once, on the next page and never again."""
    name, key = view.text("name").strip(), view.text("key", 5000).strip()
    made = "" if key else secrets.token_urlsafe(KEY_BYTES)
    try:
        await config_edit.add_api_key(view.site, view.actor, view.text("etag"), name, key or made)
    except ApiError as error:
        return _keys_page(view, error.status, error.text, name)
    note = Note(f"Added the key {name}.", secret=made or None)
    return view.redirect("/admin/config/keys", note)


async def revoke_key(view: View) -> Response:
    """Revoke a key after asking; or turn authentication off."""
    name, is_off = view.text("name"), view.text("off") == "1"
    known = view.site.backend.config.running.auth.api_keys or ()
    if not view.is_confirmed:
        return view.render(
            "ask_key.html",
            nav="config",
            name=name,
            is_off=is_off,
            is_last=len(known) == 1,
            etag=view.text("etag"),
        )
    if is_off:
        await config_edit.disable_auth(view.site, view.actor, view.text("etag"))
        text = "API keys are off: producers and workers need none."
    else:
        await config_edit.revoke_api_key(view.site, view.actor, view.text("etag"), name)
        text = f"Revoked the key {name}."
    return view.done("/admin/config/keys", text)


async def admins(view: View) -> Response:
    """The admin keys, which only the file can change."""
    return view.render(
        "config_admins.html",
        nav="config",
        tab="admins",
        keys=view.site.backend.config.running.admin.keys,
        file_name=config_edit.file_name(view.site),
        open_sessions=len(view.site.sessions),
    )


ROUTES: Final = (
    PageRoute("/admin/config", settings),
    PageRoute("/admin/config", save, "admin", ("POST",)),
    PageRoute("/admin/config/file", download, "admin"),
    PageRoute("/admin/config/keys", keys),
    PageRoute("/admin/config/keys", add_key, "admin", ("POST",)),
    PageRoute("/admin/config/keys/revoke", revoke_key, "admin", ("POST",)),
    PageRoute("/admin/config/admins", admins),
)
