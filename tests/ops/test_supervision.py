"""What a supervisor, a scraper and whoever renews secrets see of a real server."""

import re
import signal
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
import trustme
from purerpc import StatusCode

from sepp.rpc.channel import open_channel
from sepp.rpc.grpc import RpcError
from sepp.rpc.transport import tls_client_context
from tests.e2e.rpc_client import Client, connected
from tests.e2e.server_process import ServerProcess
from tests.ops.figures import get, metrics_port, resident_bytes, scrape, settings

StartServer = Callable[..., ServerProcess]
KEYS = [{"name": "old", "key": "old-secret"}]
RENEWED = [{"name": "new", "key": "new-secret"}]


def heard(sock: socket.socket) -> list[str]:
    states = []
    while True:
        try:
            states.append(sock.recv(4096).decode())
        except BlockingIOError:
            return states


def test_the_supervisor_hears_of_start_life_and_end(
    start_server: StartServer, tmp_path: Path
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
        supervisor.bind(str(tmp_path / "notify"))
        supervisor.setblocking(False)
        environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "60000000"}

        server = start_server(environment=environment)
        server.wait_until_says("watching config file")
        first = heard(supervisor)
        server.stop()

        assert (first.count("READY=1"), first.count("WATCHDOG=1")) == (1, 1)
        assert heard(supervisor)[-1] == "STOPPING=1"


async def test_metrics_are_on_a_port_of_their_own(start_server: StartServer) -> None:
    server = start_server(settings())
    async with connected(server.port) as client:
        await client.enqueue("mail")

        figures = await scrape(server)

        assert figures["sepp_jobs_enqueued_total{mail}"] == 1
        assert figures["sepp_requests_total{enqueue_batch,ok}"] == 1
        assert figures["sepp_connections"] == figures["sepp_connections_accepted_total"] == 1
        assert figures["sepp_serving"] == 1
        assert figures["sepp_store_failed"] == figures["sepp_memory_short"] == 0
    assert await get(metrics_port(server), "/other") == (404, "try /metrics\n")


def test_a_metrics_port_in_use_exits_1_and_names_the_key(
    start_server: StartServer, tmp_path: Path
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        metrics = {"prometheus_enabled": True, "prometheus_listen_addr": address}
        server = ServerProcess(tmp_path / "refused", {"metrics": metrics})
        server.start_nowait()

        assert server.wait() == 1
    assert "metrics.prometheus_listen_addr" in server.output
    assert "Traceback" not in server.output


async def test_keys_rotate_without_a_dropped_connection(start_server: StartServer) -> None:
    async def configure(keys: list[dict[str, str]], reload_count: int) -> None:
        server.configure(settings(auth={"api_keys": keys}))
        server.send(signal.SIGHUP)
        text = "configuration reloaded"
        await trio.to_thread.run_sync(server.wait_until_says, text, reload_count)

    def bearer(key: str) -> dict[str, object]:
        return {"metadata": ((b"authorization", b"Bearer " + key.encode()),)}

    server = start_server(settings(auth={"api_keys": KEYS}))
    server.wait_until_says("watching config file")
    old = open_channel("127.0.0.1", server.port, **bearer("old-secret"))
    new = open_channel("127.0.0.1", server.port, **bearer("new-secret"))
    async with old as old_channel, new as new_channel:
        await Client(old_channel).enqueue()
        assert await refusal(Client(new_channel)) is StatusCode.UNAUTHENTICATED

        await configure(KEYS + RENEWED, 1)
        await Client(old_channel).enqueue()
        await Client(new_channel).enqueue()

        await configure(RENEWED, 2)
        assert await refusal(Client(old_channel)) is StatusCode.UNAUTHENTICATED
        await Client(new_channel).enqueue()
        figures = await scrape(server)

    assert figures["sepp_connections"] == figures["sepp_connections_accepted_total"] == 2
    assert figures["sepp_unauthenticated_total"] == 2
    assert figures["sepp_jobs_enqueued_total{q}"] == 4
    assert "secret" not in server.output


async def refusal(client: Client) -> StatusCode:
    with pytest.raises(RpcError) as fault:
        await client.enqueue()
    return fault.value.code


class Secrets:
    """A certificate authority, and the files of the server's certificate."""

    def __init__(self, directory: Path) -> None:
        self.authority = trustme.CA()
        self.chain, self.key = directory / "chain.pem", directory / "key.pem"
        self.ca = directory / "ca.pem"
        self.authority.cert_pem.write_to_path(self.ca)
        self.renew()

    def renew(self) -> bytes:
        """Write a new pair; return its certificate in DER."""
        issued = self.authority.issue_cert("localhost")
        pem = issued.cert_chain_pems[0]
        pem.write_to_path(self.chain)
        issued.private_key_pem.write_to_path(self.key)
        return ssl.PEM_cert_to_DER_cert(pem.bytes().decode())

    def shown_by(self, port: int) -> bytes:
        """The certificate a new handshake is given."""
        context = tls_client_context(self.ca)
        with (
            socket.create_connection(("127.0.0.1", port)) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as tls,
        ):
            shown = tls.getpeercert(binary_form=True)
        assert shown is not None
        return shown


async def test_a_renewed_certificate_is_used_for_new_handshakes_only(
    start_server: StartServer, tmp_path: Path
) -> None:
    secrets = Secrets(tmp_path)
    tls = {"tls_cert_path": str(secrets.chain), "tls_key_path": str(secrets.key)}
    server = start_server({"server": tls})
    options = {"ssl_context": tls_client_context(secrets.ca), "server_hostname": "localhost"}
    async with open_channel("127.0.0.1", server.port, **options) as channel:
        client = Client(channel)
        await client.enqueue()
        first = await trio.to_thread.run_sync(secrets.shown_by, server.port)

        renewed = secrets.renew()
        await trio.to_thread.run_sync(server.wait_until_says, "certificates renewed")
        assert await trio.to_thread.run_sync(secrets.shown_by, server.port) == renewed != first

        secrets.chain.write_text("-----BEGIN CERTIFICATE-----\nbroken\n")
        await trio.to_thread.run_sync(server.wait_until_says, "certificates cannot be used")
        assert await trio.to_thread.run_sync(secrets.shown_by, server.port) == renewed

        await client.enqueue()  # the connection of the first handshake is still there


def test_a_renewed_certificate_of_the_admin_port_is_used_too(
    start_server: StartServer, tmp_path: Path
) -> None:
    secrets = Secrets(tmp_path)
    admin = {
        "enabled": True,
        "listen_addr": "127.0.0.1:0",
        "tls_cert_path": str(secrets.chain),
        "tls_key_path": str(secrets.key),
    }
    server = start_server({"admin": admin})
    server.wait_until_says("admin UI listening at")
    port = int(re.findall(r"admin UI listening at https://127\.0\.0\.1:(\d+)", server.output)[0])
    first = secrets.shown_by(port)

    renewed = secrets.renew()
    server.wait_until_says("certificates renewed")

    assert secrets.shown_by(port) == renewed != first


async def test_above_the_memory_limit_jobs_are_refused_and_worked_and_then_welcome_again(
    start_server: StartServer,
) -> None:
    server = start_server(settings())
    server.wait_until_says("watching config file")
    async with connected(server.port) as client:
        await client.enqueue(data=b"before")
        limit = resident_bytes(server.pid) // 2
        server.configure(settings(server={"max_memory_bytes": limit}))
        await trio.to_thread.run_sync(server.wait_until_says, "memory is short")

        with pytest.raises(RpcError) as refused:
            await client.enqueue(data=b"refused")
        assert refused.value.code is StatusCode.RESOURCE_EXHAUSTED
        assert "max_memory_bytes" in str(refused.value)
        (job,) = await client.reserve()
        await client.ack(job)
        figures = await scrape(server)
        assert figures["sepp_memory_short"] == 1
        assert figures["sepp_requests_total{enqueue_batch,error}"] == 1

        server.configure(settings())
        await trio.to_thread.run_sync(server.wait_until_says, "memory is no longer short")
        await client.enqueue(data=b"after")
        jobs = await client.reserve(max_jobs=10)

    assert [each.payload.data for each in jobs] == [b"after"]
