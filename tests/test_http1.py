"""The HTTP/1.1 listener: what it refuses, whom it cuts off, how it stops."""

import logging
import os
import resource
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import trio
import trio.testing
import trustme
from starlette.responses import StreamingResponse

from sepp import http1
from sepp.binding import bind
from tests.rpc.test_accept import descriptors_at_most

BIG = 4 * 1024 * 1024


async def pieces() -> AsyncIterator[bytes]:
    yield b"a"
    yield b"b"


async def app(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close"})
        return
    if scope["path"] == "/streamed":
        await StreamingResponse(pieces())(scope, receive, send)
        return
    if scope["path"] == "/fault":
        raise RuntimeError("planted")
    body = b"x" * BIG if scope["path"] == "/big" else scope["http_version"].encode()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})


@asynccontextmanager
async def listener(
    tls: ssl.SSLContext | None = None, **options: Any
) -> AsyncIterator[tuple[int, trio.Event]]:
    stop = trio.Event()
    sock = bind("127.0.0.1", 0)
    port = sock.getsockname()[1]
    async with trio.open_nursery() as nursery:
        await nursery.start(
            lambda task_status: http1.serve(
                app, [sock], tls=tls, stop=stop, task_status=task_status, **options
            )
        )
        try:
            with trio.fail_after(30):
                yield port, stop
        finally:
            stop.set()


async def talk(port: int, request: bytes) -> bytes:
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    async with stream:
        await stream.send_all(request)
        return b"".join([chunk async for chunk in stream])


async def test_a_plain_request_is_answered() -> None:
    async with listener() as (port, _):
        answer = await talk(port, b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")

    assert answer.startswith(b"HTTP/1.1 200")
    assert b"1.1" in answer.rpartition(b"\r\n\r\n")[0] or answer.endswith(b"0\r\n\r\n")
    assert b"\r\nserver:" not in answer.lower()


async def test_an_upgrade_to_h2c_is_ignored() -> None:
    async with listener() as (port, _):
        answer = await talk(
            port,
            b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings, close\r\n"
            b"Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n",
        )

    assert answer.startswith(b"HTTP/1.1 200")
    assert b"101" not in answer.partition(b"\r\n\r\n")[0]


async def test_http2_by_prior_knowledge_gets_505_and_a_close() -> None:
    async with listener() as (port, _):
        answer = await talk(port, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9))
        again = await talk(port, b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")

    assert answer.startswith(b"HTTP/1.1 505")
    assert again.startswith(b"HTTP/1.1 200")


async def test_a_websocket_is_refused() -> None:
    async with listener() as (port, _):
        answer = await talk(
            port,
            b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        )

    assert answer.startswith(b"HTTP/1.1 403")


async def test_alpn_offers_http1_alone() -> None:
    authority = trustme.CA()
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(server)
    server.set_alpn_protocols(["http/1.1"])
    client = ssl.create_default_context()
    authority.configure_trust(client)
    client.set_alpn_protocols(["h2", "http/1.1"])

    async with listener(tls=server) as (port, _):
        tcp = await trio.open_tcp_stream("127.0.0.1", port)
        async with trio.SSLStream(
            tcp, client, server_hostname="localhost", https_compatible=True
        ) as stream:
            await stream.do_handshake()
            assert stream.selected_alpn_protocol() == "http/1.1"
            await stream.send_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            answer = b"".join([chunk async for chunk in stream])

    assert answer.startswith(b"HTTP/1.1 200")


async def test_plain_bytes_on_a_tls_port_end_that_connection_only() -> None:
    authority = trustme.CA()
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(server)

    async with listener(tls=server) as (port, _):
        for _attempt in range(3):
            assert b"200" not in await talk(port, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")


async def test_a_fault_of_the_application_is_a_500() -> None:
    async with listener() as (port, _):
        answer = await talk(port, b"GET /fault HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        again = await talk(port, b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")

    assert answer.startswith(b"HTTP/1.1 500")
    assert again.startswith(b"HTTP/1.1 200")


async def test_headers_that_never_end_are_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http1, "HEADERS_S", 0.05)

    async with listener() as (port, _):
        assert await talk(port, b"GET / HTTP/1.1\r\nHost: a\r\nX-Slow: ") == b""
        assert await talk(port, b"") == b""


async def test_headers_over_64_kib_are_refused() -> None:
    async with listener() as (port, _):
        answer = await talk(port, b"GET / HTTP/1.1\r\nX: " + b"a" * 200_000)

    assert answer.startswith(b"HTTP/1.1 431")


async def test_a_peer_that_stops_reading_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http1, "WRITE_S", 0.05)

    async with listener() as (port, _), await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await stream.send_all(b"GET /big HTTP/1.1\r\nHost: a\r\n\r\n" * 8)
        await trio.sleep(0.3)  # the deadline of the writer is what is tested
        received = 0
        with suppress(trio.BrokenResourceError):
            async for chunk in stream:
                received += len(chunk)

    assert received < 8 * BIG


async def test_stop_closes_idle_connections_at_once() -> None:
    async with (
        listener(grace_s=30) as (port, stop),
        await trio.open_tcp_stream("127.0.0.1", port) as stream,
    ):
        await stream.send_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert (await stream.receive_some()).startswith(b"HTTP/1.1 200")

        stop.set()

        async for _chunk in stream:
            pass


async def test_a_connection_that_had_a_streamed_answer_is_closed_when_idle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http1, "HEADERS_S", 0.05)

    async with listener() as (port, _):
        answer = await talk(port, b"GET /streamed HTTP/1.1\r\nHost: a\r\n\r\n")

    assert answer.endswith(b"1\r\nb\r\n0\r\n\r\n")


async def test_stop_closes_a_connection_that_had_a_streamed_answer() -> None:
    async with (
        listener(grace_s=30) as (port, stop),
        await trio.open_tcp_stream("127.0.0.1", port) as stream,
    ):
        await stream.send_all(b"GET /streamed HTTP/1.1\r\nHost: a\r\n\r\n")
        received = b""
        while not received.endswith(b"0\r\n\r\n"):
            received += await stream.receive_some()

        stop.set()

        with trio.fail_after(http1.HEADERS_S / 2):  # before it would be closed for being idle
            assert await stream.receive_some() == b""


async def test_connections_over_the_cap_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http1, "CONNECTIONS_MAX", 2)

    async with listener() as (port, _):
        held = [await trio.open_tcp_stream("127.0.0.1", port) for _ in range(2)]
        await trio.testing.wait_all_tasks_blocked()
        assert await talk(port, b"") == b""
        for stream in held:
            await stream.aclose()


async def test_running_out_of_descriptors_is_waited_out_and_does_not_spin(
    mock_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def turns() -> None:
        for _ in range(200):
            await trio.lowlevel.checkpoint()

    caplog.set_level(logging.WARNING)
    async with listener() as (port, _):
        await turns()
        with socket.socket() as peer:
            with descriptors_at_most(0):
                peer.connect(("127.0.0.1", port))
                await turns()
                assert caplog.text.count("accept failed") == 1
                mock_clock.jump(http1.ACCEPT_RETRY_S)
                await turns()
                assert caplog.text.count("accept failed") == 2
            mock_clock.jump(http1.ACCEPT_RETRY_S)
            peer.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            peer.setblocking(False)
            answer = b""
            for _ in range(100):  # hang guard, in place of a clock that stands still
                await turns()
                with suppress(BlockingIOError):
                    answer += peer.recv(4096)
                    break
            assert answer.startswith(b"HTTP/1.1 200")


async def test_the_last_descriptors_are_kept_back_for_others() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    os.close(lowest := os.dup(0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + 60, hard))
    try:
        async with listener(reserved_descriptors=20) as (port, _):
            peers = []
            while not await is_turned_away(peer := await trio.open_tcp_stream("127.0.0.1", port)):
                peers.append(peer)
            spare = [os.dup(0) for _ in range(15)]
            for descriptor in spare:
                os.close(descriptor)
            for stream in (peer, *peers):
                await stream.aclose()
            answer = await talk(port, b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert peers
    assert answer.startswith(b"HTTP/1.1 200")


async def is_turned_away(peer: trio.SocketStream) -> bool:
    """Whether the other end closes at once; one that was taken in answers instead."""
    try:
        await peer.send_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        return not await peer.receive_some(1)
    except trio.BrokenResourceError:
        return True
