"""Text from outside, made safe to stand inside one line for people: logs and one-line errors."""

from typing import Final

SHOWN_MAX: Final = 1024  # characters of one value that a line shows

_NOT_PLAIN: Final = ' "=\\'
_SHORT: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def quote(text: str, shown_max: int = SHOWN_MAX) -> str:
    """Return `text` in double quotes on one line, at most `shown_max` characters of it.

    Quotes, backslashes and whatever does not print (control characters, line separators, marks that
    turn the writing direction, halves of surrogate pairs) are escaped, so the result always encodes
    and cannot forge a second line.
    """
    rest = len(text) - shown_max
    if rest > 0:
        text = text[:shown_max]
    if not text.isprintable() or '"' in text or "\\" in text:
        text = "".join(map(_escape, text))
    return f'"{text}"' if rest <= 0 else f'"{text}"…(+{rest})'


def bare(text: str) -> str:
    """Return `text` as it is when it reads as one plain word, else quoted."""
    is_plain = 0 < len(text) <= SHOWN_MAX and text.isprintable()
    if is_plain and not any(mark in text for mark in _NOT_PLAIN):
        return text
    return quote(text)


def _escape(char: str) -> str:
    short = _SHORT.get(char)
    if short is not None:
        return short
    if char.isprintable():
        return char
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
