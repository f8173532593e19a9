"""One question to the standard health service of a server."""

from functools import partial
from typing import Final

import trio

from sepp import exits
from sepp._generated.health_pb2 import HealthCheckRequest, HealthCheckResponse
from sepp.rpc.channel import open_channel
from sepp.rpc.grpc import RpcError
from sepp.rpc.transport import tls_client_context

PATH: Final = "/grpc.health.v1.Health/Check"


def ask(
    host: str, port: int, service: str, *, timeout_s: float, ca: str | None, name: str | None
) -> str:
    """Return the status of a service as the protocol names it.

    Args:
        ca: PEM file of authorities: use TLS. None: plain TCP.
        name: Name in the server's certificate, if other than `host`.

    Raises:
        StartError: There is no answer; the text says why.
    """
    return trio.run(partial(_ask, host, port, service, timeout_s, ca=ca, name=name))


async def _ask(
    host: str, port: int, service: str, timeout_s: float, *, ca: str | None, name: str | None
) -> str:
    """Return the status as its name; StartError when there is no answer."""
    where = f"{host}:{port}"
    try:
        context = None if ca is None else tls_client_context(ca)
        with trio.fail_after(timeout_s):
            async with open_channel(
                host, port, ssl_context=context, server_hostname=name
            ) as channel:
                message = HealthCheckRequest(service=service).SerializeToString()
                answer = await channel.unary(PATH, message, timeout_s=timeout_s)
    except* RpcError as group:
        raise exits.StartError(f"{where}: {_first(group)}") from None
    except* trio.TooSlowError:
        raise exits.StartError(f"{where}: no answer in {timeout_s * 1000:.0f} ms") from None
    except* OSError as group:
        raise exits.StartError(f"{where}: {_first(group)}") from None
    status: str = HealthCheckResponse.ServingStatus.Name(
        HealthCheckResponse.FromString(answer).status
    )
    return status


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    fault: BaseException = group
    while isinstance(fault, BaseExceptionGroup):
        fault = fault.exceptions[0]
    return fault
