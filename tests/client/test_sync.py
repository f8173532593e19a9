"""The client for programs that are not async."""

import threading
from datetime import timedelta

import pytest

from sepp.client import (
    ConnectError,
    EnqueueRequest,
    JobNotFoundError,
    JobRejectedError,
    Payload,
    ReserveOptions,
    SeppClient,
    TransportError,
)
from tests.e2e.server_process import ServerProcess

SECOND = timedelta(seconds=1)


def test_a_script_can_do_all_that_a_task_can(shared: ServerProcess, queue: str) -> None:
    options = ReserveOptions([queue], 30 * SECOND, 5 * SECOND, max_jobs=5)
    with SeppClient.sync(shared.address) as client:
        assert client.get_server_info().version
        acks = [client.enqueue(EnqueueRequest(queue, "t", Payload(b"x", "text")))]
        acks += client.enqueue_atomic([EnqueueRequest(queue, "t")])
        client.enqueue_batch([EnqueueRequest(queue, "t")])

        jobs = client.reserve(options)

        assert jobs is not None
        assert [job.ctx.id for job in jobs[:2]] == [ack.job_id for ack in acks]
        assert client.extend(jobs[0].ctx, 60 * SECOND) > jobs[0].ctx.enqueued_at
        client.ack(jobs[0].ctx)
        assert not client.nack(jobs[1].ctx, reason="why")
        with pytest.raises(JobNotFoundError):
            client.ack(jobs[0].ctx)
        assert client.drain_dead_letters(queue) == []
        with pytest.raises(JobRejectedError):
            client.enqueue(EnqueueRequest(queue, "t", Payload(b"", "text")))
    with pytest.raises(TransportError):
        client.enqueue(EnqueueRequest(queue, "t"))
    assert "sepp-client" not in {thread.name for thread in threading.enumerate()}


def test_threads_may_share_a_client(shared: ServerProcess, queue: str) -> None:
    with SeppClient.sync(shared.address) as client:

        def produce() -> None:
            for _ in range(20):
                client.enqueue(EnqueueRequest(queue, "t"))

        threads = [threading.Thread(target=produce) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        jobs = client.reserve(ReserveOptions([queue], SECOND, max_jobs=200))

    assert jobs is not None
    assert len(jobs) == 100


def test_no_server_is_told_to_the_caller() -> None:
    with pytest.raises(ConnectError), SeppClient.sync("127.0.0.1:1"):
        pytest.fail("there is no server")
