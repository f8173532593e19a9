"""System calls as a simulated disk counts them, and the failures a test has in store for them."""

import os

from attrs import define, frozen

SHORT_WRITE = -1  # in place of an errno: `pwritev` writes the first half and says so


@frozen
class Call:
    """One system call, as the trace tells it."""

    number: int  # from 1
    name: str
    path: str
    offset: int = 0  # bytes
    length: int = 0  # bytes


@define
class Fault:
    """A failure to come: of the calls it matches, the first one or all of them."""

    error: int  # an errno or SHORT_WRITE
    number: int | None = None  # of the call; None: whichever matches
    names: frozenset[str] | None = None
    path_part: str = ""
    is_forever: bool = False

    def matches(self, call: Call) -> bool:
        """Whether `call` is to fail."""
        if self.error == SHORT_WRITE and (call.name != "pwritev" or call.length < 2):
            return False
        if self.number is not None and not (
            call.number == self.number or (self.is_forever and call.number > self.number)
        ):
            return False
        return (self.names is None or call.name in self.names) and self.path_part in call.path


def os_error(code: int, path: str) -> OSError:
    """Return what Python raises for this errno."""
    return OSError(code, os.strerror(code), path)
