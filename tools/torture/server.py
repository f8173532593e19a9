"""The server under torture: starts, dies, starts again on the same port."""

import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import trio
from google.protobuf.message import Message

from sepp._generated import queue_pb2 as pb
from sepp.rpc.channel import Channel
from sepp.rpc.grpc import RpcError
from sepp.rpc.poller import Poller

ROOT = Path(__file__).resolve().parents[2]
START_S_MAX = 600.0  # hang guard; so is the next
CALL_S_MAX = 60.0


class ServerProcess:
    """A server on a directory of its own.

    Args:
        directory: For its configuration and log.
        data: For its data.
    """

    def __init__(
        self, directory: Path, data: Path, *, segment_bytes: int, persist_mode: str
    ) -> None:
        self.directory = directory
        self.port = free_port()
        self.config = directory / "sepp.toml"
        self.config.write_text(
            f"""
[server]
listen_addr = "127.0.0.1:{self.port}"
db_path = "{data}"
[admin]
enabled = false
[storage]
persist_mode = "{persist_mode}"
segment_bytes = {segment_bytes}
[limits]
default_max_attempts = 100000
max_attempts_ceiling = 100000
""",
            "utf-8",
        )
        self.log = (directory / "server.log").open("ab")
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, prefix: Sequence[str] = ()) -> None:
        """Start the process, under another one if asked; it may still recover on return."""
        self.process = subprocess.Popen(
            [*prefix, sys.executable, "-m", "sepp", "serve", "--config", str(self.config)],
            stdout=self.log,
            stderr=self.log,
            cwd=ROOT,
        )

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def is_running(self) -> bool:
        """Whether the process lives."""
        return self.process is not None and self.process.poll() is None

    def stop_if_running(self) -> None:
        """SIGKILL if it lives."""
        if self.is_running():
            self.kill()

    def close(self) -> None:
        """Kill it if it runs, and close its log."""
        self.stop_if_running()
        self.log.close()

    async def wait_end(self, seconds: float) -> int | None:
        """Wait until it ends by itself; its exit code, negative for a signal; None: it runs on."""
        assert self.process is not None
        with trio.move_on_after(seconds):
            while self.process.poll() is None:  # noqa: ASYNC110  nothing else tells
                await trio.sleep(0.01)
        return self.process.poll()

    async def wait_serving(self, poller: Poller) -> str | None:
        """Wait until the queue answers; otherwise say how the start failed."""
        assert self.process is not None
        deadline = trio.current_time() + START_S_MAX
        while trio.current_time() < deadline:
            if self.process.poll() is not None:
                return f"exit code {self.process.returncode}"
            try:
                channel = await Channel.connect(poller, "127.0.0.1", self.port)
            except RpcError:
                await trio.sleep(0.02)
                continue
            try:
                await call(channel, "GetServerInfo", pb.GetServerInfoRequest())
            except RpcError:
                await trio.sleep(0.02)
            else:
                return None
            finally:
                channel.close()
        return f"not serving after {START_S_MAX:.0f} s"


def free_port() -> int:
    """A port of the loopback interface that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def call(
    channel: Channel, method: str, request: Message, *, timeout_s: float = CALL_S_MAX
) -> bytes:
    """One RPC of the queue service."""
    path = f"/sepp.v1.QueueService/{method}"
    return await channel.unary(path, request.SerializeToString(), timeout_s=timeout_s)
