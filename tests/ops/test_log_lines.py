"""What a whole server writes to its log, at its most talkative: whole lines, no secrets."""

import json
import re
import signal
from collections.abc import Callable
from typing import Any

import httpx
import pytest
import trio
from google.protobuf.empty_pb2 import Empty

from sepp._generated import queue_pb2 as pb
from sepp.rpc.channel import open_channel
from sepp.rpc.grpc import RpcError
from tests.e2e.rpc_client import Client
from tests.e2e.server_process import ServerProcess
from tests.ops.figures import settings
from tests.rpc.frames import RawPeer, message, request

StartServer = Callable[..., ServerProcess]

ENQUEUE = "/sepp.v1.QueueService/EnqueueBatch"
# Each stands for a kind of thing that must not be in a log; all are said to the server below.
KEY, RENEWED, WRONG_KEY = "api-3c1f", "renewed-77d0", "wrong-9e2a"
ADMIN_KEY, WRONG_ADMIN_KEY = "admin-51b8", "wrongadmin-c4d7"
PAYLOAD, CUSTOM, IDEMPOTENCY = "payload-08fe", "custom-a6b3", "idempotency-2d9c"
TEXT_LINE = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z (DEBUG| INFO| WARN|ERROR) [\w.]+: \S"
)


def configuration(form: str, key: str) -> dict[str, Any]:
    return settings(
        logging={"level": "trace", "format": form},
        auth={"api_keys": [{"name": "worker", "key": key}]},
        admin={
            "enabled": True,
            "listen_addr": "127.0.0.1:0",
            "keys": [{"name": "ops", "key": ADMIN_KEY, "role": "admin"}],
        },
        limits={"max_payload_bytes": 1000},
    )


def job(data: str, **fields: Any) -> pb.EnqueueRequest:
    made = pb.EnqueueRequest(queue="q", job_type="t", idempotency_key=IDEMPOTENCY, **fields)
    made.payload.data, made.payload.encoding = data.encode(), "text"
    made.custom["note"].string_value = CUSTOM
    return made


async def use(port: int) -> None:
    """All that a producer and a worker do, and what they do wrong."""
    async with keyed(port, KEY) as channel:
        client = Client(channel)
        jobs = [job(PAYLOAD), job(PAYLOAD), job(PAYLOAD * 100), job(PAYLOAD, priority=99)]
        for method, asked, answer in (
            ("EnqueueBatch", pb.EnqueueBatchRequest, pb.EnqueueBatchResponse),
            ("EnqueueAtomic", pb.EnqueueBatchRequest, pb.EnqueueAtomicResponse),
        ):
            await client.call(method, asked(jobs=jobs), answer())
        (leased,) = await client.reserve()
        await client.extend(leased)
        await client.nack(leased, reason="it failed", retry=pb.NackRetry(dead_letter=Empty()))
        with pytest.raises(RpcError):
            await client.ack(leased)
        drain = pb.DrainDeadLettersRequest(queue="q", max=10)
        await client.call("DrainDeadLetters", drain, pb.DrainDeadLettersResponse())
    async with keyed(port, WRONG_KEY) as channel:
        with pytest.raises(RpcError):
            await Client(channel).enqueue(data=PAYLOAD.encode())


async def misuse(port: int) -> None:
    """Requests that are none, and no HTTP/2 at all."""
    bearer = (b"authorization", f"Bearer {KEY}".encode())
    peer = await RawPeer.greeted(port)
    await peer.send(request(1, ENQUEUE, message(b"\xff" + PAYLOAD.encode()), bearer))
    await peer.until_answered(1)
    await peer.send(request(3, ENQUEUE, message(PAYLOAD.encode(), flag=1), bearer))
    await peer.until_answered(3)
    await peer.close()
    stranger = await RawPeer.connect(port)
    await stranger.send(f"GET /{PAYLOAD} HTTP/1.1\r\nauthorization: Bearer {KEY}\r\n\r\n".encode())
    await stranger.until_end()
    await stranger.close()


def administer(server: ServerProcess) -> list[str]:
    """Sign in rightly and wrongly, store a job, add a key; return what must stay secret of it."""
    (port,) = set(re.findall(r"admin UI listening at http://127\.0\.0\.1:(\d+)", server.output))
    base = f"http://127.0.0.1:{port}/admin/api/v1"
    with httpx.Client(base_url=base, trust_env=False) as client:
        wrong = {"name": "ops", "key": WRONG_ADMIN_KEY}
        assert client.post("/session", json=wrong).status_code == 401
        assert client.get(
            "/queues", headers={"authorization": "Bearer " + WRONG_ADMIN_KEY}
        ).is_error
        signed_in = client.post("/session", json={"name": "ops", "key": ADMIN_KEY})
        session = signed_in.cookies["sepp_admin"]
        body = {"job_type": "t", "payload": {"encoding": "json", "data_text": f'"{PAYLOAD}"'}}
        assert client.post("/queues/q/jobs", json=body).is_success
        assert client.post("/queues/q/jobs", json={**body, "priority": 99}).is_error
        assert client.post("/queues/q/jobs", content=f"{{{PAYLOAD}").is_error
    return [session]


def keyed(port: int, key: str) -> Any:
    return open_channel("127.0.0.1", port, metadata=((b"authorization", f"Bearer {key}".encode()),))


@pytest.mark.parametrize("form", ["text", "json"])
async def test_every_line_is_whole_and_none_has_a_secret_or_a_payload(
    start_server: StartServer, form: str
) -> None:
    server = start_server(configuration(form, KEY))
    server.wait_until_says("admin UI listening at")
    server.wait_until_says("watching config file")
    await use(server.port)
    await misuse(server.port)
    secrets = await trio.to_thread.run_sync(administer, server)
    server.configure(configuration(form, RENEWED))
    server.send(signal.SIGHUP)
    await trio.to_thread.run_sync(server.wait_until_says, "configuration reloaded")
    server.config_path.write_text(f'[auth]\napi_keys = [{{name = "x", key = "{RENEWED} "}}]\n')
    server.send(signal.SIGHUP)
    await trio.to_thread.run_sync(server.wait_until_says, "config reload failed")
    await trio.to_thread.run_sync(server.stop)

    secrets += [KEY, RENEWED, WRONG_KEY, ADMIN_KEY, WRONG_ADMIN_KEY, PAYLOAD, CUSTOM, IDEMPOTENCY]
    assert [secret for secret in secrets if secret in server.output] == []
    lines = server.output.splitlines()
    for event in ("enqueue rejected", "job dead-lettered via nack", "invalid API key", "audit"):
        assert any(event in line for line in lines), event
    if form == "json":
        for line in lines:
            assert list(json.loads(line)) == ["timestamp", "level", "target", "fields"]
    else:
        assert [line for line in lines if not TEXT_LINE.match(line)] == []
