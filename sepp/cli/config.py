"""`sepp-trio config …`: print, check and create configuration files."""

import os
import secrets
import sys
from typing import Annotated, Final

from cyclopts import App, Parameter

from sepp import exits
from sepp.config.errors import ConfigError
from sepp.config.example import render
from sepp.config.load import DEFAULT_PATH, load
from sepp.quoting import quote

FILE_MODE: Final = 0o600  # it holds secrets

config: Final = App(name="config", help="Print, check or create a configuration file.")


@config.command
def example() -> int:
    """Print the example file: every key with its explanation and default.

    Example: `sepp-trio config example > sepp.toml`
    """
    print(render(), end="")
    return exits.OK


@config.command
def check(
    file: Annotated[str, Parameter(help="The TOML file.")],
    /,
    *,
    environment: Annotated[
        bool, Parameter(help="Lay the SEPP_ variables of this shell over the file, as serve does.")
    ] = True,
) -> int:
    """Check a configuration file, without starting anything.

    Exit code 0: a server would accept it; 1: it would not, and the reason is shown. Keys that name
    nothing and are ignored, and forms that are out of date, are pointed out.

    Example: `sepp-trio config check /etc/sepp/sepp.toml`
    """
    loaded = load(file, os.environ if environment else {})
    for path in loaded.unknown:
        print(f"warning: {path}: unknown key, ignored", file=sys.stderr)
    for text in loaded.warnings:
        print(f"warning: {text}", file=sys.stderr)
    for path in loaded.env_pinned:
        print(f"note: {path}: set by the environment", file=sys.stderr)
    print(f"{quote(file)}: valid")
    return exits.OK


@config.command
def init(
    path: Annotated[str, Parameter(help="Where to write it. It must not exist.")] = DEFAULT_PATH, /
) -> int:
    """Write the example file with a random admin key, and print that key once.

    Only the owner can read the file. The key is stored in it and shown nowhere else.

    Example: `sepp-trio config init /etc/sepp/sepp.toml`
    """
    admin_key = secrets.token_urlsafe(32)
    try:
        _write_new(path, render(admin_key).encode())
    except FileExistsError:
        raise ConfigError("", f"{quote(path)} exists; it was left as it is") from None
    except (OSError, ValueError) as fault:  # ValueError: a NUL character in the path
        reason = fault.strerror if isinstance(fault, OSError) else fault
        raise ConfigError("", f"cannot write {quote(path)}: {reason}") from None
    print(f"wrote {quote(path)}")
    print("admin name: admin")
    print(f"admin key:  {admin_key}  (shown only now)")
    return exits.OK


def _write_new(path: str, data: bytes) -> None:
    """Create `path` with `data`, for its owner alone; durable when it returns."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
    try:
        with os.fdopen(fd, "wb") as file:
            os.fchmod(file.fileno(), FILE_MODE)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        os.unlink(path)  # half a file would pass for a configuration
        raise
    # Sync the directory too: without it the name can vanish on power loss.
    directory = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
