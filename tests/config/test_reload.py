"""What differs between two configurations, and what of it must wait for a restart."""

import pytest

from sepp.config.load import parse
from sepp.config.model import KEYS, KEYS_BY_PATH, Config
from sepp.config.reload import QUEUE_WINDOWS, RESTART_ONLY, changes, restart_changes
from tests.config.altered import PAIRED, altered
from tests.config.facts import OVERRIDES, ROWS

WHOLE_SECTIONS = ("logging", "tracing", "metrics", "transport")


def read(text: str) -> Config:
    return parse(text, "f", {}).config


def test_restart_only_list_has_the_specified_order_with_extensions_at_its_end() -> None:
    assert RESTART_ONLY == (
        "server.listen_addr",
        "server.db_path",
        "server.tls_cert_path",
        "server.tls_key_path",
        "limits.max_message_bytes",
        "storage.persist_mode",
        "storage.sweep_interval_ms",
        "storage.sweep_limit",
        "storage.dead_letter_retention_ms",
        "storage.dedup_window_ms",
        "queues[].dedup_window_ms",
        "storage.command_queue_capacity",
        "storage.cache_size_bytes",
        "storage.max_journaling_size_bytes",
        "storage.max_cached_files",
        "storage.worker_threads",
        "logging",
        "tracing",
        "metrics",
        "admin.enabled",
        "admin.listen_addr",
        "admin.tls_cert_path",
        "admin.tls_key_path",
        "storage.segment_bytes",
        "transport",
    )


def test_restart_only_list_names_exactly_the_keys_marked_so() -> None:
    marked = {key.path for key in KEYS if key.spec.mark == "R"}
    in_sections = {path for path in marked if path.partition(".")[0] in WHOLE_SECTIONS}

    assert set(RESTART_ONLY) == (marked - in_sections) | set(WHOLE_SECTIONS) | {QUEUE_WINDOWS}
    for section in WHOLE_SECTIONS:
        assert all(key.spec.mark == "R" for key in KEYS if key.section == section)


@pytest.mark.parametrize(("path", "mark"), [(row[0], row[4]) for row in ROWS])
def test_change_of_a_key_is_seen_and_waits_only_when_marked_so(path: str, mark: str) -> None:
    section, _, name = path.partition(".")
    old, new = Config(), read(altered(path))
    both = tuple(f"{section}.{pair}" for pair in PAIRED) if name in PAIRED else (path,)

    assert changes(old, new) == both
    waiting = (section,) if section in WHOLE_SECTIONS else both
    assert restart_changes(old, new) == (waiting if mark == "R" else ())
    assert KEYS_BY_PATH[path].spec.mark == mark


@pytest.mark.parametrize(("name", "mark"), OVERRIDES.items())
def test_change_of_an_override_waits_only_when_marked_so(name: str, mark: str) -> None:
    value = {"retry_backoff": "'exponential'", "allowed_encodings": "['a']",
             "allowed_job_types": "['a']", "default_max_attempts": "2"}.get(name, "9")  # fmt: skip
    old = read("[[queues]]\nname = 'q'")
    new = read(f"[[queues]]\nname = 'q'\n{name} = {value}")
    waiting = ("queues[].dedup_window_ms",) if mark == "R" else ()

    assert changes(old, new) == ("queues",)
    assert restart_changes(old, new) == restart_changes(new, old) == waiting


def test_window_of_a_queue_waits_when_added_changed_or_removed_with_its_entry() -> None:
    none = Config()
    plain = read("[[queues]]\nname = 'q'")
    one = read("[[queues]]\nname = 'q'\ndedup_window_ms = 1")
    two = read("[[queues]]\nname = 'q'\ndedup_window_ms = 2")

    assert restart_changes(none, plain) == restart_changes(plain, none) == ()
    for old, new in ((none, one), (one, none), (plain, one), (one, two)):
        assert restart_changes(old, new) == ("queues[].dedup_window_ms",)


def test_order_of_queue_entries_is_a_change_that_waits_for_nothing() -> None:
    one = read("[[queues]]\nname = 'a'\ndedup_window_ms = 1\n[[queues]]\nname = 'b'")
    two = read("[[queues]]\nname = 'b'\n[[queues]]\nname = 'a'\ndedup_window_ms = 1")

    assert restart_changes(one, two) == ()


def test_many_changes_are_reported_in_order() -> None:
    text = "".join(
        (
            "[transport]\nmax_connections = 7\n[admin]\nenabled = false\n",
            "[metrics]\nenabled = true\n",
            "[logging]\nlevel = 'warn'\n[storage]\nsweep_limit = 3\npersist_mode = 'buffer'\n",
            "[limits]\nmax_enqueue_batch = 3\n[server]\ndb_path = 'x'\n",
        )
    )

    assert restart_changes(Config(), read(text)) == (
        "server.db_path",
        "storage.persist_mode",
        "storage.sweep_limit",
        "logging",
        "metrics",
        "admin.enabled",
        "transport",
    )
    assert "limits.max_enqueue_batch" in changes(Config(), read(text))


def test_equal_configurations_differ_in_nothing() -> None:
    assert changes(Config(), read("")) == restart_changes(Config(), read("")) == ()
