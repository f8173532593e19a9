"""Where a run's outcome goes: a table on the screen and in a file, JSON beside it, a chart."""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def write(folder: Path, verb: str, *, text: str, data: Any, svg: str | None) -> list[Path]:
    """Write the files of a run, named after verb and time (UTC); gives their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{verb}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
    written = [folder / f"{stem}.txt", folder / f"{stem}.json"]
    written[0].write_text(text)
    written[1].write_text(json.dumps(data, indent=1) + "\n")
    if svg is not None:
        written.append(folder / f"{stem}.svg")
        written[2].write_text(svg)
    return written


def page(sections: Sequence[str]) -> str:
    """Sections of text with a blank line between them."""
    return "\n\n".join(section.rstrip() for section in sections if section.strip()) + "\n"
