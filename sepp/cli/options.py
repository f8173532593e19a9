"""What several verbs have in common: where the server is, which key, how to print."""

import re
from collections.abc import Sequence
from typing import Annotated, Final

from attrs import frozen
from cyclopts import Parameter, Token

from sepp.config.table import U32_MAX
from sepp.exits import StartError


class UsageError(StartError):
    """The command line asks for what cannot be meant; exit code 2."""


ADDRESS: Final = "127.0.0.1:50051"
ADMIN: Final = "http://127.0.0.1:9465"

_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,30}", re.ASCII)


def whole(help: str, *, least: int = 1, most: int = U32_MAX) -> Parameter:
    """Return the parameter of an option that takes a whole number within bounds."""

    def convert(_: object, tokens: Sequence[Token]) -> int:
        text = tokens[0].value
        number = int(text) if _WHOLE.fullmatch(text) else None
        if number is None or not least <= number <= most:
            raise ValueError(f"{text!r} is no whole number from {least} to {most}.")
        return number

    return Parameter(help=help, converter=convert)


AsJson = Annotated[
    bool, Parameter(name="--json", negative="", help="Print JSON for programs, not text.")
]
Yes = Annotated[bool, Parameter(name="--yes", negative="", help="Do not ask.")]


@Parameter(name="*")
@frozen
class Server:
    """The gRPC side of a server."""

    addr: Annotated[
        str,
        Parameter(
            name="--addr",
            env_var="SEPP_ADDR",
            help="HOST:PORT of the gRPC listener; https:// for TLS.",
        ),
    ] = ADDRESS
    key: Annotated[
        str | None, Parameter(name="--key", env_var="SEPP_KEY", help="API key, if the server asks.")
    ] = None
    ca: Annotated[
        str | None,
        Parameter(name="--ca", help="Use TLS and trust this PEM file of certificate authorities."),
    ] = None
    server_name: Annotated[
        str | None,
        Parameter(name="--server-name", help="Name in the server's certificate, if not HOST."),
    ] = None


@Parameter(name="*")
@frozen
class Admin:
    """The admin side of a server."""

    admin: Annotated[
        str, Parameter(name="--admin", env_var="SEPP_ADMIN", help="URL of the admin listener.")
    ] = ADMIN
    key: Annotated[
        str | None,
        Parameter(
            name="--key", env_var=["SEPP_ADMIN_KEY", "SEPP_KEY"], help="Admin key, if one is set."
        ),
    ] = None
    ca: Annotated[
        str | None,
        Parameter(name="--ca", help="Trust this PEM file of certificate authorities."),
    ] = None


SERVER: Final = Server()
ADMIN_SIDE: Final = Admin()
