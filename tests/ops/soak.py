"""The soak: see `tools/soak`.

Polite clients do whole cycles (enqueue, reserve, ack) at a steady rate. Victims enqueue and reserve
as well, and have their connections cut at any moment; what they leave comes back by lease and is
worked by the polite ones.
"""

import argparse
import json
import random
import signal
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

import trio
from attrs import define, field

from sepp.rpc.channel import Channel
from sepp.rpc.grpc import RpcError
from sepp.rpc.poller import Poller
from tests.e2e.rpc_client import Client
from tests.e2e.server_process import ServerProcess
from tests.ops.figures import Figures, descriptor_count, resident_bytes, scrape, settings

QUEUES = ("mail", "image", "report")
CONNECTIONS, TASKS_EACH = 4, 4
LEASE_S = 2.0
SEGMENT_BYTES = 4 << 20
CALIBRATE_S = 3.0
RELOAD_EVERY_S, ROTATE_EVERY_S, KILL_EVERY_S = 5.0, 10.0, 2.0
# Flat means: the end is no more than this above the time after warming up.
MEMORY_GROWTH_MAX = 32 << 20
LOG_GROWTH_MAX = 8 * SEGMENT_BYTES
DESCRIPTOR_GROWTH_MAX = 16


@define
class Report:
    """What was seen; `faults` must stay empty."""

    seconds: float = 0.0
    top_rate: float = 0.0
    rate: float = 0.0
    enqueued: int = 0
    acked: int = 0
    errors: list[str] = field(factory=list)
    reloads: int = 0
    rotations: int = 0
    kills: int = 0
    scrapes: int = 0
    scrape_ms_max: float = 0.0
    cycle_ms_p99: float = 0.0
    memory_bytes: list[int] = field(factory=list)
    log_bytes: list[int] = field(factory=list)
    descriptors: list[int] = field(factory=list)
    faults: list[str] = field(factory=list)


class Soak:
    """One run against one server."""

    def __init__(self, server: ServerProcess, report: Report, rng: random.Random) -> None:
        self.server = server
        self.report = report
        self.rng = rng
        self.key = "key-0"
        self.period_s = 0.0
        self.times_ms: list[float] = []
        self.is_over = trio.Event()
        self.turns = 0
        self._cuts: list[Channel] = []

    # Clients.

    async def client(self, poller: Poller) -> Client:
        """A connection whose calls carry the key of the moment."""
        channel = await Channel.connect(poller, "127.0.0.1", self.server.port)
        return KeyedClient(channel, self)

    async def work(self, client: Client, number: int) -> None:
        """Whole cycles at the steady rate, until it is over."""
        due_s = trio.current_time()
        while not self.is_over.is_set():
            queue = QUEUES[(number + self.turns) % len(QUEUES)]
            self.turns += 1
            started = perf_counter()
            try:
                await client.enqueue(queue, b"x" * self.rng.choice((64, 256, 4096)))
                self.report.enqueued += 1
                for job in await client.reserve(queue, wait_s=5, max_jobs=4):
                    await client.ack(job)
                    self.report.acked += 1
            except RpcError as fault:
                self.report.errors.append(str(fault))
                await trio.sleep(0.1)
            self.times_ms.append((perf_counter() - started) * 1000)
            due_s = max(due_s + self.period_s, trio.current_time() - 1)
            await trio.sleep_until(due_s)

    async def victim(self, poller: Poller) -> None:
        """Connect, begin things, be cut off, and again."""
        while not self.is_over.is_set():
            client = await self.client(poller)
            async with trio.open_nursery() as nursery:
                for _ in range(8):
                    nursery.start_soon(self._begin, client)
                await trio.sleep(KILL_EVERY_S * self.rng.uniform(0.2, 1.8))
                client.channel.close()
                self.report.kills += 1

    async def _begin(self, client: Client) -> None:
        """Enqueue and lease, never ack, until the connection is gone."""
        try:
            while True:
                await client.enqueue(self.rng.choice(QUEUES), b"victim")
                await client.reserve(self.rng.choice(QUEUES), wait_s=1, lease_s=LEASE_S)
                await trio.sleep(self.rng.uniform(0.1, 0.5))
        except RpcError:
            return  # cut off, as planned

    # What happens to the server.

    async def configure(self, keys: list[str], depth: int) -> None:
        """Write a configuration and wait until it is applied."""
        sections = configuration(keys, depth)
        count = self.server.output.count("configuration reloaded")
        self.server.configure(sections)
        self.server.send(signal.SIGHUP)
        self.report.reloads += 1
        await trio.to_thread.run_sync(
            self.server.wait_until_says, "configuration reloaded", count + 1
        )

    async def reload(self) -> None:
        """Change a limit now and then, and rotate the key every other time."""
        depth, number = 100_000, 0
        while True:
            await trio.sleep(RELOAD_EVERY_S)
            depth += 1
            if depth % round(ROTATE_EVERY_S / RELOAD_EVERY_S):
                await self.configure([self.key], depth)
                continue
            number += 1
            old, new = self.key, f"key-{number}"
            await self.configure([old, new], depth)
            self.key = new
            await trio.sleep(1)  # calls that carry the old one are read by then
            await self.configure([new], depth)
            self.report.rotations += 1

    async def watch(self) -> None:
        """Scrape each second."""
        report = self.report
        while True:
            started = perf_counter()
            figures = await scrape(self.server)
            report.scrape_ms_max = max(report.scrape_ms_max, (perf_counter() - started) * 1000)
            report.scrapes += 1
            report.memory_bytes.append(resident_bytes(self.server.pid))
            report.log_bytes.append(int(figures["sepp_store_log_bytes"]))
            report.descriptors.append(descriptor_count(self.server.pid))
            await trio.sleep(1)

    # The run.

    async def run(self, seconds: float, rate: float) -> None:
        """Calibrate, work, drain, judge."""
        poller = Poller()
        async with trio.open_nursery() as outer:
            await outer.start(poller.run)
            clients = [await self.client(poller) for _ in range(CONNECTIONS)]
            async with trio.open_nursery() as working:
                for number in range(CONNECTIONS * TASKS_EACH):
                    working.start_soon(self.work, clients[number % CONNECTIONS], number)
                await self._find_rate(rate)
                async with trio.open_nursery() as around:
                    for task in (self.reload, self.watch):
                        around.start_soon(task)
                    working.start_soon(self.victim, poller)
                    await trio.sleep(seconds)
                    around.cancel_scope.cancel()
                self.is_over.set()
            await self._drain(clients[0])
            for client in clients:
                client.channel.close()
            outer.cancel_scope.cancel()
        self._judge(await scrape(self.server))

    async def _find_rate(self, rate: float) -> None:
        """Work as fast as it goes for a moment, then at half of that."""
        report = self.report
        before, started = report.acked, trio.current_time()
        await trio.sleep(CALIBRATE_S)
        report.top_rate = round((report.acked - before) / (trio.current_time() - started), 1)
        report.rate = rate or round(report.top_rate / 2, 1)
        self.period_s = CONNECTIONS * TASKS_EACH / max(report.rate, 1)
        self.times_ms.clear()

    async def _drain(self, client: Client) -> None:
        """Work off what victims left; their leases end by themselves."""
        quiet_since = trio.current_time()
        while trio.current_time() - quiet_since < 2 * LEASE_S:
            for queue in QUEUES:
                for job in await client.reserve(queue, wait_s=0.2, max_jobs=64):
                    await client.ack(job)
                    self.report.acked += 1
                    quiet_since = trio.current_time()

    def _judge(self, figures: Figures) -> None:
        report = self.report
        times = sorted(self.times_ms)
        report.cycle_ms_p99 = round(times[len(times) * 99 // 100], 2) if times else 0.0
        faults = report.faults
        for queue in QUEUES:
            stored = figures[f"sepp_jobs_enqueued_total{{{queue}}}"]
            done = figures[f"sepp_jobs_acked_total{{{queue}}}"]
            lost = figures.get(f"sepp_jobs_dead_lettered_total{{lease_expired,{queue}}}", 0)
            if stored != done + lost:
                faults.append(f"{queue}: {stored:.0f} stored, {done:.0f} done, {lost:.0f} dead")
        for name in (
            "sepp_leases_without_timer",
            "sepp_store_failed",
            "sepp_unauthenticated_total",
        ):
            if figures[name]:
                faults.append(f"{name} is {figures[name]:.0f}")
        if report.errors:
            faults.append(f"{len(report.errors)} errors, first: {report.errors[0]}")
        self._judge_growth("memory", report.memory_bytes, MEMORY_GROWTH_MAX)
        self._judge_growth("log", report.log_bytes, LOG_GROWTH_MAX)
        self._judge_growth("descriptors", report.descriptors, DESCRIPTOR_GROWTH_MAX)

    def _judge_growth(self, name: str, samples: list[int], growth_max: int) -> None:
        fifth = len(samples) // 5
        if fifth:
            grown = max(samples[-fifth:]) - max(samples[fifth : 2 * fifth])
            if grown > growth_max:
                self.report.faults.append(f"{name} has grown by {grown:,}")


class KeyedClient(Client):
    """Sends the soak's key of the moment with each call."""

    def __init__(self, channel: Channel, soak: Soak) -> None:
        super().__init__(channel)
        self._soak = soak

    async def call(self, method: str, request: Any, answer: Any, timeout_s: float = 60) -> Any:
        path = f"/sepp.v1.QueueService/{method}"
        bearer = b"Bearer " + self._soak.key.encode()
        message = await self.channel.unary(
            path,
            request.SerializeToString(),
            timeout_s=timeout_s,
            metadata=((b"authorization", bearer),),
        )
        answer.ParseFromString(message)
        return answer


def configuration(keys: list[str], depth: int) -> dict[str, Any]:
    """The server's configuration at one moment."""
    return settings(
        auth={"api_keys": [{"name": key, "key": key} for key in keys]},
        limits={"max_queue_depth": depth, "default_max_attempts": 100},
        storage={"segment_bytes": SEGMENT_BYTES},
    )


def soak(directory: Path, seconds: float, *, rate: float = 0.0, seed: int = 0) -> Report:
    """Run one; the server is stopped at the end, cleanly, or that is a fault as well."""
    report = Report(seconds=seconds)
    server = ServerProcess(directory, configuration(["key-0"], 100_000))
    server.start()
    try:
        server.wait_until_says("watching config file")
        trio.run(Soak(server, report, random.Random(seed)).run, seconds, rate)
        server.stop()
    finally:
        if server.is_running:
            server.kill()
    return report


def summary(report: Report) -> dict[str, Any]:
    """The figures worth keeping."""
    shown = {name: getattr(report, name) for name in Report.__slots__ if name[0] != "_"}
    for name in ("memory_bytes", "log_bytes", "descriptors"):
        samples = shown.pop(name)
        fifth = len(samples) // 5
        if fifth:
            parts = [samples[at * fifth : (at + 1) * fifth] for at in range(5)]
            shown[name] = {"first": samples[0], "max of each fifth": [max(part) for part in parts]}
    shown["scrape_ms_max"] = round(report.scrape_ms_max, 1)
    return shown


def main() -> int:
    """The command line of `tools/soak`."""
    parser = argparse.ArgumentParser(description="Let a server work for long.")
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--rate", type=float, default=0.0, help="jobs a second; 0: half the top")
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        report = soak(
            Path(directory) / "server", options.seconds, rate=options.rate, seed=options.seed
        )
    print(json.dumps(summary(report), indent=1))
    return 3 if report.faults else 0
