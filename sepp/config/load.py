"""Where a configuration comes from: path, file, environment, defaults; then the checks."""

import tomllib
from collections.abc import Mapping
from typing import Final

from attrs import frozen

from sepp.config.convert import Notes, convert
from sepp.config.directives import DirectiveError, parse_filter
from sepp.config.environment import overlay, variables
from sepp.config.errors import ConfigError
from sepp.config.model import KEYS_BY_PATH, Config
from sepp.config.validate import validate
from sepp.quoting import quote

DEFAULT_PATH: Final = "./sepp.toml"
FILE_BYTES_MAX: Final = 8 << 20  # far above any real file; parsing more would hold the server up


@frozen
class Loaded:
    """A valid configuration and where it came from.

    Args:
        config: The configuration.
        path: The file it was, or would have been, read from.
        is_file: Whether that file existed.
        env_pinned: Sorted dotted paths the environment sets, known or not; the file cannot change
            them.
        unknown: Keys and variables that name nothing and were skipped.
        warnings: What an operator should change although it works.
    """

    config: Config
    path: str
    is_file: bool
    env_pinned: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def choose_path(option: str | None, environ: Mapping[str, str]) -> tuple[str, bool]:
    """Return the path of the file, and whether the option or SEPP_CONFIG asked for it."""
    if option is not None:
        return option, True
    named = environ.get("SEPP_CONFIG", "")
    return (named, True) if named else (DEFAULT_PATH, False)


def load_config(path: str | None, environ: Mapping[str, str]) -> Config:
    """Return the configuration a server started with `path` (None: not given) would run with.

    Raises:
        ConfigError: The file is missing though asked for, unreadable, not TOML, or breaks a rule.
    """
    return load(path, environ).config


def load(option: str | None, environ: Mapping[str, str]) -> Loaded:
    """Read file and environment and return what they say; the environment wins over the file.

    Args:
        option: The path given on the command line, or None.
        environ: The process environment.

    Raises:
        ConfigError: As `load_config`.
    """
    path, is_asked_for = choose_path(option, environ)
    text = read_text(path)
    if text is None and is_asked_for:
        raise ConfigError("", f"config file {quote(path)} does not exist")
    return parse(text, path, environ)


def read_text(path: str) -> str | None:
    """Return the text of the file at `path`, None when there is none; raise ConfigError."""
    try:
        with open(path, "rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as fault:  # ValueError: a NUL character in the path
        reason = fault.strerror if isinstance(fault, OSError) else fault
        raise ConfigError("", f"cannot read config file {quote(path)}: {reason}") from None
    if len(data) > FILE_BYTES_MAX:
        raise ConfigError("", f"config file {quote(path)} is larger than {FILE_BYTES_MAX} bytes")
    try:
        return data.decode("utf-8-sig")  # some editors put a byte order mark
    except UnicodeDecodeError as fault:
        where = f"byte {fault.start}"
        raise ConfigError("", f"config file {quote(path)} is not UTF-8 at {where}") from None


def parse(text: str | None, path: str, environ: Mapping[str, str]) -> Loaded:
    """Return the valid configuration in `text` (None: no file) under `environ`; reads nothing
    itself.

    The admin pages check an edited text with this before they write it.

    Raises:
        ConfigError: It is not TOML or breaks a rule. No message holds a secret.
    """
    pinned = variables(environ)
    notes = Notes()
    try:
        config = convert(overlay(_tree(text, path), environ), notes)
        validate(config)
    except ConfigError as fault:
        raise _with_variable(fault, pinned) from None
    _check_rust_log(environ)
    unknown = [
        f"{name} ({path})"
        for path, (name, _) in sorted(pinned.items())
        if path not in KEYS_BY_PATH and path != "queues"
    ]
    return Loaded(
        config=config,
        path=path,
        is_file=text is not None,
        env_pinned=tuple(sorted(pinned)),
        unknown=(*notes.unknown, *unknown),
        warnings=tuple(notes.warnings),
    )


def _tree(text: str | None, path: str) -> dict[str, object]:
    try:
        return tomllib.loads(text or "")
    except ValueError as fault:  # TOMLDecodeError, and integers of too many digits
        raise ConfigError("", f"config file {quote(path)} is not valid TOML: {fault}") from None
    except RecursionError:
        raise ConfigError("", f"config file {quote(path)} nests too deeply") from None


def _with_variable(fault: ConfigError, pinned: Mapping[str, tuple[str, str]]) -> ConfigError:
    """Name the variable too when it, and not the file, set the key at fault."""
    for path, (variable, _) in pinned.items():
        is_inside = fault.key.startswith((f"{path}.", f"{path}["))
        if (fault.key == path or is_inside) and variable not in fault.text:
            return ConfigError(fault.key, f"{fault.text} (set by {variable})")
    return fault


def _check_rust_log(environ: Mapping[str, str]) -> None:
    text = environ.get("RUST_LOG", "")
    if not text:
        return
    try:
        parse_filter(text)
    except DirectiveError as fault:
        raise ConfigError("", f"RUST_LOG: {fault}") from None
