"""From what a caller says about a server to a running link."""

import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Final

import trio

from sepp.client.errors import ConnectError, InvalidApiKeyError
from sepp.client.link import Link, Target
from sepp.rpc.address import parse_server_address
from sepp.rpc.grpc import RECEIVE_BYTES_MAX, RpcError
from sepp.rpc.poller import Poller
from sepp.rpc.transport import tls_client_context

logger = logging.getLogger("sepp")

_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")


def make_target(
    addr: str,
    *,
    api_key: str | None,
    tls: bool,
    tls_ca_cert: bytes | None,
    tls_domain: str | None,
    ssl_context: ssl.SSLContext | None,
    connect_timeout: timedelta,
    receive_bytes_max: int | None,
) -> Target:
    """Return where to connect, and how; arguments as for `SeppClient.connect`.

    Raises:
        InvalidApiKeyError: The key cannot be sent.
        ValueError: `addr` is no address, or the certificates are no PEM.
    """
    host, port, is_https = parse_server_address(addr)
    metadata = key_metadata(api_key)
    is_tls = tls or is_https or tls_ca_cert is not None or tls_domain is not None
    if ssl_context is None and is_tls:
        pem = None if tls_ca_cert is None else tls_ca_cert.decode("ascii")
        ssl_context = tls_client_context(ca_pem=pem)
    if metadata and ssl_context is None and host not in _LOOPBACK:
        logger.warning("the API key goes to %s in plain text; use TLS", addr)
    return Target(
        host=host,
        port=port,
        ssl_context=ssl_context,
        server_hostname=tls_domain,
        metadata=metadata,
        connect_timeout_s=connect_timeout.total_seconds(),
        receive_bytes_max=receive_bytes_max or RECEIVE_BYTES_MAX,
    )


def key_metadata(api_key: str | None) -> tuple[tuple[bytes, bytes], ...]:
    """Return the header that carries an API key."""
    if api_key is None:
        return ()
    if not api_key or not api_key.isascii() or not api_key.isprintable() or " " in api_key:
        raise InvalidApiKeyError
    return ((b"authorization", b"Bearer " + api_key.encode()),)


@asynccontextmanager
async def linked(target: Target, addr: str) -> AsyncIterator[Link]:
    """Run a link. What the block raises comes out as it is, not as a group."""
    failure: BaseException | None = None
    async with trio.open_nursery() as nursery:
        poller = Poller()
        await nursery.start(poller.run)
        link = Link(nursery, poller, target)
        try:
            await link.connect()
        except RpcError as error:
            failure = ConnectError(addr, error.text)
            failure.__cause__ = error
        else:
            try:
                yield link
            except BaseException as error:  # noqa: BLE001  # raised again below
                failure = error
        link.close()
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure
