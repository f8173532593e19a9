"""What a worker does with one job: run its handler, keep its lease, report how it went.

Only this module knows what an exception of a handler means. Nothing a handler does gets out of
`Deliveries.deliver`, but for a KeyboardInterrupt.
"""

import inspect
import logging
import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from typing import Final, cast

import trio
from attrs import define, frozen

from sepp.client import convert, errors, telemetry
from sepp.client.client import SeppClient
from sepp.client.retry import RetryDirective, RetryPolicy
from sepp.client.telemetry import WorkerMetrics
from sepp.client.types import Job, JobCtx, Payload

logger = logging.getLogger("sepp")

Handler = Callable[[Payload | None, JobCtx], Awaitable[None] | None]

# A report that meets a passing trouble is made again until the lease has run out: after that the
# job belongs to somebody else.
_REPORT: Final = RetryPolicy(
    initial_backoff=timedelta(milliseconds=100), max_backoff=timedelta(seconds=2)
)
_PASSING: Final = (errors.TransportError, errors.OverloadedError)
_HAND_BACK_S: Final = 2.0
_REASON_CHARS_MAX: Final = 1000
_HANDED_BACK: Final = "the worker stopped before the job was done"


class HandlerError(Exception):
    """Raised by a handler to fail its job and say what is to become of it.

    Make one by `retry`, `retry_after` or `permanent`.
    """

    def __init__(self, reason: str, directive: RetryDirective) -> None:
        self.reason = reason
        self.directive = directive
        super().__init__(reason)

    @classmethod
    def retry(cls, reason: str) -> "HandlerError":
        """Try again as the queue's settings say."""
        return cls(reason, RetryDirective.DEFAULT)

    @classmethod
    def retry_after(cls, reason: str, delay: timedelta) -> "HandlerError":
        """Try again, not before `delay` has passed."""
        return cls(reason, RetryDirective.after(delay))

    @classmethod
    def permanent(cls, reason: str) -> "HandlerError":
        """Do not try again: a dead letter."""
        return cls(reason, RetryDirective.DEAD_LETTER)


@frozen
class AutoExtend:
    """How leases are renewed.

    Args:
        by: What they are renewed to, from now.
        interval: How often; None: after a third of what is left. The server may grant less than was
            asked for, so what is left counts, not what was asked.
    """

    by: timedelta
    interval: timedelta | None

    def wait_s(self, expires_ms: int, now_ms: int) -> float:
        """Return how long to wait before the next renewal."""
        if self.interval is not None:
            return max(self.interval.total_seconds(), 0.001)
        return max((expires_ms - now_ms) / 3000, 0.001)


@define
class _Lease:
    """The lease of one job, as long as its handler runs."""

    expires_ms: int
    is_lost: bool = False


class Deliveries:
    """The jobs in a worker's hands.

    Attributes:
        handlers: By job type.
        catch_all: For all other job types; None: they are nacked.
        count: Jobs in hand.
    """

    def __init__(
        self,
        client: SeppClient,
        extending: AutoExtend | None,
        metrics: WorkerMetrics,
        thread_count_max: int,
    ) -> None:
        self.handlers: dict[str, Handler] = {}
        self.catch_all: Handler | None = None
        self.count = 0
        self._client = client
        self._extending = extending
        self._metrics = metrics
        self._threads = trio.CapacityLimiter(thread_count_max)
        self._scopes: set[trio.CancelScope] = set()
        self._stop_s = math.inf

    def stop_at(self, deadline_s: float) -> None:
        """Cancel the handlers that still run at that moment of the Trio clock."""
        self._stop_s = deadline_s
        for scope in self._scopes:
            scope.deadline = min(scope.deadline, deadline_s)

    async def deliver(self, job: Job) -> None:
        """Do a job and report it. Cancelled, hand it back."""
        trace = job.ctx.trace_context
        traceparent, state = (trace.traceparent, trace.tracestate) if trace else (None, None)
        with telemetry.consumer_span("sepp.process", traceparent, state):
            handler = self.handlers.get(job.ctx.job_type, self.catch_all)
            if handler is None:
                text = f"no handler for job type {job.ctx.job_type!r}"
                logger.warning("%s", text)
                await self._report(job.ctx, HandlerError.retry(text))
                return
            await self._run(handler, job)

    async def _run(self, handler: Handler, job: Job) -> None:
        ctx = job.ctx
        lease = _Lease(convert.ms_of(ctx.lease_expires_at))
        failure: BaseException | None = None
        is_over = False
        with trio.CancelScope(deadline=self._stop_s) as scope:
            self._scopes.add(scope)
            try:
                failure = await self._run_extending(handler, job, lease, scope)
                is_over = True
            except BaseException:
                # Cancelled, alone or in a group. If it is the whole worker that was cancelled, give
                # back what can be given back before going.
                if not scope.cancel_called:
                    await self._hand_back(ctx)
                raise
            finally:
                self._scopes.discard(scope)
        if lease.is_lost:
            logger.error("lease of %s lost, its handler was stopped", ctx.id)
        elif is_over:
            await self._report(ctx, failure)
        else:
            await self._hand_back(ctx)

    async def _run_extending(
        self, handler: Handler, job: Job, lease: _Lease, scope: trio.CancelScope
    ) -> BaseException | None:
        if self._extending is None:
            return await self._outcome(handler, job)
        failure = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._extend, self._extending, job.ctx, lease, scope)
            failure = await self._outcome(handler, job)
            nursery.cancel_scope.cancel()
        return failure

    async def _outcome(self, handler: Handler, job: Job) -> BaseException | None:
        """Run the handler; return what it raised, None when it returned."""
        try:
            if is_async(handler):
                await cast(Awaitable[None], handler(job.payload, job.ctx))
            else:
                await trio.to_thread.run_sync(handler, job.payload, job.ctx, limiter=self._threads)
        except (Exception, SystemExit, GeneratorExit) as error:  # noqa: BLE001  it is the handler's
            return error
        except BaseExceptionGroup as group:
            # A nursery of the handler's. Cancellation and Ctrl-C in it are not the handler's.
            if group.subgroup((trio.Cancelled, KeyboardInterrupt)) is not None:
                raise
            return group
        return None

    async def _extend(
        self, extending: AutoExtend, ctx: JobCtx, lease: _Lease, scope: trio.CancelScope
    ) -> None:
        while True:
            await trio.sleep(extending.wait_s(lease.expires_ms, convert.now_ms()))
            try:
                lease.expires_ms = convert.ms_of(await self._client.extend(ctx, extending.by))
                continue
            except errors.LeaseError as error:
                logger.error("lease of %s is another's: %s", ctx.id, error)
            except errors.SeppError as error:
                logger.warning("lease of %s not renewed: %s", ctx.id, error)
                if convert.now_ms() < lease.expires_ms:
                    continue
            # Somebody else may have the job by now: two must not do it at once.
            lease.is_lost = True
            scope.cancel()
            return

    async def _report(self, ctx: JobCtx, failure: BaseException | None) -> None:
        """Ack or nack; also when cancelled meanwhile, for the work is done."""
        try:
            await self._report_while_leased(ctx, failure)
        except trio.Cancelled:
            with trio.move_on_after(_HAND_BACK_S, shield=True), suppress(errors.SeppError):
                await self._report_once(ctx, failure)
            raise

    async def _report_while_leased(self, ctx: JobCtx, failure: BaseException | None) -> None:
        """Ack or nack; while the trouble may pass and the lease holds, again."""
        failures = 0
        while True:
            try:
                await self._report_once(ctx, failure)
                return
            except _PASSING as error:
                failures += 1
                wait_s = _REPORT.wait_s(failures)
                left_s = (convert.ms_of(ctx.lease_expires_at) - convert.now_ms()) / 1000
                if wait_s > left_s:
                    logger.error("%s not reported, it will be delivered again: %s", ctx.id, error)
                    return
                logger.warning("%s not reported, again in %.2f s: %s", ctx.id, wait_s, error)
            except errors.JobNotFoundError as error:
                if not failures:
                    logger.error("%s not reported, its lease had run out: %s", ctx.id, error)
                # Else the report before had arrived, and only its answer was lost.
                return
            except errors.SeppError as error:
                logger.error("%s not reported, it will be delivered again: %s", ctx.id, error)
                return
            await trio.sleep(wait_s)

    async def _report_once(self, ctx: JobCtx, failure: BaseException | None) -> None:
        if failure is None:
            await self._client.ack(ctx)
            self._metrics.processed()
            return
        if isinstance(failure, HandlerError):
            logger.warning("%s failed: %s", ctx.id, failure.reason)
            directive, reason = failure.directive, failure.reason
        else:
            logger.error("handler of %s raised", ctx.id, exc_info=failure)
            directive = RetryDirective.DEFAULT
            reason = f"{type(failure).__name__}: {failure}"
        is_dead = await self._client.nack(ctx, directive, reason[:_REASON_CHARS_MAX])
        self._metrics.nacked(is_dead=is_dead)

    async def _hand_back(self, ctx: JobCtx) -> None:
        """Have the job delivered again at once; it counts as an attempt."""
        # Shielded, for it is done while being cancelled; and bounded, for the same reason.
        with trio.move_on_after(_HAND_BACK_S, shield=True):
            try:
                at_once = RetryDirective.after(timedelta(0))
                is_dead = await self._client.nack(ctx, at_once, _HANDED_BACK)
                self._metrics.nacked(is_dead=is_dead)
            except errors.SeppError as error:
                logger.warning("%s not handed back, its lease must run out: %s", ctx.id, error)


def is_async(handler: Handler) -> bool:
    """Return whether a handler is a coroutine function, or an object that is called like one."""
    call = getattr(type(handler), "__call__", None)  # noqa: B004  looked at, not asked for
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(call)
