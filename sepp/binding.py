"""Listening on an address of the configuration, the same way for every port."""

import ipaddress
import socket
from typing import Final

_BACKLOG: Final = 1024


def bind(host: str, port: int) -> socket.socket:
    """Return a socket listening on exactly `host`; it does not block.

    `::` stands for all interfaces and both families, whatever the system's default is: whoever
    asks for everything does not mean to shut IPv4 out.

    Args:
        host: A literal IPv4 or IPv6 address.
        port: 0 takes any that is free.

    Raises:
        ValueError: `host` is no literal address.
        OSError: The address is taken or not ours.
    """
    family = socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        # Restarts must not wait for the last life's connections; a second server still cannot bind.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listening.setblocking(False)
        listening.bind((host, port))
        listening.listen(_BACKLOG)
    except BaseException:
        listening.close()
        raise
    return listening
