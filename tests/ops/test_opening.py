"""What the outside sees while the log is still being read, however long that takes."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from purerpc import StatusCode

from sepp import server
from sepp._generated.health_pb2 import HealthCheckRequest, HealthCheckResponse
from sepp.clock import Clock
from sepp.config.load import load
from sepp.config.policy import QueuePolicy
from sepp.exits import StartError
from sepp.logs import Sink
from sepp.opening import open_store
from sepp.rpc.channel import Channel, open_channel
from sepp.rpc.grpc import RpcError
from tests.e2e.rpc_client import Client
from tests.fakes.logs import Captured, captured
from tests.ops.figures import get

CONFIG = """
[server]
listen_addr = "127.0.0.1:0"
db_path = "{directory}/data"
[admin]
enabled = false
[metrics]
prometheus_enabled = true
prometheus_listen_addr = "127.0.0.1:0"
"""
SERVING, NOT_SERVING = HealthCheckResponse.SERVING, HealthCheckResponse.NOT_SERVING


class Replay:
    """A start that stands still in the middle of reading the log, until told to go on."""

    def __init__(self) -> None:
        self.has_begun = trio.Event()
        self.may_end = trio.Event()

    async def open(self, *arguments: Any, **options: Any) -> Any:
        self.has_begun.set()
        await self.may_end.wait()
        return await open_store(*arguments, **options)


@asynccontextmanager
async def starting(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Replay, Any, Captured]]:
    """A whole server in this process, in the middle of its start."""
    replay = Replay()
    monkeypatch.setattr(server, "open_store", replay.open)
    config = directory / "sepp.toml"
    config.write_text(CONFIG.format(directory=directory))
    with captured() as entries:
        process = server._Process(load(str(config), {}), Sink(2))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(process.main)
            await replay.has_begun.wait()
            yield replay, process, entries
            process.stop.set()


async def check(channel: Channel, service: str) -> int:
    message = HealthCheckRequest(service=service).SerializeToString()
    answer = await channel.unary("/grpc.health.v1.Health/Check", message, timeout_s=30)
    return HealthCheckResponse.FromString(answer).status


async def test_it_is_alive_but_not_ready_until_the_log_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        starting(tmp_path, monkeypatch) as (replay, process, entries),
        open_channel("127.0.0.1", process.sources.front.port) as channel,
    ):
        assert await check(channel, "") == SERVING
        assert await check(channel, server.SERVICE_NAME) == NOT_SERVING
        with pytest.raises(RpcError) as refused:
            await Client(channel).enqueue()
        assert refused.value.code is StatusCode.UNAVAILABLE
        assert "queue server listening" not in messages(entries)
        assert "\nsepp_serving 0\n" in await page(entries)

        replay.may_end.set()
        await until_serving(channel)

        await Client(channel).enqueue()
        assert "\nsepp_serving 1\n" in await page(entries)
    assert messages(entries)[-1] == "queue server stopped"


async def test_a_signal_during_the_replay_stops_it_cleanly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with starting(tmp_path, monkeypatch) as (replay, process, entries):
        process.stop.set()
        replay.may_end.set()

    assert messages(entries)[-1] == "queue server stopped"
    assert "queue server listening" not in messages(entries)


async def test_without_an_intact_marker_the_start_names_the_command_that_salvages(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "FORMAT").write_bytes(b"harmed\n")
    config = load(None, {"SEPP_SERVER__DB_PATH": str(data)}).config

    with pytest.raises(StartError) as caught:
        await open_store(
            config, QueuePolicy(config), Clock(), is_stopped=lambda: False, on_progress=lambda: None
        )

    assert str(caught.value).endswith(
        "nothing was changed; restore a backup, or salvage what is provable into a new directory: "
        f"sepp-trio store salvage {data} NEW_DIRECTORY"
    )


async def until_serving(channel: Channel) -> None:
    """Return once the watched status says so."""
    with trio.fail_after(30):  # hang guard
        while await check(channel, server.SERVICE_NAME) != SERVING:
            await trio.lowlevel.checkpoint()


def messages(entries: Captured) -> list[str]:
    return [entry["message"] for entry in entries()]


async def page(entries: Captured) -> str:
    (addr,) = [e["addr"] for e in entries() if "metrics endpoint" in e["message"]]
    status, body = await get(int(addr.rpartition(":")[2]))
    assert status == 200
    return body
