"""Where blocking calls run: order, faults, cancellation, and the end of the thread."""

import gc
import threading
import time

import pytest
import trio

from segstore.workers import Lane, TrioWorkers

GUARD_S = 10


async def test_commits_run_in_order_on_one_thread_of_their_own() -> None:
    run = TrioWorkers()
    seen: list[tuple[int, int]] = []

    async def commit(number: int) -> None:
        await run(lambda: seen.append((number, threading.get_ident())), Lane.COMMIT)

    for number in range(5):
        await commit(number)
    assert [number for number, _ in seen] == list(range(5))
    assert len({thread for _, thread in seen}) == 1
    assert seen[0][1] != threading.get_ident()


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


async def test_the_thread_ends_with_its_owner() -> None:
    run = TrioWorkers()
    threads: list[threading.Thread] = []
    await run(lambda: threads.append(threading.current_thread()), Lane.COMMIT)
    del run
    gc.collect()
    until = time.monotonic() + GUARD_S
    while threads[0].is_alive() and time.monotonic() < until:
        await trio.to_thread.run_sync(threads[0].join, GUARD_S)
    assert not threads[0].is_alive()
