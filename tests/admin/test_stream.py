"""Server-sent events over a real socket, and the buffer behind them."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from sepp import http1
from sepp.admin import stream
from sepp.admin.app import application
from sepp.admin.messages import AuditEntry
from sepp.admin.stream import Hub
from sepp.binding import bind
from tests.admin.conftest import Console
from tests.fakes.operators import CONFIG, SECRETS


@asynccontextmanager
async def listening(console: Console) -> AsyncIterator[tuple[int, trio.Event]]:
    sock = bind("127.0.0.1", 0)
    stop = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(console.site.run)
        nursery.start_soon(lambda: http1.serve(application(console.site), [sock], stop=stop))
        with trio.fail_after(20):
            yield sock.getsockname()[1], stop
        console.site.hub.close()
        stop.set()
        nursery.cancel_scope.cancel()


class Events:
    """The events of one open stream. Each event of ours is one chunk of the body."""

    def __init__(self, tcp: trio.SocketStream) -> None:
        self._tcp = tcp
        self._rest = b""
        self.headers: dict[str, str] = {}

    async def _line(self) -> str | None:
        while b"\n" not in self._rest:
            more = await self._tcp.receive_some()
            if not more:
                return None
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode().removesuffix("\r")

    async def read_headers(self) -> None:
        assert await self._line() == "HTTP/1.1 200 "
        while line := await self._line():
            name, _, value = line.partition(": ")
            self.headers[name.lower()] = value

    async def next(self) -> tuple[str, str]:
        name = ""
        while (line := await self._line()) is not None:
            if line.startswith("event: "):
                name = line[7:]
            elif line.startswith("data: "):
                return name, line[6:]
            elif line == ":":
                return "comment", ""
            elif line == "0":  # the last chunk
                break
        return "end", ""

    async def wait_for(self, wanted: str) -> str:
        while True:
            name, data = await self.next()
            if name in (wanted, "end"):
                assert name == wanted
                return data


@asynccontextmanager
async def opened(port: int, role: str = "admin", query: str = "") -> AsyncIterator[Events]:
    request = (
        f"GET /admin/api/v1/events{query} HTTP/1.1\r\nHost: localhost\r\n"
        f"Authorization: Bearer {SECRETS[role]}\r\n\r\n"
    )
    async with await trio.open_tcp_stream("127.0.0.1", port) as tcp:
        await tcp.send_all(request.encode())
        events = Events(tcp)
        await events.read_headers()
        yield events


async def test_hello_comes_first_then_a_frame_each_second(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sepp.admin.stats.PERIOD_S", 0.01)
    console.server.enqueue("a")
    console.server.enqueue("b")

    async with listening(console) as (port, _), opened(port, "viewer", "?queues=a") as events:
        assert events.headers["cache-control"] == "no-cache"
        assert events.headers["x-accel-buffering"] == "no"
        assert events.headers["content-type"].startswith("text/event-stream")
        name, data = await events.next()
        frame = json.loads(await events.wait_for("stats"))

    hello = json.loads(data)
    assert name == "hello"
    assert hello["frame"]["queues"].keys() == {"a"}
    assert hello["history"].keys() == {"a"}
    assert frame["queues"].keys() == {"a"}
    assert frame["seq"] >= hello["frame"]["seq"]


async def test_audit_events_go_to_admins_only(console: Console) -> None:
    async with (
        listening(console) as (port, _),
        opened(port, "admin") as admin,
        opened(port, "operator") as operator,
    ):
        await admin.wait_for("hello")
        await operator.wait_for("hello")
        await console.call("POST", "/queues/q/jobs", json={"job_type": "a"})
        console.site.hub.publish_reload(7)
        entry = json.loads(await admin.wait_for("audit"))
        seen = [await operator.next() for _event in range(2)]

    assert entry["action"] == "job.enqueue"
    assert "audit" not in {name for name, _ in seen}


async def test_a_reload_is_told(console: Console) -> None:
    async with listening(console) as (port, _), opened(port) as events:
        await events.wait_for("hello")
        console.server.path.write_text(CONFIG + "# more\n")
        count = await events.wait_for("config")

    assert count == str(console.server.reloader.reload_count)


async def test_a_stream_ends_with_its_session(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sepp.admin.stats.PERIOD_S", 0.01)

    async with listening(console) as (port, _), opened(port) as events:
        await events.wait_for("hello")
        console.server.path.write_text(CONFIG.replace("admin-secret", "rotated"))
        while (await events.next())[0] != "end":
            pass


async def test_stopping_ends_streams_at_once(console: Console) -> None:
    async with listening(console) as (port, stop), opened(port) as events:
        await events.wait_for("hello")
        console.site.hub.close()
        stop.set()
        while (await events.next())[0] != "end":
            pass
        await trio.testing.wait_all_tasks_blocked()
        assert len(console.site.hub) == 0


async def test_a_reader_that_leaves_is_forgotten(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sepp.admin.stats.PERIOD_S", 0.01)

    async with listening(console) as (port, _):
        async with opened(port) as events:
            await events.wait_for("hello")
            assert len(console.site.hub) == 1
        while len(console.site.hub):
            await console.site.stats.wait_sampled()


async def test_silence_is_filled_with_comments(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sepp.admin.stats.PERIOD_S", 60)
    monkeypatch.setattr(stream, "COMMENT_S", 0.02)

    async with listening(console) as (port, _), opened(port) as events:
        await events.wait_for("hello")
        names = {(await events.next())[0] for _event in range(4)}

    assert "comment" in names


# The buffer


def entry(number: int) -> AuditEntry:
    return AuditEntry(seq=number, ts_ms=0, actor="a", role=None, action="x", details={})


async def drain(subscriber: stream.Subscriber) -> list[str]:
    found = []
    while True:
        try:
            found.append(subscriber.receive.receive_nowait().decode())
        except trio.WouldBlock:
            return found


async def test_a_reader_that_does_not_keep_up_is_told_how_many_it_lost() -> None:
    hub = Hub()
    subscriber: Any = hub.subscribe(None, is_admin=True)
    for number in range(stream.BUFFER + 5):
        hub.publish_audit(entry(number))

    first = await drain(subscriber)
    hub.publish_audit(entry(99))
    then = await drain(subscriber)

    assert len(first) == stream.BUFFER
    assert then[0] == "event: lagged\ndata: 5\n\n"
    assert '"seq":99' in then[1]


async def test_streams_are_bounded_and_none_opens_after_the_end() -> None:
    hub = Hub()
    for _stream in range(stream.SUBSCRIBERS_MAX):
        assert hub.subscribe(None, is_admin=False) is not None
    assert hub.subscribe(None, is_admin=False) is None

    other = Hub()
    other.close()
    assert other.subscribe(None, is_admin=False) is None


async def test_what_is_published_after_the_end_goes_nowhere(console: Console) -> None:
    hub = Hub()
    subscriber = hub.subscribe(None, is_admin=True)
    assert subscriber is not None
    hub.publish_reload(1)

    hub.close()
    hub.publish_frame(await console.site.stats.frame())
    hub.publish_reload(2)

    assert await subscriber.receive.receive() == b"event: config\ndata: 1\n\n"
    with pytest.raises(trio.EndOfChannel):
        await subscriber.receive.receive()
    hub.leave(subscriber)
    assert len(hub) == 0
