"""Edits of the configuration's text that keep comments, order and layout; no file is touched."""

from collections.abc import MutableMapping
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import AoT, Array, InlineTable, Table

Value = str | int | float | bool | list[str] | None

AUTH = "auth"
API_KEYS = "api_keys"
BLANKED = "•••"


class Unreadable(Exception):
    """The text on disk is no TOML; somebody has to mend it by hand."""


class Draft:
    """The text of a configuration being edited.

    Raises:
        Unreadable: `text` is no TOML.
    """

    def __init__(self, text: str) -> None:
        try:
            self._doc: Any = tomlkit.parse(text)
        except (TOMLKitError, RecursionError, ValueError) as error:
            raise Unreadable(str(error)) from error
        self._nothing = "\n" if text else ""

    @property
    def text(self) -> str:
        """The text as edited so far; never empty if it was not: a reload refuses such a file."""
        return str(tomlkit.dumps(self._doc)) or self._nothing

    def set(self, section: str, key: str, value: Value) -> None:
        """Set or, with None, remove one key of a section; the section is made if need be."""
        table = self._doc.get(section)
        if value is None:
            if isinstance(table, MutableMapping):
                table.pop(key, None)
            return
        self._section(section)[key] = value

    # Queues

    def declare(self, name: str) -> None:
        """Make sure that the queue has an entry."""
        if self._queue(name) is not None:
            return
        entry: Any
        queues = self._doc.get("queues")
        if isinstance(queues, Array):
            entry = tomlkit.inline_table()
            entry["name"] = name
            queues.append(entry)
            return
        entry = _table({"name": name}, is_spaced=bool(self._doc))
        if queues is None:
            queues = tomlkit.aot()
            queues.append(entry)
            self._doc.add("queues", queues)
        else:
            queues.append(entry)

    def set_override(self, name: str, field: str, value: Value) -> None:
        """Set or, with None, remove one field of a declared queue."""
        entry = self._queue(name)
        if value is None:
            if entry is not None:
                entry.pop(field, None)
            return
        assert entry is not None
        entry[field] = value

    def undeclare(self, name: str) -> None:
        """Remove the queue's entry if it has one."""
        queues = self._doc.get("queues")
        if queues is None:
            return
        for place in reversed(range(len(queues))):
            if queues[place].get("name") == name:
                del queues[place]
        if not queues and isinstance(queues, AoT):
            del self._doc["queues"]

    def is_declared(self, name: str) -> bool:
        """Whether the queue has an entry."""
        return self._queue(name) is not None

    def _queue(self, name: str) -> Any:
        for entry in self._doc.get("queues") or ():
            if isinstance(entry, MutableMapping) and entry.get("name") == name:
                return entry
        return None

    # API keys

    def add_api_key(self, name: str, key: str) -> None:
        """Add a key; keys of the older form, plain strings, become tables."""
        self._name_plain_keys()
        auth = self._section(AUTH)
        keys = auth.get(API_KEYS)
        if isinstance(keys, Array) and len(keys):
            entry: Any = tomlkit.inline_table()
            entry.update({"name": name, "key": key})
            keys.append(entry)
            keys.multiline(True)
            return
        if isinstance(keys, AoT):
            keys.append(_table({"name": name, "key": key}, is_spaced=True))
            return
        auth.pop(API_KEYS, None)
        fresh = tomlkit.aot()
        fresh.append(_table({"name": name, "key": key}, is_spaced=True))
        auth.add(API_KEYS, fresh)

    def remove_api_key(self, name: str) -> None:
        """Remove a key. Removing the last one leaves an empty list: nobody gets in."""
        self._name_plain_keys()
        auth = self._section(AUTH)
        keys = auth.get(API_KEYS)
        for place in reversed(range(len(keys or ()))):
            if keys[place].get("name") == name:
                del keys[place]
        if not keys:
            auth.pop(API_KEYS, None)
            auth.add(API_KEYS, tomlkit.array())

    def remove_api_keys(self) -> None:
        """Remove the list: no key is asked for any more."""
        self._section(AUTH).pop(API_KEYS, None)

    # Showing it

    def blank_secrets(self) -> None:
        """Replace the secret of every key with dots, so that the text can be shown."""
        for section, name in (("admin", "keys"), (AUTH, API_KEYS)):
            table = self._doc.get(section)
            entries: Any = table.get(name) if isinstance(table, MutableMapping) else None
            for place, entry in enumerate(list(entries or ())):
                if isinstance(entry, MutableMapping):
                    entry["key"] = BLANKED
                else:
                    entries[place] = BLANKED

    def _name_plain_keys(self) -> None:
        keys = self._section(AUTH).get(API_KEYS)
        if not isinstance(keys, Array):
            return
        for place, entry in enumerate(list(keys)):
            if isinstance(entry, str):
                named: Any = tomlkit.inline_table()
                named.update({"name": f"key-{place + 1}", "key": str(entry)})
                keys[place] = named

    def _section(self, name: str) -> Any:
        table = self._doc.get(name)
        if table is None:
            table = tomlkit.table()
            if self._doc:
                table.trivia.indent = "\n"
            self._doc.add(name, table)
            table = self._doc[name]
        return table


def _table(values: dict[str, str], *, is_spaced: bool) -> Table | InlineTable:
    table = tomlkit.table()
    table.update(values)
    if is_spaced:
        table.trivia.indent = "\n"  # an empty line before its header
    return table
