"""Binding, and running out of what connections need."""

import contextlib
import os
import resource
import socket

import pytest
import trio

from sepp.rpc.channel import RpcError, open_channel
from sepp.rpc.limits import TransportLimits
from sepp.rpc.server import Server
from tests.rpc.frames import RawPeer
from tests.rpc.support import ECHO, serving


async def test_port_0_reports_the_real_one_and_binds_the_literal_address_alone():
    async with serving() as harness:
        assert harness.port != 0
        with pytest.raises(OSError, match="all attempts to connect"):
            await trio.open_tcp_stream("127.0.0.2", harness.port)


async def test_a_second_server_on_the_same_port_fails_to_start():
    async with serving() as harness:
        with pytest.raises(OSError, match="Address already in use"):
            await Server(port=harness.port).serve_async()


async def test_a_host_name_is_not_bound():
    with pytest.raises(ValueError, match="localhost"):
        await Server("localhost").serve_async()


async def test_ipv6_is_served():
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("no IPv6 on this machine")
    async with serving(host="::1") as harness:
        stream = await trio.open_tcp_stream("::1", harness.port)
        peer = RawPeer(stream)
        await peer.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0")
        assert (await peer.call(1, ECHO)).status == 0
        await peer.close()


async def test_connections_beyond_the_limit_are_closed_at_once():
    async with serving(limits=TransportLimits(max_connections=3)) as harness:
        peers = [await RawPeer.greeted(harness.port) for _ in range(3)]
        for peer in peers:
            assert (await peer.call(1, ECHO)).status == 0
        extra = await RawPeer.connect(harness.port)
        await extra.until_end()

        statistics = harness.server.statistics()
        assert (statistics.connections, statistics.accepted, statistics.refused) == (3, 4, 1)
        await peers[0].close()
        await harness.until(lambda: harness.server.statistics().connections == 2)
        again = await RawPeer.greeted(harness.port)
        assert (await again.call(1, ECHO)).status == 0
        for peer in (extra, again, *peers[1:]):
            await peer.close()


@contextlib.contextmanager
def descriptors_at_most(count: int):
    """Lower the soft limit so that about `count` more descriptors can be opened than are now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    os.close(lowest := os.dup(0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_descriptors_are_kept_back_for_the_rest_of_the_process():
    with descriptors_at_most(60):
        async with serving(limits=TransportLimits(reserved_descriptors=20)) as harness:
            peers = []
            with contextlib.suppress(OSError):
                for _ in range(60):
                    peers.append(await RawPeer.greeted(harness.port))
                    await trio.lowlevel.checkpoint()
            await harness.until(lambda: harness.server.statistics().refused > 0)
            served = harness.server.statistics().connections
            assert 0 < served < 60
            for peer in peers:
                await peer.close()


async def test_running_out_of_descriptors_pauses_accepting_and_does_not_spin(mock_clock, caplog):
    async with serving(limits=TransportLimits(reserved_descriptors=0)) as harness:
        peer = await RawPeer.greeted(harness.port)
        await peer.call(1, ECHO)
        taken = []
        with descriptors_at_most(12):
            waiting = [socket.create_connection(("127.0.0.1", harness.port)) for _ in range(3)]
            with contextlib.suppress(OSError):
                while True:
                    taken.append(os.dup(0))
            for number in range(200):
                await peer.call(2 * number + 3, ECHO)

            # One was turned away by means of the reserve; on those that wait no turn is spent.
            assert caplog.text.count("accepting is paused") == 1
            assert harness.server.statistics().refused == 1
            assert harness.server.statistics().accepted == 1
            for descriptor in taken:
                os.close(descriptor)
        mock_clock.jump(0.6)
        await harness.until(lambda: harness.server.statistics().accepted == 3)

        again = await RawPeer.greeted(harness.port)
        assert (await again.call(1, ECHO)).status == 0
        for sock in waiting:
            sock.close()
        await again.close()
        await peer.close()


async def test_a_channel_to_nobody_is_unavailable_and_unprocessed():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        with pytest.raises(RpcError) as caught:
            await open_channel("127.0.0.1", port).__aenter__()

    error = caught.value
    assert (error.code.name, error.is_unprocessed) == ("UNAVAILABLE", True)
    assert error.text == f"cannot connect to 127.0.0.1:{port}: Connection refused"
