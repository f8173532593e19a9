"""What no message can say: malformed bytes, sizes, codings, deadlines, unknown methods."""

import gzip
from typing import Any

import pytest
import trio
from purerpc import StatusCode

from sepp._generated import queue_pb2 as pb
from sepp.rpc.channel import RpcError
from tests.conformance.client import REQUESTS, SERVICE, SocketClient, job, payload, span
from tests.e2e.server_process import ServerProcess
from tests.rpc import frames
from tests.rpc.frames import RawPeer

SETTINGS = {"limits": {"max_message_bytes": 20_000, "max_payload_bytes": 20_000}}
INFO = SERVICE + "GetServerInfo"
RESERVE = SERVICE + "Reserve"

MALFORMED = {
    "a length beyond the end": b"\x0a\x05ab",
    "a tag without a value": b"\x0a",
    "field number 0": b"\x02\x01a",
    "wire type 7": b"\x0f",
    "an end without a group": b"\x0c",
    "a varint without end": b"\x08" + b"\xff" * 11,
    "zeros": bytes(9),
    "text": b"GET / HTTP/1.1\r\n\r\n",
    "ones": b"\xff" * 64,
}


@pytest.mark.parametrize("method", REQUESTS)
@pytest.mark.parametrize("what", MALFORMED)
async def test_malformed_protobuf_is_internal_and_the_connection_lives(
    rpc: SocketClient, method: str, what: str
) -> None:
    with pytest.raises(RpcError) as caught:
        await rpc.raw(method, MALFORMED[what])
    assert caught.value.code is StatusCode.INTERNAL
    assert REQUESTS[method].DESCRIPTOR.name in caught.value.text
    await rpc.info()


NOT_UTF8 = {
    "EnqueueBatch": b"\x0a\x04\x0a\x02\xc3\x28",
    "EnqueueAtomic": b"\x0a\x04\x0a\x02\xc3\x28",
    "Reserve": b"\x0a\x02\xc3\x28",
    "Ack": b"\x0a\x02\xc3\x28",
    "Nack": b"\x1a\x03\xed\xa0\x80",  # a surrogate
    "Extend": b"\x22\x01\xff",
    "DrainDeadLetters": b"\x0a\x02\xc0\x80",  # an overlong zero
}


@pytest.mark.parametrize("method", NOT_UTF8)
async def test_a_string_that_is_not_utf_8_is_internal(rpc: SocketClient, method: str) -> None:
    with pytest.raises(RpcError) as caught:
        await rpc.raw(method, NOT_UTF8[method])
    assert caught.value.code is StatusCode.INTERNAL


@pytest.mark.parametrize("method", REQUESTS)
async def test_an_empty_message_is_a_request_without_fields(rpc: SocketClient, method: str) -> None:
    try:
        await rpc.raw(method, b"")
    except RpcError as error:
        assert error.code is StatusCode.INVALID_ARGUMENT  # noqa: PT017  # OK is right as well
        assert method not in ("GetServerInfo", "DrainDeadLetters")
    else:
        assert method in ("GetServerInfo", "DrainDeadLetters")


@pytest.mark.parametrize("method", REQUESTS)
async def test_unknown_fields_are_ignored(rpc: SocketClient, queue: str, method: str) -> None:
    requests: dict[str, Any] = {
        "EnqueueBatch": pb.EnqueueBatchRequest(jobs=[job(queue)]),
        "EnqueueAtomic": pb.EnqueueBatchRequest(jobs=[job(queue)]),
        "Reserve": pb.ReserveRequest(queues=[queue], lease_duration=span(1000)),
        "DrainDeadLetters": pb.DrainDeadLettersRequest(queue=queue),
    }
    if method in ("Ack", "Nack", "Extend"):
        await rpc.enqueue(queue)
        found = await rpc.take(queue)
        requests[method] = REQUESTS[method](job_id=found.id, attempt=1)
        if method == "Extend":
            requests[method].lease_duration.seconds = 9
    message = requests.get(method, pb.GetServerInfoRequest())
    await rpc.raw(method, message.SerializeToString() + b"\xfa\x3f\x03abc")


@pytest.mark.parametrize(
    "path",
    [
        "/sepp.v1.QueueService/Peek",
        "/sepp.v1.QueueService/enqueueBatch",
        "/sepp.v1.queueservice/Ack",
        "/sepp.v2.QueueService/Ack",
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        "/",
        "/sepp.v1.QueueService",
    ],
)
async def test_an_unknown_method_is_unimplemented(rpc: SocketClient, path: str) -> None:
    with pytest.raises(RpcError) as caught:
        await rpc.channel.unary(path, b"", timeout_s=20)
    assert caught.value.code is StatusCode.UNIMPLEMENTED


def sized(size: int) -> bytes:
    """A request of exactly so many bytes with one job that may be stored."""
    data = size - 40
    while True:
        request = pb.EnqueueBatchRequest(jobs=[job("sized", payload=payload(bytes(data)))])
        found = request.ByteSize()
        if found == size:
            return request.SerializeToString()
        data += size - found


async def test_a_message_of_exactly_the_limit_is_taken(rpc: SocketClient) -> None:
    await rpc.raw("EnqueueBatch", sized(20_000))


async def test_a_message_one_beyond_is_out_of_range_with_found_and_limit(
    server: ServerProcess,
) -> None:
    peer = await RawPeer.greeted(server.port)
    parked = frames.message(
        pb.ReserveRequest(
            queues=["nothing"], lease_duration=span(1), wait_timeout=span(60_000)
        ).SerializeToString()
    )
    await peer.send(frames.request(1, RESERVE, parked))
    answer = await peer.call(3, SERVICE + "EnqueueBatch", sized(20_001))
    assert answer.status == StatusCode.OUT_OF_RANGE.value
    assert "20001" in answer.text
    assert "20000" in answer.text
    assert (await peer.call(5, INFO)).status == 0
    assert not peer.answer(1).is_ended
    await peer.close()


async def test_a_prefix_of_four_gigabytes_is_out_of_range_at_once(server: ServerProcess) -> None:
    peer = await RawPeer.greeted(server.port)
    await peer.send(frames.headers_frame(1, frames.request_headers(INFO)))
    await peer.send(frames.data_frames(1, b"\0\xff\xff\xff\xff", is_end=False))
    answer = await peer.until_answered(1)
    assert answer.status == StatusCode.OUT_OF_RANGE.value
    assert (await peer.call(3, INFO)).status == 0
    await peer.close()


async def test_a_gzip_message_is_read_and_answered_plain(server: ServerProcess) -> None:
    peer = await RawPeer.greeted(server.port)
    body = gzip.compress(pb.EnqueueBatchRequest(jobs=[job("gzip")]).SerializeToString())
    header = (b"grpc-encoding", b"gzip")
    await peer.send(
        frames.request(1, SERVICE + "EnqueueBatch", frames.message(body, flag=1), header)
    )
    answer = await peer.until_answered(1)
    assert answer.status == 0
    assert answer.body[0] == 0
    assert answer.headers.get(b"grpc-encoding") in (None, b"identity")
    found = pb.EnqueueBatchResponse.FromString(answer.body[5:])
    assert found.results[0].WhichOneof("outcome") == "success"
    await peer.close()


async def test_a_gzip_message_that_grows_beyond_the_limit_is_out_of_range(
    server: ServerProcess,
) -> None:
    peer = await RawPeer.greeted(server.port)
    body = frames.message(gzip.compress(sized(20_001)), flag=1)
    await peer.send(frames.request(1, SERVICE + "EnqueueBatch", body, (b"grpc-encoding", b"gzip")))
    assert (await peer.until_answered(1)).status == StatusCode.OUT_OF_RANGE.value
    await peer.close()


async def test_another_coding_is_unimplemented_and_told_what_is_known(
    server: ServerProcess,
) -> None:
    peer = await RawPeer.greeted(server.port)
    body = frames.message(b"whatever", flag=1)
    await peer.send(frames.request(1, INFO, body, (b"grpc-encoding", b"zstd")))
    answer = await peer.until_answered(1)
    assert answer.status == StatusCode.UNIMPLEMENTED.value
    assert b"gzip" in answer.headers[b"grpc-accept-encoding"]
    await peer.close()


@pytest.mark.parametrize("value", [b"abc", b"1", b"S", b"-1S", b"123456789S", b"1 S", b"1s", b""])
async def test_a_malformed_deadline_is_an_invalid_argument(
    server: ServerProcess, value: bytes
) -> None:
    peer = await RawPeer.greeted(server.port)
    await peer.send(frames.request(1, INFO, frames.message(b""), (b"grpc-timeout", value)))
    assert (await peer.until_answered(1)).status == StatusCode.INVALID_ARGUMENT.value
    await peer.close()


@pytest.mark.parametrize("value", [b"99999999H", b"1M", b"20S", b"20000m", b"99999999u"])
async def test_every_unit_of_a_deadline_is_known(server: ServerProcess, value: bytes) -> None:
    peer = await RawPeer.greeted(server.port)
    await peer.send(frames.request(1, INFO, frames.message(b""), (b"grpc-timeout", value)))
    assert (await peer.until_answered(1)).status == 0
    await peer.close()


async def test_a_deadline_that_is_over_is_deadline_exceeded(server: ServerProcess) -> None:
    peer = await RawPeer.greeted(server.port)
    await peer.send(frames.request(1, INFO, frames.message(b""), (b"grpc-timeout", b"0n")))
    assert (await peer.until_answered(1)).status == StatusCode.DEADLINE_EXCEEDED.value
    await peer.close()


async def test_a_wait_ends_with_its_deadline(server: ServerProcess) -> None:
    peer = await RawPeer.greeted(server.port)
    wait = pb.ReserveRequest(queues=["x"], lease_duration=span(9), wait_timeout=span(30_000))
    body = frames.message(wait.SerializeToString())
    started = trio.current_time()
    await peer.send(frames.request(1, RESERVE, body, (b"grpc-timeout", b"100m")))
    assert (await peer.until_answered(1)).status == StatusCode.DEADLINE_EXCEEDED.value
    assert trio.current_time() - started < 10
    await peer.close()
