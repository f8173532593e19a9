"""Listen addresses are literal."""

import pytest

from sepp.config.address import Address, parse_address


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("0.0.0.0:50051", "0.0.0.0", 50051),
        ("127.0.0.1:0", "127.0.0.1", 0),
        ("[::1]:65535", "::1", 65535),
        ("[::]:1", "::", 1),
        ("[2001:db8::7]:80", "2001:db8::7", 80),
    ],
)
def test_literal_address_is_read_and_written_back(text: str, host: str, port: int) -> None:
    address = parse_address(text)

    assert address == Address(host, port)
    assert str(address) == text


@pytest.mark.parametrize(
    "text",
    [
        "", ":", ":80", "80", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:-1",
        "127.0.0.1:+1", "127.0.0.1: 1", "127.0.0.1:１", "127.0.0.1:000080", "127.0.0.1:80x",
        "localhost:80", "example.org:80", "::1:80", "[::1]", "[127.0.0.1]:80", "[::1:80", "::1]:80",
        "256.0.0.1:80", "127.1:80", "127.0.0.01:80", "0x7f.0.0.1:80", " 127.0.0.1:80",
        "127.0.0.1:80\n", "[[::1]]:80", "[]:80", "unix:/run/x:1", "127.0.0.1\0:80",
    ],
)  # fmt: skip
def test_anything_else_is_no_address(text: str) -> None:
    assert parse_address(text) is None


def test_loopback_and_wildcard_are_told() -> None:
    def facts(text: str) -> tuple[bool, bool]:
        address = parse_address(text)
        assert address is not None
        return address.is_loopback, address.is_wildcard

    assert facts("127.0.0.1:1") == (True, False)
    assert facts("127.9.9.9:1") == (True, False)
    assert facts("[::1]:1") == (True, False)
    assert facts("[::ffff:127.0.0.1]:1") == (True, False)
    assert facts("[::ffff:10.0.0.1]:1") == (False, False)
    assert facts("0.0.0.0:1") == (False, True)
    assert facts("[::]:1") == (False, True)
