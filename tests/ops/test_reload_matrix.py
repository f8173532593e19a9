"""Every key of the configuration, flipped while a server runs and clients stay connected.

A hot key is shown by the wire before and after; a restart-only one is named in the log and changes
nothing. Nobody is disconnected.
"""

import signal
import tomllib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
from attrs import field, frozen

from sepp._generated import queue_pb2 as pb
from sepp.config.reload import RESTART_ONLY
from tests.config.altered import altered
from tests.config.facts import OVERRIDES, ROWS
from tests.e2e.rpc_client import Client, connected
from tests.e2e.server_process import ServerProcess
from tests.ops import probes
from tests.ops.figures import scrape, settings
from tests.ops.probes import Field, Stored
from tests.rpc.frames import RawPeer, message, request
from tests.rpc.frames import settings as settings_frame

StartServer = Callable[..., ServerProcess]
Probe = Callable[[Client, str], Awaitable[Any]]
APPLIED = "configuration reloaded"
WAITS = "changed settings need a restart and keep their running values"

# Their effect is seen in tests of their own: on the admin side (`test_reload_admin.py`), at the end
# of a process, in its memory.
ADMIN_KEYS = {
    "admin.keys",
    "admin.session_ttl_ms",
    "admin.stats_history_ms",
    "admin.audit_retention_ms",
}
ELSEWHERE = {*ADMIN_KEYS, "server.shutdown_grace_ms", "server.max_memory_bytes"}


@frozen
class Case:
    """What `probe` tells before and after `key` gets `value`.

    Args:
        base: Limits that hold before and after.
    """

    value: Any
    probe: Probe
    before: Any
    after: Any
    base: dict[str, Any] = field(factory=dict)


GROWING = {"retry_delay_ms": 1, "retry_backoff": "exponential"}
CUSTOM = {"custom": {"aaa": "1", "bbb": "2"}}

LIMITS: dict[str, Case] = {
    "max_lease_duration_ms": Case(1000, probes.lease_is_short, False, True),
    "default_max_attempts": Case(2, Field("max_attempts"), 3, 2),
    "max_attempts_ceiling": Case(99, Field("max_attempts", max_attempts=100), 100, 99),
    "default_priority": Case(1, Field("priority"), 0, 1),
    "retry_delay_ms": Case(60_000, probes.redelivery_is_prompt, True, False),
    "retry_backoff": Case(
        "exponential", probes.late_redelivery_is_prompt, True, False, {"retry_delay_ms": 1}
    ),
    "retry_delay_max_ms": Case(1, probes.late_redelivery_is_prompt, False, True, GROWING),
    "max_reserve_batch": Case(2, probes.reserved_at_once, 3, 2),
    "max_reserve_queues": Case(1, probes.two_queues, "OK", "INVALID_ARGUMENT"),
    "max_wait_timeout_ms": Case(1, probes.wait_is_short, False, True),
    "max_enqueue_batch": Case(1, Stored(2), ["ok", "ok"], ["INVALID_ARGUMENT"]),
    "max_queue_depth": Case(1, Stored(2), ["ok", "ok"], ["ok", "queue_full"]),
    "max_payload_bytes": Case(99, Stored(), ["ok"], ["payload_too_large"]),
    "max_custom_entries": Case(1, Stored(**CUSTOM), ["ok"], ["custom_entries_too_many"]),
    "max_custom_total_bytes": Case(7, Stored(**CUSTOM), ["ok"], ["custom_map_too_large"]),
    "max_custom_key_bytes": Case(2, Stored(**CUSTOM), ["ok"], ["custom_key_too_long"]),
    "max_queue_name_bytes": Case(5, Stored(), ["ok"], ["queue_name_too_long"]),
    "max_job_type_bytes": Case(6, Stored(), ["ok"], ["job_type_name_too_long"]),
    "max_idempotency_key_bytes": Case(
        2, Stored(idempotency_key="abc"), ["ok"], ["idempotency_key_too_long"]
    ),
    "max_schedule_horizon_ms": Case(1000, Stored(ahead_s=60), ["ok"], ["scheduled_too_far"]),
    "allowed_encodings": Case(["json"], Stored(), ["ok"], ["encoding_not_allowed"]),
    "max_response_bytes": Case(1500, probes.reserved_at_once, 3, 1),
}
OTHERS: dict[str, Case] = {
    "server.strict_queues": Case(True, Stored(), ["ok"], ["unknown_queue"]),
    "auth.api_keys": Case([{"name": "ci", "key": "secret"}], probes.is_let_in, True, False),
}
PER_QUEUE: dict[str, Case] = {
    **{name: LIMITS[name] for name in OVERRIDES if name in LIMITS},
    "allowed_job_types": Case(["other"], Stored(), ["ok"], ["job_type_not_allowed"]),
}


@frozen
class Flip:
    """Two configurations that differ in one key, and what tells them apart."""

    key: str
    before: dict[str, Any]
    after: dict[str, Any]
    case: Case


def flips() -> list[Flip]:
    found = []
    for name, case in LIMITS.items():
        after = {"limits": {**case.base, name: case.value}}
        found.append(Flip(f"limits.{name}", {"limits": case.base}, after, case))
    for path, case in OTHERS.items():
        section, _, name = path.partition(".")
        found.append(Flip(path, {}, {section: {name: case.value}}, case))
    for name, case in PER_QUEUE.items():
        path = f"queues[].{name}"
        own = {"name": path, **case.base}
        after = {"queues": [{**own, name: case.value}]}
        found.append(Flip(path, {"queues": [own]}, after, case))
    lifted = {"name": "queues[].lifted", "max_queue_depth": -1}
    capped = {"limits": {"max_queue_depth": 1}}
    lifting = Case(-1, Stored(2), ["ok", "queue_full"], ["ok", "ok"])
    found.append(Flip("queues[].lifted", capped, {**capped, "queues": [lifted]}, lifting))
    return found


class Reloads:
    """Changes the configuration of a running server and waits until it says so."""

    def __init__(self, server: ServerProcess) -> None:
        self.server = server
        self._last: dict[str, Any] = {}
        self._count = 0

    async def to(self, sections: dict[str, Any]) -> str:
        """Return what was printed meanwhile."""
        sections = {name: keys for name, keys in sections.items() if keys}
        if sections == self._last:
            return ""
        start = len(self.server.output)
        self._last, self._count = sections, self._count + 1
        self.server.configure(sections)
        self.server.send(signal.SIGHUP)
        await trio.to_thread.run_sync(self.server.wait_until_says, APPLIED, self._count)
        return self.server.output[start:]


async def test_a_hot_key_takes_effect_while_everybody_stays_connected(
    start_server: StartServer,
) -> None:
    server = start_server(settings())
    server.wait_until_says("watching config file")
    reloads = Reloads(server)
    reloads._last = settings()
    told: dict[str, tuple[Any, Any]] = {}
    async with connected(server.port) as client:
        for flip in flips():
            await reloads.to(settings(**flip.before))
            before = await flip.case.probe(client, flip.key)
            await reloads.to(settings(**flip.after))
            after = await flip.case.probe(client, flip.key)
            told[flip.key] = (before, after)
        await reloads.to(settings())
        figures = await scrape(server)

    assert told == {flip.key: (flip.case.before, flip.case.after) for flip in flips()}
    assert figures["sepp_connections"] == figures["sepp_connections_accepted_total"] == 1
    assert WAITS not in server.output


def test_every_hot_key_is_flipped_here_or_elsewhere() -> None:
    hot = {row[0] for row in ROWS if row[4] == "H"}
    hot |= {f"queues[].{name}" for name, mark in OVERRIDES.items() if mark == "H"}

    assert {flip.key for flip in flips()} - {"queues[].lifted"} | ELSEWHERE == hot


async def test_a_change_of_the_file_alone_takes_effect_within_two_looks_and_a_bit(
    start_server: StartServer,
) -> None:
    server = start_server(settings())
    server.wait_until_says("watching config file")
    async with connected(server.port) as client:
        server.configure(settings(limits={"max_payload_bytes": 99}))

        with trio.fail_after(20):  # hang guard at ten times the promised 2 s
            while await probes.store(client, "q") == ["ok"]:
                await trio.lowlevel.checkpoint()

    assert server.output.count(APPLIED) == 1


# Where a test server runs with the altered value already.
DIFFERENT_HERE: dict[str, dict[str, Any]] = {
    "admin.enabled": {"admin": {"enabled": True}},
    "server.listen_addr": {"server": {"listen_addr": "127.0.0.1:1"}},
}
RESTART_ROWS = [row[0] for row in ROWS if row[4] == "R"]


async def test_a_restart_only_key_is_named_and_keeps_its_running_value(
    start_server: StartServer,
) -> None:
    server = start_server()
    server.wait_until_says("watching config file")
    reloads = Reloads(server)
    named: dict[str, bool] = {}
    async with connected(server.port) as client:
        told = await info(client)
        for path in RESTART_ROWS:
            sections = tomllib.loads(altered(path))
            sections = DIFFERENT_HERE.get(path, sections)
            said = await reloads.to(sections)
            entry = path if path in RESTART_ONLY else path.partition(".")[0]
            fields = said.partition("fields=")[2].partition("\n")[0].strip("[]").split(",")
            named[path] = said.count(WAITS) == 1 and entry in fields
            assert await info(client) == told
            assert WAITS not in await reloads.to({})
        window = {"queues": [{"name": "q", "dedup_window_ms": 1}]}
        assert "queues[].dedup_window_ms" in await reloads.to(window)
        await reloads.to({})
        await client.enqueue()

    assert named == dict.fromkeys(RESTART_ROWS, True)


async def info(client: Client) -> pb.GetServerInfoResponse:
    """What the server tells of itself, without its clock."""
    answer = await client.call(
        "GetServerInfo", pb.GetServerInfoRequest(), pb.GetServerInfoResponse()
    )
    answer.ClearField("server_time")
    assert isinstance(answer, pb.GetServerInfoResponse)
    return answer


async def test_a_shorter_grace_holds_for_the_stop_that_comes_after(
    start_server: StartServer,
) -> None:
    server = start_server(settings())
    server.wait_until_says("watching config file")
    reserve = pb.ReserveRequest(queues=["q"])
    reserve.lease_duration.FromSeconds(60)
    async with connected(server.port) as client:
        await client.enqueue(data=b"x" * 100_000)
        # A peer whose window holds one byte never takes the answer: a call stays in flight.
        stalled = await RawPeer.greeted(server.port, settings_frame(id_4=1))
        path = "/sepp.v1.QueueService/Reserve"
        await stalled.send(request(1, path, message(reserve.SerializeToString())))
        while (await scrape(server)).get("sepp_queue_inflight{q}") != 1:  # leased by then
            await trio.lowlevel.checkpoint()
        server.configure(settings(server={"shutdown_grace_ms": 1}))
        server.send(signal.SIGHUP)
        await trio.to_thread.run_sync(server.wait_until_says, APPLIED)

        server.send(signal.SIGTERM)

        assert await trio.to_thread.run_sync(server.wait) == 0
        text = "calls were still in flight at the end of the grace time grace_s=0.001"
        assert text in server.output
        await stalled.close()


@pytest.mark.parametrize("text", ["[limits", "[limits]\nmax_enqueue_batch = 0\n"])
async def test_an_invalid_file_changes_nothing(start_server: StartServer, text: str) -> None:
    server = start_server(settings(limits={"max_payload_bytes": 99}))
    server.wait_until_says("watching config file")
    async with connected(server.port) as client:
        server.config_path.write_text(text)
        server.send(signal.SIGHUP)
        await trio.to_thread.run_sync(server.wait_until_says, "config reload failed")

        assert await probes.store(client, "q") == ["payload_too_large"]
