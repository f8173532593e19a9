"""What a reading holds, in which slices, and that counts never go down."""

import random

import pytest
import trio
import trio.testing

from sepp._generated import queue_pb2 as pb
from sepp.core.commands import Ack, Directive, Enqueue, Nack, Reserve, Sweep
from sepp.core.timers import IDLE_MS
from sepp.counts import OTHER
from sepp.metrics import Sources
from sepp.metrics.reading import QUEUES_PER_SLICE, Histogram, NamedQueues, read
from tests.metrics.stand import Slices, reading, standing
from tests.spine.desk import Desk, enqueue, reserve


def job_id(number: int) -> bytes:
    return number.to_bytes(16, "big")


async def settle() -> None:
    await trio.testing.wait_all_tasks_blocked()


async def test_counts_of_a_queue_are_shown_under_its_name() -> None:
    async with standing() as (desk, sources):
        for number in (1, 2, 3):
            desk.submit(enqueue(number, "mail"))
        desk.submit(reserve("mail", max_jobs=2))
        desk.submit(Ack(job_id(1), 1))
        desk.submit(Nack(job_id(2), 1, Directive.DEAD_LETTER, 0, b"no"))
        await settle()

        found = await reading(sources)

    assert found["sepp_jobs_enqueued_total"] == {"mail": 3}
    assert found["sepp_jobs_reserved_total"] == {"mail": 2}
    assert found["sepp_jobs_acked_total"] == {"mail": 1}
    assert found["sepp_jobs_nacked_total"] == {"mail": 1}
    assert found["sepp_jobs_dead_lettered_total"] == {
        "mail,attempts_exhausted": 0,
        "mail,rejected": 1,
        "mail,lease_expired": 0,
        "mail,admin": 0,
    }
    assert found["sepp_queue_ready"] == {"mail": 1}
    assert found["sepp_queue_dead_lettered"] == {"mail": 1}
    # Gauges of a queue are shown only while they are not 0.
    assert found["sepp_queue_inflight"] == found["sepp_queue_scheduled"] == {}
    assert found["sepp_leases_without_timer"] == {"": 0}


async def test_age_of_the_oldest_ready_job_and_lags_follow_the_clock(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with standing() as (desk, sources):
        desk.submit(enqueue(1, "a"))
        desk.submit(enqueue(2, "b"))
        desk.submit(Reserve(("b",), lease_ms=1000, wait_ms=0, max_jobs=1))
        await trio.sleep(3)

        found = await reading(sources)

        assert found["sepp_queue_oldest_ready_age_milliseconds"] == {"a": 3000}
        assert found["sepp_lease_expiry_lag_milliseconds"] == {"": 2000}
        assert found["sepp_schedule_lag_milliseconds"] == {"": 0}
        await desk.committer.run(Sweep())
        assert (await reading(sources))["sepp_lease_expiry_lag_milliseconds"] == {"": 0}


async def test_commits_are_shown_by_time_and_by_records() -> None:
    async with standing() as (desk, sources):
        before = await reading(sources)
        desk.submit(enqueue(1))
        await settle()

        found = await reading(sources)

    times, records = (
        found["sepp_commit_duration_milliseconds"][""],
        found["sepp_commit_records"][""],
    )
    assert isinstance(times, Histogram)
    assert isinstance(records, Histogram)
    assert sum(times.counts) == sum(records.counts) == 1
    assert records.sum == 2  # the job and the name of its queue
    assert before["sepp_store_batches_total"] == {"": 1}  # the beginning of the epoch
    assert found["sepp_store_batches_total"] == {"": 2}
    assert found["sepp_store_room"] == {"ok": 1, "acks_only": 0, "none": 0}


async def test_while_the_store_is_being_read_there_are_figures_already() -> None:
    async with standing() as (_, sources):
        early = Sources(sources.service, sources.clock, sources.reloader)

        found = await reading(early)

    assert found["sepp_serving"] == {"": 1}
    assert "sepp_store_log_bytes" not in found
    assert "sepp_jobs_enqueued_total" not in found


@pytest.mark.parametrize("count", [0, 1, QUEUES_PER_SLICE, QUEUES_PER_SLICE + 1, 1000])
async def test_no_slice_reads_more_queues_than_it_may(count: int) -> None:
    async with standing() as (desk, sources):
        for number in range(count):
            desk.machine.handle(enqueue(number + 1, f"q{number}"), desk.clock.now())
        slices = Slices(desk)

        await read(sources, NamedQueues(1000), slices.pause)

        slices.end()
        full, rest = divmod(count, QUEUES_PER_SLICE)
        # Before the queues: process and calls, the store, the rest of the machine.
        assert slices.queue_counts == [0, 0, *([0] if count else []), *_lengths(full, rest)]


def _lengths(full: int, rest: int) -> list[int]:
    lengths = [QUEUES_PER_SLICE] * full + ([rest] if rest else [])
    return lengths or [0]


async def test_a_reading_costs_the_same_slices_however_many_jobs_there_are() -> None:
    async with standing() as (desk, sources):
        jobs = [enqueue(number + 1).jobs[0] for number in range(5000)]
        desk.machine.handle(Enqueue(jobs), desk.clock.now())
        slices = Slices(desk)

        await read(sources, NamedQueues(1000), slices.pause)

        slices.end()
        assert slices.queue_counts == [0, 0, 0, 1]


async def test_queues_beyond_the_bound_are_summed() -> None:
    async with standing() as (desk, sources):
        for number in range(5):
            desk.submit(enqueue(number + 1, f"q{number}"))
        await settle()

        found = await reading(sources, NamedQueues(2))

    assert found["sepp_jobs_enqueued_total"] == {"q0": 1, "q1": 1, OTHER: 3}
    assert found["sepp_queue_ready"] == {"q0": 1, "q1": 1, OTHER: 3}
    assert found["sepp_queues"] == {"": 5}


async def test_with_no_queue_by_name_all_are_summed() -> None:
    async with standing() as (desk, sources):
        desk.submit(enqueue(1))
        await settle()

        assert (await reading(sources, NamedQueues(0)))["sepp_jobs_enqueued_total"] == {OTHER: 1}


async def test_counts_of_a_forgotten_queue_are_not_lost(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with standing() as (desk, sources):
        named = NamedQueues(10)
        desk.submit(enqueue(1, "short"))
        desk.submit(reserve("short"))
        desk.submit(Ack(job_id(1), 1))
        await settle()
        before = await reading(sources, named)
        await trio.sleep(IDLE_MS / 1000 + 1)
        await desk.committer.run(Sweep())

        after = await reading(sources, named)

    assert before["sepp_jobs_acked_total"] == {"short": 1}
    assert after["sepp_jobs_acked_total"] == {OTHER: 1}


async def test_sums_never_go_down_whatever_queues_come_and_go(
    autojump_clock: trio.testing.MockClock,
) -> None:
    seed = 20_260_101
    print(f"seed {seed}")
    rng = random.Random(seed)
    number = 0
    async with standing() as (desk, sources):
        named = NamedQueues(3)
        last: dict[str, float] = {}
        rest = 0.0
        for _ in range(60):
            for _ in range(rng.randrange(4)):
                number += 1
                await _one_job(desk, number, f"q{rng.randrange(12)}")
            await trio.sleep(rng.choice([1, IDLE_MS / 2000]))
            await desk.committer.run(Sweep())

            found = await reading(sources, named)

            acked = {key: _int(value) for key, value in found["sepp_jobs_acked_total"].items()}
            assert sum(acked.values()) == number
            assert len(acked.keys() - {OTHER}) <= 3
            assert acked.get(OTHER, 0) >= rest
            rest = acked.get(OTHER, 0)
            for queue in acked.keys() & last.keys() & desk.machine.table.queues.keys():
                assert acked[queue] >= last[queue] or queue not in last
            last = dict(acked)


async def _one_job(desk: Desk, number: int, queue: str) -> None:
    desk.submit(enqueue(number, queue))
    await desk.committer.run(reserve(queue))
    await desk.committer.run(Ack(job_id(number), 1))


def _int(value: object) -> int:
    assert isinstance(value, int)
    return value


async def test_rejections_are_shown_by_queue_and_reason() -> None:
    async with standing() as (_, sources):
        sources.service.rejected.add("mail", "queue_full", {})
        sources.service.rejected.add("mail", "queue_full", {})

        found = await reading(sources)

    assert found["sepp_jobs_rejected_total"] == {"mail,queue_full": 2}
    assert set(pb.JobRejection.DESCRIPTOR.fields_by_name) >= {"queue_full"}
