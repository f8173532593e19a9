"""Addresses of servers as people write them."""

from typing import Final

PORT: Final = 50051
SCHEMES: Final = {"http://": False, "https://": True}


def parse_server_address(addr: str) -> tuple[str, int, bool]:
    """Return host, port and whether TLS is asked for.

    Raises:
        ValueError: It is no host, host:port or [IPv6]:port, with or without http:// or https://.
    """
    is_tls = False
    rest = addr.removesuffix("/")
    for scheme, meaning in SCHEMES.items():
        if rest.startswith(scheme):
            rest, is_tls = rest.removeprefix(scheme), meaning
    host, colon, port = rest.rpartition(":")
    if not colon or rest.endswith("]"):
        host, port = rest, str(PORT)
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"{addr!r} is no address; one is host:port, such as 127.0.0.1:{PORT}")
    return host, int(port), is_tls
