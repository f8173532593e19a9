"""Following the certificate files while the server runs: new handshakes use the new chain.

Looked at as the configuration file is: a change is read once two looks agree on it, so a renewal
that writes chain and key one after the other is met as a whole or met again. Files that cannot be
used change nothing.
"""

import ssl
from collections.abc import Callable
from typing import Final

import trio

from sepp.config.load import Identity, identity
from sepp.logs import get_logger
from sepp.reloader import POLL_S

log = get_logger("sepp.certificates")

Pair = tuple[Identity | None, Identity | None]


class Certificates:
    """A chain and its key on disk.

    Args:
        cert_path, key_path: PEM files.
        load: Makes a context of them; raises OSError or ValueError.
        apply: Given each new context.
    """

    def __init__(
        self,
        cert_path: str,
        key_path: str,
        *,
        load: Callable[[str, str], ssl.SSLContext],
        apply: Callable[[ssl.SSLContext], None],
    ) -> None:
        self.cert_path: Final = cert_path
        self.key_path: Final = key_path
        self._load = load
        self._apply = apply
        self._known = self._look()

    async def watch(self) -> None:
        """Read the files again when they change, until cancelled."""
        seen = self._known
        while True:
            await trio.sleep(POLL_S)
            found = self._look()
            if found != self._known and found == seen:
                self._known = found
                self._read()
            seen = found

    def _look(self) -> Pair:
        return identity(self.cert_path), identity(self.key_path)

    def _read(self) -> None:
        facts = {"cert": self.cert_path, "key": self.key_path}
        try:
            context = self._load(self.cert_path, self.key_path)
        except (OSError, ValueError) as fault:
            log.error(
                "certificates cannot be used; keeping the ones in use", error=str(fault), **facts
            )
            return
        self._apply(context)
        log.info("certificates renewed", **facts)
