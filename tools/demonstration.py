"""What `tools/run` shows, inside the project's environment: a server, three kinds of jobs, work.

The server is the real one in a process of its own, reached over the real wire; the client is the
channel of `sepp.rpc`.
"""

import argparse
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import trio

from sepp._generated import queue_pb2 as pb
from sepp.rpc.channel import Channel, open_channel

ROOT = Path(__file__).resolve().parent.parent
READY_TEXT = "queue server listening"
START_SECONDS_MAX = 60
STOP_SECONDS_MAX = 90
PORT = 50051
QUEUE = "demo"
SCHEDULE_AHEAD_S = 1.0
CALL_SECONDS_MAX = 30.0

CONFIGURATION = """\
[server]
listen_addr = "127.0.0.1:{port}"
db_path = "{data}"

[admin]
enabled = false

[storage]
dead_letter_retention_ms = 3600000
"""


class Server:
    """The server process; its output is kept, and shown once someone wants to see it."""

    def __init__(self, directory: Path) -> None:
        config = directory / "sepp.toml"
        data = directory / "data"
        config.write_text(CONFIGURATION.format(port=free_port(), data=data), "utf-8")
        self.port = 0
        self.is_shown = False
        self._lines: list[str] = []
        self._ready_or_ended = threading.Event()
        # A session of its own: Ctrl-C is for us, and the server gets exactly one signal, from us.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "sepp", "serve", "--config", str(config)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait_until_ready(self) -> None:
        """Return when it serves, or give up with what it said."""
        self._ready_or_ended.wait(START_SECONDS_MAX)
        if self.port == 0:
            raise SystemExit(f"the server did not start:\n{''.join(self._lines)}")

    def wait_for_end(self) -> int:
        """Show what it logs from now on, and return its exit code when it has ended."""
        self.is_shown = True
        return self._process.wait()

    def stop(self) -> int:
        """Ask it to stop, if it still runs, and return its exit code."""
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self._reader.join()
        return code

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout:
            for line in self._process.stdout:
                if self.is_shown:
                    print(f"server | {line}", end="", flush=True)
                else:
                    self._lines.append(line)
                address = re.search(r"127\.0\.0\.1:(\d+)", line)
                if READY_TEXT in line and address:
                    self.port = int(address[1])
                    self._ready_or_ended.set()
        self._ready_or_ended.set()


class Story:
    """Prints what happened, each line with the milliseconds since the beginning."""

    def __init__(self) -> None:
        self._started = time.perf_counter()

    def tell(self, what: str, text: str) -> None:
        """Print one line."""
        print(f"{self.elapsed_ms():7.0f} ms  {what:<9} {text}", flush=True)

    def elapsed_ms(self) -> float:
        """Return how long the story has been going on."""
        return (time.perf_counter() - self._started) * 1000


async def call(channel: Channel, method: str, request: Any, answer: Any) -> float:
    """Make one call, fill `answer`, and return how many milliseconds it took."""
    started = time.perf_counter()
    path = f"/sepp.v1.QueueService/{method}"
    data = await channel.unary(path, request.SerializeToString(), timeout_s=CALL_SECONDS_MAX)
    took_ms = (time.perf_counter() - started) * 1000
    answer.ParseFromString(data)
    return took_ms


async def demonstrate(port: int) -> None:
    """Put jobs of three kinds in and work them."""
    story = Story()
    async with open_channel("127.0.0.1", port) as channel:
        names = await enqueue_plain(channel, story)
        names |= await enqueue_scheduled(channel, story)
        names |= await enqueue_keyed_twice(channel, story)
        await work(channel, story, names)
        story.tell("done", f"{len(names)} jobs worked; nothing is left in the queue")


async def enqueue(channel: Channel, *jobs: pb.EnqueueRequest) -> tuple[list[Any], float]:
    """Store jobs; return their results and the milliseconds until they were durable."""
    answer = pb.EnqueueBatchResponse()
    took_ms = await call(channel, "EnqueueBatch", pb.EnqueueBatchRequest(jobs=jobs), answer)
    refused = [result.rejection for result in answer.results if result.HasField("rejection")]
    if refused:
        raise SystemExit(f"the server refused a job: {refused[0]}")
    return [result.success for result in answer.results], took_ms


async def enqueue_plain(channel: Channel, story: Story) -> dict[str, str]:
    """Three jobs in one call."""
    payload = pb.Payload(data=b'{"user": 42}', encoding="application/json")
    jobs = [pb.EnqueueRequest(queue=QUEUE, job_type="plain", payload=payload) for _ in range(3)]
    stored, took_ms = await enqueue(channel, *jobs)
    story.tell("enqueued", f"3 plain jobs in one call, durable in {took_ms:.1f} ms")
    return {job.job_id: f"plain {n}" for n, job in enumerate(stored, 1)}


async def enqueue_scheduled(channel: Channel, story: Story) -> dict[str, str]:
    """One job for later."""
    job = pb.EnqueueRequest(queue=QUEUE, job_type="scheduled")
    job.scheduled_at.FromMilliseconds(round((time.time() + SCHEDULE_AHEAD_S) * 1000))
    stored, took_ms = await enqueue(channel, job)
    story.tell("enqueued", f"1 job for {SCHEDULE_AHEAD_S:.0f} s later, durable in {took_ms:.1f} ms")
    return {stored[0].job_id: "scheduled"}


async def enqueue_keyed_twice(channel: Channel, story: Story) -> dict[str, str]:
    """The same job twice, as a producer sends it that did not hear the first answer."""
    job = pb.EnqueueRequest(queue=QUEUE, job_type="keyed", idempotency_key="order-1")
    (first,), first_ms = await enqueue(channel, job)
    (second,), second_ms = await enqueue(channel, job)
    if second.job_id != first.job_id or not second.deduplicated:
        raise SystemExit("the same key twice became two jobs")
    story.tell("enqueued", f'1 job under the key "order-1", durable in {first_ms:.1f} ms')
    story.tell("enqueued", f"the same again: known already, same id, in {second_ms:.1f} ms")
    return {first.job_id: "keyed"}


async def work(channel: Channel, story: Story, names: dict[str, str]) -> None:
    """Reserve, do and ack until every job is done; the first one fails once."""
    request = pb.ReserveRequest(queues=[QUEUE], max_jobs=1, worker_id="demonstration")
    request.lease_duration.FromSeconds(30)
    request.wait_timeout.FromSeconds(5)
    left = set(names)
    has_failed = False
    while left:
        answer = pb.ReserveResponse()
        await call(channel, "Reserve", request, answer)
        if not answer.jobs:
            raise SystemExit(f"no job came for 5 s, {len(left)} are missing")
        (job,) = answer.jobs
        if not has_failed:
            has_failed = True
            nack = pb.NackRequest(job_id=job.id, attempt=job.attempt, reason="to show a retry")
            took_ms = await call(channel, "Nack", nack, pb.NackResponse())
            story.tell("failed", f"{names[job.id]}, given back in {took_ms:.1f} ms")
            continue
        ack = pb.AckRequest(job_id=job.id, attempt=job.attempt)
        took_ms = await call(channel, "Ack", ack, pb.AckResponse())
        left.discard(job.id)
        nth = f"attempt {job.attempt}, " if job.attempt > 1 else ""
        story.tell("worked", f"{names[job.id]}, {nth}acked in {took_ms:.1f} ms")


def free_port() -> int:
    """Return the usual port, or 0 (any) where something listens there already."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", PORT))
        except OSError:
            return 0
    return PORT


@contextmanager
def running_server() -> Iterator[Server]:
    """Run a server on a fresh directory; stop it and take the directory away at the end."""
    # Inside the repository rather than in a temporary directory: that may be held in memory, and
    # timings without a disk would flatter.
    (ROOT / ".cache").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="run-", dir=ROOT / ".cache") as directory:
        started = time.perf_counter()
        server = Server(Path(directory))
        try:
            server.wait_until_ready()
            took_ms = (time.perf_counter() - started) * 1000
            print(f"server listening on 127.0.0.1:{server.port} after {took_ms:.0f} ms")
            print(f"data in {directory}\n", flush=True)
            yield server
        finally:
            code = server.stop()
            print(f"server stopped, exit code {code}")
        if code != 0:
            raise SystemExit(1)


def run(description: str) -> None:
    """Run the demonstration, and leave the server running unless --once is given."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--once", action="store_true", help="stop after the demonstration")
    is_once = parser.parse_args().once
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with running_server() as server:
            trio.run(demonstrate, server.port)
            if not is_once:
                leave_running(server)
    except KeyboardInterrupt:
        sys.exit(130)


def leave_running(server: Server) -> None:
    """Return at Ctrl-C; an end of the server by itself is a fault."""
    print(f"\nthe server goes on at 127.0.0.1:{server.port}; Ctrl-C stops it", flush=True)
    try:
        code = server.wait_for_end()
    except KeyboardInterrupt:
        print()
        return
    raise SystemExit(f"the server ended by itself, exit code {code}")
