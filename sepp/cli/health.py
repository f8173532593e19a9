"""`sepp-trio health`: ask a server how it is, for the probes of containers and scripts."""

from typing import Annotated, Final

from cyclopts import Parameter

from sepp import exits

ADDRESS: Final = "127.0.0.1:50051"
SERVICE: Final = "sepp.v1.QueueService"


def health(
    *,
    addr: Annotated[str, Parameter(help="HOST:PORT of the gRPC listener.")] = ADDRESS,
    service: Annotated[
        str, Parameter(help='What to ask about; "" for the process as such (liveness).')
    ] = SERVICE,
    timeout_ms: Annotated[int, Parameter(help="Longest wait for the answer.")] = 3000,
    ca: Annotated[
        str | None, Parameter(help="Use TLS and trust this PEM file of certificate authorities.")
    ] = None,
    server_name: Annotated[
        str | None, Parameter(help="Name in the server's certificate, if other than HOST.")
    ] = None,
) -> int:
    """Print the health of a server. Exit code 0: it serves; 1: it does not, or cannot be reached.

    Example: `sepp-trio health --addr 127.0.0.1:50051`
    """
    host, colon, port = addr.rpartition(":")
    if not colon or not port.isascii() or not port.isdecimal():
        raise exits.StartError(f"--addr {addr!r} is no HOST:PORT")
    from sepp.cli.probe import ask  # other verbs need no client

    status = ask(
        host.strip("[]"), int(port), service, timeout_s=timeout_ms / 1000, ca=ca, name=server_name
    )
    print(status)
    return exits.OK if status == "SERVING" else exits.FAILED
