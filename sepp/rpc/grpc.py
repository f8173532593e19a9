"""gRPC over HTTP/2 as bytes and values: message framing, statuses, deadlines, metadata, headers.

A message on the wire: one flag byte (0 plain, 1 compressed), its length in four bytes, big-endian,
then the bytes. Nothing here opens a socket or reads a clock.
"""

import zlib
from collections.abc import Iterable
from typing import Final
from urllib.parse import unquote_to_bytes

from purerpc import RpcFailedError, Status, StatusCode

Header = tuple[bytes, bytes]
Headers = tuple[Header, ...]

PREFIX_BYTES: Final = 5
MESSAGE_BYTES_MAX: Final = 16_777_216  # default of limits.max_message_bytes
RECEIVE_BYTES_MAX: Final = 4_194_304  # what official clients accept
# A deadline farther away than this is none: 10 years, and sums with a clock stay exact.
TIMEOUT_S_MAX: Final = 315_360_000.0

RESPONSE_HEADERS: Final[Headers] = (
    (b":status", b"200"),
    (b"content-type", b"application/grpc"),
)
REFUSAL_HEADERS: Final[Headers] = (*RESPONSE_HEADERS, (b"grpc-accept-encoding", b"identity,gzip"))
OK_TRAILERS: Final[Headers] = ((b"grpc-status", b"0"),)

_STATUS_BYTES: Final = {code: str(code.value).encode() for code in StatusCode}
# RFC 9113 8.1.1 and gRPC's own table: what a client makes of an answer that is not gRPC.
_HTTP_CODES: Final = {
    b"400": StatusCode.INTERNAL,
    b"401": StatusCode.UNAUTHENTICATED,
    b"403": StatusCode.PERMISSION_DENIED,
    b"404": StatusCode.UNIMPLEMENTED,
    b"429": StatusCode.UNAVAILABLE,
    b"502": StatusCode.UNAVAILABLE,
    b"503": StatusCode.UNAVAILABLE,
    b"504": StatusCode.UNAVAILABLE,
}
_TIMEOUT_UNITS_S: Final = {
    b"H": 3600.0,
    b"M": 60.0,
    b"S": 1.0,
    b"m": 1e-3,
    b"u": 1e-6,
    b"n": 1e-9,
}
_STATUS_TEXT_BYTES_MAX: Final = 2048  # three times that, coded, fits every client's header limit


class RpcError(RpcFailedError):  # type: ignore[misc]  # purerpc has no types
    """A call failed: the peer said so, or the call could not be made.

    Attributes:
        code: The status code.
        text: The status message.
        is_unprocessed: True when the server certainly never saw the call, so that sending it again
            cannot do anything twice.
        is_answer: True when the server sent this status; False when it was found out on this side,
            such as a connection that broke with the call under way.
    """

    def __init__(
        self,
        code: StatusCode,
        text: str,
        *,
        is_unprocessed: bool = False,
        is_answer: bool = False,
    ) -> None:
        super().__init__(Status(code, text))
        self.code = code
        self.text = text
        self.is_unprocessed = is_unprocessed
        self.is_answer = is_answer

    def __str__(self) -> str:
        return f"{self.code.name}: {self.text}"


# Why a request cannot be served: what its call is answered with.
Fault = tuple[StatusCode, str]


def frame(message: bytes) -> bytes:
    """Return `message` with its length prefix, uncompressed."""
    return b"\x00" + len(message).to_bytes(4, "big") + message


def status_headers(code: StatusCode, text: str) -> Headers:
    """Return grpc-status and, when there is a text, grpc-message."""
    if not text:
        return ((b"grpc-status", _STATUS_BYTES[code]),)
    return ((b"grpc-status", _STATUS_BYTES[code]), (b"grpc-message", encode_text(text)))


def encode_text(text: str) -> bytes:
    """Percent-encode a status message: visible ASCII and space stay, but for the percent sign."""
    raw = text.encode("utf-8", "replace")
    if len(raw) > _STATUS_TEXT_BYTES_MAX:
        raw = raw[:_STATUS_TEXT_BYTES_MAX].decode("utf-8", "ignore").encode() + "…".encode()
    if raw.isascii() and raw.decode().isprintable() and b"%" not in raw:
        return raw.strip()
    coded = b"".join(
        b"%c" % byte if 0x20 < byte <= 0x7E and byte != 0x25 else b"%%%02X" % byte for byte in raw
    )
    return coded.replace(b"%20", b" ").strip()


def decode_text(coded: bytes) -> str:
    """Undo `encode_text`; whatever is not valid stays readable."""
    return unquote_to_bytes(coded).decode("utf-8", "replace")


def read_status(headers: Iterable[Header]) -> Fault | None:
    """Return the status that response headers or trailers carry, None when they carry none."""
    code: StatusCode | None = None
    text = ""
    for name, value in headers:
        if name == b"grpc-status":
            number = int(value) if value.isdigit() and len(value) < 4 else -1
            code = StatusCode(number) if 0 <= number <= 16 else StatusCode.UNKNOWN
        elif name == b"grpc-message":
            text = decode_text(value)
    return None if code is None else (code, text)


def http_fault(http_status: bytes) -> Fault:
    """Return what an answer without grpc-status means."""
    code = _HTTP_CODES.get(http_status, StatusCode.UNKNOWN)
    return code, f"answer without grpc-status, HTTP status {http_status.decode('ascii', 'replace')}"


def parse_timeout(value: bytes) -> float | None:
    """Return the seconds a grpc-timeout header allows, None when it is malformed."""
    digits = value[:-1]
    unit_s = _TIMEOUT_UNITS_S.get(value[-1:])
    if unit_s is None or not digits.isdigit() or len(digits) > 8:
        return None
    return min(int(digits) * unit_s, TIMEOUT_S_MAX)


def encode_timeout(timeout_s: float) -> bytes:
    """Return the grpc-timeout of a span, at most 1/1000 too short and never above eight digits."""
    if timeout_s < 1.0:
        return b"%du" % max(0, int(timeout_s * 1e6))
    if timeout_s < 99_999.0:
        return b"%dm" % int(timeout_s * 1e3)
    return b"%dS" % min(99_999_999, int(timeout_s))


def is_grpc_content(content_type: bytes | None) -> bool:
    """Whether a content-type is application/grpc, bare or with a format or parameters."""
    return content_type is not None and (
        content_type == b"application/grpc"
        or content_type.startswith((b"application/grpc+", b"application/grpc;"))
    )


def too_large(found: int, message_bytes_max: int) -> Fault:
    """Return the fault of a message above the limit; the text gives both."""
    return (
        StatusCode.OUT_OF_RANGE,
        f"message of {found} bytes is larger than the limit of {message_bytes_max} bytes",
    )


class MessageAssembler:
    """Puts the one message of a body together from its DATA frames.

    Args:
        message_bytes_max: A larger message is a fault as soon as its length is known, before its
            body is kept; so is a compressed one that would grow beyond.
        encoding: The grpc-encoding header, None when there was none.
    """

    __slots__ = ("_body", "_encoding", "_is_compressed", "_max", "total")

    def __init__(self, message_bytes_max: int, encoding: bytes | None) -> None:
        self._max = message_bytes_max
        self._encoding = encoding
        # One buffer, not a list of parts: a peer may send its body byte by byte.
        self._body = bytearray()
        self._is_compressed = False
        self.total = 0  # bytes of prefix and message once the prefix is known

    @property
    def received(self) -> int:
        """Bytes kept so far, the prefix included."""
        return len(self._body)

    def feed(self, data: bytes) -> Fault | None:
        """Take the bytes of one DATA frame; a fault is final."""
        self._body += data
        if not self.total:
            if len(self._body) < PREFIX_BYTES:
                return None
            fault = self._read_prefix()
            if fault is not None:
                return fault
        if len(self._body) > self.total:
            return StatusCode.INTERNAL, "body goes on after its message"
        return None

    def _read_prefix(self) -> Fault | None:
        flag = self._body[0]
        size = int.from_bytes(self._body[1:PREFIX_BYTES], "big")
        if flag > 1:
            return StatusCode.INTERNAL, f"message flag {flag} is neither 0 nor 1"
        if size > self._max:
            return too_large(size, self._max)
        if flag:
            self._is_compressed = True
            if self._encoding is None or self._encoding == b"identity":
                return (
                    StatusCode.INTERNAL,
                    "message is compressed, but grpc-encoding names no coding",
                )
            if self._encoding != b"gzip":
                coding = self._encoding.decode("ascii", "replace")
                return StatusCode.UNIMPLEMENTED, f"grpc-encoding {coding} is not supported"
        self.total = size + PREFIX_BYTES
        return None

    def finish(self) -> bytes | Fault:
        """Return the message once the body has ended."""
        if not self._body:
            return StatusCode.INTERNAL, "body ended without a message"
        if len(self._body) != self.total:
            return StatusCode.INTERNAL, "body ended inside a message"
        message = bytes(memoryview(self._body)[PREFIX_BYTES:])
        self._body = bytearray()
        return self._inflate(message) if self._is_compressed else message

    def _inflate(self, packed: bytes) -> bytes | Fault:
        inflater = zlib.decompressobj(wbits=31)
        try:
            message = inflater.decompress(packed, self._max + 1)
        except zlib.error as error:
            return StatusCode.INTERNAL, f"gzip message cannot be read: {error}"
        if len(message) > self._max:
            return (
                StatusCode.OUT_OF_RANGE,
                f"message grows beyond {self._max} bytes when decompressed, the limit",
            )
        if not inflater.eof or inflater.unused_data:
            return StatusCode.INTERNAL, "gzip message is cut off or goes on after its end"
        return message
