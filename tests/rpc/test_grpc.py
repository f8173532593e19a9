"""gRPC as bytes and values: framing fed in every way, statuses, deadlines."""

import gzip
import random
import tracemalloc

import pytest
from purerpc import StatusCode

from sepp.rpc import grpc
from sepp.rpc.grpc import MessageAssembler
from tests.rpc.frames import message

GZIP_BOMB = gzip.compress(bytes(5_000_000))


def assemble(body: bytes, size: int, *, limit: int = 1000, encoding: bytes | None = None):
    """Feed a body in parts of `size` bytes; return the message or the fault."""
    assembler = MessageAssembler(limit, encoding)
    for at in range(0, len(body), size):
        fault = assembler.feed(body[at : at + size])
        if fault is not None:
            return fault
    return assembler.finish()


BODIES = [
    (message(b""), None, b""),
    (message(b"x"), None, b"x"),
    (message(b"x" * 1000), None, b"x" * 1000),
    (message(b"plain", 0), b"gzip", b"plain"),
    (message(gzip.compress(b"packed" * 100), 1), b"gzip", b"packed" * 100),
    (message(gzip.compress(b""), 1), b"gzip", b""),
    (message(gzip.compress(b"x" * 1000), 1), b"gzip", b"x" * 1000),
    (b"", None, StatusCode.INTERNAL),
    (b"\0", None, StatusCode.INTERNAL),
    (b"\0\0\0\0", None, StatusCode.INTERNAL),
    (message(b"abc")[:-1], None, StatusCode.INTERNAL),
    (message(b"abc") + b"d", None, StatusCode.INTERNAL),
    (message(b"abc") + message(b"def"), None, StatusCode.INTERNAL),
    (message(b"abc", 2), None, StatusCode.INTERNAL),
    (message(b"abc", 255), None, StatusCode.INTERNAL),
    (message(b"x" * 1001), None, StatusCode.OUT_OF_RANGE),
    (message(b"", size=0xFFFFFFFF), None, StatusCode.OUT_OF_RANGE),
    (message(gzip.compress(b"abc"), 1), None, StatusCode.INTERNAL),
    (message(gzip.compress(b"abc"), 1), b"identity", StatusCode.INTERNAL),
    (message(gzip.compress(b"abc"), 1), b"deflate", StatusCode.UNIMPLEMENTED),
    (message(b"no gzip", 1), b"gzip", StatusCode.INTERNAL),
    (message(gzip.compress(b"abc")[:-1], 1), b"gzip", StatusCode.INTERNAL),
    (message(gzip.compress(b"abc") + b"d", 1), b"gzip", StatusCode.INTERNAL),
    (message(gzip.compress(b"x" * 1001), 1), b"gzip", StatusCode.OUT_OF_RANGE),
]


@pytest.mark.parametrize("size", [1, 3, 5, 7, 1_000_000])
@pytest.mark.parametrize(("body", "encoding", "expected"), BODIES)
def test_a_body_gives_its_message_or_fault_however_it_is_cut(body, encoding, expected, size):
    got = assemble(body, size, encoding=encoding)

    assert (got if isinstance(got, bytes) else got[0]) == expected


def test_the_fault_of_a_large_message_gives_found_and_limit():
    assert assemble(message(b"x" * 1001), 5) == (
        StatusCode.OUT_OF_RANGE,
        "message of 1001 bytes is larger than the limit of 1000 bytes",
    )


def test_a_gzip_bomb_is_not_unpacked_beyond_the_limit():
    tracemalloc.start()
    try:
        code, text = assemble(message(GZIP_BOMB, 1), 10_000, limit=10_000, encoding=b"gzip")
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak_bytes < 200_000
    assert code is StatusCode.OUT_OF_RANGE
    assert text == "message grows beyond 10000 bytes when decompressed, the limit"


def test_a_frame_is_what_the_assembler_reads():
    for size in (0, 1, 255, 256, 70_000):
        assert assemble(grpc.frame(b"x" * size), 11, limit=70_000) == b"x" * size


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (b"1H", 3600.0),
        (b"2M", 120.0),
        (b"30S", 30.0),
        (b"1500m", 1.5),
        (b"32u", 32 * 1e-6),
        (b"0n", 0.0),
        (b"00000001S", 1.0),
        (b"99999999H", grpc.TIMEOUT_S_MAX),
        (b"", None),
        (b"S", None),
        (b"abc", None),
        (b"1", None),
        (b"1s", None),
        (b"-1S", None),
        (b"+1S", None),
        (b"1.5S", None),
        (b" 1S", None),
        (b"1_0S", None),
        (b"123456789n", None),
        ("١S".encode(), None),
    ],
)
def test_grpc_timeout_is_read_strictly(value, seconds):
    assert grpc.parse_timeout(value) == seconds


def test_an_encoded_timeout_is_short_by_less_than_a_thousandth():
    seed = random.randrange(2**32)
    print("seed", seed)
    rng = random.Random(seed)
    for _ in range(1000):
        seconds = 10 ** rng.uniform(-3, 8)

        read = grpc.parse_timeout(grpc.encode_timeout(seconds))

        assert read is not None
        assert seconds * 0.999 - 1e-6 <= read <= seconds or seconds > 99_999_999


@pytest.mark.parametrize(
    ("text", "coded"),
    [
        ("plain text, 1/2", b"plain text, 1/2"),
        ("100 % of \n", b"100 %25 of %0A"),
        ("größe", b"gr%C3%B6%C3%9Fe"),
        ("\x7f\x00", b"%7F%00"),
        ("日本", b"%E6%97%A5%E6%9C%AC"),
    ],
)
def test_status_text_is_percent_encoded_and_back(text, coded):
    assert grpc.encode_text(text) == coded
    assert grpc.decode_text(coded) == text


def test_a_long_status_text_is_cut_at_a_character():
    coded = grpc.encode_text("ß" * 3000)

    assert len(coded) <= 3 * 2048 + 9
    assert set(grpc.decode_text(coded)) == {"ß", "…"}


def test_lone_surrogates_in_a_status_text_do_not_raise():
    assert grpc.encode_text("a\ud800b") == b"a?b"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ((), None),
        (((b"grpc-status", b"0"),), (StatusCode.OK, "")),
        (
            ((b"grpc-status", b"5"), (b"grpc-message", b"no%20job")),
            (StatusCode.NOT_FOUND, "no job"),
        ),
        (((b"grpc-status", b"17"),), (StatusCode.UNKNOWN, "")),
        (((b"grpc-status", b"x"),), (StatusCode.UNKNOWN, "")),
        (((b"grpc-status", b""),), (StatusCode.UNKNOWN, "")),
        (((b"grpc-status", b"9" * 5000),), (StatusCode.UNKNOWN, "")),
    ],
)
def test_read_status_understands_whatever_a_server_says(headers, status):
    assert grpc.read_status(headers) == status


@pytest.mark.parametrize(
    ("content_type", "is_grpc"),
    [
        (b"application/grpc", True),
        (b"application/grpc+proto", True),
        (b"application/grpc;x=y", True),
        (b"application/grpc-web", False),
        (b"application/json", False),
        (b"", False),
        (None, False),
    ],
)
def test_content_types_of_grpc(content_type, is_grpc):
    assert grpc.is_grpc_content(content_type) is is_grpc
