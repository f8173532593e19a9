"""The example file: every key with its explanation and default, written from the table of keys.

Keys with a default stand as they are, so the file equals no file at all; keys that are unset by
default are commented out.
"""

import textwrap
from collections.abc import Iterable
from typing import Final

import msgspec

from sepp.config.model import ADMIN_KEY_KEYS, API_KEY_KEYS, KEYS, QUEUE_KEYS, SECTIONS
from sepp.config.table import RESTART, Key

_WIDTH: Final = 100
_HEAD: Final = """\
# Configuration of sepp-trio.
#
# Every key stands here with its default; a key that is left out has that default too. Times are
# whole milliseconds (_ms), sizes are bytes (_bytes). A change takes effect while the server runs,
# except where `restart` is noted. Brackets hold the values allowed. The environment wins over this
# file: SEPP_<SECTION>__<KEY>, such as SEPP_SERVER__DB_PATH=/var/lib/sepp. Check an edited file with
# `sepp-trio config check FILE`.
"""
_NOTES: Final = {
    "inert": "accepted so that existing files load; no effect here",
}
_QUEUES: Final = """\
# Queues need no declaration unless server.strict_queues is true. An entry declares one and
# overrides keys of [limits] and [storage] for it; what it leaves out is the global value. One block
# for each queue.
"""


def render(admin_key: str = "") -> str:
    """Return the example file.

    Args:
        admin_key: The secret of a first admin key named `admin`, which then stands in the file for
            real. Default: no key, only the commented sample.
    """
    blocks = [_HEAD]
    for section, struct in SECTIONS.items():
        lines = [_comment(_section_text(struct)), f"[{section}]"]
        own = [key for key in KEYS if key.section == section]
        for key in own:
            if key.entry is None:
                lines += _key_lines(key, is_commented=key.default is None)
        for key in own:
            if key.entry is not None:
                lines += _entries_lines(key, admin_key if key.path == "admin.keys" else "")
        blocks.append("\n".join(lines) + "\n")
    blocks.append(_queue_block())
    return "\n".join(blocks)


def _section_text(struct: type[msgspec.Struct]) -> str:
    text = (struct.__doc__ or "").partition(": ")[2]
    return text[:1].upper() + text[1:]


def _key_lines(key: Key, *, is_commented: bool) -> list[str]:
    value = toml_value(key.default) if key.default is not None else key.spec.example
    text = f"{key.spec.text} {_marks(key)}".rstrip()
    return [_comment(text), f"{'# ' if is_commented else ''}{key.name} = {value}"]


def _marks(key: Key) -> str:
    """Allowed values, need of a restart, and whether it does anything: `[1… ms; restart]`."""
    marks = (
        f"{key.bounds} {key.unit}".strip() if key.bounds else "",
        " | ".join(key.choices),
        "restart" if key.spec.mark == RESTART else "",
        _NOTES.get(key.spec.note, ""),
    )
    text = "; ".join(mark for mark in marks if mark)
    return f"[{text}]" if text else ""


def _entries_lines(key: Key, secret: str) -> list[str]:
    """A list of tables: explanation and one sample entry, real when there is a secret for it."""
    rows = ADMIN_KEY_KEYS if key.path == "admin.keys" else API_KEY_KEYS
    lines = ["", _comment(f"{key.spec.text} One block for each key.")]
    off = "" if secret else "# "
    lines.append(f"{off}[[{key.path}]]")
    real = {"name": '"admin"', "key": toml_value(secret)} if secret else {}
    for row in rows:
        value = real.get(row.name) or row.spec.example or toml_value(row.default)
        lines.append(f"{off}{row.name} = {value}  # {row.spec.text}")
    return lines


def _queue_block() -> str:
    lines = [_QUEUES.rstrip("\n"), "# [[queues]]"]
    for key in QUEUE_KEYS:
        overridden = next((row for row in KEYS if row.spec is key.spec), None)
        if overridden is None:  # its own row, which stands nowhere else
            lines.append(f"# {key.name} = {key.spec.example}  # {key.spec.text}")
        else:
            value = key.spec.example or toml_value(overridden.default)
            mark = "  # [restart]" if key.spec.mark == RESTART else ""
            lines.append(f"# {key.name} = {value}{mark}")
    return "\n".join(lines) + "\n"


def _comment(text: str) -> str:
    return textwrap.fill(text, _WIDTH, initial_indent="# ", subsequent_indent="# ")


def toml_value(value: object) -> str:
    """Return a default as it is written in TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, Iterable):
        return "[" + ", ".join(toml_value(item) for item in value) + "]"
    return str(value)
