"""The standard health service, asked by purerpc's own client as an independent peer."""

import purerpc
import pytest
import trio
from purerpc import StatusCode

from sepp._generated.health_pb2 import HealthCheckRequest, HealthCheckResponse
from sepp._generated.health_purerpc import HealthStub
from sepp.rpc.health import Health
from tests.rpc import frames
from tests.rpc.support import purerpc_channel, serving

pytestmark = [
    pytest.mark.usefixtures("purerpc_leftovers"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

SERVING = HealthCheckResponse.SERVING
NOT_SERVING = HealthCheckResponse.NOT_SERVING
UNKNOWN = HealthCheckResponse.SERVICE_UNKNOWN
WATCH = "/grpc.health.v1.Health/Watch"


async def test_check_tells_the_status_of_each_name():
    health = Health([""], ["some.Service"])
    async with (
        serving(health) as harness,
        purerpc_channel(harness) as channel,
    ):
        check = HealthStub(channel).Check

        assert (await check(HealthCheckRequest(service=""))).status == SERVING
        assert (await check(HealthCheckRequest(service="some.Service"))).status == NOT_SERVING

        health.set("some.Service", is_serving=True)

        assert (await check(HealthCheckRequest(service="some.Service"))).status == SERVING


async def test_check_of_an_unknown_name_is_not_found():
    async with (
        serving(Health([""])) as harness,
        purerpc_channel(harness) as channel,
    ):
        with pytest.raises(purerpc.RpcFailedError) as caught:
            await HealthStub(channel).Check(HealthCheckRequest(service="nobody"))

        assert caught.value.status.status_code is StatusCode.NOT_FOUND
        assert caught.value.status.status_message == "unknown service 'nobody'"


async def test_watch_streams_each_change_and_starts_with_the_present():
    health = Health([""])
    async with (
        serving(health) as harness,
        purerpc_channel(harness) as channel,
    ):
        with trio.fail_after(10):
            stream = HealthStub(channel).Watch(HealthCheckRequest(service="late.Service"))

            assert (await anext(stream)).status == UNKNOWN
            health.set("late.Service", is_serving=False)
            harness.server.flush()
            assert (await anext(stream)).status == NOT_SERVING
            health.set("late.Service", is_serving=False)
            health.set("late.Service", is_serving=True)
            harness.server.flush()
            assert (await anext(stream)).status == SERVING


@pytest.mark.parametrize("how", ["reset", "close"])
async def test_a_watcher_that_left_is_forgotten(how):
    health = Health([""])
    async with serving(health) as harness:
        peer = await frames.RawPeer.greeted(harness.port)
        await peer.send(frames.request(1, WATCH, frames.message(b"")))
        await peer.until_frame(frames.DATA)
        assert len(health._watchers) == 1

        if how == "reset":
            await peer.send(frames.reset(1))
        else:
            await peer.close()

        await harness.until(lambda: health._watchers == {})
        assert harness.server.statistics().streams_open == 0
        await peer.close()
