"""The standard health service, asked by purerpc's own client as an independent peer."""

import purerpc
import pytest
import trio
from purerpc import StatusCode

from sepp._generated.health_pb2 import HealthCheckRequest, HealthCheckResponse
from sepp._generated.health_purerpc import HealthStub
from sepp.rpc.health import Health
from tests.rpc.support import serving

SERVING = HealthCheckResponse.SERVING
NOT_SERVING = HealthCheckResponse.NOT_SERVING
UNKNOWN = HealthCheckResponse.SERVICE_UNKNOWN


async def test_check_tells_the_status_of_each_name():
    health = Health([""], ["some.Service"])
    async with serving(health) as harness, purerpc.insecure_channel("127.0.0.1", harness.port) as c:
        stub = HealthStub(c)

        assert (await stub.Check(HealthCheckRequest(service=""))).status == SERVING
        assert (await stub.Check(HealthCheckRequest(service="some.Service"))).status == NOT_SERVING

        health.set("some.Service", is_serving=True)

        assert (await stub.Check(HealthCheckRequest(service="some.Service"))).status == SERVING


async def test_check_of_an_unknown_name_is_not_found():
    async with (
        serving(Health([""])) as harness,
        purerpc.insecure_channel("127.0.0.1", harness.port) as c,
    ):
        with pytest.raises(purerpc.RpcFailedError) as caught:
            await HealthStub(c).Check(HealthCheckRequest(service="nobody"))

    assert caught.value.status.status_code is StatusCode.NOT_FOUND


async def test_watch_streams_each_change_and_starts_with_the_present():
    health = Health([""])
    async with serving(health) as harness, purerpc.insecure_channel("127.0.0.1", harness.port) as c:
        with trio.fail_after(10):
            stream = HealthStub(c).Watch(HealthCheckRequest(service="late.Service"))

            assert (await anext(stream)).status == UNKNOWN
            health.set("late.Service", is_serving=False)
            harness.server.flush()
            assert (await anext(stream)).status == NOT_SERVING
            health.set("late.Service", is_serving=False)
            health.set("late.Service", is_serving=True)
            harness.server.flush()
            assert (await anext(stream)).status == SERVING
            await stream.aclose()


async def test_a_watcher_that_left_is_forgotten():
    health = Health([""])
    async with serving(health) as harness:
        async with purerpc.insecure_channel("127.0.0.1", harness.port) as c:
            stream = HealthStub(c).Watch(HealthCheckRequest(service=""))
            await anext(stream)
            assert harness.server.statistics().streams_open == 1
            await stream.aclose()

        await harness.until(lambda: harness.server.statistics().connections == 0)
        assert health._watchers == {}
