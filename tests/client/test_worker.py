"""The worker against a real server."""

import signal
import threading
from datetime import timedelta

import pytest
import trio
import trio.testing

from sepp.client import (
    DeadLetterCause,
    DuplicateHandlerError,
    EnqueueRequest,
    HandlerError,
    JobCtx,
    Payload,
    ReserveOptions,
    RetryDirective,
    SeppClient,
    Worker,
)
from tests.e2e.server_process import ServerProcess

SECOND = timedelta(seconds=1)
GUARD_S = 60


async def put(client: SeppClient, queue: str, *job_types: str, max_attempts: int = 5) -> None:
    """Store jobs."""
    await client.enqueue_batch(
        [EnqueueRequest(queue, name, max_attempts=max_attempts) for name in job_types]
    )


async def next_attempt(client: SeppClient, queue: str, wait: timedelta = 5 * SECOND) -> int:
    """Reserve the queue's job and return which attempt it is at."""
    jobs = await client.reserve(ReserveOptions([queue], 10 * SECOND, wait))
    assert jobs is not None
    await client.ack(jobs[0].ctx)
    return jobs[0].ctx.attempt


async def is_empty(client: SeppClient, queue: str) -> bool:
    """Tell whether nothing is left in a queue, leased or not."""
    return await client.reserve(ReserveOptions([queue], SECOND, timedelta(0))) is None


async def test_jobs_are_handled_and_acked(client: SeppClient, queue: str) -> None:
    await client.enqueue(EnqueueRequest(queue, "hello", Payload(b"1", "text")))
    await client.enqueue(EnqueueRequest(queue, "hello", Payload(b"2", "text")))
    seen: list[bytes] = []
    worker = Worker(client, [queue], 30 * SECOND, max_in_flight=4)

    @worker.handler("hello")
    async def hello(payload: Payload | None, ctx: JobCtx) -> None:
        assert payload is not None
        seen.append(payload.data)

    with trio.fail_after(GUARD_S):
        await worker.run(job_count_max=2)

    assert sorted(seen) == [b"1", b"2"]
    assert await is_empty(client, queue)


@pytest.mark.parametrize("raised", [HandlerError.retry("why"), RuntimeError("boom"), SystemExit(3)])
async def test_whatever_a_handler_raises_is_a_nack(
    client: SeppClient, queue: str, raised: BaseException
) -> None:
    await put(client, queue, "failing")
    worker = Worker(client, [queue], 30 * SECOND)

    @worker.handler("failing")
    async def failing(payload: Payload | None, ctx: JobCtx) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            raise raised

    with trio.fail_after(GUARD_S):
        await worker.run(job_count_max=1)

    assert await next_attempt(client, queue) == 2


@pytest.mark.parametrize("is_idle", [True, False])
def test_ctrl_c_comes_out_of_a_bare_run_as_it_is(
    shared: ServerProcess, queue: str, is_idle: bool
) -> None:
    async def press() -> None:
        await trio.testing.wait_all_tasks_blocked(0.05)
        signal.raise_signal(signal.SIGINT)

    async def handle(payload: Payload | None, ctx: JobCtx) -> None:
        trio.lowlevel.spawn_system_task(press)
        await trio.sleep_forever()

    async def main() -> None:
        async with SeppClient.connect(shared.address) as client:
            worker = Worker(client, [queue], 30 * SECOND, max_in_flight=1, auto_extend=True)
            worker.catch_all(handle)
            if is_idle:
                trio.lowlevel.spawn_system_task(press)
            else:
                await put(client, queue, "t")
            with trio.fail_after(GUARD_S):
                await worker.run()

    with pytest.raises(KeyboardInterrupt):
        trio.run(main)


async def test_a_handler_chooses_what_becomes_of_its_job(client: SeppClient, queue: str) -> None:
    await put(client, queue, "later", "never")
    worker = Worker(client, [queue], 30 * SECOND)

    @worker.handler("later")
    async def later(payload: Payload | None, ctx: JobCtx) -> None:
        raise HandlerError.retry_after("not now", 3600 * SECOND)

    @worker.handler("never")
    def never(payload: Payload | None, ctx: JobCtx) -> None:
        raise HandlerError.permanent("no use")

    with trio.fail_after(GUARD_S):
        await worker.run(job_count_max=2)

    assert await is_empty(client, queue)
    (record,) = await client.drain_dead_letters(queue, 10)
    assert (record.job_type, record.cause) == ("never", DeadLetterCause.REJECTED)
    assert record.last_reason == "no use"


async def test_plain_handlers_run_in_threads(client: SeppClient, queue: str) -> None:
    await put(client, queue, *["block"] * 6)
    both = threading.Barrier(3, timeout=GUARD_S)
    threads: set[int] = set()
    worker = Worker(client, [queue], 30 * SECOND, max_in_flight=3)

    @worker.handler("block")
    def block(payload: Payload | None, ctx: JobCtx) -> None:
        threads.add(threading.get_ident())
        both.wait()  # passes only if three of them run at a time

    with trio.fail_after(GUARD_S):
        await worker.run(job_count_max=6)

    assert threading.get_ident() not in threads
    assert await is_empty(client, queue)


async def test_a_catch_all_takes_what_has_no_handler(client: SeppClient, queue: str) -> None:
    await put(client, queue, "other", "own")
    seen: list[str] = []
    worker = Worker(client, [queue], 30 * SECOND)

    @worker.catch_all
    async def fallback(payload: Payload | None, ctx: JobCtx) -> None:
        seen.append(f"caught {ctx.job_type}")

    @worker.handler("own")
    async def own(payload: Payload | None, ctx: JobCtx) -> None:
        seen.append("handled own")

    with trio.fail_after(GUARD_S):
        await worker.run(job_count_max=2)

    assert sorted(seen) == ["caught other", "handled own"]


async def test_a_job_without_handler_is_nacked(client: SeppClient, queue: str) -> None:
    await put(client, queue, "unknown")
    worker = Worker(client, [queue], 30 * SECOND)

    with trio.fail_after(GUARD_S):
        await worker.run(job_count_max=1)

    assert await next_attempt(client, queue) == 2


async def test_a_second_handler_of_a_type_is_refused(client: SeppClient, queue: str) -> None:
    worker = Worker(client, [queue], 30 * SECOND)

    async def handler(payload: Payload | None, ctx: JobCtx) -> None: ...

    worker.handle("dup", handler)
    with pytest.raises(DuplicateHandlerError, match="dup"):
        worker.handle("dup", handler)
    worker.replace_handler("dup", handler).remove_handler("dup").handle("dup", handler)


async def test_no_more_than_max_in_flight_run_at_a_time(client: SeppClient, queue: str) -> None:
    await put(client, queue, *["incr"] * 20)
    running = peak = done = 0
    worker = Worker(client, [queue], 30 * SECOND, max_in_flight=3)

    @worker.handler("incr")
    async def incr(payload: Payload | None, ctx: JobCtx) -> None:
        nonlocal running, peak, done
        running += 1
        peak = max(peak, running)
        await client.get_server_info()  # a pause as long as a call
        running -= 1
        done += 1

    with trio.fail_after(GUARD_S):
        await worker.run(job_count_max=20)

    assert (done, peak) == (20, 3)


async def test_a_lease_is_kept_while_the_handler_runs(client: SeppClient, queue: str) -> None:
    await put(client, queue, "slow")
    extended = trio.Event()
    worker = Worker(client, [queue], SECOND / 2, auto_extend_interval=SECOND / 20)

    @worker.handler("slow")
    async def slow(payload: Payload | None, ctx: JobCtx) -> None:
        granted = ctx.lease_expires_at
        while ctx.lease_expires_at < granted + 2 * SECOND:
            await client.get_server_info()
        extended.set()

    with trio.fail_after(GUARD_S):
        await worker.run(job_count_max=1)

    assert extended.is_set()
    assert await is_empty(client, queue)


async def test_a_lost_lease_stops_the_handler(client: SeppClient, queue: str) -> None:
    await put(client, queue, "stolen")
    worker = Worker(client, [queue], 30 * SECOND, auto_extend_interval=SECOND / 20)
    stopped = trio.Event()

    @worker.handler("stolen")
    async def stolen(payload: Payload | None, ctx: JobCtx) -> None:
        await client.nack(ctx, RetryDirective.after(timedelta(0)))  # as if it had run out
        try:
            await trio.sleep_forever()
        finally:
            stopped.set()

    with trio.fail_after(GUARD_S):
        await worker.run(job_count_max=1)

    assert stopped.is_set()
    assert await next_attempt(client, queue) == 2


async def test_a_stop_waits_for_the_jobs_in_hand(client: SeppClient, queue: str) -> None:
    await put(client, queue, "one")
    worker = Worker(client, [queue], 30 * SECOND)
    stop = worker.shutdown_handle()
    finished = False

    @worker.handler("one")
    async def one(payload: Payload | None, ctx: JobCtx) -> None:
        nonlocal finished
        stop.shutdown()
        await client.get_server_info()
        finished = True

    with trio.fail_after(GUARD_S):
        await worker.run()

    assert finished
    assert stop.is_shutdown
    assert await is_empty(client, queue)


@pytest.mark.parametrize("extends", [False, True])
async def test_a_stop_with_grace_hands_back_what_does_not_end(
    client: SeppClient, queue: str, extends: bool
) -> None:
    await put(client, queue, "endless")
    worker = Worker(client, [queue], 300 * SECOND, shutdown_grace=SECOND / 10, auto_extend=extends)

    @worker.handler("endless")
    async def endless(payload: Payload | None, ctx: JobCtx) -> None:
        worker.shutdown_handle().shutdown()
        await trio.sleep_forever()

    with trio.fail_after(GUARD_S):
        await worker.run()

    assert await next_attempt(client, queue, timedelta(0)) == 2


@pytest.mark.parametrize("extends", [False, True])
async def test_a_cancelled_worker_hands_its_jobs_back(
    client: SeppClient, queue: str, extends: bool
) -> None:
    await put(client, queue, "endless")
    worker = Worker(client, [queue], 300 * SECOND, auto_extend=extends)

    with trio.CancelScope() as scope:

        @worker.handler("endless")
        async def endless(payload: Payload | None, ctx: JobCtx) -> None:
            scope.cancel()
            await trio.sleep_forever()

        with trio.fail_after(GUARD_S):
            await worker.run()

    assert scope.cancelled_caught
    assert await next_attempt(client, queue, timedelta(0)) == 2
