"""Messages read without being decoded mean what their decoding means."""

from itertools import count
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from sepp import validate, wire
from sepp._generated import queue_pb2 as pb
from sepp.config.limits import Limits, Queue
from sepp.config.model import Config
from sepp.config.policy import QueuePolicy
from sepp.plain import HEADS_MAX, TAILS_MAX, PlainMessages

JOB_ID = "6f1de6b4-7f5e-4a53-9e30-1c1f3b0a0000"
QUEUES = ["line", "urgent", "a" * 127, "ü"]
POLICY = QueuePolicy(
    Config(
        limits=Limits(max_payload_bytes=5000, allowed_encodings=["json", "", "text/plain"]),
        queues=[Queue(name="urgent", default_priority=7, default_max_attempts=9)],
    )
)


def request(**changes: Any) -> pb.EnqueueRequest:
    fields = {
        "queue": "line",
        "job_type": "mail",
        "payload": pb.Payload(data=b"x", encoding="json"),
    }
    return pb.EnqueueRequest(**{**fields, **changes})


def batch(*jobs: pb.EnqueueRequest) -> bytes:
    return pb.EnqueueBatchRequest(jobs=jobs).SerializeToString()


def decoded(message: bytes, job_ids: list[str]) -> list[tuple[Any, ...]] | None:
    """What the checks make of a message; None: it is refused, as a whole or a job of it."""
    try:
        jobs = pb.EnqueueBatchRequest.FromString(message).jobs
    except DecodeError:
        return None
    found = []
    for job, job_id in zip(jobs, job_ids, strict=True):
        checked = validate.check_job(job, POLICY, 0)
        if not isinstance(checked, validate.Checked):
            return None
        new = checked.new_job(wire.id_bytes(job_id) or b"", checked.trace, lambda *_: b"key")
        found.append((*facts(new), new.due_ms, new.dedup_key))
    return found


def facts(job: Any) -> tuple[Any, ...]:
    stored = wire.decode_job(job.body, attempt=1, enqueued_ms=1)
    return (job.queue, job.job_id, job.priority, job.max_attempts, stored)


def learned(*jobs: pb.EnqueueRequest) -> PlainMessages:
    plain = PlainMessages(POLICY)
    for job in jobs:
        checked = validate.check_job(job, POLICY, 0)
        assert isinstance(checked, validate.Checked)
        plain.learn_job(batch(job), checked)
    return plain


def known() -> PlainMessages:
    """One that has seen every queue and encoding."""
    return learned(
        *(
            request(queue=queue, payload=pb.Payload(data=b"data", encoding=encoding))
            for queue in QUEUES
            for encoding in ("json", "text/plain")
        )
    )


def check(plain: PlainMessages, message: bytes) -> bool:
    """Whether the message was read; if so it must mean what decoding says."""
    read = plain.jobs(message, 1000)
    if read is None:
        return False
    jobs, job_ids = read
    assert [(*facts(job), 0, None) for job in jobs] == decoded(message, job_ids)
    return True


payloads = st.builds(
    pb.Payload,
    data=st.one_of(
        st.binary(max_size=300), st.sampled_from([b"x" * n for n in (127, 128, 5000, 5001)])
    ),
    encoding=st.sampled_from(["json", "text/plain", "", "xml"]),
)
requests = st.builds(
    pb.EnqueueRequest,
    queue=st.sampled_from([*QUEUES, "other", ""]),
    job_type=st.sampled_from(["mail", "other", ""]),
    payload=st.one_of(st.none(), payloads),
    priority=st.sampled_from([None, None, 3]),
    idempotency_key=st.sampled_from([None, None, "k"]),
    custom=st.sampled_from([{}, {}, {"a": pb.PrimitiveValue(int_value=1)}]),
)


@settings(max_examples=400, deadline=None)
@given(st.lists(requests, max_size=4))
def test_what_is_read_is_what_would_be_decoded(jobs: list[pb.EnqueueRequest]) -> None:
    check(known(), batch(*jobs))


@settings(max_examples=800, deadline=None)
@given(
    st.sampled_from(QUEUES),
    st.integers(0, 200),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=3),
    st.integers(0, 4),
    st.binary(max_size=4),
)
def test_a_message_with_wrong_bytes_is_never_read_as_another(
    queue: str, size: int, changes: list[tuple[int, int]], cut: int, tail: bytes
) -> None:
    payload = pb.Payload(data=b"\x0a\x04line\x12\x1a" * size, encoding="json")
    message = bytearray(batch(request(queue=queue, payload=payload), request(queue=queue)))
    for place, value in changes:
        message[place % len(message)] = value
    check(known(), bytes(message[: len(message) - cut] + tail))


@pytest.mark.parametrize("size", [1, 100, 127, 128, 4999, 5000])
@pytest.mark.parametrize("queue", QUEUES)
def test_a_plain_job_like_one_before_is_read(queue: str, size: int) -> None:
    job = request(queue=queue, payload=pb.Payload(data=b"x" * size, encoding="json"))
    assert check(known(), batch(job))
    assert check(known(), batch(job, request(), job))


@pytest.mark.parametrize(
    "changes",
    [
        {"priority": 7},
        {"max_attempts": 2},
        {"idempotency_key": "k"},
        {"trace_context": pb.TraceContext(traceparent="t")},
        {"custom": {"a": pb.PrimitiveValue(int_value=1)}},
        {"payload": None},
        {"payload": pb.Payload(data=b"x" * 5001, encoding="json")},
        {"payload": pb.Payload(data=b"", encoding="json")},
        {"payload": pb.Payload(data=b"x", encoding="xml")},
        {"payload": pb.Payload(data=b"x")},
        {"queue": "never seen"},
        {"job_type": "never seen"},
    ],
)
def test_any_other_job_is_left_to_the_decoder(changes: dict[str, Any]) -> None:
    plain = known()
    assert plain.jobs(batch(request(**changes)), 1000) is None
    assert plain.jobs(batch(request(), request(**changes)), 1000) is None


def test_no_job_and_too_many_are_left_to_the_decoder() -> None:
    plain = known()
    assert plain.jobs(b"", 1000) is None
    assert plain.jobs(batch(*[request()] * 3), 2) is None
    assert plain.jobs(batch(*[request()] * 3), 3) is not None


def test_a_declared_queue_gives_its_own_priority_and_attempts() -> None:
    read = known().jobs(batch(request(queue="urgent")), 1)
    assert read is not None
    assert (read[0][0].priority, read[0][0].max_attempts) == (7, 9)


def test_what_is_remembered_is_bounded() -> None:
    plain = learned(*(request(job_type=f"t{n}") for n in range(HEADS_MAX + 1)))
    assert plain.jobs(batch(request(job_type="t0")), 1) is None
    assert plain.jobs(batch(request(job_type=f"t{HEADS_MAX}")), 1) is not None
    numbers = count()
    for _ in range(TAILS_MAX + 1):
        plain.learn_lease(ack(worker_id := f"w{next(numbers)}"), worker_id)
    assert plain.lease(ack("w0")) is None
    assert plain.lease(ack(f"w{TAILS_MAX}")) is not None


def ack(worker_id: str | None = None, *, attempt: int = 3, job_id: str = JOB_ID) -> bytes:
    request = pb.AckRequest(job_id=job_id, attempt=attempt, worker_id=worker_id)
    return request.SerializeToString()


def test_an_ack_is_read_once_its_worker_is_known() -> None:
    plain = PlainMessages(POLICY)
    lease = JOB_ID, wire.id_bytes(JOB_ID), 3
    assert plain.lease(ack()) == lease
    assert plain.lease(ack("w1")) is None
    plain.learn_lease(ack("w1"), "w1")
    assert plain.lease(ack("w1")) == lease
    assert plain.lease(ack("w2")) is None


@pytest.mark.parametrize(
    "message",
    [
        b"",
        ack(attempt=0),
        ack(attempt=128),
        ack(job_id="6f1de6b4x7f5e-4a53-9e30-1c1f3b0a0000"),
        ack(job_id="short"),
        ack() + b"\x10\x04",
        ack(worker_id=""),
    ],
)
def test_any_other_ack_is_left_to_the_decoder(message: bytes) -> None:
    assert PlainMessages(POLICY).lease(message) is None


def test_an_empty_worker_is_not_remembered() -> None:
    plain = PlainMessages(POLICY)
    plain.learn_lease(ack(""), "")
    assert plain.lease(ack("")) is None


def test_what_follows_a_shorter_payload_is_not_taken_for_its_encoding() -> None:
    encoding = wire.string_field(2, "json")  # as a field of the job, its type
    job = request(payload=pb.Payload(data=b"data")).SerializeToString() + encoding
    assert known().jobs(b"\x0a" + wire.varint(len(job)) + job, 1) is None
