"""What a healthy server never says: too much at once, no room, a failed disk, starting, stopping.

RESOURCE_EXHAUSTED and UNAVAILABLE promise that nothing was stored: clients send keyless jobs again.
"""

import errno

import pytest
import trio
import trio.testing
from purerpc import StatusCode
from trio.testing import MockClock

from segstore import StoreFailed
from sepp._generated import queue_pb2 as pb
from sepp.auth import ApiKeys
from sepp.clock import Clock
from sepp.config.model import Config
from sepp.config.policy import QueuePolicy
from sepp.rpc.channel import RpcError
from sepp.service import QueueService
from tests.conformance.client import REQUESTS, RESPONSES, job, payload, span
from tests.conformance.local import LocalCall, LocalClient, Place
from tests.fakes.faults import Fault
from tests.fakes.simvfs import SimVFS
from tests.spine.desk import Gate

MIB = 1 << 20


async def code_of(call: LocalCall, method: str) -> StatusCode:
    """How a call ended."""
    try:
        await call.result(RESPONSES[method])
    except RpcError as error:
        return error.code if error.text else StatusCode.UNKNOWN
    return StatusCode.OK


def enqueue(rpc: LocalClient, size: int = 1) -> LocalCall:
    """Start an enqueue of so many bytes."""
    request = pb.EnqueueBatchRequest(jobs=[job("q", payload=payload(bytes(size)))])
    return rpc.start("EnqueueBatch", request)


async def look_at_the_disk(rpc: LocalClient) -> None:
    """Let the store see how much room there is, and the committer ask it anew."""
    await rpc.store.maintain()
    await trio.sleep(0.002)


async def test_a_full_disk_refuses_enqueues_stores_nothing_and_lets_workers_finish(
    autojump_clock: MockClock,
) -> None:
    place = Place()
    async with place.serving() as rpc:
        await rpc.enqueue("q")
        await look_at_the_disk(rpc)  # which sets space aside
        place.disk.free = 0
        await look_at_the_disk(rpc)
        assert await code_of(enqueue(rpc), "EnqueueBatch") is StatusCode.RESOURCE_EXHAUSTED
        atomic = rpc.start("EnqueueAtomic", pb.EnqueueBatchRequest(jobs=[job("q")]))
        assert await code_of(atomic, "EnqueueAtomic") is StatusCode.RESOURCE_EXHAUSTED
        (found,) = await rpc.reserve("q", max_jobs=9)
        await rpc.extend(found, 1000)
        await rpc.ack(found)


async def test_enqueues_resume_by_themselves_once_there_is_room(autojump_clock: MockClock) -> None:
    place = Place()
    async with place.serving() as rpc:
        place.disk.free = 0
        await look_at_the_disk(rpc)
        assert await code_of(enqueue(rpc), "EnqueueBatch") is StatusCode.RESOURCE_EXHAUSTED
        place.disk.free = 1 << 40
        await look_at_the_disk(rpc)
        await rpc.enqueue("q")
        assert len(await rpc.reserve("q", max_jobs=9)) == 1


async def test_a_full_command_queue_refuses_after_five_seconds_and_stores_nothing(
    autojump_clock: MockClock,
) -> None:
    gate = Gate()
    settings = {
        "storage": {"command_queue_capacity": 1},
        "limits": {"max_payload_bytes": 5 * MIB, "max_message_bytes": 6 * MIB},
    }
    async with Place(settings, gate=gate).serving() as rpc:
        gate.shut()
        calls = [enqueue(rpc)]
        await trio.testing.wait_all_tasks_blocked()
        calls += [enqueue(rpc, 5 * MIB), enqueue(rpc), enqueue(rpc)]
        await trio.sleep(4.9)
        assert not calls[3].is_answered.is_set()
        await trio.sleep(0.2)
        assert await code_of(calls[3], "EnqueueBatch") is StatusCode.RESOURCE_EXHAUSTED
        gate.open()
        for call in calls[:3]:
            assert await code_of(call, "EnqueueBatch") is StatusCode.OK
        assert len(await rpc.reserve("q", max_jobs=9, wait_ms=1000)) >= 1
        assert rpc.machine.statistics().enqueued == 3


async def test_a_failed_sync_aborts_who_waited_and_answers_nobody_ok(
    autojump_clock: MockClock,
) -> None:
    disk = SimVFS()
    ended: list[StatusCode] = []
    with pytest.RaisesGroup(StoreFailed, flatten_subgroups=True):
        async with Place(disk=disk).serving() as rpc:
            disk.faults.append(Fault(errno.EIO, names=frozenset({"pwritev"}), path_part=".seg"))
            calls = [enqueue(rpc) for _ in range(3)]
            for call in calls:
                with trio.CancelScope(shield=True):
                    ended.append(await code_of(call, "EnqueueBatch"))
            await trio.sleep_forever()
    assert ended == [StatusCode.ABORTED] * 3


@pytest.mark.parametrize("method", REQUESTS)
async def test_once_it_stops_every_rpc_is_unavailable(
    autojump_clock: MockClock, method: str
) -> None:
    async with Place().serving() as rpc:
        rpc.service.stop()
        call = rpc.start(method, REQUESTS[method]())
        assert await code_of(call, method) is StatusCode.UNAVAILABLE


@pytest.mark.parametrize("method", REQUESTS)
async def test_before_it_serves_every_rpc_is_unavailable(method: str) -> None:
    service = QueueService(QueuePolicy(Config()), ApiKeys(None), Clock(), retention_ms=0)
    call = LocalCall(b"")
    getattr(service, method)(call)
    assert await code_of(call, method) is StatusCode.UNAVAILABLE


async def test_a_call_in_flight_at_the_stop_is_finished(autojump_clock: MockClock) -> None:
    gate = Gate()
    async with Place(gate=gate).serving() as rpc:
        gate.shut()
        call = enqueue(rpc)
        wait = pb.ReserveRequest(queues=["x"], lease_duration=span(9), wait_timeout=span(60_000))
        waiting = rpc.start("Reserve", wait)
        rpc.service.stop()
        rpc.committer.end_waits()
        gate.open()
        assert await code_of(call, "EnqueueBatch") is StatusCode.OK
        assert len((await waiting.result(pb.ReserveResponse)).jobs) == 0
