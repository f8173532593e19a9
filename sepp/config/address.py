"""Listen addresses: a literal IP address and a port. Names are not looked up."""

import ipaddress
from typing import Final

from attrs import frozen

_PORT_MAX: Final = 65_535


@frozen
class Address:
    """Where to listen. `host` is an address without brackets; port 0 means any free port."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        ip = ipaddress.ip_address(self.host)
        # An IPv4 address in IPv6 clothes binds what the IPv4 address binds.
        mapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
        return (mapped or ip).is_loopback

    @property
    def is_wildcard(self) -> bool:
        """Whether it stands for every interface."""
        return ipaddress.ip_address(self.host).is_unspecified

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address | None:
    """Return the address in `text` (`127.0.0.1:80`, `[::1]:80`), or None when it is not one."""
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdecimal()) or len(port) > 5:
        return None
    if int(port) > _PORT_MAX:
        return None
    is_bracketed = host.startswith("[") and host.endswith("]")
    if is_bracketed:
        host = host[1:-1]
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        return None
    if (ip.version == 6) != is_bracketed:
        return None
    return Address(host, int(port))
