"""Certificate files are read again when they change; a broken pair changes nothing."""

import ssl
from pathlib import Path

import pytest
import trio
import trio.testing
import trustme

from sepp.certificates import Certificates
from sepp.reloader import POLL_S
from sepp.rpc.transport import tls_server_context
from tests.fakes.logs import captured


class Files:
    """A chain and its key; `renew` writes a new pair."""

    def __init__(self, directory: Path) -> None:
        self.authority = trustme.CA()
        self.chain, self.key = directory / "chain.pem", directory / "key.pem"
        self.renew()

    def renew(self) -> None:
        issued = self.authority.issue_cert("localhost")
        issued.cert_chain_pems[0].write_to_path(self.chain)
        issued.private_key_pem.write_to_path(self.key)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def certificates(files: Files, applied: list[ssl.SSLContext]) -> Certificates:
    return Certificates(
        str(files.chain), str(files.key), load=tls_server_context, apply=applied.append
    )


async def test_a_new_pair_is_applied_once(
    files: Files, autojump_clock: trio.testing.MockClock
) -> None:
    applied: list[ssl.SSLContext] = []
    watched = certificates(files, applied)

    with captured() as entries, trio.move_on_after(POLL_S * 20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watched.watch)
            await trio.sleep(POLL_S * 3.5)
            assert applied == []
            files.renew()

    assert len(applied) == 1
    assert [(e["level"], e["message"]) for e in entries()] == [("INFO", "certificates renewed")]


async def test_a_pair_that_cannot_be_used_changes_nothing_and_the_next_good_one_does(
    files: Files, autojump_clock: trio.testing.MockClock
) -> None:
    applied: list[ssl.SSLContext] = []
    watched = certificates(files, applied)

    with captured() as entries, trio.move_on_after(POLL_S * 40):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watched.watch)
            await trio.sleep(POLL_S * 3.5)
            trustme.CA().issue_cert("localhost").private_key_pem.write_to_path(files.key)
            await trio.sleep(POLL_S * 5)
            files.chain.unlink()
            await trio.sleep(POLL_S * 5)
            assert applied == []
            files.renew()

    assert len(applied) == 1
    failed = ("ERROR", "certificates cannot be used; keeping the ones in use")
    assert [(e["level"], e["message"]) for e in entries()] == [
        failed,
        failed,
        ("INFO", "certificates renewed"),
    ]


async def test_a_renewal_in_two_steps_is_met_as_a_whole(
    files: Files, autojump_clock: trio.testing.MockClock
) -> None:
    applied: list[ssl.SSLContext] = []
    watched = certificates(files, applied)
    issued = files.authority.issue_cert("localhost")

    with captured() as entries, trio.move_on_after(POLL_S * 20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watched.watch)
            await trio.sleep(POLL_S * 2.9)
            issued.cert_chain_pems[0].write_to_path(files.chain)
            await trio.sleep(POLL_S * 0.9)
            issued.private_key_pem.write_to_path(files.key)

    assert len(applied) == 1
    assert [e["level"] for e in entries()] == ["INFO"]
