"""What may name a queue, in the configuration and in every request."""

import unicodedata
from typing import Final

from sepp.quoting import quote

_SHOWN_MAX: Final = 64


def queue_name_fault(name: str) -> str | None:
    """Return why `name` cannot name a queue, or None. Its length is another check."""
    if not name:
        return "queue name must not be empty"
    if name in (".", ".."):
        return f"queue name must not be {quote(name)}"
    if "/" in name:
        return f'queue name must not contain "/": {quote(name, _SHOWN_MAX)}'
    # Control characters are never printable, so the walk is for odd names only.
    if not name.isprintable() and any(unicodedata.category(char) == "Cc" for char in name):
        return f"queue name must not contain control characters: {quote(name, _SHOWN_MAX)}"
    return None
