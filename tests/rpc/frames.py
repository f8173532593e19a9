"""HTTP/2 by hand: frames as bytes, plain header blocks, and a peer that can misbehave.

Written apart from the library under test, so that it can send what no client would.
"""

from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

import hpack
import trio

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS = 0, 1, 2, 3, 4
PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 6, 7, 8, 9
END_STREAM, ACK, END_HEADERS, PADDED = 1, 1, 4, 8
INITIAL_WINDOW_SIZE = 4

NO_ERROR, PROTOCOL_ERROR, CANCEL, ENHANCE_YOUR_CALM = 0, 1, 8, 11


class Frame(NamedTuple):
    kind: int
    flags: int
    stream_id: int
    payload: bytes


def frame(kind: int, flags: int = 0, stream_id: int = 0, payload: bytes = b"") -> bytes:
    """One frame."""
    return (
        len(payload).to_bytes(3, "big")
        + bytes((kind, flags))
        + stream_id.to_bytes(4, "big")
        + payload
    )


def settings(**values: int) -> bytes:
    """A SETTINGS frame; names as `id_4=1`."""
    pairs = ((int(name[3:]), value) for name, value in values.items())
    payload = b"".join(key.to_bytes(2, "big") + value.to_bytes(4, "big") for key, value in pairs)
    return frame(SETTINGS, payload=payload)


def _length(size: int) -> bytes:
    if size < 127:
        return bytes((size,))
    out, rest = bytearray((127,)), size - 127
    while rest >= 128:
        out.append(rest % 128 + 128)
        rest //= 128
    out.append(rest)
    return bytes(out)


def header_block(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Headers as literals that are never indexed."""
    return b"".join(
        b"\x10" + _length(len(name)) + name + _length(len(value)) + value for name, value in headers
    )


def request_headers(path: str, *more: tuple[bytes, bytes]) -> list[tuple[bytes, bytes]]:
    """What a gRPC client sends."""
    return [
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", path.encode()),
        (b":authority", b"test"),
        (b"te", b"trailers"),
        (b"content-type", b"application/grpc"),
        *more,
    ]


def message(body: bytes, flag: int = 0, size: int | None = None) -> bytes:
    """A gRPC message, if need be with a flag and a length that are not true."""
    length = len(body) if size is None else size
    return bytes((flag,)) + length.to_bytes(4, "big") + body


def headers_frame(stream_id: int, headers: Iterable[tuple[bytes, bytes]], flags: int = 0) -> bytes:
    """A whole header block in one frame."""
    return frame(HEADERS, END_HEADERS | flags, stream_id, header_block(headers))


def data_frames(stream_id: int, body: bytes, *, is_end: bool = True) -> bytes:
    """A body in frames of 16 KiB."""
    parts = [body[at : at + 16_384] for at in range(0, len(body), 16_384)] or [b""]
    return b"".join(
        frame(DATA, END_STREAM if is_end and number == len(parts) else 0, stream_id, part)
        for number, part in enumerate(parts, 1)
    )


def request(stream_id: int, path: str, body: bytes, *more: tuple[bytes, bytes]) -> bytes:
    """A whole call; `body` with its message prefix."""
    return headers_frame(stream_id, request_headers(path, *more)) + data_frames(stream_id, body)


def reset(stream_id: int, code: int = CANCEL) -> bytes:
    """RST_STREAM."""
    return frame(RST_STREAM, 0, stream_id, code.to_bytes(4, "big"))


def window_update(stream_id: int, increment: int) -> bytes:
    """WINDOW_UPDATE; stream 0 is the connection."""
    return frame(WINDOW_UPDATE, 0, stream_id, increment.to_bytes(4, "big"))


class Answer:
    """What came on one stream."""

    def __init__(self) -> None:
        self.headers: dict[bytes, bytes] = {}
        self._parts: list[bytes] = []
        self.is_ended = False
        self.reset_code: int | None = None

    @property
    def body(self) -> bytes:
        return b"".join(self._parts)

    def extend(self, part: bytes) -> None:
        self._parts.append(part)

    @property
    def status(self) -> int | None:
        status = self.headers.get(b"grpc-status")
        return None if status is None else int(status)

    @property
    def text(self) -> str:
        return self.headers.get(b"grpc-message", b"").decode()


class RawPeer:
    """A client that sends bytes and sorts the frames it gets."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self.answers: dict[int, Answer] = {}
        self.frames: list[Frame] = []
        self.goaway: tuple[int, int] | None = None  # (last stream, error code)
        self.is_ended = False
        self.sent_bytes = 0
        self.received_bytes = 0
        self._buffer = b""
        self._decoder = hpack.Decoder()

    @classmethod
    async def connect(cls, port: int) -> "RawPeer":
        return cls(await trio.open_tcp_stream("127.0.0.1", port))

    @classmethod
    async def greeted(cls, port: int, first: bytes | None = None) -> "RawPeer":
        """Connect and greet, with SETTINGS of one's own if wished."""
        peer = await cls.connect(port)
        await peer.send(PREFACE + (settings() if first is None else first))
        return peer

    async def send(self, data: bytes) -> None:
        await self.stream.send_all(data)
        self.sent_bytes += len(data)

    async def close(self) -> None:
        await self.stream.aclose()

    def answer(self, stream_id: int) -> Answer:
        return self.answers.setdefault(stream_id, Answer())

    async def read(self) -> bool:
        """Take what the server sent next; False at the end."""
        try:
            data = await self.stream.receive_some(65_536)
        except trio.BrokenResourceError:
            data = b""
        if not data:
            self.is_ended = True
            return False
        self.received_bytes += len(data)
        buffer, at = self._buffer + data, 0
        while len(buffer) >= at + 9:
            size = int.from_bytes(buffer[at : at + 3], "big")
            if len(buffer) < at + 9 + size:
                break
            stream_id = int.from_bytes(buffer[at + 5 : at + 9], "big")
            payload = buffer[at + 9 : at + 9 + size]
            self._take(Frame(buffer[at + 3], buffer[at + 4], stream_id, payload))
            at += 9 + size
        self._buffer = buffer[at:]
        return True

    def _take(self, got: Frame) -> None:
        self.frames.append(got)
        answer = self.answer(got.stream_id)
        if got.kind == HEADERS:
            answer.headers.update(self._decoder.decode(got.payload, raw=True))
        elif got.kind == DATA:
            answer.extend(got.payload)
        elif got.kind == RST_STREAM:
            answer.reset_code = int.from_bytes(got.payload, "big")
            answer.is_ended = True
        elif got.kind == GOAWAY:
            self.goaway = (
                int.from_bytes(got.payload[:4], "big"),
                int.from_bytes(got.payload[4:8], "big"),
            )
        if got.kind in (HEADERS, DATA) and got.flags & END_STREAM:
            answer.is_ended = True

    async def until_answered(self, *stream_ids: int) -> Answer:
        """Read until these streams have ended; return the last one's answer."""
        with trio.fail_after(20):
            while not all(self.answer(number).is_ended for number in stream_ids):
                assert await self.read(), "the server closed the connection"
        return self.answer(stream_ids[-1])

    async def until_end(self) -> None:
        """Read until the server closes."""
        with trio.fail_after(20):
            while await self.read():
                pass

    async def until_end_or_broken(self) -> None:
        """Take and forget whatever comes, also what no decoder reads."""
        with suppress(trio.BrokenResourceError):
            while await self.stream.receive_some(65_536):
                pass

    async def until_frame(self, kind: int, count: int = 1, flags: int | None = None) -> Frame:
        """Read until so many frames of one kind, and flags, have come; return the last of them."""
        with trio.fail_after(20):
            while len(found := self.of_kind(kind, flags)) < count:
                assert await self.read(), "the server closed the connection"
        return found[-1]

    def of_kind(self, kind: int, flags: int | None = None) -> list[Frame]:
        return [f for f in self.frames if f.kind == kind and flags in (None, f.flags)]

    async def call(self, stream_id: int, path: str, body: bytes = b"") -> Answer:
        """A whole call with one message, and its answer."""
        await self.send(request(stream_id, path, message(body)))
        return await self.until_answered(stream_id)

    async def break_off(self) -> None:
        """Close with a TCP reset."""
        with suppress(OSError):
            self.stream.socket.setsockopt(  # type: ignore[attr-defined]  # it is a SocketStream
                trio.socket.SOL_SOCKET, trio.socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0"
            )
        await self.stream.aclose()
