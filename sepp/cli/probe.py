"""One question to the standard health service of a server."""

from functools import partial
from typing import Final

import trio

from sepp import exits
from sepp._generated.health_pb2 import HealthCheckRequest, HealthCheckResponse
from sepp.cli.options import Server
from sepp.rpc.address import parse_server_address
from sepp.rpc.channel import Metadata, open_channel
from sepp.rpc.grpc import RpcError
from sepp.rpc.transport import tls_client_context

PATH: Final = "/grpc.health.v1.Health/Check"


def ask(server: Server, service: str, *, timeout_s: float) -> str:
    """Return the status of a service as the protocol names it.

    Raises:
        StartError: There is no answer; the text says why.
        ValueError: The address is none.
    """
    return trio.run(partial(_ask, server, service, timeout_s))


async def _ask(server: Server, service: str, timeout_s: float) -> str:
    """Return the status as its name; StartError when there is no answer."""
    host, port, is_tls = parse_server_address(server.addr)
    where = f"{host}:{port}"
    metadata: Metadata = ()
    if server.key is not None:
        from sepp.client.connect import key_metadata  # a probe without a key starts faster

        metadata = key_metadata(server.key)
    try:
        context = tls_client_context(server.ca) if is_tls or server.ca else None
        with trio.fail_after(timeout_s):
            async with open_channel(
                host, port, ssl_context=context, server_hostname=server.server_name
            ) as channel:
                message = HealthCheckRequest(service=service).SerializeToString()
                answer = await channel.unary(PATH, message, timeout_s=timeout_s, metadata=metadata)
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
