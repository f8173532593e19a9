"""The reference of all keys as Markdown, from the table of keys; it stands in OPERATING.md."""

from typing import Final

from sepp.config.example import toml_value
from sepp.config.model import (
    ADMIN_KEY_KEYS,
    API_KEY_KEYS,
    KEYS,
    OVERRIDES,
    QUEUE_KEYS,
    SECTIONS,
)
from sepp.config.table import Key

BEGIN: Final = "<!-- begin: written by tools/gen_config_reference -->\n"
END: Final = "<!-- end -->\n"

_HEAD: Final = "| key | default | allowed | | what it does |\n|---|---|---|---|---|\n"
_NOTES: Final = {"": "", "inert": " No effect here."}


def render() -> str:
    """Return one table a section, then the entries of lists."""
    parts = []
    for section in SECTIONS:
        own = [key for key in KEYS if key.section == section]
        parts.append(f"### [{section}]\n\n{_HEAD}{''.join(map(_row, own))}")
    entries: tuple[tuple[str, tuple[Key, ...]], ...] = (
        ("[[admin.keys]]", ADMIN_KEY_KEYS),
        ("[[auth.api_keys]]", API_KEY_KEYS),
        ("[[queues]]", QUEUE_KEYS),
    )
    for title, keys in entries:
        parts.append(f"### {title}\n\n{_HEAD}{''.join(map(_row, keys))}")
    return "\n".join(parts)


def put_into(document: str) -> str:
    """Return `document` with what stands between the two marks replaced by the reference."""
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert end, "the document has lost its marks"
    return f"{before}{begin}\n{render()}\n{end}{after}"


def _row(key: Key) -> str:
    is_required = key.default is None and not key.is_optional
    default = "required" if is_required else "unset"
    if key.default is not None:
        default = f"`{toml_value(key.default)}`"
    per_queue = key.section in ("limits", "storage") and key.name in OVERRIDES
    cells = (
        f"`{key.name}`",
        default,
        _allowed(key),
        f"{key.spec.mark}, queue" if per_queue else key.spec.mark,
        key.spec.text + _NOTES[key.spec.note],
    )
    return "| " + " | ".join(cells) + " |\n"


def _allowed(key: Key) -> str:
    kinds = {
        "bool": "true, false",
        "int": "integer",
        "float": "number",
        "text": "text",
        "address": "IP:port",
        "texts": "list of text",
        "tables": "list of tables",
        "choice": ", ".join(f"`{choice}`" for choice in key.choices),
    }
    return f"{key.bounds} {key.unit}".strip() if key.bounds else kinds[key.kind]
