"""What leaves the committer is durable, in order, and once."""

import errno

import pytest
import trio
import trio.testing

from segstore import StoreFailed
from sepp.core.commands import Ack, Reserve, Sweep
from sepp.core.outcomes import Accepted, Acked, Enqueued, Leased, NotFound
from sepp.request import Refusal, Refused
from tests.fakes.faults import Fault
from tests.fakes.simvfs import SimVFS
from tests.spine.desk import Gate, enqueue, open_desk, reserve, serving


async def settle() -> None:
    """Let everything run that can run."""
    await trio.testing.wait_all_tasks_blocked()


async def test_an_enqueue_is_answered_after_its_sync_and_not_before() -> None:
    async with serving() as desk:
        desk.gate.shut()
        ask = desk.submit(enqueue(1))
        await settle()
        assert ask.outcomes == []

        desk.gate.open()
        await settle()

        assert ask.outcomes == [Enqueued([Accepted((1).to_bytes(16, "big"))])]
        assert desk.flush_count == 1


async def test_all_that_comes_during_a_sync_shares_the_next_one() -> None:
    async with serving() as desk:
        desk.gate.shut()
        first = desk.submit(enqueue(1))
        await settle()
        rest = [desk.submit(enqueue(number)) for number in range(2, 50)]
        await settle()
        before = desk.gate.commit_count

        desk.gate.open()
        await settle()

        assert desk.gate.commit_count == before + 1
        assert all(len(ask.outcomes) == 1 for ask in [first, *rest])


async def test_an_answer_without_writes_leaves_at_once_when_no_commit_is_under_way() -> None:
    async with serving() as desk:
        desk.gate.shut()

        ask = desk.submit(Ack(b"\0" * 16, 1))
        await settle()

        assert ask.outcomes == [NotFound()]


async def test_an_answer_without_writes_waits_for_the_batch_it_may_depend_on() -> None:
    async with serving() as desk:
        desk.submit(enqueue(1))
        desk.submit(reserve())
        await settle()
        desk.gate.shut()
        acked = desk.submit(Ack((1).to_bytes(16, "big"), 1))
        await settle()

        again = desk.submit(Ack((1).to_bytes(16, "big"), 1))
        await settle()
        assert again.outcomes == []

        desk.gate.open()
        await settle()
        assert (acked.outcomes, again.outcomes) == ([Acked()], [NotFound()])


async def test_a_waiting_reserve_is_answered_with_the_batch_of_the_enqueue_that_wakes_it() -> None:
    async with serving() as desk:
        waiting = desk.submit(reserve(wait_ms=10_000))
        await settle()
        before = desk.store.stats().record_count
        desk.gate.shut()
        desk.submit(enqueue(1, body=b"for the waiter"))
        await settle()
        assert waiting.outcomes == []

        desk.gate.open()
        await settle()

        (leased,) = waiting.outcomes
        assert isinstance(leased, Leased)
        assert [job.attempt for job in leased.jobs] == [1]
        assert waiting.bodies == [b"for the waiter"]
        # One for the job, already leased, and one for the name of the queue.
        assert desk.store.stats().record_count == before + 2


async def test_a_caller_gone_while_waiting_gets_nothing_leased() -> None:
    async with serving() as desk:
        gone = desk.submit(reserve(wait_ms=10_000))
        stays = desk.submit(reserve(wait_ms=10_000))

        desk.committer.forget(gone)
        desk.submit(enqueue(1))
        await settle()

        assert gone.outcomes == []
        (leased,) = stays.outcomes
        assert isinstance(leased, Leased)
        assert [job.attempt for job in leased.jobs] == [1]


async def test_bodies_come_in_the_order_of_the_jobs_from_open_group_cache_and_disk() -> None:
    async with serving() as desk:
        for number in range(3):
            desk.submit(enqueue(number, body=b"%d" % number))
        await settle()
        desk.store._cache.forget(list(desk.store.scan()))
        desk.gate.shut()
        desk.submit(enqueue(3, body=b"3"))
        await settle()
        desk.submit(enqueue(4, body=b"4"))

        ask = desk.submit(reserve(max_jobs=10))
        desk.gate.open()
        await settle()

        assert ask.bodies == [b"0", b"1", b"2", b"3", b"4"]


async def test_a_failed_sync_refuses_everyone_and_ends_the_committer() -> None:
    disk = SimVFS()
    desk = await open_desk(disk, Gate())
    disk.faults.append(Fault(errno.EIO, names=frozenset({"fsync"}), path_part=".seg"))
    desk.gate.shut()
    asks = []

    with pytest.RaisesGroup(StoreFailed, flatten_subgroups=True):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(desk.committer.serve)
            asks.append(desk.submit(enqueue(1)))
            await settle()
            asks.append(desk.submit(enqueue(2)))
            await settle()
            desk.gate.open()

    assert [ask.outcomes for ask in asks] == [[], []]
    assert [ask.refusals for ask in asks] == [[Refusal.UNKNOWN], [Refusal.UNKNOWN]]


async def test_commands_beyond_a_full_group_wait_their_turn() -> None:
    async with serving() as desk:
        desk.gate.shut()
        desk.submit(enqueue(0))
        await settle()
        body = b"x" * (1 << 20)
        asks = [desk.submit(enqueue(number, body=body)) for number in range(1, 8)]
        assert desk.committer.waiting_count() == 3

        desk.gate.open()
        await settle()

        assert all(len(ask.outcomes) == 1 for ask in asks)
        assert desk.committer.waiting_count() == 0


async def test_a_call_outside_a_full_command_queue_is_refused_after_five_seconds(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with serving(capacity=1) as desk:
        desk.gate.shut()
        desk.submit(enqueue(0))
        await settle()
        body = b"x" * (4 << 20)
        desk.submit(enqueue(1, body=body))
        queued = desk.submit(enqueue(2, body=body))
        outside = desk.submit(enqueue(3, body=body))

        await trio.sleep(5.1)
        assert (outside.refusals, queued.refusals) == ([Refusal.OVERLOADED], [])

        desk.gate.open()
        await settle()
        assert len(queued.outcomes) == 1
        assert outside.outcomes == []
        assert desk.machine.statistics().ready == 3


async def test_a_queued_command_whose_caller_left_is_never_applied() -> None:
    async with serving() as desk:
        desk.gate.shut()
        desk.submit(enqueue(0))
        await settle()
        desk.submit(enqueue(1, body=b"x" * (4 << 20)))
        queued = desk.submit(enqueue(2))

        desk.committer.forget(queued)
        desk.gate.open()
        await settle()

        assert desk.machine.statistics().ready == 2


async def test_commands_of_one_group_are_one_batch() -> None:
    async with serving() as desk:
        await desk.committer.run(enqueue(9))
        before = desk.store.stats().batch_count

        outcomes = await desk.committer.run_group([enqueue(number) for number in range(5)])

        assert len(outcomes) == 5
        assert desk.store.stats().batch_count == before + 1


async def test_idle_means_that_everything_submitted_was_answered() -> None:
    async with serving() as desk:
        ask = desk.submit(enqueue(1))

        await desk.committer.wait_idle()

        assert len(ask.outcomes) == 1


async def test_end_of_waits_answers_every_parked_reserve_empty() -> None:
    async with serving() as desk:
        asks = [desk.submit(reserve(wait_ms=60_000)) for _ in range(50)]

        desk.committer.end_waits()
        await settle()

        assert [ask.outcomes for ask in asks] == [[Leased([])]] * 50


async def test_a_new_earlier_deadline_wakes_who_waits_for_it() -> None:
    async with serving() as desk:
        desk.committer.next_deadline()
        woken = trio.Event()

        async def watch() -> None:
            await desk.committer.wait_deadline_moved()
            woken.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            await settle()
            desk.submit(reserve(wait_ms=50))
            await settle()
            assert woken.is_set()
            nursery.cancel_scope.cancel()


async def test_a_full_disk_refuses_enqueues_and_serves_the_rest(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with serving() as desk:
        await desk.committer.run(enqueue(1))
        await desk.store.maintain()  # sets space aside
        desk.disk.free = 0
        await desk.store.maintain()
        await trio.sleep(0.002)  # the room is asked for once a millisecond

        ask = desk.submit(enqueue(2))
        outcome = await desk.committer.run(reserve())
        acked = await desk.committer.run(Ack((1).to_bytes(16, "big"), 1))

        assert ask.refusals == [Refusal.DISK_FULL]
        assert isinstance(outcome, Leased)
        assert len(outcome.jobs) == 1
        assert acked == Acked()


async def test_a_refused_command_raises_for_who_runs_it(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with serving() as desk:
        desk.disk.free = 0
        await desk.store.maintain()
        await trio.sleep(0.002)  # the room is asked for once a millisecond

        with pytest.raises(Refused) as caught:
            await desk.committer.run(enqueue(1))

        assert caught.value.refusal is Refusal.DISK_FULL


async def test_a_sweep_with_nothing_due_writes_nothing() -> None:
    async with serving() as desk:
        before = desk.store.stats().batch_count

        await desk.committer.run(Sweep())

        assert desk.store.stats().batch_count == before


async def test_short_of_memory_new_jobs_are_refused_and_all_else_goes_on() -> None:
    async with serving() as desk:
        desk.submit(enqueue(1))
        await settle()
        desk.committer.is_memory_short = True

        refused = desk.submit(enqueue(2))
        leased = desk.submit(reserve())
        await settle()
        acked = desk.submit(Ack((1).to_bytes(16, "big"), 1))
        await settle()

        assert (refused.refusals, refused.outcomes) == ([Refusal.MEMORY_SHORT], [])
        assert type(leased.outcomes[0]) is Leased
        assert acked.outcomes == [Acked()]

        desk.committer.is_memory_short = False
        taken = desk.submit(enqueue(3))
        await settle()
        assert type(taken.outcomes[0]) is Enqueued


async def test_a_traced_sweep_brings_the_bodies_of_its_jobs() -> None:
    async with serving() as desk:
        desk.submit(enqueue(1, body=b"one"))
        desk.submit(Reserve(("q",), lease_ms=1, wait_ms=0, max_jobs=1))
        await settle()
        await trio.sleep(0.01)

        swept, bodies = await desk.committer.sweep(Sweep(is_traced=True))

        assert [job.kind for job in swept.jobs] == ["redeliver"]
        assert bodies == [b"one"]


async def test_peek_shows_a_job_with_its_body_and_nothing_of_an_unknown_one() -> None:
    async with serving() as desk:
        desk.submit(enqueue(1, "mail", body=b"one"))

        found = desk.committer.peek((1).to_bytes(16, "big"))

        assert found is not None
        assert (found[0].queue, found[1]) == ("mail", b"one")
        assert desk.committer.peek(b"\0" * 16) is None
