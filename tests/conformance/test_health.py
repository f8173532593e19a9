"""grpc.health.v1 on the port of the queue service, and when it tells what."""

import signal

import pytest
import trio
from purerpc import StatusCode

from sepp._generated.health_pb2 import HealthCheckRequest, HealthCheckResponse
from sepp.rpc.channel import RpcError
from tests.conformance.client import connected
from tests.conformance.conftest import Servers
from tests.conformance.test_auth import SETTINGS
from tests.rpc.frames import DATA, RawPeer, message, request

CHECK = "/grpc.health.v1.Health/Check"
WATCH = "/grpc.health.v1.Health/Watch"
QUEUES = "sepp.v1.QueueService"
SERVING = HealthCheckResponse.SERVING
NOT_SERVING = HealthCheckResponse.NOT_SERVING
UNKNOWN = HealthCheckResponse.SERVICE_UNKNOWN


def asking(name: str) -> bytes:
    """The request for one name."""
    return HealthCheckRequest(service=name).SerializeToString()


async def check(port: int, name: str) -> int:
    """The status of one name."""
    async with connected(port) as rpc:
        answer = await rpc.channel.unary(CHECK, asking(name), timeout_s=20)
    return HealthCheckResponse.FromString(answer).status


@pytest.mark.parametrize("name", ["", QUEUES])
async def test_both_names_serve(servers: Servers, name: str) -> None:
    assert await check(servers.get({}).port, name) == SERVING


@pytest.mark.parametrize("name", ["", QUEUES])
async def test_no_key_is_needed(servers: Servers, name: str) -> None:
    assert await check(servers.get(SETTINGS).port, name) == SERVING


@pytest.mark.parametrize("name", ["nobody", "sepp.v1", QUEUES.lower(), "grpc.health.v1.Health"])
async def test_other_names_are_not_found(servers: Servers, name: str) -> None:
    async with connected(servers.get({}).port) as rpc:
        with pytest.raises(RpcError) as caught:
            await rpc.channel.unary(CHECK, asking(name), timeout_s=20)
    assert caught.value.code is StatusCode.NOT_FOUND


async def statuses(peer: RawPeer, count: int) -> list[int]:
    """The first statuses a watching peer was sent."""
    await peer.until_frame(DATA, count)
    return [HealthCheckResponse.FromString(f.payload[5:]).status for f in peer.of_kind(DATA)]


@pytest.mark.parametrize(
    ("name", "status"), [("", SERVING), (QUEUES, SERVING), ("nobody", UNKNOWN)]
)
async def test_watch_starts_with_the_present_and_stays_open(
    servers: Servers, name: str, status: int
) -> None:
    peer = await RawPeer.greeted(servers.get({}).port)
    await peer.send(request(1, WATCH, message(asking(name))))
    assert await statuses(peer, 1) == [status]
    assert not peer.answer(1).is_ended
    await peer.close()


async def test_at_shutdown_the_queue_service_stops_serving_before_the_process_ends(
    servers: Servers,
) -> None:
    server = servers.new({})
    peer = await RawPeer.greeted(server.port)
    await peer.send(request(1, WATCH, message(asking(QUEUES))))
    await peer.send(request(3, WATCH, message(asking(""))))
    await statuses(peer, 2)

    server.send(signal.SIGTERM)

    assert sorted(await statuses(peer, 3)) == [SERVING, SERVING, NOT_SERVING]
    await peer.close()
    assert await trio.to_thread.run_sync(server.wait) == 0
