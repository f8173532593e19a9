"""Log lines: a constant event and its fields, through the standard library's logging.

The line reads "event name=value …"; handlers that know better find event and fields on the record.
"""

import logging
from typing import Final

_logger: Final = logging.getLogger("segstore")


class _Log:
    """Emits events; one method a level."""

    def info(self, event: str, **fields: object) -> None:
        """Something an operator may want to know."""
        _emit(logging.INFO, event, fields)

    def warning(self, event: str, **fields: object) -> None:
        """Something that is not as it should be, and was dealt with."""
        _emit(logging.WARNING, event, fields)

    def error(self, event: str, **fields: object) -> None:
        """Something is lost or broken; the store goes on."""
        _emit(logging.ERROR, event, fields)

    def critical(self, event: str, **fields: object) -> None:
        """The store stops."""
        _emit(logging.CRITICAL, event, fields)


def _emit(level: int, event: str, fields: dict[str, object]) -> None:
    if _logger.isEnabledFor(level):
        line = " ".join([event, *(f"{name}={value}" for name, value in fields.items())])
        # As an argument: a value may hold a percent sign.
        _logger.log(level, "%s", line, extra={"event": event, "fields": fields})


log: Final = _Log()
