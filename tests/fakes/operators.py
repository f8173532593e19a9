"""A whole server in memory for the admin side.

Machine, clock, job bodies and configuration file are real; a commit only waits for one turn. The
clock stands still until a test turns it.
"""

import uuid
from collections.abc import Sequence
from pathlib import Path

import trio

from sepp import wire
from sepp._generated import queue_pb2 as pb
from sepp.admin.backend import (
    BackupFailedError,
    BackupMade,
    CommandRefusedError,
    Facts,
    Segment,
    ServerDetails,
    Vitals,
)
from sepp.admin.core_backend import CoreBackend, FollowUp
from sepp.clock import Clock
from sepp.config.load import load
from sepp.config.model import Config
from sepp.config.policy import QueuePolicy
from sepp.core.commands import (
    Ack,
    Command,
    Directive,
    Enqueue,
    GiveBack,
    Nack,
    NewJob,
    Reserve,
    Sweep,
)
from sepp.core.machine import Machine
from sepp.core.outcomes import Leased, LeasedJob, Outcome, Swept
from sepp.reloader import Reloader, watch
from tests.fakes.slots import FakeSlots

START_MS = 1_795_956_307_000  # 2026-11-29 12:45:07 UTC
RETENTION_MS = 1_209_600_000  # 14 d

CONFIG = """\
# Kept by the tests; comments must survive.
[admin]
keys = [
  { name = "vera", key = "viewer-secret", role = "viewer" },
  { name = "otto", key = "operator-secret", role = "operator" },
  { name = "ada", key = "admin-secret" }, # may do all
]

[limits]
default_max_attempts = 5 # more patience than usual

[storage]
dead_letter_retention_ms = 1209600000

[[queues]]
name = "webhooks" # the busy one
max_payload_bytes = 1000000
"""
SECRETS = {"viewer": "viewer-secret", "operator": "operator-secret", "admin": "admin-secret"}


class FakeDoor:
    """Applies commands at once and makes them durable one turn later."""

    def __init__(self, server: "FakeServer") -> None:
        self._server = server
        self.refusal: str | None = None
        self.backup_fault: str | None = None
        self.now_vitals = Vitals()
        self.groups: list[list[Command]] = []

    async def run_group(self, commands: list[Command], follow_up: FollowUp) -> list[Outcome]:
        if self.refusal is not None:
            await trio.lowlevel.checkpoint()
            raise CommandRefusedError(self.refusal)
        server = self._server
        done = list(commands)
        outcomes = [server.do(command) for command in commands]
        extra = follow_up(outcomes)
        if extra is not None:
            outcomes.append(server.do(extra))
            done.append(extra)
        self.groups.append(done)
        await trio.lowlevel.checkpoint()
        server.commit()
        return outcomes

    def vitals(self) -> Vitals:
        now = self.now_vitals
        return Vitals(now.command_queue_len, now.is_disk_full, now.is_memory_short)

    async def backup(self, directory: str) -> BackupMade:
        await trio.lowlevel.checkpoint()
        if self.backup_fault is not None:
            raise BackupFailedError(self.backup_fault)
        return BackupMade(1234, 3, 142_617_728)

    async def details(self) -> ServerDetails:
        return ServerDetails(
            memory_bytes=184_000_000,
            data_bytes=142_617_728,
            live_bytes=80_400_000,
            segment_count=3,
            entry_count=120_000,
            disk_free_bytes=90_000_000_000,
            commit_count=1234,
            commit_p50_ms=0.8,
            commit_p99_ms=3.1,
            segments=(
                Segment("000041.seg", 67_108_864, 12_000_000),
                Segment("000042.seg", 67_108_864, 60_100_000),
                Segment("000043.seg", 8_400_000, 8_300_000),
            ),
            last_compaction_ms=self._server.wall_ms - 3_600_000,
        )


class FakeReader:
    """Bodies of the fake slots; `is_cold` makes every read wait, `damaged` cannot be read."""

    def __init__(self, machine: Machine, slots: FakeSlots) -> None:
        self._machine = machine
        self._slots = slots
        self.is_cold = False
        self.damaged: set[int] = set()

    def bodies_nowait(self, slots: Sequence[int]) -> list[bytes | None]:
        puts = self._machine.puts
        return [
            None
            if slot in self.damaged or (self.is_cold and slot not in puts)
            else puts.get(slot, self._stored(slot))
            for slot in slots
        ]

    def _stored(self, slot: int) -> bytes | None:
        entry = self._slots.disk.get(slot)
        return None if entry is None else entry[3]

    async def read_bodies(self, slots: Sequence[int]) -> Sequence[object]:
        found = [
            RuntimeError("damaged") if slot in self.damaged else self._stored(slot)
            for slot in slots
        ]
        await trio.lowlevel.checkpoint()
        return found

    async def locate(self, keys: Sequence[tuple[int, bytes]]) -> None:
        await trio.lowlevel.checkpoint()


class FakeServer:
    """See the module.

    Args:
        directory: Where the configuration file is made.
        config: Its text.
        environ: The environment the configuration is read under.
    """

    def __init__(
        self, directory: Path, config: str = CONFIG, environ: dict[str, str] | None = None
    ) -> None:
        self.path = directory / "sepp.toml"
        self.path.write_text(config)
        self.wall_ms = START_MS
        self.clock = Clock(
            wall_ns=lambda: self.wall_ms * 1_000_000, monotonic_ns=lambda: self.wall_ms * 1_000_000
        )
        environ = environ or {}
        loaded = load(str(self.path), environ)
        self.reloader = Reloader(loaded, environ, self._apply)
        self.policy = QueuePolicy(loaded.config)
        self.slots = FakeSlots()
        self.machine = Machine(
            self.slots, self.policy, retention_ms=loaded.config.storage.dead_letter_retention_ms
        )
        self.door = FakeDoor(self)
        self.reader = FakeReader(self.machine, self.slots)
        self.backend = CoreBackend(
            self.machine,
            self.clock,
            self.reader,
            self.door,
            config=self.reloader,
            facts=Facts(
                version="0.1.0",
                started_at_ms=START_MS - 533_000_000,
                listen_addr="0.0.0.0:50051",
                admin_addr=loaded.config.admin.listen_addr,
                is_tls=False,
                db_path="./sepp-data",
                config_path=str(self.path),
                retention_ms=loaded.config.storage.dead_letter_retention_ms,
                command_queue_capacity=loaded.config.storage.command_queue_capacity,
            ),
            policy=lambda: self.policy,
            dedup_key=lambda queue, key: f"{queue} {key}".encode()[-16:].rjust(16, b"\0"),
            new_job_id=lambda: uuid.uuid4().bytes,
        )

    def _apply(self, config: Config) -> None:
        self.policy = QueuePolicy(config, self.reloader.boot)
        self.machine.reload(self.policy)

    async def watch(self) -> None:
        """Follow the configuration file."""
        await watch(self.reloader)

    def pass_ms(self, span_ms: int) -> None:
        """Let time pass."""
        self.wall_ms += span_ms

    def do(self, command: Command) -> Outcome:
        """Handle one command."""
        return self.machine.handle(command, self.clock.now())

    def commit(self) -> None:
        """Make the open group durable."""
        self.slots.build(self.machine.puts, self.machine.states, self.machine.deletes)

    # Short words

    def enqueue(
        self,
        queue: str = "webhooks",
        count: int = 1,
        *,
        job_type: str = "deliver_hook",
        payload: bytes | None = b'{"event": "invoice.paid"}',
        encoding: str = "json",
        priority: int = 0,
        max_attempts: int = 3,
        delay_ms: int = 0,
        custom: dict[str, object] | None = None,
    ) -> list[bytes]:
        """Enqueue jobs and return their ids."""
        request = pb.EnqueueRequest(queue=queue, job_type=job_type)
        if payload is not None:
            request.payload.data, request.payload.encoding = payload, encoding
        for key, value in (custom or {}).items():
            kind = {bool: "bool", int: "int", float: "double", str: "string"}[type(value)]
            setattr(request.custom[key], f"{kind}_value", value)
        due_ms = self.wall_ms + delay_ms if delay_ms else 0
        if due_ms:
            request.scheduled_at.FromMilliseconds(due_ms)
        jobs = []
        for _job in range(count):
            job_id = uuid.uuid4().bytes
            body = wire.encode_body(
                wire.id_text(job_id),
                queue,
                request.job_type,
                priority,
                max_attempts,
                payload=request.payload if payload is not None else None,
                custom=request.custom or None,
                trace=None,
                scheduled=request.scheduled_at.SerializeToString() if due_ms else None,
            )
            jobs.append(NewJob(queue, job_id, body, priority, max_attempts, due_ms))
        self.do(Enqueue(jobs))
        self.commit()
        return [job.job_id for job in jobs]

    def reserve(
        self, queue: str = "webhooks", count: int = 1, lease_ms: int = 30_000
    ) -> list[LeasedJob]:
        """Lease jobs."""
        outcome = self.do(Reserve((queue,), lease_ms, max_jobs=count))
        assert isinstance(outcome, Leased)
        self.commit()
        return outcome.jobs

    def kill(
        self,
        queue: str = "webhooks",
        count: int = 1,
        *,
        reason: str | None = "connect timed out",
        directive: Directive = Directive.DEAD_LETTER,
        **fields: object,
    ) -> list[bytes]:
        """Enqueue jobs and let them die; return their ids."""
        ids = self.enqueue(queue, count, **fields)  # type: ignore[arg-type]  # names are checked at the call
        wanted = set(ids)
        others = []
        text = None if reason is None else reason.encode()
        while wanted:
            leased = self.do(Reserve((queue,), 1000, max_jobs=1000))
            assert isinstance(leased, Leased)
            for job in leased.jobs:
                if job.job_id in wanted:
                    self.do(Nack(job.job_id, job.attempt, directive, reason=text))
                    wanted.discard(job.job_id)
                else:
                    others.append(GiveBack(job.job_id, job.attempt, leased.expires_ms))
            self.commit()
        for give_back in others:
            self.do(give_back)
        self.commit()
        return ids

    def ack(self, jobs: Sequence[LeasedJob]) -> None:
        """Finish leased jobs."""
        for job in jobs:
            self.do(Ack(job.job_id, job.attempt))
        self.commit()

    def sweep(self) -> Swept:
        """Do what is due."""
        outcome = self.do(Sweep())
        assert isinstance(outcome, Swept)
        self.commit()
        return outcome
