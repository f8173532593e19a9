"""How verbs print: tables for people, JSON for programs, questions only to a terminal."""

import json
import sys
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from sepp.exits import StartError


def print_json(value: object) -> None:
    """Print one JSON value on one line."""
    print(json.dumps(value, ensure_ascii=False))


def table_of(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """Return a table. Texts stand as they are; numbers to the right."""
    filled = list(rows)
    table = Table(box=None, pad_edge=False, header_style="bold", show_header=any(heads))
    for place, head in enumerate(heads):
        is_number = bool(filled) and all(isinstance(row[place], int | float) for row in filled)
        table.add_column(head, justify="right" if is_number else "left", overflow="fold")
    for row in filled:
        # Text, not str: what jobs carry must not be read as rich's markup.
        table.add_row(*(Text("" if cell is None else str(cell)) for cell in row))
    return table


def print_table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table; as wide as it needs where the output is no terminal."""
    console = Console()
    if not console.is_terminal:
        console.width = 1000
    console.print(table_of(heads, rows))


def confirm(question: str, *, is_yes: bool) -> None:
    """Ask before what cannot be undone.

    Raises:
        StartError: The answer is no, or there is nobody to ask.
    """
    if is_yes:
        return
    if not sys.stdin.isatty():
        raise StartError(f"{question} Nobody to ask here; say --yes")
    if input(f"{question} [y/N] ").strip().lower() not in ("y", "yes"):
        raise StartError("nothing was done")
