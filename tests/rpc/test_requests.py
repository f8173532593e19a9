"""What a request must look like: each fault is answered on its own stream, no other notices."""

import gzip

import pytest
from purerpc import StatusCode

from tests.rpc import frames
from tests.rpc.frames import RawPeer, data_frames, headers_frame, message, request, request_headers
from tests.rpc.support import ECHO, PARK, serving

LIMIT = 100_000


def code(answer: frames.Answer) -> StatusCode:
    return StatusCode(answer.status)


@pytest.fixture
async def harness():
    async with serving(message_bytes_max=LIMIT) as harness:
        yield harness


@pytest.fixture
async def peer(harness):
    """A raw peer with another call of it waiting on stream 1."""
    peer = await RawPeer.greeted(harness.port)
    await peer.send(request(1, PARK, message(b"")))
    await harness.methods.wait_until(lambda: len(harness.methods.parked) == 1)
    yield peer
    harness.methods.parked[0].respond(b"undisturbed")
    harness.server.flush()
    answer = await peer.until_answered(1)
    assert (answer.status, answer.body) == (0, message(b"undisturbed"))
    assert harness.server.statistics().accepted == 1
    await peer.close()


MALFORMED = [
    (b"", StatusCode.INTERNAL),
    (b"\0\0", StatusCode.INTERNAL),
    (message(b"abc", size=4), StatusCode.INTERNAL),
    (message(b"abc", size=2), StatusCode.INTERNAL),
    (message(b"abc", flag=7), StatusCode.INTERNAL),
    (message(b"abc", flag=1), StatusCode.INTERNAL),
    (message(b"a") + message(b"b"), StatusCode.INTERNAL),
    (message(b"", size=0xFFFFFFFF), StatusCode.OUT_OF_RANGE),
    (message(b"", size=LIMIT + 1), StatusCode.OUT_OF_RANGE),
]


@pytest.mark.parametrize(("body", "expected"), MALFORMED)
async def test_a_malformed_message_is_answered_on_its_stream_only(harness, peer, body, expected):
    await peer.send(request(3, ECHO, body))
    answer = await peer.until_answered(3)

    assert code(answer) is expected
    assert answer.headers[b":status"] == b"200"
    assert harness.methods.seen == []
    assert code(await peer.call(5, ECHO, b"next")) is StatusCode.OK


async def test_a_message_of_exactly_the_limit_is_taken(harness, peer):
    await peer.send(request(3, ECHO, message(b"x" * LIMIT)))
    await peer.send(frames.window_update(0, 2**20) + frames.window_update(3, 2**20))

    assert (await peer.until_answered(3)).body == message(b"x" * LIMIT)


async def test_a_message_over_the_limit_is_not_kept_and_its_sender_is_stopped(harness, peer):
    await peer.send(headers_frame(3, request_headers(ECHO)))
    await peer.send(data_frames(3, message(b"x" * 50_000, size=LIMIT + 1), is_end=False))
    answer = await peer.until_answered(3)

    assert answer.text == f"message of {LIMIT + 1} bytes is larger than the limit of {LIMIT} bytes"
    await peer.until_frame(frames.RST_STREAM)
    assert answer.reset_code == frames.NO_ERROR
    assert harness.server.statistics().request_bytes == 0


async def test_a_body_may_come_in_frames_of_one_byte_with_empty_ones_between(harness, peer):
    body = message(b"dripping")
    await peer.send(headers_frame(3, request_headers(ECHO)))
    for at in range(len(body)):
        await peer.send(frames.frame(frames.DATA, 0, 3, body[at : at + 1]))
        await peer.send(frames.frame(frames.DATA, 0, 3, b""))
    await peer.send(frames.frame(frames.DATA, frames.END_STREAM, 3, b""))

    assert (await peer.until_answered(3)).body == body


async def test_padding_is_not_part_of_the_message(harness, peer):
    body = message(b"padded")
    padded = frames.frame(
        frames.DATA, frames.END_STREAM | frames.PADDED, 3, b"\x09" + body + bytes(9)
    )
    await peer.send(headers_frame(3, request_headers(ECHO)) + padded)

    assert (await peer.until_answered(3)).body == body


async def test_a_body_may_be_ended_by_trailers(harness, peer):
    await peer.send(
        headers_frame(3, request_headers(ECHO))
        + data_frames(3, message(b"with trailers"), is_end=False)
        + headers_frame(3, [(b"some", b"trailer")], frames.END_STREAM)
    )

    assert (await peer.until_answered(3)).body == message(b"with trailers")


async def test_a_gzip_message_is_understood_and_answered_plain(harness, peer):
    await peer.send(
        request(3, ECHO, message(gzip.compress(b"packed"), 1), (b"grpc-encoding", b"gzip"))
    )
    answer = await peer.until_answered(3)

    assert answer.body == message(b"packed")
    assert b"grpc-encoding" not in answer.headers


async def test_an_unknown_coding_is_unimplemented_and_told_what_is_not(harness, peer):
    await peer.send(request(3, ECHO, message(b"abc", 1), (b"grpc-encoding", b"snappy")))
    answer = await peer.until_answered(3)

    assert code(answer) is StatusCode.UNIMPLEMENTED
    assert answer.headers[b"grpc-accept-encoding"] == b"identity,gzip"


async def test_a_gzip_bomb_is_out_of_range(harness, peer):
    body = message(gzip.compress(bytes(50 * LIMIT)), 1)
    await peer.send(request(3, ECHO, body, (b"grpc-encoding", b"gzip")))

    assert code(await peer.until_answered(3)) is StatusCode.OUT_OF_RANGE


@pytest.mark.parametrize("timeout", [b"abc", b"1", b"-1S", b"123456789S", b""])
async def test_a_malformed_timeout_is_an_invalid_argument(harness, peer, timeout):
    await peer.send(request(3, ECHO, message(b""), (b"grpc-timeout", timeout)))
    answer = await peer.until_answered(3)

    assert code(answer) is StatusCode.INVALID_ARGUMENT
    assert answer.text.startswith(f"grpc-timeout {timeout.decode()!r} is malformed")
    assert harness.methods.seen == []


async def test_a_timeout_of_nothing_has_passed_at_once(harness, peer):
    await peer.send(request(3, ECHO, message(b""), (b"grpc-timeout", b"0n")))

    assert code(await peer.until_answered(3)) is StatusCode.DEADLINE_EXCEEDED
    assert harness.methods.seen == []


async def test_a_timeout_of_ten_thousand_years_is_none(harness, peer):
    await peer.send(request(3, ECHO, message(b""), (b"grpc-timeout", b"99999999H")))

    assert code(await peer.until_answered(3)) is StatusCode.OK


async def test_of_equal_headers_the_first_one_counts(harness, peer):
    await peer.send(
        request(3, ECHO, message(b""), (b"authorization", b"first"), (b"authorization", b"second"))
    )
    await peer.until_answered(3)

    (call,) = harness.methods.seen
    assert call.header(b"authorization") == b"first"
    assert call.header(b"absent") is None
    assert (call.path, call.deadline) == (ECHO, None)


def replaced(name: bytes, value: bytes | None) -> list[tuple[bytes, bytes]]:
    """Request headers with one of them changed or left out."""
    return [(n, v if n != name else value) for n, v in request_headers(ECHO) if n != name or value]


@pytest.mark.parametrize(
    ("headers", "http_status"),
    [
        (replaced(b":method", b"GET"), b"405"),
        (replaced(b":method", b"PUT"), b"405"),
        (replaced(b"content-type", b"application/json"), b"415"),
        (replaced(b"content-type", b"application/grpc-web"), b"415"),
        (replaced(b"content-type", None), b"415"),
    ],
)
@pytest.mark.parametrize("has_body", [True, False])
async def test_what_is_no_grpc_gets_an_http_status(harness, peer, headers, http_status, has_body):
    await peer.send(headers_frame(3, headers, 0 if has_body else frames.END_STREAM))
    if has_body:
        await peer.send(data_frames(3, message(b"body")))
    answer = await peer.until_answered(3)

    assert answer.headers[b":status"] == http_status
    assert code(answer) is StatusCode.UNKNOWN


@pytest.mark.parametrize(
    "headers",
    [
        replaced(b":path", None),
        replaced(b":method", None),
        replaced(b":scheme", None),
        replaced(b":path", b""),
        [*request_headers(ECHO), (b":path", b"/again")],
        [*request_headers(ECHO), (b"Upper", b"case")],
        [*request_headers(ECHO), (b"connection", b"close")],
        [*request_headers(ECHO), (b"bad", b"a\nb")],
        [(b":method", b"CONNECT"), (b":authority", b"test")],
    ],
)
async def test_headers_against_the_rules_cost_their_stream_at_most(harness, peer, headers):
    await peer.send(headers_frame(3, headers, frames.END_STREAM))
    answer = await peer.until_answered(3)

    assert answer.reset_code == frames.PROTOCOL_ERROR or answer.headers[b":status"] == b"405"


async def test_an_unknown_method_is_unimplemented_before_its_body_has_come(harness, peer):
    await peer.send(headers_frame(3, request_headers("/test.Test/\xe9")))

    assert code(await peer.until_answered(3)) is StatusCode.UNIMPLEMENTED
