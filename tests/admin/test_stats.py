"""Samples, rates, frames, and what needs attention."""

from typing import Any

import pytest
import trio

from sepp.admin import attention, stats
from sepp.admin.attention import Condition
from sepp.admin.backend import QueueNumbers, Vitals
from sepp.core.limits import QueueLimits
from tests.admin.browsing import get
from tests.admin.conftest import Console
from tests.fakes.operators import START_MS


async def second(console: Console) -> Any:
    """Let a second pass and take a sample."""
    console.server.pass_ms(1000)
    await console.site.stats.sample()
    return await console.site.stats.frame(age_ms_max=0)


async def test_rates_are_zero_on_a_queues_first_sample(console: Console) -> None:
    console.server.enqueue(count=5)
    first = await second(console)
    console.server.enqueue(count=3)
    console.server.ack(console.server.reserve(count=2))
    then = await second(console)
    idle = await second(console)

    assert first.queues["webhooks"].rates.enqueued == 0.0
    assert first.queues["webhooks"].totals.enqueued == 5
    assert (then.queues["webhooks"].rates.enqueued, then.queues["webhooks"].rates.acked) == (
        3.0,
        2.0,
    )
    assert idle.queues["webhooks"].rates.enqueued == 0.0
    assert then.all.rates.enqueued == 3.0
    assert (then.seq, then.ts_ms) == (first.seq + 1, first.ts_ms + 1000)


async def test_the_first_seconds_jobs_are_in_the_history(console: Console) -> None:
    console.server.enqueue("mail", count=5)
    await second(console)

    history = (await console.call("GET", "/overview?points=10&span_ms=10000")).json()

    assert history["history"]["mail"][-1]["enqueued"] == 5.0
    assert history["server_history"][-1]["enqueued"] == 5.0
    assert history["history"]["webhooks"] == []


async def test_rates_are_over_the_time_that_passed(console: Console) -> None:
    await second(console)
    console.server.enqueue(count=10)
    console.server.pass_ms(3000)
    await console.site.stats.sample()

    frame = await console.site.stats.frame(age_ms_max=0)
    assert frame.queues["webhooks"].rates.enqueued == 3.33


async def test_depths_in_answers_are_fresh_rates_are_the_last(console: Console) -> None:
    await second(console)
    console.server.enqueue(count=2)
    console.server.pass_ms(stats.FRESH_MS + 1)

    frame = (await console.call("GET", "/overview")).json()["frame"]

    assert frame["queues"]["webhooks"]["ready"] == 2
    assert frame["seq"] == 1


async def test_a_dashboard_shows_what_was_done_just_before(console: Console) -> None:
    await second(console)
    console.server.enqueue(count=2)

    page = (await get(console, "/admin/?view=table")).text

    assert '<b data-f="ready">2</b>' in page


async def test_those_who_wait_for_a_fresh_frame_share_it(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in range(2 * stats.SLICE):
        console.server.enqueue(f"q{place}")
    await second(console)
    console.server.pass_ms(stats.FRESH_MS)
    looks: list[str] = []
    known = console.server.backend.queue

    def queue(name: str) -> QueueNumbers:
        looks.append(name)
        return known(name)

    monkeypatch.setattr(console.server.backend, "queue", queue)
    async with trio.open_nursery() as nursery:
        for _viewer in range(5):
            nursery.start_soon(console.site.stats.frame)

    assert len(looks) == len(set(looks)) == 2 * stats.SLICE + 1


async def test_a_sample_nobody_looks_at_reads_only_what_flows(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    def queue(name: str) -> QueueNumbers:
        raise AssertionError(f"the numbers of {name} were read for nobody")

    console.server.enqueue("mail", count=5)
    monkeypatch.setattr(console.server.backend, "queue", queue)
    console.server.pass_ms(1000)
    await console.site.stats.sample()
    monkeypatch.undo()

    assert console.site.stats.samples("mail", 1000, 1)[0].enqueued == 5.0


async def test_overview_is_narrowed_by_names(console: Console) -> None:
    for name in ("a", "b", "c"):
        console.server.enqueue(name)
    await second(console)

    overview = (await console.call("GET", "/overview?queues=a&queues=c&queues=nobody")).json()

    assert overview["frame"]["queues"].keys() == {"a", "c"}
    assert overview["history"].keys() == {"a", "c"}
    assert overview["frame"]["all"]["totals"]["enqueued"] == 3


async def test_the_whole_history_stays_small_with_many_queues(console: Console) -> None:
    for place in range(300):
        console.server.enqueue(f"q{place}")
    await second(console)

    overview = (await console.call("GET", "/overview")).json()

    assert {len(points) for points in overview["history"].values()} <= {0, 20, 19}
    assert sum(len(points) for points in overview["history"].values()) <= stats.POINTS_WHOLE


async def test_the_history_is_cut_at_once_when_the_setting_shrinks(console: Console) -> None:
    for _second in range(100):
        console.server.enqueue()
        await second(console)
    whole = (await console.call("GET", "/overview?points=360")).json()
    etag = await console.etag()
    changes = [{"path": "admin.stats_history_ms", "value": 60_000}]
    await console.call("PUT", "/config", json={"etag": etag, "changes": changes})

    cut = (await console.call("GET", "/overview?points=360")).json()

    assert len(whole["history"]["webhooks"]) == 360
    assert len(cut["history"]["webhooks"]) == 60


async def test_a_queue_that_is_forgotten_starts_anew(console: Console) -> None:
    server = console.server
    server.enqueue("mail", count=5)
    server.ack(server.reserve("mail", count=5))
    await second(console)
    server.pass_ms(16 * 60_000)
    server.sweep()
    gone = await second(console)
    server.enqueue("mail", count=1)
    await second(console)
    server.enqueue("mail", count=2)
    back = await second(console)

    assert "mail" not in gone.queues
    assert back.queues["mail"].totals.enqueued == 3
    assert back.queues["mail"].rates.enqueued == 2.0


async def test_moments_of_a_queue(console: Console) -> None:
    server = console.server
    server.enqueue(priority=0)
    server.pass_ms(5000)
    server.enqueue(priority=9)
    server.enqueue(delay_ms=60_000)
    server.kill(reason="x" * 500)
    server.reserve(lease_ms=30_000)

    queue = (await console.call("GET", "/queues/webhooks")).json()

    assert queue["oldest_ready_at_ms"] == START_MS
    assert queue["next_due_ms"] == server.wall_ms + 60_000
    assert queue["next_lease_end_ms"] == server.wall_ms + 30_000
    assert queue["last_nack"] == {"at_ms": server.wall_ms, "reason": "x" * 200}
    assert queue["dead_by_cause"] == {"rejected": 1}


async def test_an_idle_queue_has_no_moments(console: Console) -> None:
    queue = (await console.call("GET", "/queues/nobody")).json()

    assert queue["depths"] == {"ready": 0, "scheduled": 0, "inflight": 0, "dead_lettered": 0}
    assert not queue.keys() & {"oldest_ready_at_ms", "next_due_ms", "last_nack", "dead_by_cause"}


# Attention


async def test_deaths_need_attention_for_ten_minutes(console: Console) -> None:
    console.server.kill(count=3, reason="connect timed out")
    frame = await second(console)
    console.server.pass_ms(9 * 60_000)
    still = await second(console)
    console.server.pass_ms(2 * 60_000)
    over = await second(console)

    (line,) = frame.attention
    assert (line.level, line.queue) == ("bad", "webhooks")
    assert line.text == "3 died in 10 min: connect timed out"
    assert frame.queues["webhooks"].died_10_min == 3
    assert len(still.attention) == 1
    assert over.attention == []


async def test_a_queue_nobody_works_on_needs_attention(console: Console) -> None:
    console.server.enqueue(count=2)
    quiet = await second(console)
    for _second in range(61):
        stuck = await second(console)
    console.server.reserve()
    moving = await second(console)

    assert quiet.attention == []
    assert [line.text for line in stuck.attention] == ["2 ready, nothing acked for 1 min"]
    assert moving.attention == []


def condition(**fields: Any) -> Condition:
    numbers = QueueNumbers(
        fields.pop("name", "q"),
        **{k: v for k, v in fields.items() if hasattr(QueueNumbers("x"), k)},
    )
    limits = QueueLimits(max_queue_depth=fields.get("limit"))
    return Condition(numbers, limits, fields.get("died", 0), fields.get("stuck_since_ms"), None)


def texts(*conditions: Condition, vitals: Vitals | None = None) -> list[str]:
    found = attention.lines(
        conditions, vitals or Vitals(), command_queue_capacity=100, now_ms=START_MS
    )
    return [f"{line.level} {line.queue if isinstance(line.queue, str) else '-'}: {line.text}"
            for line in found]  # fmt: skip


def test_worst_comes_first_one_line_a_queue() -> None:
    found = texts(
        condition(name="full", ready=95, limit=100),
        condition(name="old", ready=1, oldest_ready_at_ms=START_MS - 840_000),
        condition(name="few", died=2),
        condition(name="many", died=41, last_nack_reason="boom", ready=99, limit=100),
        condition(name="stuck", ready=8412, stuck_since_ms=START_MS - 360_000),
        condition(name="fine", ready=5, oldest_ready_at_ms=START_MS - 1000),
        vitals=Vitals(80, is_disk_full=True, is_memory_short=True, last_reload_error="bad file"),
    )

    assert found == [
        "bad -: the disk is nearly full: new jobs are refused, acks go on",
        "bad -: the server is above server.max_memory_bytes: new jobs are refused, acks go on",
        "bad -: 80 of 100 places of the command queue are taken",
        "bad -: the last reload failed, the old configuration runs: bad file",
        "bad many: 41 died in 10 min: boom",
        "bad few: 2 died in 10 min",
        "warn stuck: 8,412 ready, nothing acked for 6 min",
        "warn old: oldest job has waited 14 min",
        "warn full: at 95 % of its limit of 100",
    ]


@pytest.mark.parametrize(
    ("fields", "is_line"),
    [
        ({"ready": 90, "limit": 100}, True),
        ({"ready": 89, "limit": 100}, False),
        ({"ready": 89, "limit": 0}, False),
        ({"ready": 1, "oldest_ready_at_ms": START_MS - 300_000}, True),
        ({"ready": 1, "oldest_ready_at_ms": START_MS - 299_999}, False),
        ({"ready": 1, "stuck_since_ms": START_MS - 60_000}, True),
        ({"ready": 1, "stuck_since_ms": START_MS - 59_999}, False),
        ({"ready": 0, "stuck_since_ms": START_MS - 60_000}, False),
    ],
)
def test_the_borders_of_the_rules(fields: dict[str, Any], is_line: bool) -> None:
    assert bool(texts(condition(**fields))) is is_line
