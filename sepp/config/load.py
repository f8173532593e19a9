"""Where a configuration comes from: path, file, environment, defaults; then the checks."""

import os
import tomllib
from collections.abc import Mapping
from typing import Final

from attrs import evolve, frozen

from sepp.config.convert import Notes, convert
from sepp.config.directives import DirectiveError, parse_filter
from sepp.config.environment import overlay, variables
from sepp.config.errors import ConfigError
from sepp.config.model import KEYS_BY_PATH, Config
from sepp.config.validate import validate
from sepp.quoting import quote

DEFAULT_PATH: Final = "./sepp.toml"
FILE_BYTES_MAX: Final = 4 << 20  # some 40,000 queues; parsing holds the server up, 1 s a MiB


Identity = tuple[int, int, int, int]
"""Device, inode, size and modification time in ns: another file under the path has another one."""


@frozen
class File:
    """The text of a file as read, and which file it was."""

    text: str
    identity: Identity


@frozen
class Loaded:
    """A valid configuration and where it came from.

    Args:
        config: The configuration.
        path: The file it was, or would have been, read from.
        identity: Which file that was; None when there was none.
        env_pinned: Sorted dotted paths the environment sets, known or not; the file cannot change
            them.
        unknown: Keys and variables that name nothing and were skipped.
        warnings: What an operator should change although it works.
    """

    config: Config
    path: str
    identity: Identity | None = None
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
    return load_path(path, environ, must_exist=is_asked_for)


def load_path(path: str, environ: Mapping[str, str], *, must_exist: bool) -> Loaded:
    """As `load`, from the file at `path`; raise ConfigError too when it must exist and does not."""
    file = read(path)
    if file is None and must_exist:
        raise ConfigError("", f"config file {quote(path)} does not exist")
    if file is None:
        return parse("", path, environ)
    return evolve(parse(file.text, path, environ), identity=file.identity)


def identity(path: str) -> Identity | None:
    """Return which file `path` leads to now, through all links; None when it leads to none."""
    try:
        return _identity(os.stat(path))
    except (OSError, ValueError):
        return None


def _identity(stat: os.stat_result) -> Identity:
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns


def read(path: str) -> File | None:
    """Return the file at `path`, None when there is none; raise ConfigError when unreadable."""
    try:
        with open(path, "rb") as file:
            found = _identity(os.fstat(file.fileno()))
            data = file.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as fault:  # ValueError: a NUL character in the path
        reason = fault.strerror if isinstance(fault, OSError) else fault
        raise ConfigError("", f"cannot read config file {quote(path)}: {reason}") from None
    if len(data) > FILE_BYTES_MAX:
        raise ConfigError("", f"config file {quote(path)} is larger than {FILE_BYTES_MAX} bytes")
    try:
        return File(data.decode("utf-8-sig"), found)  # some editors put a byte order mark
    except UnicodeDecodeError as fault:
        where = f"byte {fault.start}"
        raise ConfigError("", f"config file {quote(path)} is not UTF-8 at {where}") from None


def parse(text: str, path: str, environ: Mapping[str, str]) -> Loaded:
    """Return the valid configuration in `text` under `environ`; reads no file.

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
        env_pinned=tuple(sorted(pinned)),
        unknown=(*notes.unknown, *unknown),
        warnings=tuple(notes.warnings),
    )


def _tree(text: str, path: str) -> dict[str, object]:
    try:
        return tomllib.loads(text)
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
