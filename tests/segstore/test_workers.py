"""Where blocking calls run: faults and cancellation."""

import threading

import pytest
import trio

from segstore.workers import Lane, TrioWorkers

GUARD_S = 10


async def test_a_result_and_a_fault_come_back() -> None:
    run = TrioWorkers()

    def fail() -> None:
        raise OSError(28, "full")

    assert await run(lambda: 7, Lane.COMMIT) == 7
    with pytest.raises(OSError, match="full"):
        await run(fail, Lane.COMMIT)
    assert await run(lambda: 8, Lane.COMMIT) == 8


async def test_a_commit_that_was_handed_over_is_not_cancelled() -> None:
    run = TrioWorkers()
    go_on = threading.Event()
    done: list[bool] = []

    async with trio.open_nursery() as nursery:

        async def commit() -> None:
            done.append(await run(lambda: go_on.wait(GUARD_S), Lane.COMMIT))

        nursery.start_soon(commit)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
        await trio.lowlevel.cancel_shielded_checkpoint()
        assert not done
        go_on.set()
    assert done == [True]


async def test_a_commit_that_was_not_handed_over_is_cancelled() -> None:
    run = TrioWorkers()
    done: list[int] = []
    with trio.CancelScope() as scope:
        scope.cancel()
        await run(lambda: done.append(1), Lane.COMMIT)
    assert scope.cancelled_caught
    assert not done
