"""Payloads to look at: as JSON, as text, as hex. Values are never parsed, only indented.

What a reader might not see (control characters, marks that turn the direction) appears as written
escapes. Everything here is text; the templates escape it.
"""

import re
from collections.abc import Iterator
from typing import Final, Literal

from attrs import define

SHOWN_BYTES: Final = 64 * 1024
HEX_BYTES: Final = 4 * 1024
PREVIEW_CHARS: Final = 96
ALL_BYTES_MAX: Final = 4 * 1024 * 1024  # above, only the download has it all
DEPTH_MAX: Final = 100
PIECES_MAX: Final = 6000  # that are coloured one by one; a page must stay small

View = Literal["json", "text", "hex"]

_TOKEN: Final = re.compile(
    r'"(?:[^"\\\x00-\x1f]|\\.)*"'  # text
    r"|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?"  # number
    r"|true|false|null|[{}\[\],:]"
)
_BLANK: Final = re.compile(r"[ \t\r\n]*")
_ODD: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u206f\ufeff]"
)
_CLASSES: Final = {'"': "s", "t": "l", "f": "l", "n": "l"}


@define
class Piece:
    """A run of text with one class: k key, s text, n number, l literal, o everything else."""

    kind: str
    text: str


@define
class Shown:
    """A payload as a page shows it. `shown` is how many bytes of it."""

    view: View
    pieces: list[Piece]
    shown: int
    total: int
    is_json: bool
    is_text: bool

    @property
    def is_whole(self) -> bool:
        """Whether all of it is shown."""
        return self.shown == self.total


def show(data: bytes, wanted: str | None, limit: int = SHOWN_BYTES) -> Shown:
    """Return a payload in the wanted view, or in the one that suits it."""
    text = _decode(data[:limit], is_cut=len(data) > limit)
    pieces = None if text is None else indent(text, is_cut=len(data) > limit)
    is_json, is_text = pieces is not None, text is not None
    views: tuple[View, ...] = (
        *(("json",) if is_json else ()),
        *(("text",) if is_text else ()),
        "hex",
    )
    view = next((v for v in views if v == wanted), views[0])
    shown = min(len(data), limit)
    if view == "json" and pieces is not None:
        if len(pieces) > PIECES_MAX:
            pieces = [Piece("", "".join(piece.text for piece in pieces))]
        return Shown(view, pieces, shown, len(data), is_json, is_text)
    if view == "text" and text is not None:
        return Shown(view, [Piece("", visible(text))], shown, len(data), is_json, is_text)
    shown = min(len(data), HEX_BYTES)
    return Shown("hex", list(hex_lines(data[:shown])), shown, len(data), is_json, is_text)


def preview(data: bytes) -> str:
    """Return the first characters of a payload on one line."""
    text = _decode(data[: 4 * PREVIEW_CHARS], is_cut=len(data) > 4 * PREVIEW_CHARS)
    if text is None:
        return data[:24].hex(" ")
    return visible(" ".join(text.split()))[:PREVIEW_CHARS]


def visible(text: str) -> str:
    """Return the text with what does not show written as escapes."""
    return _ODD.sub(lambda match: _escape(match.group()), text)


def _escape(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def _decode(data: bytes, *, is_cut: bool) -> str | None:
    """Return UTF-8 text, None for anything else; a cut may go through a character."""
    for end in range(4 if is_cut else 1):
        try:
            text = data[: len(data) - end].decode()
        except UnicodeDecodeError:
            continue
        return None if "\x00" in text else text
    return None


def indent(text: str, *, is_cut: bool = False) -> list[Piece] | None:
    """Return JSON as indented pieces, None for what is no JSON or is nested too deep.

    Tokens stay as sent, so large numbers and repeated keys survive. A cut text ends where it ends.
    """
    pieces: list[Piece] = []
    stack: list[str] = []
    place = _BLANK.match(text, 0).end()  # type: ignore[union-attr]  # it matches nothing too
    awaits_key = False
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            if not is_cut:
                return None
            pieces.append(Piece("", visible(text[place:])))
            return pieces
        token = match.group()
        if not _add(pieces, stack, token, awaits_key=awaits_key):
            return None
        awaits_key = bool(stack) and stack[-1] == "{" and token in "{,"
        place = _BLANK.match(text, match.end()).end()  # type: ignore[union-attr]  # as above
    is_complete = not stack or is_cut
    return pieces if pieces and is_complete else None


def _add(pieces: list[Piece], stack: list[str], token: str, *, awaits_key: bool) -> bool:
    """Append one token with its layout; False when the text is no JSON after all."""
    if token in "{[":
        pieces.append(Piece("o", token))
        stack.append(token)
        if len(stack) > DEPTH_MAX:
            return False
        pieces.append(Piece("", _line(stack)))
    elif token in "}]":
        if not stack or stack.pop() != {"}": "{", "]": "["}[token]:
            return False
        if pieces[-1].kind == "" and pieces[-2].text in "{[":
            pieces.pop()  # an empty one stays on its line
        else:
            pieces.append(Piece("", _line(stack)))
        pieces.append(Piece("o", token))
    elif token == ",":
        if not stack:
            return False
        pieces.append(Piece("o", ","))
        pieces.append(Piece("", _line(stack)))
    elif token == ":":
        pieces.append(Piece("o", ": "))
    else:
        kind = "k" if awaits_key and token[0] == '"' else _CLASSES.get(token[0], "n")
        pieces.append(Piece(kind, visible(token)))
    return True


def _line(stack: list[str]) -> str:
    return "\n" + "  " * len(stack)


def hex_lines(data: bytes, start: int = 0) -> Iterator[Piece]:
    """Yield 16 bytes a line: offset, bytes in two halves, what prints."""
    for place in range(0, len(data), 16):
        row = data[place : place + 16]
        halves = f"{row[:8].hex(' '):<23}  {row[8:].hex(' '):<23}"
        printed = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in row)
        yield Piece("o", f"{start + place:08x}")
        yield Piece("", f"  {halves}  {printed}\n")
