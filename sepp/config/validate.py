"""Every rule a configuration must keep beyond the types of its values; the first broken one is
raised.

Order: the bounds of single keys in the order of the file, rules between keys, the queues. Texts
name section and key, the value (never a secret), the limit, and the way out.
"""

from collections.abc import Sequence

from sepp.config.address import parse_address
from sepp.config.directives import DirectiveError, parse_filter
from sepp.config.errors import ConfigError
from sepp.config.limits import Queue
from sepp.config.model import KEYS, QUEUE_KEYS, Config
from sepp.config.names import queue_name_fault
from sepp.config.policy import effective_limits
from sepp.config.sections import Admin, AdminKey, ApiKey, Server
from sepp.config.table import Key
from sepp.core.limits import QueueLimits
from sepp.quoting import quote


def validate(config: Config) -> None:
    """Return when `config` keeps every rule, else raise ConfigError for the first broken one."""
    for key in KEYS:
        _check_value(key, key.path, getattr(getattr(config, key.section), key.name))
    _check_tls("server", config.server)
    _check_tls("admin", config.admin)
    _check_exporters(config)
    _check_admin(config.admin)
    if config.auth.api_keys is not None:
        _check_secrets("auth.api_keys", config.auth.api_keys)
        _check_visible_ascii(config.auth.api_keys)
    _check_logging(config)
    _check_effective(config, None)
    _check_queues(config)


def _check_value(key: Key, path: str, value: object) -> None:
    if value is None:
        return
    spec = key.spec
    match key.kind:
        case "int" | "float":
            assert isinstance(value, int | float)
            if spec.ge is not None and not value >= spec.ge:
                raise ConfigError(path, f"{value} is too small; {_between(key)}")
            if spec.le is not None and not value <= spec.le:
                raise ConfigError(path, f"{value} is too large; {_between(key)}")
        case "address":
            assert isinstance(value, str)
            if parse_address(value) is None:
                raise ConfigError(
                    path,
                    f"{quote(value)} is no address; write IP:port, such as 127.0.0.1:{_port(key)} "
                    f"or [::1]:{_port(key)} (host names are not looked up)",
                )
        case "text":
            assert isinstance(value, str)
            if not value and not spec.may_be_empty:
                raise ConfigError(path, "must not be empty")
            if "\0" in value:
                raise ConfigError(path, f"{quote(value)} contains a NUL character")
        case "texts":
            assert isinstance(value, tuple)
            if "" in value:
                raise ConfigError(path, "its entries must not be empty")


def _between(key: Key) -> str:
    return f"it must be from {key.spec.ge} to {key.spec.le}"


def _port(key: Key) -> str:
    return str(key.default).rpartition(":")[2]


def _check_tls(section: str, values: Server | Admin) -> None:
    cert, key = f"{section}.tls_cert_path", f"{section}.tls_key_path"
    if (values.tls_cert_path is None) == (values.tls_key_path is None):
        return
    is_set, missing = (key, cert) if values.tls_cert_path is None else (cert, key)
    raise ConfigError(is_set, f"is set but {missing} is not; set both for TLS, or neither")


def _check_exporters(config: Config) -> None:
    if config.tracing.enabled and not config.tracing.service_name:
        raise ConfigError("tracing.service_name", "must not be empty while tracing.enabled is true")
    if config.metrics.enabled:
        if not config.metrics.otlp_endpoint:
            text = "must not be empty while metrics.enabled is true"
            raise ConfigError("metrics.otlp_endpoint", text)
        if config.metrics.export_interval_ms == 0:
            text = "must be > 0 while metrics.enabled is true"
            raise ConfigError("metrics.export_interval_ms", text)


def _check_admin(admin: Admin) -> None:
    address = parse_address(admin.listen_addr)
    assert address is not None, "checked as a single key before"
    if admin.enabled and admin.keys is None and not address.is_loopback:
        raise ConfigError(
            "admin.listen_addr",
            f"{address} is a non-loopback address, and the admin UI there requires keys; set "
            "admin.keys, listen on 127.0.0.1, or set admin.enabled = false",
        )
    if admin.keys is not None:
        _check_secrets("admin.keys", admin.keys)


def _check_secrets(where: str, entries: Sequence[AdminKey | ApiKey]) -> None:
    """Refuse empty and repeated names and secrets; an entry without a name is named by place."""
    names: set[str] = set()
    secrets: dict[str, str] = {}
    for number, entry in enumerate(entries, 1):
        if not entry.name:
            raise ConfigError(f"{where}[{number}]", "name must not be empty")
        path = f"{where}[{quote(entry.name)}]"
        if not entry.key:
            raise ConfigError(path, "key must not be empty")
        if entry.name in names:
            raise ConfigError(path, "duplicate name; give each key its own")
        if entry.key in secrets:
            other = quote(secrets[entry.key])
            raise ConfigError(path, f"has the same key as {other}; give each its own")
        names.add(entry.name)
        secrets[entry.key] = entry.name


def _check_visible_ascii(entries: Sequence[ApiKey]) -> None:
    for entry in entries:
        if not all("!" <= char <= "~" for char in entry.key):
            path = f"auth.api_keys[{quote(entry.name)}]"
            raise ConfigError(path, "key must be visible ASCII (0x21-0x7E), without spaces")


def _check_logging(config: Config) -> None:
    try:
        parse_filter(config.logging.level)
    except DirectiveError as fault:
        raise ConfigError("logging.level", str(fault)) from None


def _check_queues(config: Config) -> None:
    name_bytes_max = config.limits.max_queue_name_bytes
    seen: set[str] = set()
    for queue in config.queues:
        path = f"queues[{quote(queue.name)}]"
        fault = queue_name_fault(queue.name)
        if fault is not None:
            raise ConfigError(path, fault)
        size = len(queue.name.encode())
        if size > name_bytes_max:
            raise ConfigError(
                path,
                f"name is {size} bytes long; limits.max_queue_name_bytes allows {name_bytes_max}",
            )
        if queue.name in seen:
            raise ConfigError(path, "duplicate queue name; merge the two [[queues]] entries")
        seen.add(queue.name)
        for key in QUEUE_KEYS:
            if key.name != "name":
                _check_value(key, f"{path}.{key.name}", getattr(queue, key.name))
        if queue.allowed_job_types == ():
            raise ConfigError(
                f"{path}.allowed_job_types", "must not be an empty list; leave it out to allow any"
            )
        _check_effective(config, queue)


def _check_effective(config: Config, queue: Queue | None) -> None:
    """The rules between limits, on the values that hold for `queue` (None: for all others)."""
    limits = effective_limits(config.limits, config.storage.dedup_window_ms, queue)
    _check_at_most(limits, queue, "default_max_attempts", "max_attempts_ceiling")
    _check_at_most(limits, queue, "retry_delay_ms", "retry_delay_max_ms")
    payload, message = limits.max_payload_bytes, config.limits.max_message_bytes
    if payload > message:
        raise ConfigError(
            _named(queue, "max_payload_bytes"),
            f"{payload} is above limits.max_message_bytes = {message}; "
            "lower the first or raise the second",
        )


def _check_at_most(limits: QueueLimits, queue: Queue | None, small: str, large: str) -> None:
    low, high = getattr(limits, small), getattr(limits, large)
    if low > high:
        raise ConfigError(
            _named(queue, small),
            f"{low}{_origin(queue, small)} is above {large} = {high}{_origin(queue, large)}; "
            "lower the first or raise the second",
        )


def _named(queue: Queue | None, name: str) -> str:
    return f"limits.{name}" if queue is None else f"queues[{quote(queue.name)}].{name}"


def _origin(queue: Queue | None, name: str) -> str:
    is_global = queue is not None and getattr(queue, name) is None
    return f" (from limits.{name})" if is_global else ""
