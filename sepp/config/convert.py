"""From the tree a TOML file gives to a `Config`: types only, bounds are `validate.py`'s.

Unknown keys are skipped and listed, except in [admin], admin.keys[] and auth.api_keys[], where a
typing error would leave a door open and so is an error.
"""

import math
from collections.abc import Mapping
from typing import Final

import msgspec

from sepp.config.errors import ConfigError
from sepp.config.limits import Queue
from sepp.config.model import (
    ADMIN_KEY_KEYS,
    API_KEY_KEYS,
    KEYS,
    QUEUE_KEYS,
    SECTIONS,
    Config,
)
from sepp.config.sections import AdminKey, ApiKey
from sepp.config.table import Key
from sepp.quoting import quote

Tree = Mapping[str, object]

_VALUE_SHOWN_MAX: Final = 64
_INT_BITS_MAX: Final = 128  # more than any bound; a number of many digits cannot be printed
_STRICT_SECTIONS: Final = ("admin",)
_EXPECTED: Final = {
    "bool": "true or false",
    "int": "an integer",
    "float": "a number",
    "text": "a string",
    "address": "a string",
    "choice": "a string",
    "texts": "a list of strings",
}
_TYPES: Final[dict[type, str]] = {
    str: "a string",
    bool: "a boolean",
    int: "an integer",
    float: "a number",
    list: "a list",
    type(None): "null",
}
OLD_API_KEYS: Final = (
    "auth.api_keys holds plain strings, an older form; write {name, key} tables instead "
    "(the keys are named key-1, key-2, … here)"
)


class Notes:
    """What is worth telling an operator about a configuration that is nevertheless fine."""

    def __init__(self) -> None:
        self.unknown: list[str] = []  # dotted paths that name no key and were skipped
        self.warnings: list[str] = []


def convert(tree: Tree, notes: Notes) -> Config:
    """Return the configuration in `tree`, defaults filled in; raise ConfigError on a wrong type."""
    sections = {name: _section(name, tree.get(name, {}), notes) for name in SECTIONS}
    notes.unknown += [name for name in tree if name not in SECTIONS and name != "queues"]
    queues = _queues(tree.get("queues", []), notes)
    return Config(**sections, queues=queues)  # type: ignore[arg-type]  # each section's own struct


def _section(name: str, table: object, notes: Notes) -> msgspec.Struct:
    struct = SECTIONS[name]
    if not isinstance(table, Mapping):
        raise ConfigError(name, f"expected a table [{name}], found {_found(table)}")
    known = {key.name: key for key in KEYS if key.section == name}
    _skip_unknown(name, table, known, notes, is_strict=name in _STRICT_SECTIONS)
    values: dict[str, object] = {}
    for key_name, key in known.items():
        if key_name not in table:
            continue
        value = table[key_name]
        if key.entry is ApiKey:
            values[key_name] = _api_keys(value, notes)
        elif key.entry is AdminKey:
            values[key_name] = _admin_keys(value, notes)
        else:
            values[key_name] = _value(key, key.path, value)
    return struct(**values)


def _queues(tables: object, notes: Notes) -> tuple[Queue, ...]:
    if not isinstance(tables, list):
        raise ConfigError("queues", f"expected [[queues]] tables, found {_found(tables)}")
    known = {key.name: key for key in QUEUE_KEYS}
    queues = []
    for number, table in enumerate(tables, 1):
        where = f"queues[{number}]"
        if not isinstance(table, Mapping):
            raise ConfigError(where, f"expected a [[queues]] table, found {_found(table)}")
        if "name" not in table:
            raise ConfigError(where, "name is missing")
        name = _value(known["name"], f"{where}.name", table["name"])
        where = f"queues[{quote(str(name))}]"
        _skip_unknown(where, table, known, notes, is_strict=False)
        values = {
            key_name: _value(key, f"{where}.{key_name}", table[key_name])
            for key_name, key in known.items()
            if key_name in table
        }
        queues.append(Queue(**values))  # type: ignore[arg-type]  # converted by the row of its name
    return tuple(queues)


def _api_keys(entries: object, notes: Notes) -> tuple[ApiKey, ...]:
    keys = []
    for number, entry in enumerate(_entries("auth.api_keys", entries), 1):
        if isinstance(entry, str):
            if OLD_API_KEYS not in notes.warnings:
                notes.warnings.append(OLD_API_KEYS)
            keys.append(ApiKey(name=f"key-{number}", key=entry))
        else:
            keys.append(ApiKey(**_entry(f"auth.api_keys[{number}]", entry, API_KEY_KEYS, notes)))
    return tuple(keys)


def _admin_keys(entries: object, notes: Notes) -> tuple[AdminKey, ...]:
    return tuple(
        AdminKey(**_entry(f"admin.keys[{number}]", entry, ADMIN_KEY_KEYS, notes))  # type: ignore[arg-type]  # role is one of its choices
        for number, entry in enumerate(_entries("admin.keys", entries), 1)
    )


def _entries(where: str, entries: object) -> list[object]:
    if isinstance(entries, list):
        return entries
    # The value may be a secret, so the message shows its type alone.
    raise ConfigError(where, f"expected a list of tables, found {_type(entries)}")


def _entry(where: str, entry: object, rows: tuple[Key, ...], notes: Notes) -> dict[str, str]:
    """The fields of one entry of a key list; its values never reach a message."""
    if not isinstance(entry, Mapping):
        raise ConfigError(where, f"expected a table, found {_type(entry)}")
    known = {key.name: key for key in rows}
    _skip_unknown(where, entry, known, notes, is_strict=True)
    values = {}
    for name, key in known.items():
        if name not in entry:
            if key.default is None:
                raise ConfigError(where, f"{name} is missing")
            continue
        value = entry[name]
        if not isinstance(value, str):
            raise ConfigError(f"{where}.{name}", f"expected a string, found {_type(value)}")
        if key.choices:
            value = str(_value(key, f"{where}.{name}", value))
        values[name] = value
    return values


def _skip_unknown(
    where: str, table: Tree, known: Mapping[str, Key], notes: Notes, *, is_strict: bool
) -> None:
    for name in table:
        if name in known:
            continue
        path = f"{where}.{name}" if name.isidentifier() else f"{where}.{quote(name)}"
        if is_strict:
            raise ConfigError(path, f"unknown key; known here: {', '.join(known)}")
        notes.unknown.append(path)


def _value(key: Key, path: str, value: object) -> object:
    """Return `value` in the type of `key`, or raise ConfigError naming what was expected."""
    match key.kind:
        case "bool" if type(value) is bool:
            return value
        case "int" if type(value) is int:
            if value.bit_length() > _INT_BITS_MAX:
                raise ConfigError(path, "is far too large an integer")
            return value
        case "float" if type(value) in (int, float):
            assert isinstance(value, int | float)
            return _finite(path, value)
        case "text" | "address" if isinstance(value, str):
            return value
        case "choice" if isinstance(value, str):
            if value in key.choices:
                return value
            raise ConfigError(path, f"{_found(value)} is not one of {', '.join(key.choices)}")
        case "texts" if isinstance(value, list) and all(isinstance(v, str) for v in value):
            return tuple(value)
    raise ConfigError(path, f"expected {_EXPECTED[key.kind]}, found {_found(value)}")


def _finite(path: str, value: int | float) -> float:
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ConfigError(path, "expected a finite number")
    return number


def _found(value: object) -> str:
    if isinstance(value, str):
        return quote(value, _VALUE_SHOWN_MAX)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float) and abs(value) < 1e20:
        return str(value)
    return _type(value)


def _type(value: object) -> str:
    if isinstance(value, Mapping):
        return "a table"
    return _TYPES.get(type(value), "a date or time")
