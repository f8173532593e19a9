"""Verbs that speak gRPC: connect, do it, and turn what goes wrong into one line."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

import trio

from sepp.cli.options import Server
from sepp.client import RetryPolicy, SeppClient, SeppError, UnauthenticatedError
from sepp.exits import StartError

T = TypeVar("T")

# A person waits a few seconds for a server that restarts, not longer.
POLICY = RetryPolicy(
    max_attempts=5,
    initial_backoff=timedelta(milliseconds=200),
    max_backoff=timedelta(seconds=2),
)


def run_with(
    server: Server,
    do: Callable[[SeppClient], Awaitable[T]],
    policy: RetryPolicy = POLICY,
) -> T:
    """Connect, run `do` with the client, and return what it returns.

    Raises:
        StartError: A call failed, or no server could be reached.
    """

    async def main() -> T:
        async with SeppClient.connect(
            server.addr,
            api_key=server.key,
            retry_policy=policy,
            tls_ca_cert=_read(server.ca),
            tls_domain=server.server_name,
            max_receive_message_bytes=64 * 1024 * 1024,
        ) as client:
            return await do(client)

    try:
        return trio.run(main)
    except (SeppError, ValueError) as error:
        text = " ".join(str(error).split())
        if isinstance(error, UnauthenticatedError):
            text = f"{text}; give an API key with --key or SEPP_KEY"
        raise StartError(text) from error


def _read(path: str | None) -> bytes | None:
    if path is None:
        return None
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise StartError(f"cannot read {path!r}: {error.strerror}") from None
