"""`sepp-trio serve`: run the server in the foreground."""

import os
from importlib.metadata import PackageNotFoundError, distribution
from typing import Annotated, Final

from cyclopts import Parameter

from sepp import exits
from sepp.config.load import load

RIVAL: Final = "sepp-py"
"""The official client's distribution. It imports as `sepp` too: one of us overwrote the other."""


def serve(
    *,
    config: Annotated[
        str | None,
        Parameter(help="TOML file. Default: the one SEPP_CONFIG names, else ./sepp.toml if any."),
    ] = None,
) -> int:
    """Run the server in the foreground until SIGTERM or SIGINT.

    Example: `sepp-trio serve --config /etc/sepp/sepp.toml`
    """
    refuse_rival()
    loaded = load(config, os.environ)
    from sepp import server  # a wrong configuration is told before the server is imported

    return server.run(loaded)


def refuse_rival() -> None:
    """Raise StartError when the official client is installed in our environment."""
    try:
        distribution(RIVAL)
    except PackageNotFoundError:
        return
    raise exits.StartError(
        f"the distribution {RIVAL} is installed in this environment; it imports as sepp, as we do, "
        "and the two cannot share one: give it a virtual environment of its own"
    )
