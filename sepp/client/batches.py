"""Enqueue requests and their answers."""

from sepp._generated import queue_pb2 as pb
from sepp.client import convert, telemetry
from sepp.client.errors import (
    BatchResultCountMismatchError,
    BatchValidationError,
    MalformedResponseError,
)
from sepp.client.rejections import JobRejection
from sepp.client.types import EnqueueAck, EnqueueRequest


def make(jobs: tuple[EnqueueRequest, ...]) -> tuple[pb.EnqueueBatchRequest, bool]:
    """Return the request, and whether sending it twice does no harm."""
    request = pb.EnqueueBatchRequest(jobs=[convert.enqueue_message(job) for job in jobs])
    headers = telemetry.current_headers()
    if headers is not None:
        for message in request.jobs:
            if not message.HasField("trace_context"):
                convert.set_trace(message, *headers)
    return request, all(job.idempotency_key is not None for job in jobs)


def read_results(data: bytes, job_count: int) -> list[EnqueueAck | JobRejection]:
    """Return what became of each job of an EnqueueBatch.

    Raises:
        ClientError: The answer is not as the protocol demands.
    """
    results = pb.EnqueueBatchResponse.FromString(data).results
    if len(results) != job_count:
        raise BatchResultCountMismatchError(job_count, len(results))
    found: list[EnqueueAck | JobRejection] = []
    for result in results:
        outcome = result.WhichOneof("outcome")
        if outcome == "success":
            success = result.success
            found.append(EnqueueAck(success.job_id, success.deduplicated))
        elif outcome == "rejection":
            found.append(convert.rejection_of(result.rejection))
        else:
            raise MalformedResponseError("a job's result has no outcome")
    return found


def read_atomic(data: bytes, job_count: int) -> list[EnqueueAck]:
    """Return what became of the jobs of an EnqueueAtomic.

    Raises:
        BatchValidationError: They were refused.
        ClientError: The answer is not as the protocol demands.
    """
    answer = pb.EnqueueAtomicResponse.FromString(data)
    outcome = answer.WhichOneof("outcome")
    if outcome == "rejection":
        refusals = answer.rejection.errors
        raise BatchValidationError([convert.validation_error_of(e) for e in refusals])
    if outcome != "success":
        raise MalformedResponseError("the batch's result has no outcome")
    responses = answer.success.responses
    if len(responses) != job_count:
        raise BatchResultCountMismatchError(job_count, len(responses))
    return [EnqueueAck(one.job_id, one.deduplicated) for one in responses]
