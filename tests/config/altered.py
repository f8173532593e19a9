"""For each key a second value, valid by itself: what the reload matrix flips."""

from tests.config.facts import ROWS

SPECIAL: dict[str, str] = {
    "server.listen_addr": '"127.0.0.1:0"',
    "server.db_path": '"./other"',
    "admin.listen_addr": '"127.0.0.1:1"',
    "admin.keys": '[{ name = "ops", key = "secret" }]',
    "auth.api_keys": '[{ name = "ci", key = "secret" }]',
    "limits.retry_backoff": '"exponential"',
    "limits.allowed_encodings": '["json"]',
    "limits.max_queue_depth": "7",
    "storage.persist_mode": '"buffer"',
    "storage.max_journaling_size_bytes": "67108864",
    "storage.max_cached_files": "10",
    "storage.worker_threads": "1",
    "logging.level": '"debug"',
    "logging.format": '"json"',
    "tracing.otlp_endpoint": '"http://127.0.0.1:1"',
    "tracing.service_name": '"jobs"',
    "tracing.sample_ratio": "0.5",
    "metrics.otlp_endpoint": '"http://127.0.0.1:1"',
    "metrics.prometheus_listen_addr": '"127.0.0.1:0"',
}
# A pair of TLS files changes together.
PAIRED = ("tls_cert_path", "tls_key_path")


def altered(path: str) -> str:
    """Return a TOML file in which `path`, and as little else as can be, is changed."""
    section, _, name = path.partition(".")
    if name in PAIRED:
        return f"[{section}]\ntls_cert_path = 'c.pem'\ntls_key_path = 'k.pem'\n"
    value = SPECIAL.get(path)
    if value is None:
        default, low = next((row[1], row[2]) for row in ROWS if row[0] == path)
        if isinstance(default, bool):
            value = "false" if default else "true"
        else:
            assert isinstance(default, int)
            value = str(default + 1 if default == low else default - 1)
    return f"[{section}]\n{name} = {value}\n"
