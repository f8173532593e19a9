"""`sepp-trio health`: ask a server how it is, for the probes of containers and scripts."""

from typing import Annotated, Final

from cyclopts import Parameter

from sepp import exits
from sepp.cli.options import SERVER, AsJson, Server, UsageError, whole
from sepp.cli.output import print_json

SERVICE: Final = "sepp.v1.QueueService"


def health(
    *,
    server: Server = SERVER,
    service: Annotated[
        str, Parameter(help='What to ask about; "" for the process as such (liveness).')
    ] = SERVICE,
    timeout_ms: Annotated[int, whole("Longest wait for the answer.")] = 3000,
    json: AsJson = False,
) -> int:
    """Print the health of a server. Exit code 0: it serves; 1: it does not, or cannot be reached.

    The health service asks for no key; one that is given is sent, for what may stand in between.

    Example: `sepp-trio health --addr 127.0.0.1:50051`
    """
    from sepp.cli.probe import ask  # other verbs need no client

    try:
        status = ask(server, service, timeout_s=timeout_ms / 1000)
    except ValueError as error:
        raise UsageError(f"--addr: {error}") from error
    if json:
        print_json({"service": service, "status": status})
    else:
        print(status)
    return exits.OK if status == "SERVING" else exits.FAILED
