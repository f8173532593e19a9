"""What values may be, and what is made of them."""

from datetime import UTC, datetime, timedelta

import pytest

from sepp._generated import queue_pb2 as pb
from sepp.client import (
    EnqueueRequest,
    JobConversionError,
    Payload,
    Priority,
    PriorityOutOfRangeError,
    QueueFull,
    ReserveOptions,
    ServerInfoError,
    TraceContext,
    TraceContextError,
    UnknownRejection,
    convert,
)

GOOD = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"


@pytest.mark.parametrize("value", [-1, 10, True, "5", 1.0, None])
def test_a_priority_is_a_number_from_0_to_9(value: object) -> None:
    with pytest.raises(PriorityOutOfRangeError):
        Priority(value)  # type: ignore[arg-type]  the point of the test


def test_priorities_have_order_and_names() -> None:
    assert [int(p) for p in sorted([Priority.P9, Priority.MIN, Priority(5)])] == [0, 5, 9]
    assert EnqueueRequest("q", "t", priority=3).priority is not Priority.P3
    assert EnqueueRequest("q", "t", priority=3).priority == Priority.P3


@pytest.mark.parametrize(
    "text", ["", "00", GOOD + "-", GOOD.replace("0123", "xxxx"), "00-" + "0" * 32 + GOOD[35:]]
)
def test_a_traceparent_has_one_form(text: str) -> None:
    with pytest.raises(TraceContextError):
        TraceContext(text)


def test_requests_need_names_and_spans() -> None:
    second = timedelta(seconds=1)
    for queue, job_type in (("", "t"), ("q", "")):
        with pytest.raises(ValueError, match="empty"):
            EnqueueRequest(queue, job_type)
    for queues in ([], [""]):
        with pytest.raises(ValueError, match="queue"):
            ReserveOptions(queues, second)
    with pytest.raises(ValueError, match="lease_duration"):
        ReserveOptions(["q"], timedelta(0))
    with pytest.raises(ValueError, match="max_jobs"):
        ReserveOptions(["q"], second, max_jobs=0)
    with pytest.raises(ValueError, match="worker_id"):
        ReserveOptions(["q"], second, worker_id="")


def test_custom_values_are_scalars() -> None:
    with pytest.raises(TypeError, match="list"):
        convert.enqueue_message(EnqueueRequest("q", "t", custom={"a": []}))  # type: ignore[dict-item]  the point


def test_an_empty_payload_is_sent_as_one() -> None:
    message = convert.enqueue_message(EnqueueRequest("q", "t", Payload(b"", "")))

    assert message.HasField("payload")


def test_naive_times_are_utc_and_milliseconds_are_whole() -> None:
    naive = datetime(2026, 1, 2, 3, 4, 5, 999_999)

    assert convert.ms_of(naive) == convert.ms_of(naive.replace(tzinfo=UTC)) == 1767323045999
    message = convert.enqueue_message(EnqueueRequest("q", "t", scheduled_at=naive))
    assert message.scheduled_at.ToMilliseconds() == 1767323045999


def job(**fields: object) -> pb.Job:
    """Return a job as a server sends it."""
    return pb.Job(
        **{
            "id": "id",
            "job_type": "t",
            "enqueued_at": {"seconds": 1},
            "lease_expires_at": {"seconds": 2},
            **fields,
        }
    )


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"id": ""}, "id"),
        ({"job_type": ""}, "job type"),
        ({"priority": 10}, "priority 10"),
        ({"enqueued_at": {"seconds": -1}}, "enqueued_at"),
        ({"lease_expires_at": {"seconds": 10**12}}, "lease_expires_at"),
        ({"custom": {"a": {}}}, "custom"),
    ],
)
def test_a_job_that_lacks_something_is_told(fields: dict[str, object], text: str) -> None:
    with pytest.raises(JobConversionError, match=text):
        convert.job_of(job(**fields), None)


def test_a_malformed_trace_does_not_hold_up_a_job() -> None:
    found = convert.job_of(job(trace_context={"traceparent": "x"}), None)

    assert found.ctx.trace_context is None


def test_every_reason_on_the_wire_has_a_class() -> None:
    for field in pb.JobRejection.DESCRIPTOR.oneofs_by_name["reason"].fields:
        message = pb.JobRejection()
        getattr(message, field.name).SetInParent()
        found = convert.rejection_of(message)
        camel = "".join(word.capitalize() for word in field.name.split("_"))
        assert type(found).__name__ == camel
        assert str(found)
    assert convert.rejection_of(pb.JobRejection()) == UnknownRejection()
    full = pb.JobRejection(queue_full={"queue": "q", "limit": 3})
    assert convert.rejection_of(full) == QueueFull("q", 3)


def test_server_info_needs_a_version() -> None:
    with pytest.raises(ServerInfoError, match="server_version"):
        convert.server_info_of(pb.GetServerInfoResponse())
