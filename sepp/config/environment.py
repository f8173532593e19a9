"""The environment's say: SEPP_<SECTION>__<FIELD>, laid over the file's tree before conversion.

The prefix and the names may be in any case. Three variables carry JSON, because TOML tables have no
other form there: SEPP_QUEUES, SEPP_AUTH__API_KEYS and SEPP_ADMIN__KEYS. SEPP_CONFIG and whatever
has no `__` (SEPP_KEY, SEPP_ADDR) are no fields.
"""

import json
import re
from collections.abc import Mapping
from typing import Final

import msgspec

from sepp.config.errors import ConfigError
from sepp.config.model import KEYS_BY_PATH
from sepp.config.table import Key

PREFIX: Final = "SEPP_"
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,30}")
_DECIMAL: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def variables(environ: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Return dotted path -> (variable, text) of every variable that has the form of a field.

    Of two spellings of one path the one in capitals wins.
    """
    found = {}
    for variable in sorted(environ, reverse=True):
        if variable[: len(PREFIX)].upper() != PREFIX:
            continue
        name = variable[len(PREFIX) :].lower()
        if name == "queues" or "__" in name:
            found[name.replace("__", ".")] = (variable, environ[variable])
    return found


def overlay(tree: Mapping[str, object], environ: Mapping[str, str]) -> dict[str, object]:
    """Return `tree` with what the environment sets put in its place.

    Raises:
        ConfigError: A variable's text cannot be read as its field.
    """
    merged = dict(tree)
    for path, (variable, text) in variables(environ).items():
        key = KEYS_BY_PATH.get(path)
        if path == "queues":
            merged["queues"] = _checked(path, variable, _json_list(path, variable, text))
        elif key is not None:
            section = merged.get(key.section, {})
            if isinstance(section, Mapping):  # else conversion reports it
                value = _checked(path, variable, _parse(key, variable, text))
                merged[key.section] = {**section, key.name: value}
    return merged


def _parse(key: Key, variable: str, text: str) -> object:
    """Return the value in `text`, in the type the key wants where it can be read so.

    Text that cannot is handed on as a string, and conversion says what was expected.
    """
    match key.kind:
        case "text" | "address" | "choice":
            return _unquoted(text)
        case "texts":
            return _texts(text)
        case "tables":
            return _json_list(key.path, variable, text)
        case _:
            return _scalar(text.strip())


def _checked(path: str, variable: str, value: object) -> object:
    """Return `value`; halves of surrogate pairs in it were no UTF-8, or came out of JSON."""
    try:
        msgspec.json.encode(value)
    except UnicodeEncodeError:
        raise ConfigError(path, f"{variable} is not valid Unicode text") from None
    return value


def _scalar(text: str) -> object:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if _INTEGER.fullmatch(text):
        return int(text)
    if _DECIMAL.fullmatch(text):
        return float(text)
    return text


def _unquoted(text: str) -> str:
    is_quoted = len(text) >= 2 and text[0] == '"' == text[-1]
    return text[1:-1] if is_quoted else text


def _texts(text: str) -> object:
    """`["a", "b"]` or `[a, b]`; anything else is no list and stays a string."""
    text = text.strip()
    if not (text.startswith("[") and text.endswith("]")):
        return text
    try:
        parsed: object = json.loads(text)
    except (ValueError, RecursionError):
        return [_unquoted(item.strip()) for item in text[1:-1].split(",")]
    return parsed


def _json_list(path: str, variable: str, text: str) -> object:
    """The JSON list in `text`, or a list of bare words; anything else is an error.

    Broken JSON must not pass for bare words: half an object would become a key nobody meant.
    """
    is_bare = text.strip()[1:2] not in ("{", '"', "[")
    try:
        value: object = _texts(text) if is_bare else json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, list):
        return value
    # The text may hold secrets: say where it is, not what it is.
    raise ConfigError(path, f"{variable} is not a JSON list")
