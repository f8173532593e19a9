"""What the log says of a job that died."""

import pytest
import trio

from tests.conformance.client import DEAD_LETTER
from tests.conformance.local import local
from tests.fakes.logs import captured

MINUTE_MS = 60_000


@pytest.mark.parametrize("retention_ms", [MINUTE_MS, 0])
async def test_a_job_that_died_is_said_to_be_dropped_where_no_dead_letters_are_kept(
    autojump_clock: trio.testing.MockClock, retention_ms: int
) -> None:
    storage = {"dead_letter_retention_ms": retention_ms}
    with captured("info") as entries:
        async with local(storage=storage) as rpc:
            nacked = await rpc.enqueue("q")
            await rpc.nack(await rpc.take("q"), retry=DEAD_LETTER)
            forgotten = await rpc.enqueue("q", max_attempts=1)
            await rpc.take("q", lease_ms=1000)
            await trio.sleep(2)

    told = [entry for entry in entries() if "job_id" in entry]
    assert [(one["message"], one["job_id"], one["queue"]) for one in told] == [
        ("job dead-lettered via nack", nacked, "q"),
        ("lease expired with attempts exhausted", forgotten, "q"),
    ]
    assert [one["dropped"] for one in told] == [retention_ms == 0] * 2
