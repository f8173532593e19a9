"""TLS on the same loop: same calls, ALPN h2 or nothing, and broken handshakes hurt nobody."""

import random
import ssl
import warnings

import pytest
import trio
import trustme

from sepp.rpc.channel import RpcError, open_channel
from sepp.rpc.transport import tls_client_context, tls_server_context
from tests.rpc import frames
from tests.rpc.frames import PREFACE, RawPeer, message, request, settings
from tests.rpc.support import ECHO, PARK, SIZED, calling, serving


class Certificates:
    def __init__(self, folder) -> None:
        authority = trustme.CA()
        issued = authority.issue_cert("localhost", "127.0.0.1")
        self.cert = folder / "cert.pem"
        self.key = folder / "key.pem"
        self.ca = folder / "ca.pem"
        self.cert.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        self.key.write_bytes(issued.private_key_pem.bytes())
        authority.cert_pem.write_to_path(str(self.ca))

    def server(self) -> ssl.SSLContext:
        return tls_server_context(self.cert, self.key)

    def client(self) -> ssl.SSLContext:
        return tls_client_context(self.ca)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return Certificates(tmp_path_factory.mktemp("tls"))


@pytest.fixture
async def harness(certificates):
    async with serving(ssl_context=certificates.server()) as harness:
        yield harness


async def tls_peer(harness, context: ssl.SSLContext) -> RawPeer:
    stream = await trio.open_tcp_stream("127.0.0.1", harness.port)
    secure = trio.SSLStream(stream, context, server_hostname="localhost")
    try:
        await secure.do_handshake()
    except trio.BrokenResourceError:
        await trio.aclose_forcefully(secure)
        raise
    return RawPeer(secure)


async def test_calls_of_any_size_and_number(harness, certificates):
    async with calling(
        harness, ssl_context=certificates.client(), receive_bytes_max=2**24
    ) as channel:
        for size in (0, 100, 16_384, 5_000_000):
            assert await channel.unary(ECHO, b"x" * size) == b"x" * size

        async def call(number: int) -> None:
            assert await channel.unary(ECHO, b"%d" % number) == b"%d" % number

        async with trio.open_nursery() as nursery:
            for number in range(200):
                nursery.start_soon(call, number)


async def test_a_peer_of_another_make_is_served_piece_by_piece(harness, certificates):
    context = certificates.client()
    peer = await tls_peer(harness, context)
    for byte in PREFACE + settings() + request(1, ECHO, message(b"hello")):
        await peer.send(bytes((byte,)))

    assert (await peer.until_answered(1)).body == message(b"hello")
    await peer.close()
    await harness.until(lambda: harness.server.statistics().connections == 0)
    assert dict(harness.server.statistics().closed) == {"peer": 1}


async def test_an_old_tls_version_is_refused(harness, certificates):
    context = certificates.client()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    with pytest.raises(trio.BrokenResourceError):
        await tls_peer(harness, context)

    await harness.until(lambda: dict(harness.server.statistics().closed) == {"peer": 1})


async def test_tls_1_2_is_served(harness, certificates):
    context = certificates.client()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    async with calling(harness, ssl_context=context) as channel:
        assert await channel.unary(ECHO, b"x") == b"x"


@pytest.mark.parametrize("protocols", [[], ["http/1.1"], ["grpc-exp"]])
async def test_a_peer_without_alpn_h2_is_closed(harness, certificates, protocols):
    context = ssl.create_default_context(cafile=certificates.ca)
    if protocols:
        context.set_alpn_protocols(protocols)
    peer = await tls_peer(harness, context)
    await peer.until_end()

    assert dict(harness.server.statistics().closed) == {"peer": 1}
    assert harness.server.statistics().calls == 0
    await trio.aclose_forcefully(peer.stream)


async def test_a_client_that_does_not_trust_the_server_is_told_unavailable(harness):
    with pytest.raises(RpcError) as caught:
        async with calling(harness, ssl_context=tls_client_context()):
            pass

    assert caught.value.code.name == "UNAVAILABLE"
    assert caught.value.is_unprocessed
    assert "CERTIFICATE_VERIFY_FAILED" in caught.value.text
    await harness.until(lambda: harness.server.statistics().connections == 0)


async def test_a_plain_peer_on_the_tls_port_is_closed(harness):
    peer = await RawPeer.greeted(harness.port)
    await peer.until_end()

    assert dict(harness.server.statistics().closed) == {"peer": 1}
    await peer.close()


async def test_a_tls_peer_on_the_plain_port_is_closed(certificates):
    async with serving() as harness:
        with pytest.raises(RpcError):
            async with calling(harness, ssl_context=certificates.client()):
                pass
        await harness.until(lambda: harness.server.statistics().connections == 0)


async def test_broken_handshakes_leave_the_server_serving(harness, certificates, caplog):
    seed = random.randrange(2**32)
    print("seed", seed)
    rng = random.Random(seed)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    hello = certificates.client().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        hello.do_handshake()
    first = outgoing.read()
    for number in range(300):
        peer = await RawPeer.connect(harness.port)
        data = bytearray(first[: rng.randrange(len(first) + 1)] if number % 2 else first)
        if number % 3 == 0 and data:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        await peer.send(bytes(data) + (rng.randbytes(50) if number % 5 == 0 else b""))
        await (peer.break_off() if rng.random() < 0.5 else peer.close())
    await harness.until(lambda: harness.server.statistics().connections == 0)

    async with calling(harness, ssl_context=certificates.client()) as channel:
        assert await channel.unary(ECHO, b"x") == b"x"
    assert "bug" not in caplog.text


async def test_a_handshake_must_end_in_time(harness, mock_clock):
    peer = await RawPeer.connect(harness.port)
    await peer.send(b"\x16\x03\x01")
    await harness.until(lambda: harness.server.statistics().bytes_in == 3)
    mock_clock.jump(5.1)
    await peer.until_end()

    assert dict(harness.server.statistics().closed) == {"preface_timeout": 1}
    await peer.close()


async def test_a_hang_up_under_tls_tells_the_waiting_calls(harness, certificates):
    peer = await tls_peer(harness, certificates.client())
    await peer.send(PREFACE + settings() + request(1, PARK, message(b"")))
    await harness.methods.wait_until(lambda: len(harness.methods.parked) == 1)
    await peer.close()
    await harness.methods.wait_until(lambda: len(harness.methods.gone) == 1)


async def test_large_answers_under_tls_pass_a_peer_that_reads_late(harness, certificates):
    peer = await tls_peer(harness, certificates.client())
    await peer.send(PREFACE + settings(id_4=2**30) + frames.window_update(0, 2**30))
    for stream_id in (1, 3, 5, 7, 9):
        await peer.send(request(stream_id, SIZED, message(b"3000000")))
    await harness.until(lambda: harness.server.statistics().calls == 5)

    await peer.until_answered(1, 3, 5, 7, 9)

    assert all(peer.answer(n).body == message(bytes(3_000_000)) for n in (1, 3, 5, 7, 9))
    assert harness.methods.undelivered == 0
    await peer.close()


def test_a_server_context_needs_a_key_that_fits_its_certificate(certificates, tmp_path):
    other = Certificates(tmp_path)
    with pytest.raises(ssl.SSLError):
        tls_server_context(certificates.cert, other.key)
    with pytest.raises(OSError, match="No such file"):
        tls_server_context(tmp_path / "none.pem", certificates.key)


async def test_a_new_certificate_serves_new_peers_and_leaves_the_old_ones(certificates, tmp_path):
    renewed = Certificates(tmp_path)
    async with (
        serving(ssl_context=certificates.server()) as harness,
        calling(harness, ssl_context=certificates.client()) as old,
    ):
        harness.server.use_context(renewed.server())

        async with calling(harness, ssl_context=renewed.client()) as new:
            assert await new.unary(ECHO, b"new") == b"new"
        distrustful = open_channel("127.0.0.1", harness.port, ssl_context=certificates.client())
        with pytest.raises(RpcError):
            await distrustful.__aenter__()
        assert await old.unary(ECHO, b"old") == b"old"
