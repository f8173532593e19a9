"""The few pieces of Markdown our own documents use, as safe HTML.

Headings, paragraphs, lists, tables, fenced code, and inside a line: code, strong, links.
Everything is escaped first; what is not one of these pieces stays text.
"""

import re
from collections.abc import Iterator
from typing import Final

from markupsafe import Markup, escape

_FENCE: Final = re.compile(r"^```")
_HEADING: Final = re.compile(r"^(#{1,4}) (.+)$")
_ITEM: Final = re.compile(r"^( *)(?:[-*]|\d+\.) (.+)$")
_RULE: Final = re.compile(r"^\|?[\s:|-]+\|?$")
_CODE: Final = re.compile(r"`([^`]+)`")
_STRONG: Final = re.compile(r"\*\*([^*]+)\*\*")
_LINK: Final = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")


def render(text: str) -> tuple[Markup, list[tuple[str, str]]]:
    """Return the HTML of a document, and its headings of the second level: (anchor, words)."""
    blocks: list[str] = []
    headings: list[tuple[str, str]] = []
    lines = iter(text.split("\n"))
    pending: list[str] = []
    anchors: set[str] = set()
    for line in lines:
        if _FENCE.match(line):
            _flush(blocks, pending)
            blocks.append(_fenced(lines))
        elif (match := _HEADING.match(line)) is not None:
            _flush(blocks, pending)
            level, words = len(match[1]), match[2].strip()
            anchor = _unused(_anchor(words), anchors)
            if level == 2:
                headings.append((anchor, _plain(words)))
            tag = f"h{level + 1}"  # the page has its own first heading
            blocks.append(f'<{tag} id="{escape(anchor)}">{_inline(words)}</{tag}>')
        elif not line.strip():
            _flush(blocks, pending)
        else:
            pending.append(line)
    _flush(blocks, pending)
    return Markup("\n").join(map(Markup, blocks)), headings


def _unused(anchor: str, anchors: set[str]) -> str:
    """Return the anchor, numbered if an earlier heading has it, as other renderers do it."""
    found = anchor
    number = 0
    while found in anchors:
        number += 1
        found = f"{anchor}-{number}"
    anchors.add(found)
    return found


def _fenced(lines: Iterator[str]) -> str:
    code = []
    for line in lines:
        if _FENCE.match(line):
            break
        code.append(line)
    return f'<pre class="code" tabindex="0">{escape(chr(10).join(code))}</pre>'


def _flush(blocks: list[str], pending: list[str]) -> None:
    if not pending:
        return
    lines = list(pending)
    pending.clear()
    if len(lines) > 1 and "|" in lines[0] and _RULE.match(lines[1]):
        blocks.append(_table(lines))
    elif _ITEM.match(lines[0]):
        blocks.append(_list(lines))
    else:
        blocks.append(f"<p>{_inline(' '.join(line.strip() for line in lines))}</p>")


def _table(lines: list[str]) -> str:
    head = "".join(f'<th scope="col">{_inline(cell)}</th>' for cell in _cells(lines[0]))
    body = "".join(
        "<tr>" + "".join(f"<td>{_inline(cell)}</td>" for cell in _cells(line)) + "</tr>"
        for line in lines[2:]
    )
    return (
        '<div class="scroll" tabindex="0" role="region" aria-label="Table"><table class="kv">'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _cells(line: str) -> list[str]:
    inner = line.strip().removeprefix("|").removesuffix("|").replace("\\|", "\x00")
    return [cell.strip().replace("\x00", "|") for cell in inner.split("|")]


def _list(lines: list[str]) -> str:
    items: list[str] = []
    for line in lines:
        match = _ITEM.match(line)
        if match is not None:
            items.append(match[2])
        elif items:
            items[-1] += f" {line.strip()}"
    kind = "ol" if lines[0].lstrip()[:1].isdigit() else "ul"
    return f"<{kind}>" + "".join(f"<li>{_inline(item)}</li>" for item in items) + f"</{kind}>"


def _inline(text: str) -> str:
    """Escape a line, then mark up what is left; code first, so that nothing inside it is."""
    parts = []
    for place, part in enumerate(_CODE.split(text)):
        safe = str(escape(part))
        if place % 2:
            parts.append(f"<code>{safe}</code>")
            continue
        safe = _STRONG.sub(r"<b>\1</b>", safe)
        parts.append(_LINK.sub(_link, safe))
    return "".join(parts)


def _link(match: re.Match[str]) -> str:
    words, target = match[1], match[2]
    # Only anchors and pages of ours; other documents are files beside the source.
    if target.startswith(("#", "/admin/")):
        return f'<a href="{target}">{words}</a>'
    return words


def _plain(text: str) -> str:
    return _LINK.sub(r"\1", _STRONG.sub(r"\1", _CODE.sub(r"\1", text)))


def _anchor(words: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", _plain(words).lower()).strip("-")
