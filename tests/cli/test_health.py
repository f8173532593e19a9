"""`sepp-trio health` against a listener with the standard health service."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trustme

from sepp.cli.app import run
from sepp.cli.health import SERVICE
from sepp.rpc.health import Health
from sepp.rpc.server import Server
from sepp.rpc.transport import tls_server_context


@asynccontextmanager
async def listener(health: Health, **options: object) -> AsyncIterator[Server]:
    server = Server(**options)  # type: ignore[arg-type]  # passed on
    server.add_service(health.service)
    async with trio.open_nursery() as nursery:
        await nursery.start(server.serve_async)
        yield server
        nursery.cancel_scope.cancel()


async def ask(port: int, *options: str) -> int:
    """Run the verb as its own loop, on a thread."""
    tokens = ["health", "--addr", f"127.0.0.1:{port}", *options]
    return await trio.to_thread.run_sync(run, tokens)


@pytest.mark.parametrize(
    ("options", "code", "text"),
    [
        ((), 1, "NOT_SERVING"),
        (("--service", ""), 0, "SERVING"),
    ],
)
async def test_tells_the_status_and_says_it_with_the_exit_code(
    options: tuple[str, ...], code: int, text: str, capfd: pytest.CaptureFixture[str]
) -> None:
    async with listener(Health(serving=("",), not_serving=(SERVICE,))) as server:
        assert await ask(server.port, *options) == code

    assert capfd.readouterr() == (f"{text}\n", "")


async def test_an_unknown_service_is_one_line_and_1(capfd: pytest.CaptureFixture[str]) -> None:
    async with listener(Health()) as server:
        assert await ask(server.port, "--service", "none") == 1

    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "unknown service" in err


async def test_nobody_there_and_nobody_answering_are_one_line_and_1(
    capfd: pytest.CaptureFixture[str],
) -> None:
    silent = trio.socket.socket()
    await silent.bind(("127.0.0.1", 0))
    port = silent.getsockname()[1]
    assert await ask(port) == 1
    silent.listen()
    assert await ask(port, "--timeout-ms", "50") == 1
    silent.close()

    _, err = capfd.readouterr()
    assert err.count("\n") == 2
    assert f"127.0.0.1:{port}" in err


async def test_what_is_no_address_is_refused(capfd: pytest.CaptureFixture[str]) -> None:
    assert await trio.to_thread.run_sync(run, ["health", "--addr", "localhost:x"]) == 2
    assert "'localhost:x' is no address" in capfd.readouterr().err


async def test_json_tells_service_and_status(capfd: pytest.CaptureFixture[str]) -> None:
    async with listener(Health(serving=("",), not_serving=(SERVICE,))) as server:
        assert await ask(server.port, "--json") == 1
        assert await ask(server.port, "--json", "--service", "") == 0

    assert [json.loads(line) for line in capfd.readouterr().out.splitlines()] == [
        {"service": SERVICE, "status": "NOT_SERVING"},
        {"service": "", "status": "SERVING"},
    ]


async def test_address_and_key_come_from_the_environment_too(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    async with listener(Health(serving=(SERVICE,))) as server:
        monkeypatch.setenv("SEPP_ADDR", f"http://127.0.0.1:{server.port}")
        monkeypatch.setenv("SEPP_KEY", "s3cret")
        assert await trio.to_thread.run_sync(run, ["health"]) == 0

    assert capfd.readouterr() == ("SERVING\n", "")


async def test_tls_is_spoken_when_an_authority_is_given(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    issued = authority.issue_cert("localhost")
    issued.cert_chain_pems[0].write_to_path(tmp_path / "chain.pem")
    issued.private_key_pem.write_to_path(tmp_path / "key.pem")
    context = tls_server_context(tmp_path / "chain.pem", tmp_path / "key.pem")
    async with listener(Health(serving=(SERVICE,)), ssl_context=context) as server:
        ca = ("--ca", str(tmp_path / "ca.pem"))
        assert await ask(server.port, *ca, "--server-name", "localhost") == 0
        assert await ask(server.port, *ca) == 1  # the certificate is not for 127.0.0.1
