"""API keys of the gRPC port: who may call.

A caller sends the metadata `authorization: Bearer <key>`; the scheme is case-sensitive and one
space follows it. All keys are equal in power. Comparison takes the same time whichever key is
right and wherever a wrong one differs: digests of equal length are compared, every one of them,
to the end.
"""

from collections.abc import Sequence
from hashlib import blake2b
from hmac import compare_digest
from os import urandom
from typing import Final

from sepp.config.sections import ApiKey

_SCHEME: Final = b"Bearer "
_FORM: Final = '"authorization: Bearer <key>"'
MISSING: Final = f"missing API key: send it in the metadata {_FORM}"
UNKNOWN: Final = f"invalid API key: the key sent in {_FORM} is not known here"


class ApiKeys:
    """The keys that hold now. Immutable: a reload makes a new one, and the next call meets it.

    Args:
        keys: auth.api_keys. None: the port is open and headers are not looked at; empty: every call
            is refused.
    """

    __slots__ = ("_digests", "_salt", "is_enforced")

    def __init__(self, keys: Sequence[ApiKey] | None) -> None:
        self.is_enforced: Final = keys is not None
        # With a salt of this process nobody can prepare keys whose digests begin alike.
        self._salt: Final = urandom(16)
        self._digests: Final = tuple(self._digest(key.key.encode()) for key in keys or ())

    def fault(self, authorization: bytes | None) -> str | None:
        """Return why a call with this metadata is refused, for UNAUTHENTICATED; None lets it in.

        Callers skip this while `is_enforced` is false.
        """
        if not self.is_enforced:
            return None
        if authorization is None or not authorization.startswith(_SCHEME):
            return MISSING
        secret = authorization[len(_SCHEME) :]
        if not secret:
            return MISSING
        digest = self._digest(secret)
        is_known = False
        for known in self._digests:
            is_known |= compare_digest(known, digest)
        return None if is_known else UNKNOWN

    def _digest(self, secret: bytes) -> bytes:
        return blake2b(secret, digest_size=32, key=self._salt).digest()
