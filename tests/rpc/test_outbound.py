"""Which answers have begun to leave when a write is cut short, byte by byte."""

import contextlib
import socket
import ssl

import pytest
import trustme

from sepp.rpc import http2
from sepp.rpc.call import Call
from sepp.rpc.limits import TransportLimits
from sepp.rpc.outbound import Outbound
from sepp.rpc.poller import Poller
from sepp.rpc.transport import PeerGone, TlsTransport, Transport
from sepp.rpc.watch import Allowance

HEADERS = (
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", b"/x"),
    (b":authority", b"y"),
)
SIZES = (10, 20_000, 0, 300)


class Tap:
    """Takes a set number of bytes, then no more: mixed into both kinds of transport."""

    room = 1 << 30
    taken = b""

    def _send_some(self, data: bytes | memoryview) -> int:
        count = min(len(data), self.room)
        self.room -= count
        self.taken += bytes(data[:count])
        self.sent += count
        return count


class PlainTap(Tap, Transport):
    pass


class TlsTap(Tap, TlsTransport):
    pass


@pytest.fixture(scope="module")
def contexts():
    authority = trustme.CA()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("test").configure_cert(server)
    client = ssl.create_default_context()
    authority.configure_trust(client)
    for context in (server, client):
        context.set_alpn_protocols(["h2"])
    return server, client


@pytest.fixture
def sock():
    one, other = socket.socketpair()
    one.setblocking(False)
    with one, other:
        yield one, other


class Bench:
    """An Outbound with four calls of a peer, and the peer's end of the session."""

    def __init__(self, transport: Tap) -> None:
        self.transport = transport
        self.session = http2.server_session(TransportLimits())
        self.client = http2.client_session()
        self.undelivered: list[int] = []
        self.calls: dict[int, Call] = {}
        poller = Poller()
        self.outbound = Outbound(
            self.session, transport, self.calls, poller, Allowance(1, 0.0), stall_s=1.0
        )
        self.stream_ids = [self.client.send_request(HEADERS, end_stream=True) for _ in SIZES]
        self.session.receive_data(self.client.data_to_send())
        self.session.events()
        self.outbound.flush()  # SETTINGS, so that the next write is answers alone
        for stream_id, size in zip(self.stream_ids, SIZES, strict=True):
            self._answer(stream_id, size)

    def _answer(self, stream_id: int, size: int) -> None:
        call = Call(self, stream_id, "/x", {})  # type: ignore[arg-type]  # it only needs `answer`
        self.calls[stream_id] = call
        call.respond(b"a" * size, lambda: self.undelivered.append(stream_id))

    def answer(self, call: Call, size: int) -> None:
        self.outbound.answers.append(call)
        self.outbound.queued_bytes += size


def streams_begun(data: bytes) -> set[int]:
    """The streams whose first frame at least begins in `data`."""
    begun, at = set(), 0
    while at < len(data):
        head = data[at : at + 9]
        if len(head) == 9:
            begun.add(int.from_bytes(head[5:9], "big"))
            at += 9 + int.from_bytes(head[:3], "big")
        else:
            return begun | {-1}  # of some next stream, its number is not told yet
    return begun


def whole_write() -> bytes:
    one, other = socket.socketpair()
    with one, other:
        transport = PlainTap(one)
        bench = Bench(transport)
        transport.taken = b""
        bench.outbound.flush()
        assert bench.undelivered == []
        return transport.taken


WHOLE = whole_write()
CUTS = sorted(
    {0, 1, 8, 9, 10, 100, 16_000, 16_500, len(WHOLE) - 400, len(WHOLE) - 1}
    | {
        at + more
        for at in (WHOLE.index(b"a" * 10) + 10, len(WHOLE) - 350)
        for more in range(-12, 12)
    }
)


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("cut", CUTS)
def test_only_answers_with_no_byte_in_the_socket_are_undelivered(sock, cut, how):
    transport = PlainTap(sock[0])
    bench = Bench(transport)
    transport.room, transport.taken = cut, b""
    bench.outbound.flush()
    assert transport.unsent == len(WHOLE) - cut
    first = http2.first_offsets(WHOLE, set(bench.stream_ids))

    if how == "close":
        bench.outbound.close()
    else:
        for stream_id in bench.stream_ids:
            bench.outbound.stream_gone(stream_id)

    assert bench.undelivered == [n for n in bench.stream_ids if first[n] >= cut]


def test_a_write_finished_later_leaves_no_doubt(sock):
    transport = PlainTap(sock[0])
    bench = Bench(transport)
    transport.room = 5
    bench.outbound.flush()
    transport.room = 100
    bench.outbound.send_rest()
    transport.room = 1 << 30
    bench.outbound.send_rest()

    bench.outbound.close()
    assert (bench.undelivered, transport.unsent) == ([], 0)
    assert transport.taken.endswith(WHOLE)


def test_answers_wait_outside_of_a_write_that_is_cut_short(sock):
    transport = PlainTap(sock[0])
    bench = Bench(transport)
    transport.room = 0
    bench.outbound.flush()
    bench._answer(bench.client.send_request(HEADERS, end_stream=True), 50)
    bench.outbound.flush()
    assert bench.outbound.queued_bytes == 50

    bench.outbound.close()

    assert bench.undelivered == bench.stream_ids


def test_a_write_that_fails_as_a_whole_delivers_nothing(sock):
    bench = Bench(transport := PlainTap(sock[0]))

    def fail(data: bytes) -> int:
        raise PeerGone("broken")

    transport._send_some = fail
    with pytest.raises(PeerGone):
        bench.outbound.flush()
    bench.outbound.close()

    assert bench.undelivered == bench.stream_ids


def tls_bench(sock, contexts) -> Bench:
    transport = TlsTap(sock[0], contexts[0], is_server=True)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = contexts[1].wrap_bio(incoming, outgoing, server_hostname="test")
    while not transport.is_ready:
        with contextlib.suppress(ssl.SSLWantReadError):
            client.do_handshake()
        sock[1].sendall(outgoing.read())
        transport.receive()
        incoming.write(transport.taken)
        transport.taken = b""
    return Bench(transport)


def test_under_tls_an_answer_has_begun_once_its_record_has(sock, contexts):
    transport = (bench := tls_bench(sock, contexts)).transport
    transport.taken = b""
    bench.outbound.flush()
    records, at = [], 0  # where each record begins
    while at < len(transport.taken):
        records.append(at)
        at += 5 + int.from_bytes(transport.taken[at + 3 : at + 5], "big")
    assert len(records) == len(WHOLE) // 16_384 + 1 == 2
    first = http2.first_offsets(WHOLE, set(bench.stream_ids))

    for cut in (0, 1, records[1] - 1, records[1], records[1] + 1, at - 1):
        one, other = socket.socketpair()
        one.setblocking(False)
        with one, other:
            bench = tls_bench((one, other), contexts)
            bench.transport.room = cut
            bench.outbound.flush()
            bench.outbound.close()

        plain_begun = 0 if cut == 0 else 16_384 if cut <= records[1] else len(WHOLE)
        assert bench.undelivered == [n for n in bench.stream_ids if first[n] >= plain_begun]
