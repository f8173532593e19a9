"""What the verbs on directories have in common: progress, and faults as one line and a code."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

from segstore import MarkerDamaged, StoreDamaged, StoreError, StoreLocked
from sepp.exits import DamageFound, StartError


@contextmanager
def told() -> Iterator[None]:
    """Turn what an operator can mend into one line.

    Raises:
        DamageFound: The directory is damaged.
        StartError: Anything else that stood in the way.
    """
    # What the store would log is part of what the verbs print.
    logging.getLogger("segstore").addHandler(logging.NullHandler())
    try:
        yield
    except (StoreDamaged, MarkerDamaged) as damage:
        raise DamageFound(str(damage)) from None
    except StoreLocked as fault:
        raise StartError(f"{fault}, or look at a backup: sepp-trio store backup") from None
    except StoreError as fault:
        raise StartError(str(fault)) from None
    except BrokenPipeError:
        raise  # whoever read what we print is gone
    except OSError as fault:
        reason = fault.strerror or str(fault)
        raise StartError(f"{fault.filename}: {reason}" if fault.filename else reason) from None


@contextmanager
def progress_bar(doing: str) -> Iterator[Callable[[int, int], None] | None]:
    """Show a bar on stderr while something works, if that is a terminal.

    Yields:
        What is to be told bytes done and bytes in all; None where nobody looks.
    """
    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as progress:
        task = progress.add_task(doing, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
