"""`Worker`: reserve, hand to a handler, say how it went; many jobs at a time.

A handler gets payload and context of a job. It returns: the job is acked. It raises `HandlerError`:
the job is nacked as that says. It raises anything else: the job is nacked for another try. An
`async def` handler runs as a task, a plain `def` in a thread of Trio's.

    worker = Worker(client, ["emails"], timedelta(seconds=30))

    @worker.handler("welcome")
    async def welcome(payload, ctx): ...

    await worker.run()

Reading order: `run` and what it calls, then `delivery.py`, which does one job.
"""

import logging
import os
import socket
import uuid
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Final

import trio

from sepp.client import errors
from sepp.client.client import SeppClient
from sepp.client.delivery import AutoExtend, Deliveries, Handler
from sepp.client.telemetry import WorkerMetrics
from sepp.client.types import Job, ReserveOptions

logger = logging.getLogger("sepp")

# A server that is stopping answers a reserve at once, with nothing. Asking again at once would only
# burden it; so an empty answer long before its time is followed by a pause.
EARLY_S: Final = 0.1
EARLY_PAUSE_S: Final = 0.25

Decorator = Callable[[Handler], Handler]


class DuplicateHandlerError(errors.SeppError):
    """The job type has a handler already; `replace_handler` puts another in its place."""

    def __init__(self, job_type: str) -> None:
        super().__init__(f"job type {job_type!r} has a handler already")


class ShutdownHandle:
    """Stops a worker: it reserves no more, and ends when the jobs in hand are done.

    `shutdown` may be called from anywhere in the worker's Trio run; from a thread, such as the one
    of a blocking handler, through `trio.from_thread.run_sync`.
    """

    def __init__(self) -> None:
        self._event = trio.Event()

    def shutdown(self) -> None:
        """Begin to stop."""
        self._event.set()

    @property
    def is_shutdown(self) -> bool:
        """Whether the worker was told to stop."""
        return self._event.is_set()

    async def wait_shutdown(self) -> None:
        """Wait until it is."""
        await self._event.wait()


class Worker:
    """Does the jobs of some queues.

    Args:
        client: Makes the calls. With a retry policy, an ack survives a restart of the server.
        queues: Looked at in this order.
        lease_duration: How long a job may take, unless it is extended.
        wait_timeout: How long one reserve waits; 30 s by default.
        max_jobs: Jobs one reserve brings at most; None: as many as there are hands free.
        max_in_flight: Jobs in hand at a time, from 1.
        reserve_error_backoff: The pause after a reserve that failed.
        auto_extend: Renew the leases while handlers run. A handler that hangs then keeps its job
            for ever: give it a deadline of its own.
        auto_extend_interval: How often; by default after a third of the lease as granted.
        worker_id: A name for the server's traces; by default host, process and a random part.
        shutdown_grace: How long a stop waits for handlers. Then those that are async are cancelled
            and their jobs handed back, to be delivered again at once; that counts as an attempt. A
            thread cannot be cancelled: it is waited for. None: all are waited for.

    Raises:
        ValueError: An argument is out of its range.
    """

    def __init__(
        self,
        client: SeppClient,
        queues: Iterable[str],
        lease_duration: timedelta,
        *,
        wait_timeout: timedelta | None = None,
        max_jobs: int | None = None,
        max_in_flight: int = 16,
        reserve_error_backoff: timedelta = timedelta(seconds=1),
        auto_extend: bool = False,
        auto_extend_interval: timedelta | None = None,
        worker_id: str | None = None,
        shutdown_grace: timedelta | None = None,
    ) -> None:
        if wait_timeout is not None and wait_timeout <= timedelta(0):
            raise ValueError("wait_timeout is at least 1 ms")
        self._options = ReserveOptions(
            list(queues),
            lease_duration,
            wait_timeout or timedelta(seconds=30),
            default_worker_id() if worker_id is None else worker_id,
            max_jobs,
        )
        self._client = client
        self._max_in_flight = max(1, max_in_flight)
        self._error_pause_s = reserve_error_backoff.total_seconds()
        self._grace = shutdown_grace
        self._metrics = WorkerMetrics()
        self._stop = ShutdownHandle()
        extending = None
        if auto_extend or auto_extend_interval is not None:
            extending = AutoExtend(lease_duration, auto_extend_interval)
        self._deliveries = Deliveries(client, extending, self._metrics, self._max_in_flight)
        self._handlers = self._deliveries.handlers
        self._left: int | None = None  # jobs still to be reserved, when they are counted
        self._change = trio.Event()  # set when a job is done

    def handle(self, job_type: str, handler: Handler) -> "Worker":
        """Give a job type its handler.

        Raises:
            DuplicateHandlerError: It has one.
        """
        if job_type in self._handlers:
            raise DuplicateHandlerError(job_type)
        self._handlers[job_type] = handler
        return self

    def replace_handler(self, job_type: str, handler: Handler) -> "Worker":
        """Give a job type its handler, in place of the one it has."""
        self._handlers[job_type] = handler
        return self

    def remove_handler(self, job_type: str) -> "Worker":
        """Take a job type's handler away, if it has one."""
        self._handlers.pop(job_type, None)
        return self

    def catch_all(self, handler: Handler) -> Handler:
        """Set the handler of all job types that have none of their own; usable as a decorator."""
        self._deliveries.catch_all = handler
        return handler

    def handler(self, job_type: str) -> Decorator:
        """Decorate the handler of a job type; see `handle`."""

        def decorate(handler: Handler) -> Handler:
            self.handle(job_type, handler)
            return handler

        return decorate

    def shutdown_handle(self) -> ShutdownHandle:
        """Return what stops this worker."""
        return self._stop

    async def run(
        self,
        *,
        job_count_max: int | None = None,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Work until told to stop, or until `job_count_max` jobs were taken; then finish them.

        No fault of a handler or of the connection ends it. Cancelling it, or Ctrl-C, stops the
        handlers and hands their jobs back, as far as the server answers within two seconds.
        """
        self._left = job_count_max
        logger.info(
            "worker started: worker_id=%s max_in_flight=%d", self.worker_id, self._max_in_flight
        )
        try:
            await self._work(task_status)
        except BaseExceptionGroup as group:
            if group.subgroup(KeyboardInterrupt) is None:
                raise
            raise KeyboardInterrupt from None  # whoever pressed Ctrl-C knows why
        logger.info("worker stopped")

    @property
    def worker_id(self) -> str:
        """The name under which this worker reserves."""
        return self._options.worker_id or ""

    async def _work(self, task_status: trio.TaskStatus[None]) -> None:
        async with trio.open_nursery() as nursery:
            task_status.started()
            while not self._stop.is_shutdown and self._left != 0:
                jobs = await self._next_jobs()
                for job in jobs:
                    self._deliveries.count += 1
                    self._metrics.in_flight(1)
                    nursery.start_soon(self._do, job)
            logger.info("worker stopping: %d jobs in hand", self._deliveries.count)
            if self._grace is not None:
                self._deliveries.stop_at(trio.current_time() + self._grace.total_seconds())

    async def _do(self, job: Job) -> None:
        try:
            await self._deliveries.deliver(job)
        finally:
            self._deliveries.count -= 1
            self._metrics.in_flight(-1)
            self._change.set()

    async def _next_jobs(self) -> list[Job]:
        """Reserve as many jobs as there are hands free; none when it is time to look again."""
        free = self._max_in_flight - self._deliveries.count
        if free == 0:
            self._change = trio.Event()
            await self._unless_stopped(self._change.wait)
            return []
        limits = [n for n in (free, self._options.max_jobs, self._left) if n is not None]
        options = ReserveOptions(
            self._options.queues,
            self._options.lease_duration,
            self._options.wait_timeout,
            self._options.worker_id,
            min(limits),
        )
        started_s = trio.current_time()
        found: list[list[Job] | None] = []

        async def reserve() -> None:
            found.append(await self._client.reserve(options))

        try:
            await self._unless_stopped(reserve)
        except errors.SeppError as error:
            self._metrics.reserve_failed()
            logger.warning("reserve failed, again in %.2f s: %s", self._error_pause_s, error)
            await self._pause(self._error_pause_s)
            return []
        if not found:
            return []  # stopped while waiting
        jobs = found[0] or []
        self._metrics.reserved(is_empty=not jobs)
        if self._left is not None:
            self._left -= len(jobs)
        early_s = min(EARLY_S, self._options.wait_timeout.total_seconds() / 2)
        if not jobs and trio.current_time() - started_s < early_s:
            await self._pause(EARLY_PAUSE_S)
        return jobs

    async def _pause(self, seconds: float) -> None:
        async def sleep() -> None:
            await trio.sleep(seconds)

        await self._unless_stopped(sleep)

    async def _unless_stopped(self, wait: Callable[[], object]) -> None:
        """Do something that waits, and give it up when the worker is told to stop.

        An answer that is there when the stop comes wins: its jobs are leased and get done.
        """
        failure: errors.SeppError | None = None
        async with trio.open_nursery() as nursery:

            async def watch() -> None:
                await self._stop.wait_shutdown()
                nursery.cancel_scope.cancel()

            nursery.start_soon(watch)
            try:
                await wait()  # type: ignore[misc]  # a coroutine function
            except errors.SeppError as error:
                failure = error
            nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure


def default_worker_id() -> str:
    """Return a name that says where a worker runs, and is unlike any other."""
    host = socket.gethostname() or "unknown"
    return f"{host}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
