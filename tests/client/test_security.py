"""Keys and TLS against a real server."""

import pytest
import trustme

from sepp.client import ConnectError, SeppClient, UnauthenticatedError
from tests.e2e.conftest import StartServer


async def test_the_right_key_opens_and_a_wrong_one_does_not(start_server: StartServer) -> None:
    keys = {"auth": {"api_keys": [{"name": "one", "key": "secret"}]}}
    server = start_server(keys)

    async with SeppClient.connect(server.address, api_key="secret") as client:
        assert (await client.get_server_info()).version
    for key in ("wrong", None):
        async with SeppClient.connect(server.address, api_key=key) as client:
            with pytest.raises(UnauthenticatedError):
                await client.get_server_info()


async def test_tls_with_a_private_authority(start_server: StartServer, tmp_path: object) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("queue.example")
    folder = str(tmp_path)
    certificate.cert_chain_pems[0].write_to_path(f"{folder}/cert.pem")
    certificate.private_key_pem.write_to_path(f"{folder}/key.pem")
    tls = {"tls_cert_path": f"{folder}/cert.pem", "tls_key_path": f"{folder}/key.pem"}
    server = start_server({"server": tls})
    pem = authority.cert_pem.bytes()

    async with SeppClient.connect(
        f"https://{server.address}", tls_ca_cert=pem, tls_domain="queue.example"
    ) as client:
        assert (await client.get_server_info()).version
    with pytest.raises(ConnectError, match="certificate"):
        async with SeppClient.connect(server.address, tls_ca_cert=pem):
            pytest.fail("the certificate is not this address's")
