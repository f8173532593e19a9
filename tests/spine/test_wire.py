"""Hand-written wire format says what protobuf says."""

import uuid

from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from sepp import wire
from sepp._generated import queue_pb2 as pb

values = st.one_of(
    st.builds(lambda v: pb.PrimitiveValue(string_value=v), st.text(max_size=8)),
    st.builds(lambda v: pb.PrimitiveValue(double_value=v), st.floats(allow_nan=False)),
    st.builds(lambda v: pb.PrimitiveValue(int_value=v), st.integers(-(2**63), 2**63 - 1)),
    st.builds(lambda v: pb.PrimitiveValue(bool_value=v), st.booleans()),
)


@st.composite
def requests(draw: st.DrawFn) -> pb.EnqueueRequest:
    request = pb.EnqueueRequest(
        queue=draw(st.text(min_size=1, max_size=20)),
        job_type=draw(st.text(min_size=1, max_size=20)),
    )
    if draw(st.booleans()):
        request.payload.data = draw(st.binary(min_size=1, max_size=300))
        request.payload.encoding = draw(st.text(min_size=1, max_size=10))
    for key, value in draw(st.dictionaries(st.text(min_size=1, max_size=5), values)).items():
        request.custom[key].CopyFrom(value)
    if draw(st.booleans()):
        request.trace_context.traceparent = draw(st.text(min_size=1, max_size=60))
    if draw(st.booleans()):
        request.scheduled_at.seconds = draw(st.integers(-(10**11), 10**13))
        request.scheduled_at.nanos = draw(st.integers(0, 999_999_999))
    return request


def body_of(request: pb.EnqueueRequest, job_id: str, priority: int, max_attempts: int) -> bytes:
    return wire.encode_body(
        job_id,
        request.queue,
        request.job_type,
        priority,
        max_attempts,
        payload=request.payload if request.HasField("payload") else None,
        custom=request.custom or None,
        trace=request.trace_context if request.HasField("trace_context") else None,
        scheduled=request.scheduled_at.SerializeToString()
        if request.HasField("scheduled_at")
        else None,
    )


@given(requests(), st.integers(0, 9), st.integers(1, 2**32 - 1), st.integers(1, 2**32 - 1))
def test_a_delivered_job_is_the_message_protobuf_would_have_written(
    request: pb.EnqueueRequest, priority: int, max_attempts: int, attempt: int
) -> None:
    job_id = str(uuid.UUID(int=7))
    body = body_of(request, job_id, priority, max_attempts)

    entry = wire.leased_job(
        body, attempt=attempt, enqueued_ms=1_700_000_000_123, lease=wire.lease_field(1_700_000_030)
    )

    expected = pb.Job(
        id=job_id,
        job_type=request.job_type,
        priority=priority,
        attempt=attempt,
        max_attempts=max_attempts,
        queue=request.queue,
    )
    for key, value in request.custom.items():
        expected.custom[key].CopyFrom(value)
    if request.HasField("payload"):
        expected.payload.CopyFrom(request.payload)
    if request.HasField("trace_context"):
        expected.trace_context.CopyFrom(request.trace_context)
    if request.HasField("scheduled_at"):
        expected.scheduled_at.CopyFrom(request.scheduled_at)
    expected.enqueued_at.FromMilliseconds(1_700_000_000_123)
    expected.lease_expires_at.FromMilliseconds(1_700_000_030)
    assert pb.ReserveResponse.FromString(entry).jobs[0] == expected


def test_a_delivery_span_replaces_the_stored_trace_context_and_nothing_else() -> None:
    request = pb.EnqueueRequest(queue="q", job_type="t")
    request.trace_context.traceparent = "stored"
    request.trace_context.tracestate = "must not survive"
    request.scheduled_at.seconds = 5
    body = body_of(request, str(uuid.UUID(int=1)), 0, 3)
    delivery = pb.TraceContext(traceparent="delivery")

    entry = wire.leased_job(
        body,
        attempt=1,
        enqueued_ms=1,
        lease=wire.lease_field(2),
        trace=wire.trace_field(delivery.SerializeToString()),
    )

    job = pb.ReserveResponse.FromString(entry).jobs[0]
    assert job.trace_context == delivery
    assert job.scheduled_at.seconds == 5
    assert wire.stored_trace(body) == request.trace_context


def test_a_job_without_a_trace_has_none() -> None:
    body = body_of(pb.EnqueueRequest(queue="q", job_type="t"), str(uuid.UUID(int=1)), 0, 3)

    assert wire.stored_trace(body) is None
    assert not wire.decode_job(body, attempt=1, enqueued_ms=0).HasField("trace_context")


@given(st.integers(0, 253_402_300_799_999))
def test_timestamps_are_what_protobuf_writes(at_ms: int) -> None:
    expected = Timestamp()
    expected.FromMilliseconds(at_ms)

    assert wire.timestamp_bytes(at_ms) == expected.SerializeToString()


@given(st.binary(min_size=16, max_size=16))
def test_an_id_survives_text_in_either_case(job_id: bytes) -> None:
    text = wire.id_text(job_id)

    assert text == str(uuid.UUID(bytes=job_id))
    assert wire.id_bytes(text) == job_id
    assert wire.id_bytes(text.upper()) == job_id


def test_what_is_no_id_is_refused() -> None:
    good = str(uuid.UUID(int=2**100))
    bad = [
        "",
        good[:-1],
        good + "0",
        good.replace("-", "+"),
        good[:-2] + " 0",
        good[:-1] + "g",
        good[:-1] + "é",
        "{" + good[1:],
        good.replace("-", ""),
        " " * 36,
    ]

    assert [wire.id_bytes(text) for text in bad] == [None] * len(bad)


def test_spans_are_cut_towards_zero() -> None:
    assert wire.span_ms(0, 999_999) == 0
    assert wire.span_ms(0, -999_999) == 0
    assert wire.span_ms(-1, -500_000) == -1000
    assert wire.span_ms(1, 1_999_999) == 1001
