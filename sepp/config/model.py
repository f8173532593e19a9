"""The whole configuration as one immutable value, and the table of all its keys."""

from typing import Final

from msgspec import Struct, field

from sepp.config.limits import Limits, Queue
from sepp.config.sections import (
    Admin,
    AdminKey,
    ApiKey,
    Auth,
    Logging,
    Metrics,
    Server,
    Storage,
    Tracing,
)
from sepp.config.table import Key, rows
from sepp.config.transport import Transport


class Config(Struct, frozen=True, kw_only=True):
    """Every value a server runs with. Equal ones compare equal, wherever they came from."""

    server: Server = field(default_factory=Server)
    admin: Admin = field(default_factory=Admin)
    auth: Auth = field(default_factory=Auth)
    limits: Limits = field(default_factory=Limits)
    storage: Storage = field(default_factory=Storage)
    logging: Logging = field(default_factory=Logging)
    tracing: Tracing = field(default_factory=Tracing)
    metrics: Metrics = field(default_factory=Metrics)
    transport: Transport = field(default_factory=Transport)
    queues: tuple[Queue, ...] = ()


SECTIONS: Final[dict[str, type[Struct]]] = {
    "server": Server,
    "admin": Admin,
    "auth": Auth,
    "limits": Limits,
    "storage": Storage,
    "logging": Logging,
    "tracing": Tracing,
    "metrics": Metrics,
    "transport": Transport,
}
"""The sections that are plain tables, in the order of the file."""

KEYS: Final[tuple[Key, ...]] = tuple(
    key for section, struct in SECTIONS.items() for key in rows(section, struct)
)
"""All keys of the sections, in the order of the file."""

KEYS_BY_PATH: Final[dict[str, Key]] = {key.path: key for key in KEYS}


def _queue_keys() -> tuple[Key, ...]:
    """The rows of a [[queues]] entry: an override borrows the row of the global key of its name."""
    own = {key.name: key for key in rows("queues[]", Queue)}
    found = []
    for name in Queue.__struct_fields__:
        if name in own:
            found.append(own[name])
            continue
        section = "storage" if name == "dedup_window_ms" else "limits"
        known = KEYS_BY_PATH[f"{section}.{name}"]
        found.append(Key("queues[]", name, known.kind, None, True, known.choices, None, known.spec))
    return tuple(found)


QUEUE_KEYS: Final[tuple[Key, ...]] = _queue_keys()
"""The fields of a [[queues]] entry."""

API_KEY_KEYS: Final[tuple[Key, ...]] = rows("auth.api_keys[]", ApiKey)
ADMIN_KEY_KEYS: Final[tuple[Key, ...]] = rows("admin.keys[]", AdminKey)

OVERRIDES: Final[tuple[str, ...]] = tuple(key.name for key in QUEUE_KEYS if key.name != "name")
"""What a [[queues]] entry can override."""
