"""How a process of ours ends: its exit code, and the error that ends it before it served."""

from typing import Final

OK: Final = 0
FAILED: Final = 1  # could not start, or could not do what was asked
USAGE: Final = 2  # the command line was not understood
DAMAGED: Final = 3  # a check found damage
STORAGE: Final = 74  # a write or sync of the store failed; nothing unsynced was answered
INTERRUPTED: Final = 130  # a second SIGINT; SIGTERM gives 143


class StartError(Exception):
    """The server cannot start, and the operator can see why: the text is one line, shown as it is.

    For what the configuration cannot tell beforehand: a port in use, unreadable TLS files, a data
    directory that is locked, damaged or of another format.
    """


class DamageFound(Exception):
    """A check found damage, and the text says where."""


def missing_extra(key: str, fault: ModuleNotFoundError) -> StartError:
    """The error for a feature whose optional packages are not installed."""
    return StartError(
        f"{key} needs the extra otel ({fault.name} is missing); pip install 'sepp-trio[otel]'"
    )
