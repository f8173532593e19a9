"""The admin side of a real server process: durable actions, a live stream, a clean stop."""

import re
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import trustme
from cryptography.x509 import load_pem_x509_certificate

from segstore import RealVFS, verify
from tests.e2e.server_process import ServerProcess

SETTINGS = {"admin": {"enabled": True, "listen_addr": "127.0.0.1:0"}}


def console(server: ServerProcess) -> httpx.Client:
    """Return a client of the admin API of a server that is up."""
    starts = server.output.count("queue server listening")
    server.wait_until_says("admin UI listening at", starts)
    ports = re.findall(r"admin UI listening at http://127\.0\.0\.1:(\d+)", server.output)
    return httpx.Client(base_url=f"http://127.0.0.1:{ports[-1]}/admin/api/v1", trust_env=False)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    process = ServerProcess(tmp_path, SETTINGS)
    process.start()
    yield process
    if process.is_running:
        process.kill()


def test_an_action_and_its_record_survive_a_crash_together(server: ServerProcess) -> None:
    body = {"job_type": "a", "payload": {"encoding": "json", "data_text": '{"n": 1}'}}
    with console(server) as client:
        made = client.post("/queues/q/jobs", json=body).json()
        buried = client.post(
            "/queues/q/jobs:dead-letter",
            json={
                "state": "ready",
                "keys_b64": [client.get("/queues/q/jobs?state=ready").json()["jobs"][0]["key_b64"]],
                "reason": "found broken",
            },
        ).json()

    server.kill()
    server.start()

    with console(server) as client:
        dead = client.get(f"/dead-letters/{made['job_id']}").json()
        trail = client.get("/audit").json()["entries"]
        page = client.get("/queues/q/jobs?state=dead_letter&reason=broken").json()
    assert buried["dead_lettered"] == 1
    assert (dead["last_reason"], dead["payload"]["size_bytes"]) == ("found broken", 8)
    assert [entry["action"] for entry in trail] == ["jobs.dead_letter", "job.enqueue"]
    assert len(page["jobs"]) == 1


def test_a_setting_changed_here_holds_at_once(server: ServerProcess) -> None:
    with console(server) as client:
        etag = client.get("/config").json()["etag"]
        change = {"path": "server.strict_queues", "value": True}
        applied = client.put("/config", json={"etag": etag, "changes": [change]}).json()
        refused = client.post("/queues/q/jobs", json={"job_type": "a"})

    assert applied["applied"] is True
    assert refused.json()["rejection"]["reason"] == "unknown_queue"
    assert "strict_queues = true" in server.config_path.read_text()


def test_stopping_ends_an_open_stream_and_exits_clean(server: ServerProcess) -> None:
    with console(server) as client, client.stream("GET", "/events") as stream:
        lines = stream.iter_lines()
        assert next(lines) == "event: hello"

        server.stop()

        assert "queue server stopped" in server.output


def test_every_page_answers(server: ServerProcess) -> None:
    with console(server) as client:
        client.post("/queues/q/jobs", json={"job_type": "a"})
        for path in ("", "queues/q/jobs", "queues/q/settings", "queues/q/enqueue", "config",
                     "config/keys", "audit", "server", "help/operating", "healthz"):  # fmt: skip
            answer = client.get(str(client.base_url).replace("/api/v1", "") + path)
            assert answer.status_code == 200, path


def test_a_taken_admin_port_stops_the_start(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        server = ServerProcess(tmp_path, {"admin": {"enabled": True, "listen_addr": address}})
        server.start_nowait()
        code = server.wait()

    assert code == 1
    assert f"cannot listen on admin.listen_addr {address}" in server.output


def serial_number(port: int) -> int:
    """Return the serial number of the certificate a new handshake is shown."""
    pem = ssl.get_server_certificate(("127.0.0.1", port))
    return load_pem_x509_certificate(pem.encode()).serial_number


def test_a_renewed_certificate_is_shown_to_the_next_caller(tmp_path: Path) -> None:
    authority = trustme.CA()
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"

    def renew() -> None:
        issued = authority.issue_cert("127.0.0.1")
        issued.cert_chain_pems[0].write_to_path(chain)
        issued.private_key_pem.write_to_path(key)

    renew()
    files = {"tls_cert_path": str(chain), "tls_key_path": str(key)}
    server = ServerProcess(tmp_path / "server", {"admin": {**SETTINGS["admin"], **files}})
    server.start()
    server.wait_until_says("admin UI listening at https://127.0.0.1:")
    found = re.search(r"admin UI listening at https://127\.0\.0\.1:(\d+)", server.output)
    assert found is not None
    first = serial_number(int(found[1]))

    renew()
    server.wait_until_says("certificates renewed")
    second = serial_number(int(found[1]))
    server.stop()

    assert first != second


def test_a_backup_is_made_on_record_and_sound(server: ServerProcess, tmp_path: Path) -> None:
    target = tmp_path / "copy"
    body = {"job_type": "a", "payload": {"encoding": "json", "data_text": '{"n": 1}'}}
    with console(server) as client:
        for _ in range(20):
            client.post("/queues/q/jobs", json=body).raise_for_status()
        made = client.post("/backup", json={"directory": str(target)})
        again = client.post("/backup", json={"directory": str(target)})
        within = client.post("/backup", json={"directory": f"{server.data_path}/in"})
        trail = client.get("/audit?action_prefix=store").json()["entries"]

    assert made.status_code == 200, made.text
    assert made.json()["directory"] == str(target)
    assert (again.status_code, again.json()["code"]) == (409, "failed_precondition")
    assert "is not empty" in again.json()["error"]
    assert (within.status_code, within.json()["code"]) == (409, "failed_precondition")
    assert [entry["details"] for entry in trail] == [
        {"directory": str(target), "last_lsn": made.json()["last_lsn"]}
    ]
    assert "backup made" in server.output
    report = verify(str(target), vfs=RealVFS())
    assert report.damage_count == 0
    assert report.last_lsn == made.json()["last_lsn"]
    assert report.entry_count >= 20
    server.stop()
