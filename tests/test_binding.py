"""Which peers a listen address lets in, the same for every listener."""

import socket

import pytest

from sepp.binding import bind

needs_ipv6 = pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no IPv6 on this machine")


def reaches(host: str, listening: socket.socket) -> bool:
    """Tell whether a connection to a host comes in."""
    try:
        socket.create_connection((host, listening.getsockname()[1]), 5).close()
    except ConnectionRefusedError:
        return False
    listening.accept()[0].close()
    return True


@pytest.mark.parametrize(
    ("host", "let_in"),
    [
        ("127.0.0.1", {"127.0.0.1"}),
        ("0.0.0.0", {"127.0.0.1", "127.0.0.2"}),
        pytest.param("::1", {"::1"}, marks=needs_ipv6),
        pytest.param("::", {"127.0.0.1", "127.0.0.2", "::1"}, marks=needs_ipv6),
        pytest.param("::ffff:127.0.0.1", {"127.0.0.1"}, marks=needs_ipv6),
    ],
)
def test_an_address_lets_in_whom_it_names_and_the_ipv6_wildcard_everyone(
    host: str, let_in: set[str]
) -> None:
    peers = {"127.0.0.1", "127.0.0.2"} | ({"::1"} if socket.has_dualstack_ipv6() else set())
    with bind(host, 0) as listening:
        listening.setblocking(True)
        assert {peer for peer in peers if reaches(peer, listening)} == let_in


def test_a_name_is_not_looked_up() -> None:
    with pytest.raises(ValueError, match="localhost"):
        bind("localhost", 0)


def test_an_address_in_use_is_refused() -> None:
    with bind("127.0.0.1", 0) as listening, pytest.raises(OSError, match="in use"):
        bind("127.0.0.1", listening.getsockname()[1])
