"""What metrics and admin pages see: depths, counters, pages that seek."""

import pytest

from sepp.core.commands import DeadLetter
from sepp.core.limits import QueueLimits
from sepp.core.slots import DEAD, LEASED, READY, SCHEDULED
from sepp.core.timers import IDLE_MS
from tests.core.world import START_MS, World, job_id


def pages(world: World, state: int, limit: int, queue: str = "q") -> list[list[bytes]]:
    """Return the ids of every page."""
    found = []
    cursor = None
    while True:
        page = world.machine.job_page(queue, state, cursor=cursor, limit=limit)
        found.append([row.job_id for row in page.jobs])
        cursor = page.next_cursor
        if cursor is None:
            return found


def test_depths_and_next_deadlines_of_a_queue() -> None:
    world = World(retention_ms=60_000)
    world.enqueue(delay_ms=9000)
    world.enqueue(delay_ms=4000)
    leased, dead = world.enqueue(count=2)
    world.reserve(max_jobs=2, lease_ms=700)
    world.nack(dead, directive=2)
    world.pass_ms(10)
    world.enqueue(priority=9)
    world.pass_ms(10)
    world.enqueue(priority=1, count=2)

    statistics = world.machine.queue_statistics("q")

    assert statistics is not None
    depths = (statistics.ready, statistics.scheduled, statistics.leased, statistics.dead)
    assert depths == (3, 2, 1, 1)
    assert statistics.live == 6
    assert statistics.oldest_ready_enqueued_ms == START_MS + 10
    assert statistics.next_due_ms == START_MS + 4000
    assert statistics.next_lease_end_ms == START_MS + 700
    assert (statistics.closing_until_ms, statistics.waiters) == (None, 0)
    assert world.state(leased) == LEASED


def test_empty_queue_has_no_moments() -> None:
    world = World()
    world.reserve("q")
    world.park("q")

    statistics = world.machine.queue_statistics("q")

    assert statistics is not None
    moments = (
        statistics.oldest_ready_enqueued_ms,
        statistics.next_due_ms,
        statistics.next_lease_end_ms,
        statistics.last_nack_ms,
        statistics.last_nack_reason,
    )
    assert moments == (None,) * 5
    assert (statistics.number, statistics.waiters) == (0, 1)


def test_unknown_queue_has_no_statistics_and_no_jobs() -> None:
    world = World()

    assert world.machine.queue_statistics("q") is None
    assert pages(world, READY, 5) == [[]]
    assert world.machine.job_row(job_id(1)) is None


def test_flows_count_what_came_and_went_and_tell_queues_at_rest() -> None:
    world = World(retention_ms=60_000)
    done, dead, again, _ = world.enqueue(count=4)
    world.enqueue(queue="other")
    at_rest = world.machine.flows(["q", "nobody", "other"])
    world.reserve(max_jobs=3)
    world.ack(done)
    world.nack(dead, directive=2)
    leased = world.machine.flows(["q"])
    world.nack(again, directive=1)

    assert at_rest == [((4, 0, 0, 0), True), ((0, 0, 0, 0), False), ((1, 0, 0, 0), True)]
    assert leased == [((4, 1, 1, 1), False)]


def test_totals_are_the_sums_over_all_queues() -> None:
    world = World(retention_ms=60_000)
    world.enqueue("a", 2, dedup_key=None)
    [dead] = world.enqueue("b", dedup_key="k")
    world.enqueue("b", delay_ms=500)
    world.reserve("a")
    world.do(DeadLetter("b", [dead]))

    totals = world.machine.statistics()

    assert [queue.name for queue in totals.queues] == ["a", "b"]
    assert (totals.ready, totals.scheduled, totals.leased, totals.dead) == (1, 1, 1, 1)
    assert (totals.dedup_records, totals.enqueued, totals.reserved) == (1, 4, 1)
    assert totals.dead_lettered == (0, 0, 0, 0, 1)


def test_ready_pages_follow_the_order_of_delivery_across_priorities() -> None:
    world = World()
    low = world.enqueue(count=4, priority=0)
    high = world.enqueue(count=3, priority=9)
    middle = world.enqueue(count=1, priority=4)

    assert pages(world, READY, 3) == [high, [*middle, *low[:2]], low[2:]]
    assert pages(world, READY, 8) == [[*high, *middle, *low]]
    assert pages(world, READY, 1) == [[job] for job in [*high, *middle, *low]]


def test_other_pages_follow_due_time_lease_end_and_failed_at() -> None:
    world = World(retention_ms=60_000)
    late, early = world.enqueue(delay_ms=900)[0], world.enqueue(delay_ms=300)[0]
    assert pages(world, SCHEDULED, 1) == [[early], [late]]

    jobs = world.enqueue(count=3)
    for lease_ms in (900, 300, 600):
        world.reserve(lease_ms=lease_ms)
    assert pages(world, LEASED, 2) == [[jobs[1], jobs[2]], [jobs[0]]]

    for job in (jobs[2], jobs[0], jobs[1]):
        world.pass_ms(1)
        world.nack(job, directive=2)
    assert pages(world, DEAD, 2) == [[jobs[2], jobs[0]], [jobs[1]]]


def test_page_goes_on_behind_a_job_that_is_gone() -> None:
    world = World()
    jobs = world.enqueue(count=6)
    page = world.machine.job_page("q", READY, cursor=None, limit=3)
    world.reserve(max_jobs=4)
    [new] = world.enqueue()

    following = world.machine.job_page("q", READY, cursor=page.next_cursor, limit=9)

    assert [row.job_id for row in following.jobs] == [*jobs[4:], new]
    assert following.next_cursor is None


def test_row_shows_the_columns_of_a_job() -> None:
    world = World()
    [job] = world.enqueue("q", priority=5, max_attempts=7, body=b"123456")
    world.reserve()
    world.nack(job, directive=1, delay_ms=800, reason=b"later")

    row = world.machine.job_row(job)

    assert row is not None
    assert (row.queue, row.state, row.priority) == ("q", SCHEDULED, 5)
    assert (row.attempt, row.max_attempts, row.cause, row.flags) == (2, 7, 0, 1)
    assert (row.at_ms, row.enqueued_ms, row.body_length) == (START_MS + 800, START_MS, 6)
    assert world.machine.puts[row.reason_slot] == b"later"


def test_acked_job_has_no_row_before_and_after_the_batch() -> None:
    world = World()
    [job] = world.enqueue()
    world.reserve()
    world.ack(job)
    assert world.machine.job_row(job) is None

    world.commit()

    assert world.machine.job_row(job) is None


def test_reload_gives_queues_their_new_limits_at_once() -> None:
    world = World()
    world.enqueue("a")
    world.policy.queues["a"] = QueueLimits(max_queue_depth=1)
    world.policy.default = QueueLimits(max_queue_depth=0)

    world.machine.reload(world.policy)

    limits = {name: queue.limits for name, queue in world.machine.table.queues.items()}
    assert limits["a"].max_queue_depth == 1
    assert world.machine.table.queue("new").limits.max_queue_depth == 0


def full_world() -> World:
    """Return one queue with three jobs in each state, in an order of their own."""
    world = World(retention_ms=60_000)
    for place in range(3):
        world.pass_ms(7)
        world.enqueue(delay_ms=900 - 100 * place)
        dead = world.enqueue()[0]
        world.reserve()
        world.nack(dead, directive=2)
        world.enqueue()
        world.reserve(lease_ms=500 + 100 * place)
    world.enqueue(count=2, priority=3)
    world.enqueue(priority=8)
    world.step_wall(5000)  # the wall leaves the steady clock, by which leases are sorted
    world.enqueue()
    world.reserve(lease_ms=450)
    return world


@pytest.mark.parametrize("state", [SCHEDULED, LEASED, DEAD])
def test_pages_from_the_end_are_the_others_reversed(state: int) -> None:
    world = full_world()
    forward = world.machine.job_page("q", state, cursor=None, limit=99).jobs

    backward = []
    cursor = None
    while True:
        page = world.machine.job_page("q", state, cursor=cursor, limit=2, is_newest_first=True)
        backward += page.jobs
        cursor = page.next_cursor
        if cursor is None:
            break

    assert len(forward) >= 3
    assert backward == list(reversed(forward))


@pytest.mark.parametrize("state", [READY, SCHEDULED, LEASED, DEAD])
def test_a_job_knows_its_own_place_in_the_listing(state: int) -> None:
    world = full_world()
    rows = world.machine.job_page("q", state, cursor=None, limit=99).jobs

    for place, row in enumerate(rows):
        assert world.machine.job_row(row.job_id) == row
        rest = world.machine.job_page("q", state, cursor=row.cursor, limit=99).jobs
        assert rest == rows[place + 1 :]


def test_totals_keep_what_forgotten_queues_counted() -> None:
    world = World()
    [job] = world.enqueue("short")
    world.reserve("short")
    world.ack(job)
    world.commit()
    world.park("long", wait_ms=1_000_000)
    before = world.machine.totals()

    world.pass_ms(IDLE_MS)
    world.sweep()

    after = world.machine.totals()
    assert (before.queues, before.waiters, before.forgotten.acked) == (2, 1, 0)
    assert (after.queues, after.waiters) == (1, 1)
    assert (after.forgotten.enqueued, after.forgotten.reserved, after.forgotten.acked) == (1, 1, 1)
