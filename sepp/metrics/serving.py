"""The listener of /metrics and the push over OTLP, as configured, for the life of the process.

Faults of either stay here: they are logged and never end the server.
"""

import socket
from typing import Final

import trio

from sepp import exits, http1
from sepp.binding import bind
from sepp.config.address import Address, parse_address
from sepp.config.model import Config
from sepp.logs import get_logger
from sepp.metrics.endpoint import Endpoint
from sepp.metrics.reading import Sources

log = get_logger("sepp.metrics")

# How long scrapes under way may take once the server stops.
GRACE_S: Final = 1.0


async def serve(
    config: Config,
    sources: Sources,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve and push until cancelled; the port is bound once `task_status` was told.

    When cancelled, scrapes under way are finished and the last figures are pushed.

    Raises:
        StartError: The port cannot be bound, or the extra `otel` is missing.
    """
    metrics = config.metrics
    push = None
    if metrics.enabled:
        try:
            from sepp.metrics.otlp import open_push
        except ModuleNotFoundError as fault:
            raise exits.missing_extra("metrics.enabled", fault) from None
        push = open_push(config, sources)
    stop = trio.Event()
    async with trio.open_nursery() as nursery:
        if metrics.prometheus_enabled:
            listening = _bind(metrics.prometheus_listen_addr)
            endpoint = Endpoint(
                sources,
                service_name=config.tracing.service_name,
                queues_max=metrics.max_queues,
            )
            reserved = config.transport.reserved_descriptors // 2  # a scrape gets in during a flood
            nursery.start_soon(_listen, endpoint, listening, reserved, stop)
        if push is not None:
            nursery.start_soon(push.run, stop)
        task_status.started()
        try:
            await trio.sleep_forever()
        finally:
            stop.set()


def _bind(addr: str) -> socket.socket:
    address = parse_address(addr)
    assert address is not None, "checked with the configuration"
    try:
        listening = bind(address.host, address.port)
    except OSError as fault:
        raise exits.StartError(
            f"cannot listen on metrics.prometheus_listen_addr {addr}: {fault.strerror}"
        ) from None
    port = listening.getsockname()[1]
    log.info("prometheus metrics endpoint listening", addr=str(Address(address.host, port)))
    return listening


async def _listen(
    endpoint: Endpoint, listening: socket.socket, reserved: int, stop: trio.Event
) -> None:
    # Shielded: it ends by `stop`, in its own order; a bare cancel would cut answers short.
    with trio.CancelScope(shield=True):
        try:
            await http1.serve(
                endpoint,
                [listening],
                stop=stop,
                grace_s=GRACE_S,
                reserved_descriptors=reserved,
            )
        except Exception as fault:  # noqa: BLE001  # whatever it is, jobs matter more than figures
            log.error("metrics endpoint failed; the server goes on without", error=repr(fault))
