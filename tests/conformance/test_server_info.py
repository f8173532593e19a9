"""GetServerInfo: each field, from a server whose limits are all unlike each other."""

import time

import pytest

from sepp import __version__
from sepp._generated import queue_pb2 as pb
from tests.conformance.client import SocketClient, connected, in_ms
from tests.conformance.conftest import Servers

SETTINGS = {
    "server": {"strict_queues": True},
    "limits": {
        "allowed_encodings": ["json", "msgpack"],
        "max_payload_bytes": 1001,
        "max_custom_entries": 11,
        "max_custom_total_bytes": 1003,
        "max_custom_key_bytes": 104,
        "max_queue_name_bytes": 105,
        "max_job_type_bytes": 106,
        "max_idempotency_key_bytes": 107,
        "max_schedule_horizon_ms": 108_001,
        "max_enqueue_batch": 9,
        "max_reserve_batch": 8,
        "max_reserve_queues": 7,
        "max_wait_timeout_ms": 6_500,
        "max_lease_duration_ms": 5_250,
    },
    "queues": [{"name": "other", "max_payload_bytes": 5, "max_lease_duration_ms": 1}],
}

FIELDS = {
    "server_version": __version__,
    "supported_protocol_versions": ["v1"],
    "restricts_encodings": True,
    "allowed_encodings": ["json", "msgpack"],
    "max_payload_bytes": 1001,
    "max_custom_entries": 11,
    "max_custom_total_bytes": 1003,
    "max_custom_key_bytes": 104,
    "max_queue_name_bytes": 105,
    "max_job_type_bytes": 106,
    "max_idempotency_key_bytes": 107,
    "max_enqueue_batch": 9,
    "max_reserve_batch": 8,
    "max_reserve_queues": 7,
    "strict_queues": True,
    "dead_letter_retention_enabled": True,
}
SPANS_MS = {
    "max_schedule_horizon": 108_001,
    "max_wait_timeout": 6_500,
    "max_lease_duration": 5_250,
}


@pytest.mark.parametrize("name", FIELDS)
async def test_each_field_tells_the_limit_as_configured(rpc: SocketClient, name: str) -> None:
    value = getattr(await rpc.info(), name)
    assert (list(value) if name in ("allowed_encodings",) else value) == FIELDS[name]


@pytest.mark.parametrize("name", SPANS_MS)
async def test_each_span_tells_the_limit_as_configured(rpc: SocketClient, name: str) -> None:
    assert in_ms(getattr(await rpc.info(), name)) == SPANS_MS[name]


async def test_every_field_of_the_message_is_looked_at_here(rpc: SocketClient) -> None:
    names = {field.name for field in pb.GetServerInfoResponse.DESCRIPTOR.fields}
    assert names == {*FIELDS, *SPANS_MS, "server_time"}


async def test_server_time_is_now_in_whole_milliseconds(rpc: SocketClient) -> None:
    before = time.time_ns() // 1_000_000
    at = (await rpc.info()).server_time
    assert before - 5 <= in_ms(at) <= time.time_ns() // 1_000_000 + 5
    assert at.nanos % 1_000_000 == 0


async def test_overrides_of_one_queue_do_not_show(rpc: SocketClient) -> None:
    assert (await rpc.info()).max_payload_bytes == 1001


async def test_without_a_list_encodings_are_not_restricted(servers: Servers) -> None:
    async with connected(servers.get({}).port) as client:
        info = await client.info()
    assert (info.restricts_encodings, list(info.allowed_encodings)) == (False, [])


async def test_an_empty_list_restricts_encodings_to_none(servers: Servers) -> None:
    settings = {"limits": {"allowed_encodings": []}, "storage": {"dead_letter_retention_ms": 0}}
    async with connected(servers.get(settings).port) as client:
        info = await client.info()
        assert (info.restricts_encodings, list(info.allowed_encodings)) == (True, [])
        assert info.dead_letter_retention_enabled is False
        assert info.strict_queues is False
