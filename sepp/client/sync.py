"""`SeppClient.sync`: the same calls for programs that are not async.

A thread runs Trio and the client in it; each call is handed over and waited for. The calls may come
from any number of threads.
"""

import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self, TypeVar

import trio

from sepp.client.client import SeppClient
from sepp.client.errors import TransportError
from sepp.client.rejections import JobRejection
from sepp.client.retry import RetryDirective
from sepp.client.types import (
    DeadLetterRecord,
    EnqueueAck,
    EnqueueRequest,
    Job,
    JobCtx,
    ReserveOptions,
    ServerInfo,
)

T = TypeVar("T")


class SyncClient:
    """A client whose methods wait. Made by `SeppClient.sync`; use it in a `with` block.

    The methods are those of `SeppClient`, with the same results, errors and promises.
    """

    def __init__(self, addr: str, options: Mapping[str, Any]) -> None:
        self._addr = addr
        self._options = dict(options)
        self._is_ready = threading.Event()
        self._thread: threading.Thread | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._client: SeppClient | None = None
        self._is_over: trio.Event | None = None
        self._failure: BaseException | None = None

    def __enter__(self) -> Self:
        """Connect.

        Raises:
            ConnectError: No server answered in time.
        """
        assert self._thread is None, "a client is entered once"
        self._thread = threading.Thread(target=self._run, name="sepp-client", daemon=True)
        self._thread.start()
        self._is_ready.wait()
        if self._failure is not None:
            self._thread.join()
            raise self._failure
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._thread is not None
        if self._token is not None and self._is_over is not None:
            self._token.run_sync_soon(self._is_over.set)
        self._thread.join()
        self._client = None

    def _run(self) -> None:
        try:
            trio.run(self._main)
        except BaseException as error:  # noqa: BLE001  # it belongs to the thread that connects
            self._failure = error
        finally:
            self._is_ready.set()

    async def _main(self) -> None:
        async with SeppClient.connect(self._addr, **self._options) as client:
            self._client = client
            self._token = trio.lowlevel.current_trio_token()
            self._is_over = trio.Event()
            self._is_ready.set()
            await self._is_over.wait()

    def _wait_for(self, call: Callable[[SeppClient], Awaitable[T]]) -> T:
        client = self._client
        if client is None:
            raise TransportError("the client is not open", is_unprocessed=True)

        async def make() -> T:
            return await call(client)

        try:
            return trio.from_thread.run(make, trio_token=self._token)
        except (trio.RunFinishedError, trio.Cancelled):
            raise TransportError("the client was closed") from None

    def enqueue(self, job: EnqueueRequest) -> EnqueueAck:
        """Store one job; durable on return."""
        return self._wait_for(lambda client: client.enqueue(job))

    def enqueue_batch(self, jobs: Iterable[EnqueueRequest]) -> list[EnqueueAck | JobRejection]:
        """Store jobs, each for itself; what was taken is durable on return."""
        wanted = tuple(jobs)
        return self._wait_for(lambda client: client.enqueue_batch(wanted))

    def enqueue_atomic(self, jobs: Iterable[EnqueueRequest]) -> list[EnqueueAck]:
        """Store jobs, all or none; durable on return."""
        wanted = tuple(jobs)
        return self._wait_for(lambda client: client.enqueue_atomic(wanted))

    def reserve(self, opts: ReserveOptions) -> list[Job] | None:
        """Lease jobs, waiting for a first one; the leases are durable on return."""
        return self._wait_for(lambda client: client.reserve(opts))

    def ack(self, ctx: JobCtx) -> None:
        """Say that a job is done; it is gone for good on return."""
        self._wait_for(lambda client: client.ack(ctx))

    def nack(
        self,
        ctx: JobCtx,
        retry: RetryDirective = RetryDirective.DEFAULT,
        reason: str = "",
    ) -> bool:
        """Say that a job failed; return whether it is a dead letter now. Durable on return."""
        return self._wait_for(lambda client: client.nack(ctx, retry, reason))

    def extend(self, ctx: JobCtx, extension: timedelta) -> datetime:
        """Renew a lease to `extension` from now; return its new end. Durable on return."""
        return self._wait_for(lambda client: client.extend(ctx, extension))

    def drain_dead_letters(
        self, queue: str | None = None, max_records: int = 1
    ) -> list[DeadLetterRecord]:
        """Take the oldest dead letters out of the server; an answer that is lost loses them."""
        return self._wait_for(lambda client: client.drain_dead_letters(queue, max_records))

    def get_server_info(self) -> ServerInfo:
        """Return the server's version and limits."""
        return self._wait_for(lambda client: client.get_server_info())
