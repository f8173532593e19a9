"""Log lines on stdout: one event, one line, as text for people or as JSON.

A logger belongs to a target, the name of its module, and stands for it from import on; `configure`
decides later what it does. A level that is off costs one call of an empty function. A line that
cannot be written (closed pipe, full disk) is dropped and counted: logging never stops or raises
into its caller.

Secrets are kept out at the source: nothing that holds one has a text form showing it. Fields with
a name that only a secret would have are blanked all the same.
"""

import json
import logging
import math
import os
from collections.abc import Callable, MutableMapping
from datetime import UTC, datetime
from typing import Any, Final, Protocol

import structlog

from sepp.config.directives import LEVELS, Filter, parse_filter
from sepp.quoting import SHOWN_MAX, bare, quote

STDOUT: Final = 1

_METHODS: Final = ("debug", "info", "warning", "error")
_LEVEL_NAMES: Final = {"debug": "DEBUG", "info": "INFO", "warning": "WARN", "error": "ERROR"}
_SECRET_FIELDS: Final = frozenset(
    ("api_key", "api_keys", "authorization", "cookie", "password", "secret", "token")
)
_BLANKED: Final = "[redacted]"

Event = MutableMapping[str, Any]


class Emit(Protocol):
    """Writes one event with its fields, or does nothing."""

    def __call__(self, event: str, /, **fields: object) -> None: ...


def _off(event: str, /, **fields: object) -> None:
    """What a level that is off does."""


class Logger:
    """The four levels of one target. `is_debug` tells whether costly fields are worth making."""

    __slots__ = ("debug", "error", "info", "is_debug", "target", "warning")

    def __init__(self, target: str) -> None:
        self.target: Final = target
        self.is_debug = False
        self.debug: Emit = _off
        self.info: Emit = _off
        self.warning: Emit = _off
        self.error: Emit = _off


_loggers: Final[dict[str, Logger]] = {}
_apply: Callable[[Logger], None] | None = None


def get_logger(target: str) -> Logger:
    """Return the logger of `target`; it is silent until `configure` was called."""
    logger = _loggers.get(target)
    if logger is None:
        logger = _loggers[target] = Logger(target)
        if _apply is not None:
            _apply(logger)
    return logger


class Sink:
    """Writes lines to a descriptor. `dropped_count` tells how many could not be written."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.dropped_count = 0

    def msg(self, line: str) -> None:
        """Write one line; never raises."""
        data = line.encode() + b"\n"
        try:
            while data:
                data = data[os.write(self._fd, data) :]
        except OSError:
            self.dropped_count += 1

    debug = info = warning = error = msg


def configure(level: str, format: str, *, rust_log: str = "", fd: int = STDOUT) -> Sink:
    """Let every logger, known or still to come, write what the filter lets through.

    Args:
        level: logging.level.
        format: logging.format, "text" or "json".
        rust_log: The value of RUST_LOG; wins over `level` unless empty.
        fd: Where lines go.

    Raises:
        DirectiveError: The filter cannot be read; nothing changed.
    """
    global _apply
    chosen = parse_filter(rust_log or level)
    sink = Sink(fd)
    _apply = _applier(chosen, sink, render_json if format == "json" else render_text)
    for logger in _loggers.values():
        _apply(logger)
    _bridge(chosen)
    return sink


def _applier(
    chosen: Filter, sink: Sink, render: structlog.typing.Processor
) -> Callable[[Logger], None]:
    processors: list[structlog.typing.Processor] = [
        _stamp,
        structlog.processors.format_exc_info,
        render,
    ]
    everything = structlog.make_filtering_bound_logger(logging.DEBUG)

    def apply(logger: Logger) -> None:
        bound = structlog.wrap_logger(
            sink, processors=processors, wrapper_class=everything, target=logger.target
        ).bind()
        lowest = LEVELS.index(chosen.level(logger.target))
        for method in _METHODS:
            is_on = LEVELS.index(_LEVEL_NAMES[method].lower()) >= lowest
            setattr(logger, method, getattr(bound, method) if is_on else _off)
        logger.is_debug = logger.debug is not _off

    return apply


def _stamp(_: object, method: str, event: Event) -> Event:
    event["level"] = _LEVEL_NAMES[method]
    event["timestamp"] = datetime.now(UTC).isoformat(timespec="microseconds")[:26] + "Z"
    for name in event.keys() & _SECRET_FIELDS:
        event[name] = _BLANKED
    return event


def render_text(_: object, __: str, event: Event) -> str:
    """One line for people: time, level, target, message, then name=value, quoted where needed."""
    head = f"{event.pop('timestamp')} {event.pop('level'):>5} {event.pop('target')}:"
    message = str(event.pop("event"))
    if not message.isprintable():
        message = quote(message)
    fields = "".join(f" {name}={_text(value)}" for name, value in event.items())
    return f"{head} {message}{fields}"


def render_json(_: object, __: str, event: Event) -> str:
    """One object a line: timestamp, level, target and fields, the message among these."""
    line = {name: event.pop(name) for name in ("timestamp", "level", "target")}
    fields = {"message": event.pop("event"), **event}
    line["fields"] = {name: _json_value(value) for name, value in fields.items()}
    # Plain ASCII: odd text cannot break the line, nor the reader.
    return json.dumps(line, default=str, separators=(",", ":"))


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return "[" + ",".join(_text(item) for item in value) + "]"
    return bare(str(value))


def _json_value(value: object) -> object:
    if isinstance(value, str) and len(value) > SHOWN_MAX:
        return f"{value[:SHOWN_MAX]}…(+{len(value) - SHOWN_MAX})"
    if isinstance(value, list | tuple):
        return [_json_value(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no such numbers
    return value


class _Bridge(logging.Handler):
    """Hands records of whoever uses the standard library's logging on to our loggers.

    A record that carries an `event` and its `fields` (the store's do) keeps them apart.
    """

    def emit(self, record: logging.LogRecord) -> None:
        logger = get_logger(record.name)
        emit = next(getattr(logger, method) for floor, method in _FLOORS if record.levelno >= floor)
        if emit is _off:
            return
        event, fields = getattr(record, "event", None), getattr(record, "fields", None)
        if not isinstance(event, str) or not isinstance(fields, dict):
            try:
                event, fields = record.getMessage(), {}
            except (TypeError, ValueError):  # arguments that do not fit the library's own text
                event, fields = record.msg, {"arguments": str(record.args)}
        if record.exc_info:
            fields = {**fields, "exc_info": record.exc_info}
        emit(event, **fields)


_FLOORS: Final = (
    (logging.ERROR, "error"),
    (logging.WARNING, "warning"),
    (logging.INFO, "info"),
    (0, "debug"),
)


def _bridge(chosen: Filter) -> None:
    root = logging.getLogger()
    for handler in [handler for handler in root.handlers if isinstance(handler, _Bridge)]:
        root.removeHandler(handler)
    root.addHandler(_Bridge())
    levels = [chosen.default, *chosen.targets.values()]
    lowest = min(LEVELS.index(level) for level in levels)
    names = (logging.DEBUG, logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)
    root.setLevel(names[lowest] if lowest < len(names) else logging.CRITICAL)
