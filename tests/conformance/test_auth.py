"""API keys: who is let in, who is not, and what is told."""

import pytest
from purerpc import StatusCode

from sepp._generated import queue_pb2 as pb
from tests.conformance.client import REQUESTS, SocketClient, connected
from tests.conformance.conftest import Servers

SETTINGS = {
    "auth": {
        "api_keys": [{"name": "one", "key": "first-key"}, {"name": "two", "key": "second-key"}]
    }
}
PLAIN = {"auth": {"api_keys": ["plain-a", "plain-b"]}}
NOBODY = {"auth": {"api_keys": []}}
UNAUTHENTICATED = StatusCode.UNAUTHENTICATED
INFO = pb.GetServerInfoRequest()

Header = tuple[bytes, bytes]


def bearer(key: str) -> list[Header]:
    """The metadata that lets in."""
    return [(b"authorization", b"Bearer " + key.encode())]


REFUSED: dict[str, tuple[list[Header], str]] = {
    "no header": ([], "missing"),
    "a bare key": ([(b"authorization", b"first-key")], "missing"),
    "another scheme": ([(b"authorization", b"Basic first-key")], "missing"),
    "the scheme in lower case": ([(b"authorization", b"bearer first-key")], "missing"),
    "the scheme in upper case": ([(b"authorization", b"BEARER first-key")], "missing"),
    "no space": ([(b"authorization", b"Bearerfirst-key")], "missing"),
    "two spaces": ([(b"authorization", b"Bearer  first-key")], "invalid"),
    "no key": ([(b"authorization", b"Bearer")], "missing"),
    "an unknown key": (bearer("third-key"), "invalid"),
    "a key cut short": (bearer("first-ke"), "invalid"),
    "a key with more": (bearer("first-key1"), "invalid"),
    "the key in upper case": (bearer("FIRST-KEY"), "invalid"),
    "the name instead of the key": (bearer("one"), "invalid"),
    "a wrong header before the right one": (bearer("x") + bearer("first-key"), "invalid"),
    "another header": ([(b"x-api-key", b"first-key")], "missing"),
}


@pytest.mark.parametrize("what", REFUSED)
async def test_a_call_is_refused_with(rpc: SocketClient, what: str) -> None:
    metadata, piece = REFUSED[what]
    code, text = await rpc.fault("GetServerInfo", INFO, metadata)
    assert code is UNAUTHENTICATED
    assert piece in text
    assert "Bearer <key>" in text


@pytest.mark.parametrize("key", ["first-key", "second-key"])
async def test_every_key_lets_in(rpc: SocketClient, key: str) -> None:
    await rpc.call("GetServerInfo", INFO, bearer(key))


async def test_the_first_of_two_headers_counts(rpc: SocketClient) -> None:
    await rpc.call("GetServerInfo", INFO, bearer("first-key") + bearer("x"))


@pytest.mark.parametrize("method", REQUESTS)
async def test_every_rpc_is_guarded_before_its_request_is_looked_at(
    rpc: SocketClient, method: str
) -> None:
    code, _ = await rpc.fault(method, REQUESTS[method]())
    assert code is UNAUTHENTICATED


async def test_all_keys_see_the_same_jobs(rpc: SocketClient, queue: str) -> None:
    request = pb.EnqueueBatchRequest(jobs=[pb.EnqueueRequest(queue=queue, job_type="t")])
    await rpc.call("EnqueueBatch", request, bearer("first-key"))
    reserve = pb.ReserveRequest(queues=[queue])
    reserve.lease_duration.seconds = 9
    answer = await rpc.call("Reserve", reserve, bearer("second-key"))
    assert len(answer.jobs) == 1


@pytest.mark.parametrize("key", ["plain-a", "plain-b"])
async def test_keys_may_be_plain_strings(servers: Servers, key: str) -> None:
    async with connected(servers.get(PLAIN).port) as rpc:
        await rpc.call("GetServerInfo", INFO, bearer(key))
        assert (await rpc.fault("GetServerInfo", INFO))[0] is UNAUTHENTICATED


async def test_an_empty_list_refuses_everyone(servers: Servers) -> None:
    async with connected(servers.get(NOBODY).port) as rpc:
        for metadata in ([], bearer("first-key")):
            assert (await rpc.fault("GetServerInfo", INFO, metadata))[0] is UNAUTHENTICATED


async def test_an_open_server_does_not_look_at_the_header(servers: Servers) -> None:
    async with connected(servers.get({}).port) as rpc:
        for metadata in ([], bearer("x"), [(b"authorization", b"nonsense")]):
            await rpc.call("GetServerInfo", INFO, metadata)
