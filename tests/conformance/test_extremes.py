"""Every limit at the largest value a configuration may hold: nothing overflows, all still works."""

import pytest
import trio
from google.protobuf.timestamp_pb2 import Timestamp
from trio.testing import MockClock

from sepp._generated import queue_pb2 as pb
from tests.conformance.client import DEAD_LETTER, job, later
from tests.conformance.local import LocalClient, Place

I64_MAX, U32_MAX = 2**63 - 1, 2**32 - 1
LONGEST_MS = 315_576_000_000_000  # of a Duration
LAST_MS = 253_402_300_799_999  # of a Timestamp
SETTINGS = {
    "limits": {
        "max_lease_duration_ms": I64_MAX,
        "default_max_attempts": U32_MAX,
        "max_attempts_ceiling": U32_MAX,
        "retry_delay_ms": I64_MAX,
        "retry_backoff": "exponential",
        "retry_delay_max_ms": I64_MAX,
        "max_reserve_batch": U32_MAX,
        "max_reserve_queues": U32_MAX,
        "max_wait_timeout_ms": I64_MAX,
        "max_enqueue_batch": U32_MAX,
        "max_queue_depth": I64_MAX,
        "max_custom_entries": U32_MAX,
        "max_custom_total_bytes": I64_MAX,
        "max_custom_key_bytes": U32_MAX,
        "max_queue_name_bytes": 65_535,
        "max_job_type_bytes": U32_MAX,
        "max_idempotency_key_bytes": U32_MAX,
        "max_schedule_horizon_ms": I64_MAX,
        "max_response_bytes": I64_MAX,
    },
    "storage": {"dedup_window_ms": I64_MAX, "dead_letter_retention_ms": I64_MAX},
}


async def sound(rpc: LocalClient) -> None:
    """Look at everything there is."""
    rpc.machine.check()
    rpc.machine.statistics()


async def test_the_servers_facts_can_be_told() -> None:
    place = Place(SETTINGS)
    async with place.serving() as rpc:
        info = await rpc.info()
        assert info.max_reserve_batch == U32_MAX
        for span in (info.max_schedule_horizon, info.max_wait_timeout, info.max_lease_duration):
            assert 0 < span.seconds * 1000 <= I64_MAX
            assert 0 <= span.nanos < 1_000_000_000


async def test_the_longest_lease_ends_within_the_years_a_timestamp_knows(
    autojump_clock: MockClock,
) -> None:
    place = Place(SETTINGS)
    async with place.serving() as rpc:
        await rpc.enqueue("q")
        found = await rpc.take("q", lease_ms=LONGEST_MS)
        assert found.lease_expires_at.ToMilliseconds() == LAST_MS
        assert await rpc.extend(found, LONGEST_MS) == LAST_MS
        await trio.sleep(60)
        await sound(rpc)
    async with place.serving() as rpc:
        await rpc.ack(found)


@pytest.mark.parametrize("seconds", [253_402_300_800, 2**53, 2**63 - 1])
async def test_a_schedule_beyond_the_year_9999_is_kept_and_echoed(
    autojump_clock: MockClock, seconds: int
) -> None:
    place = Place(SETTINGS)
    at = Timestamp(seconds=seconds, nanos=999_999_999)
    async with place.serving() as rpc:
        (result,) = await rpc.batch(job("q", scheduled_at=at, idempotency_key="k"))
        if result.WhichOneof("outcome") == "rejection":
            assert result.rejection.scheduled_too_far.actual == at
            return
        assert await rpc.reserve("q") == []
        await sound(rpc)
    async with place.serving() as rpc:
        assert rpc.machine.statistics().scheduled == 1
        await sound(rpc)


async def test_the_longest_wait_can_be_waited(autojump_clock: MockClock) -> None:
    place = Place(SETTINGS)
    async with place.serving() as rpc:
        request = pb.ReserveRequest(queues=["q"])
        request.lease_duration.seconds = 1
        request.wait_timeout.seconds = LONGEST_MS // 1000
        call = rpc.start("Reserve", request)
        await trio.sleep(600)
        await rpc.enqueue("q")
        assert len((await call.result(pb.ReserveResponse)).jobs) == 1


@pytest.mark.parametrize("retry", [None, later(LONGEST_MS), later(I64_MAX // 1000)])
async def test_the_longest_delay_can_be_waited(
    autojump_clock: MockClock, retry: pb.NackRetry | None
) -> None:
    place = Place(SETTINGS)
    async with place.serving() as rpc:
        await rpc.enqueue("q")
        found = await rpc.take("q")
        await rpc.nack(found, **({} if retry is None else {"retry": retry}))
        assert await rpc.reserve("q", wait_ms=60_000) == []
        await sound(rpc)
    async with place.serving() as rpc:
        assert rpc.machine.statistics().scheduled == 1


async def test_dead_letters_and_keys_may_be_kept_for_ever(autojump_clock: MockClock) -> None:
    place = Place(SETTINGS)
    async with place.serving() as rpc:
        first = await rpc.enqueue("q", idempotency_key="k", max_attempts=U32_MAX)
        await rpc.nack(await rpc.take("q"), retry=DEAD_LETTER)
        await trio.sleep(3600)
    async with place.serving() as rpc:
        (known,) = await rpc.batch(job("q", idempotency_key="k"))
        assert (known.success.job_id, known.success.deduplicated) == (first, True)
        assert len(await rpc.drain("q", U32_MAX)) == 1


async def test_names_as_long_as_a_message_are_stored() -> None:
    place = Place(SETTINGS)
    async with place.serving() as rpc:
        name = "ü" * 32_767
        job_id = await rpc.enqueue(name, job_type="t" * 1_000_000, idempotency_key="k" * 1_000_000)
        found = await rpc.take(name)
        assert (found.id, found.queue, len(found.job_type)) == (job_id, name, 1_000_000)
