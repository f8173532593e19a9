"""Settings as fields of a form: label, value, marks; and what a posted form changes.

Everything a field says (its sentence, bounds, default, restart mark) comes from the table of
configuration keys; only the short labels are made here.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from attrs import define

from sepp.admin import wording
from sepp.admin.requests import Change, Setting
from sepp.config.model import KEYS, OVERRIDES, QUEUE_KEYS, Config
from sepp.config.reload import RESTART_ONLY
from sepp.config.table import Key

LABELS: Final[dict[str, str]] = {
    "server.listen_addr": "gRPC address",
    "server.db_path": "Data directory",
    "server.tls_cert_path": "TLS certificate",
    "server.tls_key_path": "TLS key",
    "server.strict_queues": "Strict queues",
    "admin.enabled": "Admin pages",
    "admin.listen_addr": "Admin address",
    "admin.tls_cert_path": "TLS certificate",
    "admin.tls_key_path": "TLS key",
    "admin.session_ttl_ms": "Session length",
    "admin.stats_history_ms": "Chart history",
    "admin.audit_retention_ms": "Keep audit entries",
    "limits.max_lease_duration_ms": "Longest lease",
    "limits.default_max_attempts": "Attempts",
    "limits.max_attempts_ceiling": "Most attempts",
    "limits.default_priority": "Priority",
    "limits.retry_delay_ms": "Retry delay",
    "limits.retry_backoff": "Back-off",
    "limits.retry_delay_max_ms": "Longest retry delay",
    "limits.max_queue_depth": "Depth limit",
    "limits.max_payload_bytes": "Largest payload",
    "limits.max_message_bytes": "Largest message",
    "limits.max_response_bytes": "Largest answer",
    "limits.max_schedule_horizon_ms": "Schedule horizon",
    "limits.allowed_encodings": "Encodings",
    "storage.persist_mode": "Durability",
    "storage.sweep_interval_ms": "Sweep guard",
    "storage.dedup_window_ms": "Idempotency window",
    "storage.dead_letter_retention_ms": "Keep dead letters",
    "storage.command_queue_capacity": "Command queue",
    "queues[].allowed_job_types": "Job types",
}
_ACRONYMS: Final = {"otlp": "OTLP", "tls": "TLS", "grpc": "gRPC", "id": "id"}

SECTION_NOTES: Final[dict[str, str]] = {"limits": "a queue may override most of these"}


@define
class Field:
    """One setting as the page shows it. `text` is its value as a control holds it."""

    path: str
    id: str
    label: str
    hint: str
    kind: str
    text: str
    placeholder: str
    reading: str
    choices: tuple[str, ...]
    default: str
    is_set: bool
    is_restart: bool
    waits: str  # what it runs with while another value waits for a restart; "" if none does
    variable: str  # the environment variable that holds it; "" if none does
    error: str = ""

    @property
    def is_on(self) -> bool:
        """Whether a switch is on."""
        return self.text == "true"


def label_of(key: Key) -> str:
    """Return the short label of a setting."""
    path = key.path.replace("queues[].", "limits.") if key.path not in LABELS else key.path
    known = LABELS.get(key.path) or LABELS.get(path)
    if known is None and key.name == "dedup_window_ms":
        known = LABELS["storage.dedup_window_ms"]
    if known is not None:
        return known
    words = key.name.removesuffix("_ms").removesuffix("_bytes").split("_")
    text = " ".join(_ACRONYMS.get(word, word) for word in words)
    return text[:1].upper() + text[1:]


def to_text(value: object) -> str:
    """Return a value as a control holds it: lists one entry a line, nothing for unset."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple | list):
        return "\n".join(value)
    return str(value)


def from_text(key: Key, text: str) -> Setting:
    """Return the value a control holds; None for an empty one, which removes the setting.

    A number that is none stays text: the check of the candidate then names the field.
    """
    text = text.replace("\r\n", "\n").strip()
    if text == "":
        return None
    if key.kind == "bool":
        return text == "true"
    if key.kind == "texts":
        return [] if text == "[]" else [line.strip() for line in text.split("\n") if line.strip()]
    if key.kind in ("int", "float"):
        return _number(text, key.kind)
    return text


def _number(text: str, kind: str) -> Setting:
    plain = text.replace(",", "").replace("_", "")
    try:
        return int(plain) if kind == "int" else float(plain)
    except ValueError:
        return text


def reading(key: Key, value: object) -> str:
    """Return a number's unit with its plain reading: ms = 5 min, bytes = 1 MiB."""
    if not isinstance(value, int) or isinstance(value, bool) or not key.unit:
        return "jobs" if key.name == "max_queue_depth" else key.unit
    words = wording.exact_span(value) if key.unit == "ms" else wording.exact_size(value)
    is_telling = words and words != f"{value} ms"
    return f"{key.unit} = {words}" if is_telling else key.unit


def of_config(
    running: Config, boot: Config, pinned: Sequence[str], is_set: Callable[[str], bool]
) -> dict[str, list[Field]]:
    """Return the fields of all sections, in the order of the file."""
    found: dict[str, list[Field]] = {}
    for key in KEYS:
        if key.kind == "tables":
            continue
        value = getattr(getattr(running, key.section), key.name)
        was = getattr(getattr(boot, key.section), key.name)
        is_restart = key.path in RESTART_ONLY or key.section in RESTART_ONLY
        found.setdefault(key.section, []).append(
            Field(
                path=key.path,
                id=f"f-{key.section}-{key.name}",
                label=label_of(key),
                hint=_hint(key),
                kind=_control(key),
                text=to_text(value),
                placeholder="no limit" if key.name == "max_queue_depth" else "not set",
                reading=reading(key, value),
                choices=key.choices,
                default=to_text(key.default),
                is_set=is_set(key.path),
                is_restart=is_restart,
                waits=(to_text(was) or "nothing") if is_restart and was != value else "",
                variable=key.variable if key.path in pinned else "",
            )
        )
    return found


def _hint(key: Key) -> str:
    text = key.spec.text
    if key.kind == "texts":
        text += " One a line; [] for an empty list."
    return text


def _control(key: Key) -> str:
    return "choice" if key.kind == "choice" else key.kind


def of_queue(overrides: Mapping[str, Setting], server: Mapping[str, Setting]) -> list[Field]:
    """Return the fields of a queue's settings: an override, or the server's value behind it."""
    found = []
    for key in QUEUE_KEYS:
        if key.name not in OVERRIDES:
            continue
        value = overrides.get(key.name)
        found.append(
            Field(
                path=key.name,
                id=f"f-{key.name}",
                label=label_of(key),
                hint=_hint(key),
                kind=_control(key),
                text=to_text(value),
                placeholder=to_text(server.get(key.name)) or _unset_words(key.name),
                reading=reading(key, value if value is not None else server.get(key.name)),
                choices=key.choices,
                default="",
                is_set=value is not None,
                is_restart=key.name == "dedup_window_ms",
                waits="",
                variable="",
            )
        )
    return found


def _unset_words(name: str) -> str:
    return {"max_queue_depth": "no limit", "allowed_job_types": "any"}.get(name, "any")


def changed(
    fields: Mapping[str, str], form: Mapping[str, str], keys: Mapping[str, Key]
) -> list[Change]:
    """Return what a posted form changes against the texts the page held.

    Args:
        fields: Path to the text shown.
        form: Path to the text posted; paths that were not posted stay as they are.
        keys: Path to the row of its setting.
    """
    found = []
    for path, shown in fields.items():
        posted = form.get(path)
        if posted is None:
            continue
        if posted.replace("\r\n", "\n").strip() != shown.strip():
            found.append(Change(path=path, value=from_text(keys[path], posted)))
    return found
