"""purerpc's own client, an independent peer: a few calls of each RPC, good and bad."""

import gc
from collections.abc import AsyncIterator, Iterator
from typing import Any

import purerpc
import pytest
from purerpc import StatusCode

from sepp import __version__
from sepp._generated import queue_pb2 as pb
from sepp._generated.health_pb2 import HealthCheckRequest, HealthCheckResponse
from sepp._generated.health_purerpc import HealthStub
from sepp._generated.queue_purerpc import QueueServiceStub
from tests.conformance.client import DEAD_LETTER, connected, in_ms, job, payload, span
from tests.conformance.conftest import Servers
from tests.e2e.server_process import ServerProcess

pytestmark = [
    pytest.mark.usefixtures("leftovers"),
    # Its client leaves sockets and streams to the collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
SOME_ID = "01234567-89ab-4def-8123-456789abcdef"


@pytest.fixture
def leftovers() -> Iterator[None]:
    """Collect what the peer left behind with the test that left it."""
    yield
    gc.collect()


@pytest.fixture
async def stub(server: ServerProcess) -> AsyncIterator[Any]:
    """The peer's stub."""
    async with purerpc.insecure_channel("127.0.0.1", server.port) as channel:
        yield QueueServiceStub(channel)


async def take(stub: Any, queue: str, lease_ms: int = 60_000) -> pb.Job:
    """Reserve the one job of a queue."""
    request = pb.ReserveRequest(queues=[queue], lease_duration=span(lease_ms))
    (found,) = (await stub.Reserve(request)).jobs
    return found


async def put(stub: Any, queue: str, **fields: Any) -> str:
    """Enqueue one job."""
    answer = await stub.EnqueueBatch(pb.EnqueueBatchRequest(jobs=[job(queue, **fields)]))
    return str(answer.results[0].success.job_id)


async def test_a_life_from_enqueue_to_ack(stub: Any, queue: str) -> None:
    job_id = await put(stub, queue, payload=payload(b"x" * 100_000))
    found = await take(stub, queue)
    assert (found.id, len(found.payload.data)) == (job_id, 100_000)
    answer = await stub.Ack(pb.AckRequest(job_id=job_id, attempt=1))
    assert answer.job_id == job_id


async def test_an_atomic_batch(stub: Any, queue: str) -> None:
    jobs = [job(queue)] * 3
    good = await stub.EnqueueAtomic(pb.EnqueueBatchRequest(jobs=jobs))
    assert len(good.success.responses) == 3
    bad = await stub.EnqueueAtomic(pb.EnqueueBatchRequest(jobs=[*jobs, job("")]))
    assert [each.index for each in bad.rejection.errors] == [3]


async def test_nack_drain_and_extend(stub: Any, queue: str) -> None:
    await put(stub, queue)
    found = await take(stub, queue)
    extend = pb.ExtendRequest(job_id=found.id, attempt=1, lease_duration=span(90_000))
    answer = await stub.Extend(extend)
    assert in_ms(answer.lease_expires_at) > in_ms(found.lease_expires_at)
    nack = pb.NackRequest(job_id=found.id, attempt=1, retry=DEAD_LETTER, reason="größe")
    assert (await stub.Nack(nack)).dead_lettered
    drained = await stub.DrainDeadLetters(pb.DrainDeadLettersRequest(queue=queue))
    assert [record.last_reason for record in drained.records] == ["größe"]


async def test_a_wait_that_ends_empty_and_one_that_does_not(stub: Any, queue: str) -> None:
    request = pb.ReserveRequest(queues=[queue], lease_duration=span(1000), wait_timeout=span(20))
    assert len((await stub.Reserve(request)).jobs) == 0
    now = (await stub.GetServerInfo(pb.GetServerInfoRequest())).server_time
    now.FromNanoseconds(now.ToNanoseconds() + 30_000_000)
    await put(stub, queue, scheduled_at=now)
    request.wait_timeout.CopyFrom(span(20_000))
    assert len((await stub.Reserve(request)).jobs) == 1


async def test_the_servers_facts(stub: Any) -> None:
    info = await stub.GetServerInfo(pb.GetServerInfoRequest())
    assert (info.server_version, list(info.supported_protocol_versions)) == (__version__, ["v1"])


BAD: dict[str, tuple[str, Any, StatusCode]] = {
    "an empty batch": ("EnqueueBatch", pb.EnqueueBatchRequest(), StatusCode.INVALID_ARGUMENT),
    "an empty atomic batch": (
        "EnqueueAtomic",
        pb.EnqueueBatchRequest(),
        StatusCode.INVALID_ARGUMENT,
    ),
    "no queue": ("Reserve", pb.ReserveRequest(), StatusCode.INVALID_ARGUMENT),
    "an unknown job": ("Ack", pb.AckRequest(job_id=SOME_ID, attempt=1), StatusCode.NOT_FOUND),
    "a nack of nothing": (
        "Nack",
        pb.NackRequest(job_id=SOME_ID, attempt=1),
        StatusCode.NOT_FOUND,
    ),
    "an extension of no length": (
        "Extend",
        pb.ExtendRequest(job_id=SOME_ID, attempt=1),
        StatusCode.INVALID_ARGUMENT,
    ),
    "a drain of none": (
        "DrainDeadLetters",
        pb.DrainDeadLettersRequest(max=0),
        StatusCode.INVALID_ARGUMENT,
    ),
}


@pytest.mark.parametrize("what", BAD)
async def test_a_refusal_reaches_the_peer_with_code_and_message(stub: Any, what: str) -> None:
    method, request, code = BAD[what]
    with pytest.raises(purerpc.RpcFailedError) as caught:
        await getattr(stub, method)(request)
    assert caught.value.status.status_code is code
    assert caught.value.status.status_message


async def test_a_stale_attempt_is_refused(stub: Any, queue: str) -> None:
    job_id = await put(stub, queue)
    await take(stub, queue)
    with pytest.raises(purerpc.RpcFailedError) as caught:
        await stub.Ack(pb.AckRequest(job_id=job_id, attempt=2))
    assert caught.value.status.status_code is StatusCode.FAILED_PRECONDITION


async def test_a_key_in_the_metadata_lets_the_peer_in(servers: Servers) -> None:
    server = servers.get({"auth": {"api_keys": ["secret"]}})
    async with purerpc.insecure_channel("127.0.0.1", server.port) as channel:
        stub = QueueServiceStub(channel)
        with pytest.raises(purerpc.RpcFailedError) as caught:
            await stub.GetServerInfo(pb.GetServerInfoRequest())
        assert caught.value.status.status_code is StatusCode.UNAUTHENTICATED
        metadata = (("authorization", "Bearer secret"),)
        await stub.GetServerInfo(pb.GetServerInfoRequest(), metadata=metadata)


async def test_a_purerpc_client_reads_the_health(server: ServerProcess) -> None:
    async with purerpc.insecure_channel("127.0.0.1", server.port) as channel:
        answer = await HealthStub(channel).Check(HealthCheckRequest(service=""))
    assert answer.status == HealthCheckResponse.SERVING


async def test_both_clients_see_the_same_jobs(stub: Any, server: ServerProcess, queue: str) -> None:
    job_id = await put(stub, queue)
    async with connected(server.port) as ours:
        found = await ours.take(queue)
    assert found.id == job_id
    await stub.Ack(pb.AckRequest(job_id=job_id, attempt=1))
