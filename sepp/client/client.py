"""`SeppClient`: the calls of the protocol, typed, over a connection that comes back.

Each call is one request and one answer; an answer means that what was asked for is durable, as far
as the server's persist mode promises. Nothing is kept here between calls.
"""

import logging
import ssl
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import trio

from sepp._generated import queue_pb2 as pb
from sepp.client import batches, convert, errors, telemetry
from sepp.client.checks import check_job
from sepp.client.connect import linked, make_target
from sepp.client.link import Link
from sepp.client.rejections import JobRejection, JobValidationError
from sepp.client.retry import RetryDirective, RetryPolicy, may_repeat
from sepp.client.types import (
    DeadLetterRecord,
    EnqueueAck,
    EnqueueRequest,
    Job,
    JobCtx,
    ReserveOptions,
    ServerInfo,
)
from sepp.rpc.grpc import RpcError

if TYPE_CHECKING:
    from sepp.client.sync import SyncClient

logger = logging.getLogger("sepp")

RPC_TIMEOUT: Final = timedelta(seconds=30)
CONNECT_TIMEOUT: Final = timedelta(seconds=5)
# A reserve's deadline lies this far behind its wait: the server, not the deadline, ends the wait.
RESERVE_SLACK_S: Final = 10.0
_SERVICE: Final = "/sepp.v1.QueueService/"
_PLAIN_POLICY: Final = RetryPolicy()


class _Lease:
    """Renews the leases of one reserve call."""

    __slots__ = ("_client", "worker_id")

    def __init__(self, client: "SeppClient", worker_id: str | None) -> None:
        self._client = client
        self.worker_id = worker_id

    async def extend(self, job_id: str, attempt: int, by: timedelta) -> datetime:
        return await self._client._extend(job_id, attempt, by, self.worker_id)


class SeppClient:
    """A connection to one server, for any number of tasks of one Trio run. Made by `connect`."""

    def __init__(
        self,
        link: Link,
        *,
        retry_policy: RetryPolicy | None = None,
        rpc_timeout: timedelta = RPC_TIMEOUT,
        check_limits: bool = False,
    ) -> None:
        self._link = link
        self._policy = retry_policy or _PLAIN_POLICY
        self._timeout_s = rpc_timeout.total_seconds()
        self._is_checking = check_limits
        self._info: ServerInfo | None = None

    @classmethod
    @asynccontextmanager
    async def connect(
        cls,
        addr: str,
        *,
        api_key: str | None = None,
        retry_policy: RetryPolicy | None = None,
        tls: bool = False,
        tls_ca_cert: bytes | None = None,
        tls_domain: str | None = None,
        ssl_context: ssl.SSLContext | None = None,
        connect_timeout: timedelta = CONNECT_TIMEOUT,
        rpc_timeout: timedelta = RPC_TIMEOUT,
        max_receive_message_bytes: int | None = None,
        check_limits: bool = False,
    ) -> AsyncIterator["SeppClient"]:
        """Connect, and close the connection at the end of the `async with` block.

        A connection that breaks later is made anew by the next call, with growing waits.

        Args:
            addr: host:port, `https://` before it asks for TLS.
            api_key: Sent with every call as a bearer key.
            retry_policy: None: every call is made once.
            tls: Use TLS, with the system's certificate authorities.
            tls_ca_cert: Authorities in PEM instead of the system's; asks for TLS.
            tls_domain: The name in the certificate, if other than the host; asks for TLS.
            ssl_context: TLS as you set it up; it must offer ALPN h2.
            connect_timeout: For each attempt to connect.
            rpc_timeout: The deadline of each call, but of `reserve`, which follows its wait.
            max_receive_message_bytes: The largest answer taken, 4 MiB by default. A larger answer
                to `reserve` fails here, its jobs leased already: ask for fewer jobs, or take more.
            check_limits: Fetch the server's limits with the first enqueue and refuse here what
                breaks them. Leave it off where queues have limits of their own.

        Raises:
            ConnectError: No server answered in time.
            InvalidApiKeyError: The key cannot be sent.
            ValueError: `addr` is no address.
        """
        target = make_target(
            addr,
            api_key=api_key,
            tls=tls,
            tls_ca_cert=tls_ca_cert,
            tls_domain=tls_domain,
            ssl_context=ssl_context,
            connect_timeout=connect_timeout,
            receive_bytes_max=max_receive_message_bytes,
        )
        async with linked(target, addr) as link:
            yield cls(
                link,
                retry_policy=retry_policy,
                rpc_timeout=rpc_timeout,
                check_limits=check_limits,
            )

    @classmethod
    def sync(cls, addr: str, **options: Any) -> "SyncClient":
        """Return a client for programs that are not async; options as for `connect`.

        Use it in a `with` block: a thread of its own makes the calls.
        """
        from sepp.client.sync import SyncClient  # it needs this class

        return SyncClient(addr, options)

    # Producing

    async def enqueue(self, job: EnqueueRequest) -> EnqueueAck:
        """Store one job; durable on return.

        Raises:
            JobRejectedError: The server refused it.
            ClientError: The call failed. After a TransportError the job may be stored all the same;
                with an idempotency key it is safe to call again.
        """
        result = (await self.enqueue_batch((job,)))[0]
        if isinstance(result, JobRejection):
            raise errors.JobRejectedError(result)
        return result

    async def enqueue_batch(
        self, jobs: Iterable[EnqueueRequest]
    ) -> list[EnqueueAck | JobRejection]:
        """Store jobs, each for itself; what was taken is durable on return.

        Returns:
            For each job in order, its acknowledgement or why it was refused.

        Raises:
            EmptyBatchError: There is no job.
            ClientError: The call failed; some or all may be stored, none was refused.
        """
        wanted = tuple(jobs)
        if not wanted:
            raise errors.EmptyBatchError
        if not self._is_checking:
            return await self._enqueue_batch(wanted)
        refused = await self._check(wanted)
        taken = tuple(job for index, job in enumerate(wanted) if index not in refused)
        answered = iter(await self._enqueue_batch(taken) if taken else ())
        return [refused[i] if i in refused else next(answered) for i in range(len(wanted))]

    async def _enqueue_batch(
        self, jobs: tuple[EnqueueRequest, ...]
    ) -> list[EnqueueAck | JobRejection]:
        with telemetry.client_span("sepp.enqueue"):
            request, is_repeatable = batches.make(jobs)
            data = await self._call("EnqueueBatch", request, is_repeatable=is_repeatable)
        return batches.read_results(data, len(jobs))

    async def enqueue_atomic(self, jobs: Iterable[EnqueueRequest]) -> list[EnqueueAck]:
        """Store jobs, all or none; durable on return.

        Raises:
            EmptyBatchError: There is no job.
            BatchValidationError: One or more were refused; nothing was stored.
            ClientError: The call failed; all or none may be stored.
        """
        wanted = tuple(jobs)
        if not wanted:
            raise errors.EmptyBatchError
        if self._is_checking and (refused := await self._check(wanted)):
            found = [JobValidationError(index, why) for index, why in refused.items()]
            raise errors.BatchValidationError(found)
        with telemetry.client_span("sepp.enqueue_atomic"):
            request, is_repeatable = batches.make(wanted)
            data = await self._call("EnqueueAtomic", request, is_repeatable=is_repeatable)
        return batches.read_atomic(data, len(wanted))

    async def _check(self, jobs: tuple[EnqueueRequest, ...]) -> dict[int, JobRejection]:
        if self._info is None:
            self._info = await self.get_server_info()
        found = {index: check_job(job, self._info) for index, job in enumerate(jobs)}
        return {index: why for index, why in found.items() if why is not None}

    # Consuming

    async def reserve(self, opts: ReserveOptions) -> list[Job] | None:
        """Lease jobs, waiting for a first one; the leases are durable on return.

        Ack, nack or extend each before its lease ends, else it is delivered again. Not repeated by
        any policy.

        Returns:
            At least one job, or None when the wait ended without.

        Raises:
            UnknownQueuesError: The server is strict and does not know all the queues.
            ClientError: The call failed; jobs it had leased come back when their leases end.
        """
        message = convert.reserve_message(opts).SerializeToString()
        timeout_s = opts.wait_timeout.total_seconds() + RESERVE_SLACK_S
        with telemetry.client_span("sepp.reserve"):
            try:
                data = await self._link.call(
                    f"{_SERVICE}Reserve",
                    message,
                    timeout_s=timeout_s,
                    metadata=telemetry.metadata(),
                )
            except RpcError as error:
                raise errors.reserve_error_from_rpc(error) from error
        lease = _Lease(self, opts.worker_id)
        jobs: list[Job] = []
        for job in pb.ReserveResponse.FromString(data).jobs:
            try:
                jobs.append(convert.job_of(job, lease))
            except errors.JobConversionError as error:
                logger.warning("leaving out a malformed job: %s", error)
        return jobs or None

    async def ack(self, ctx: JobCtx) -> None:
        """Say that a job is done; it is gone for good on return.

        Raises:
            LeaseError: The lease was lost, or an earlier ack had arrived.
            ClientError: The call failed.
        """
        request = pb.AckRequest(job_id=ctx.id, attempt=ctx.attempt, worker_id=ctx.worker_id)
        await self._lease_call("sepp.ack", "Ack", request)

    async def nack(
        self,
        ctx: JobCtx,
        retry: RetryDirective = RetryDirective.DEFAULT,
        reason: str = "",
    ) -> bool:
        """Say that a job failed; durable on return.

        Args:
            retry: Whether and when it is delivered again.
            reason: Kept with the dead letter.

        Returns:
            Whether it is a dead letter now: because that was asked for, or as it was the last
            attempt.

        Raises:
            LeaseError: The lease was lost, or an earlier nack had arrived.
            ClientError: The call failed.
        """
        request = pb.NackRequest(
            job_id=ctx.id, attempt=ctx.attempt, worker_id=ctx.worker_id, reason=reason or None
        )
        if retry.kind == "after":
            request.retry.delay.FromTimedelta(retry.delay or timedelta(0))
        elif retry.kind == "dead_letter":
            request.retry.dead_letter.SetInParent()
        else:
            request.retry.default.SetInParent()
        data = await self._lease_call("sepp.nack", "Nack", request)
        return bool(pb.NackResponse.FromString(data).dead_lettered)

    async def extend(self, ctx: JobCtx, extension: timedelta) -> datetime:
        """Renew a lease to `extension` from now; return its new end. Durable on return.

        Raises:
            LeaseError: The lease was lost.
            ClientError: The call failed.
        """
        ctx.lease_expires_at = await self._extend(ctx.id, ctx.attempt, extension, ctx.worker_id)
        return ctx.lease_expires_at

    async def _extend(
        self, job_id: str, attempt: int, by: timedelta, worker_id: str | None
    ) -> datetime:
        request = pb.ExtendRequest(job_id=job_id, attempt=attempt, worker_id=worker_id)
        request.lease_duration.FromTimedelta(by)
        data = await self._lease_call("sepp.extend", "Extend", request)
        found = convert.instant_of(pb.ExtendResponse.FromString(data).lease_expires_at)
        if found is None:
            raise errors.MalformedResponseError("lease_expires_at is no time")
        return found

    async def _lease_call(self, span: str, method: str, request: Any) -> bytes:
        with telemetry.client_span(span):
            return await self._call(method, request, error_of=errors.lease_error_from_rpc)

    # The server

    async def drain_dead_letters(
        self, queue: str | None = None, max_records: int = 1
    ) -> list[DeadLetterRecord]:
        """Take the oldest dead letters out of the server, of one queue or of all.

        They are gone from the server before the answer leaves it: an answer that is lost loses
        them. So this is not repeated by any policy.

        Returns:
            At most `max_records` and the server's own limit; none when there are none, or when the
            server keeps no dead letters.

        Raises:
            ClientError: The call failed; records may be lost with it.
        """
        request = pb.DrainDeadLettersRequest(queue=queue, max=max(1, max_records))
        with telemetry.client_span("sepp.drain_dead_letters"):
            data = await self._call("DrainDeadLetters", request, policy=_PLAIN_POLICY)
        records: list[DeadLetterRecord] = []
        for record in pb.DrainDeadLettersResponse.FromString(data).records:
            try:
                records.append(convert.dead_letter_of(record))
            except errors.JobConversionError as error:
                logger.warning("leaving out a malformed dead letter: %s", error)
        return records

    async def get_server_info(self) -> ServerInfo:
        """Return the server's version and limits.

        Raises:
            ClientError: The call failed.
        """
        with telemetry.client_span("sepp.get_server_info"):
            data = await self._call("GetServerInfo", pb.GetServerInfoRequest())
        try:
            return convert.server_info_of(pb.GetServerInfoResponse.FromString(data))
        except errors.ServerInfoError as error:
            raise errors.MalformedServerInfoError(error) from error

    async def _call(
        self,
        method: str,
        request: Any,
        *,
        is_repeatable: bool = True,
        policy: RetryPolicy | None = None,
        error_of: Any = errors.client_error_from_rpc,
    ) -> bytes:
        """Make a call as often as the policy allows; raise what its last error means."""
        policy = policy or self._policy
        path, message = _SERVICE + method, request.SerializeToString()
        failures = 0
        while True:
            try:
                return await self._link.call(
                    path, message, timeout_s=self._timeout_s, metadata=telemetry.metadata()
                )
            except RpcError as error:
                failures += 1
                is_final = failures >= policy.max_attempts
                if is_final or not may_repeat(error, is_repeatable=is_repeatable):
                    raise error_of(error) from error
                wait_s = policy.wait_s(failures)
                logger.warning("%s failed, again in %.2f s: %s", method, wait_s, error)
            await trio.sleep(wait_s)
