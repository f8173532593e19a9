"""Who is asking: admin keys, sessions in memory, roles.

Roles are read live from the configuration. A session stands for one key: it is void as soon as the
key's secret or name is no longer in the configuration. Nothing here is stored; a restart signs
everyone out.
"""

import hashlib
import hmac
import secrets
from collections.abc import Sequence
from typing import Final

from attrs import define, frozen

from sepp.admin.backend import ConfigSource
from sepp.config.address import parse_address
from sepp.config.sections import AdminKey, Role

RANKS: Final[dict[str, int]] = {"viewer": 1, "operator": 2, "admin": 3}

SESSIONS_MAX: Final = 1024
TOKEN_CHARS: Final = 64
FAILURES_A_MINUTE: Final = 60  # wrong sign-ins that are put on record one by one
LOCAL: Final = "local"  # the actor while no keys are set


@frozen
class Actor:
    """Who does something; `name` goes into the audit trail."""

    name: str
    role: Role
    is_local: bool = False  # no keys are set

    def may(self, role: str) -> bool:
        """Return whether this role or a higher one is held."""
        return RANKS[self.role] >= RANKS[role]


@frozen
class Unauthorized:
    """Nobody is signed in; `text` says what would help."""

    text: str


@define
class _Session:
    name: str
    secret_digest: bytes
    expires_ms: int


class Sessions:
    """The sign-ins of one server, at most 1,024; the soonest to expire makes room."""

    def __init__(self, config: ConfigSource) -> None:
        self._config = config
        self._by_token: dict[str, _Session] = {}

    def __len__(self) -> int:
        return len(self._by_token)

    @property
    def is_enabled(self) -> bool:
        """Whether keys are set, so that everybody has to sign in."""
        return self._config.running.admin.keys is not None

    @property
    def _is_loopback(self) -> bool:
        address = parse_address(self._config.boot.admin.listen_addr)
        return address is not None and address.is_loopback

    def open(self, name: str, key: str, now_ms: int) -> tuple[str, AdminKey, int] | None:
        """Return token, key and end (wall ms) of a new session, or None for a wrong name or key."""
        found = _match(self._config.running.admin.keys or (), key, name)
        if found is None:
            return None
        if len(self._by_token) >= SESSIONS_MAX:
            self._expire(now_ms)
        if len(self._by_token) >= SESSIONS_MAX:
            soonest = min(self._by_token, key=lambda token: self._by_token[token].expires_ms)
            del self._by_token[soonest]
        expires_ms = now_ms + self._config.running.admin.session_ttl_ms
        token = secrets.token_hex(TOKEN_CHARS // 2)
        self._by_token[token] = _Session(found.name, _digest(found.key), expires_ms)
        return token, found, expires_ms

    def close(self, token: str) -> None:
        """End a session; unknown tokens are nothing to complain about."""
        self._by_token.pop(token, None)

    def who(self, bearer: str | None, token: str | None, now_ms: int) -> Actor | Unauthorized:
        """Return who sent a request with this `Authorization: Bearer` value and this cookie.

        A bearer key counts before the cookie; a wrong one is refused whatever the cookie says.
        """
        keys = self._config.running.admin.keys
        if keys is None:
            if self._is_loopback:
                return Actor(LOCAL, "admin", is_local=True)
            # The listener was opened to the network under keys; without them it must not serve.
            return Unauthorized("the admin keys were removed: restart required")
        if bearer is not None:
            found = _match(keys, bearer, None)
            if found is None:
                return Unauthorized("unknown key")
            return Actor(found.name, found.role)
        return self._by_cookie(token, keys, now_ms)

    def _by_cookie(
        self, token: str | None, keys: Sequence[AdminKey], now_ms: int
    ) -> Actor | Unauthorized:
        session = self._by_token.get(token) if token else None
        if session is None or token is None:
            return Unauthorized("sign in, or send Authorization: Bearer <key>")
        for key in keys:
            if key.name == session.name and hmac.compare_digest(
                _digest(key.key), session.secret_digest
            ):
                if session.expires_ms > now_ms:
                    return Actor(key.name, key.role)
                break
        del self._by_token[token]
        return Unauthorized("the session is over: sign in again")

    def _expire(self, now_ms: int) -> None:
        over = [token for token, one in self._by_token.items() if one.expires_ms <= now_ms]
        for token in over:
            del self._by_token[token]


class FailedLogins:
    """Bounds how many wrong sign-ins a stranger can write into the trail."""

    def __init__(self) -> None:
        self._minute = 0
        self._count = 0
        self._unrecorded = 0

    def admit(self, now_ms: int) -> int | None:
        """Return how many went unrecorded since the last one if this one may be recorded."""
        minute = now_ms // 60_000
        if minute != self._minute:
            self._minute, self._count = minute, 0
        self._count += 1
        if self._count > FAILURES_A_MINUTE:
            self._unrecorded += 1
            return None
        unrecorded, self._unrecorded = self._unrecorded, 0
        return unrecorded


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


def _match(keys: Sequence[AdminKey], secret: str, name: str | None) -> AdminKey | None:
    """Return the entry with this secret (and name), in time that depends on neither."""
    sent = _digest(secret)
    found = None
    for key in keys:  # every entry is compared, also after a match
        is_same = hmac.compare_digest(_digest(key.key), sent)
        if is_same and (name is None or key.name == name):
            found = key
    return found
