"""Each rule between keys: what it refuses, in which words, and what it leaves alone."""

import json

import pytest

from sepp.config.errors import ConfigError
from sepp.config.limits import Limits
from sepp.config.load import parse
from sepp.config.model import Config
from sepp.config.sections import ApiKey, Auth
from sepp.config.validate import validate


def read(text: str) -> Config:
    return parse(text, "f", {}).config


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        read(text)
    assert "\n" not in str(caught.value)
    assert str(caught.value).isprintable()
    return str(caught.value)


@pytest.mark.parametrize("section", ["server", "admin"])
@pytest.mark.parametrize(("is_set", "missing"), [("cert", "key"), ("key", "cert")])
def test_half_of_a_tls_pair_is_refused_naming_both(section: str, is_set: str, missing: str) -> None:
    message = refusal(f"[{section}]\ntls_{is_set}_path = 'x.pem'")

    assert message.startswith(f"{section}.tls_{is_set}_path: is set but ")
    assert f"{section}.tls_{missing}_path is not" in message


def test_tls_of_server_and_admin_are_independent() -> None:
    config = read("[server]\ntls_cert_path = 'a'\ntls_key_path = 'b'")

    assert config.admin.tls_cert_path is None


@pytest.mark.parametrize(
    ("text", "gist"),
    [
        ("[tracing]\nenabled = true\nservice_name = ''", "tracing.service_name: must not be empty"),
        (
            "[metrics]\nenabled = true\notlp_endpoint = ''",
            "metrics.otlp_endpoint: must not be empty",
        ),
        (
            "[metrics]\nenabled = true\nexport_interval_ms = 0",
            "metrics.export_interval_ms: must be > 0",
        ),
    ],
)
def test_exporters_need_their_keys_only_while_enabled(text: str, gist: str) -> None:
    assert refusal(text).startswith(gist)

    read(text.replace("true", "false"))


@pytest.mark.parametrize(
    "address",
    ["0.0.0.0:9465", "[::]:9465", "192.0.2.1:0", "[2001:db8::1]:1", "[::ffff:192.0.2.1]:1"],
)
def test_admin_beyond_loopback_needs_keys(address: str) -> None:
    text = f"[admin]\nlisten_addr = '{address}'\n"

    message = refusal(text)
    assert message.startswith("admin.listen_addr: ")
    assert "non-loopback" in message
    assert "requires keys" in message

    read(text + "keys = []\n")
    read(text + "enabled = false\n")
    read(text + "[[admin.keys]]\nname = 'a'\nkey = 'b'\n")


@pytest.mark.parametrize(
    "address", ["127.0.0.1:0", "127.255.0.9:65535", "[::1]:9465", "[::ffff:127.0.0.1]:1"]
)
def test_admin_on_loopback_needs_none(address: str) -> None:
    read(f"[admin]\nlisten_addr = '{address}'\n")


def test_admin_bounds_and_keys_are_checked_while_it_is_disabled_too() -> None:
    off = "[admin]\nenabled = false\n"

    assert "from 60000 to 31536000000" in refusal(off + "session_ttl_ms = 59999")
    assert "from 60000 to 21600000" in refusal(off + "stats_history_ms = 21600001")
    assert "key must not be empty" in refusal(off + "[[admin.keys]]\nname = 'a'\nkey = ''")


def entries(section: str, *pairs: tuple[str, str]) -> str:
    return "".join(f'[[{section}]]\nname = "{name}"\nkey = "{key}"\n' for name, key in pairs)


@pytest.mark.parametrize("section", ["admin.keys", "auth.api_keys"])
def test_empty_and_repeated_names_and_secrets_are_refused(section: str) -> None:
    cases = {
        entries(section, ("a", "s3x"), ("", "s3y")): f"{section}[2]: name must not be empty",
        entries(section, ("a", "s3x"), ("b", "")): f'{section}["b"]: key must not be empty',
        entries(section, ("a", "s3x"), ("a", "s3y")): f'{section}["a"]: duplicate name',
        entries(section, ("a", "s3x"), ("b", "s3x")): f'{section}["b"]: has the same key as "a"',
        entries(section, ("\\u0007", "")): f'{section}["\\x07"]: key must not be empty',
    }

    for text, gist in cases.items():
        message = refusal(text)
        assert message.startswith(gist)
        assert "s3" not in message


@pytest.mark.parametrize("key", ["a b", "a\\tb", "ä", "\\u007f", "x\\u0000", "✉", " "])
def test_api_key_that_no_header_could_carry_is_refused(key: str) -> None:
    message = refusal(entries("auth.api_keys", ("ci", key)))

    assert message.startswith('auth.api_keys["ci"]: key must be visible ASCII (0x21-0x7E)')

    read(entries("admin.keys", ("ci", key)))


def test_api_key_of_every_visible_character_is_accepted() -> None:
    every = "".join(map(chr, range(0x21, 0x7F)))

    validate(Config(auth=Auth(api_keys=(ApiKey(name="ci", key=every),))))


@pytest.mark.parametrize(
    ("section", "prefix"),
    [("[limits]\n", "limits."), ("[[queues]]\nname = 'q\"'\n", 'queues["q\\""].')],
)
def test_rules_between_limits_hold_globally_and_for_each_queue(section: str, prefix: str) -> None:
    cases = {
        "default_max_attempts = 6\nmax_attempts_ceiling = 5": (
            "default_max_attempts: 6 is above max_attempts_ceiling = 5"
        ),
        "retry_delay_ms = 8\nretry_delay_max_ms = 7": (
            "retry_delay_ms: 8 is above retry_delay_max_ms = 7"
        ),
        "max_payload_bytes = 16777217": (
            "max_payload_bytes: 16777217 is above limits.max_message_bytes = 16777216"
        ),
        "default_priority = 10": "default_priority: 10 is too large; it must be from 0 to 9",
        "max_lease_duration_ms = 0": "max_lease_duration_ms: 0 is too small",
        "max_custom_entries = 0": "max_custom_entries: 0 is too small",
        "allowed_encodings = ['']": "allowed_encodings: its entries must not be empty",
    }

    for text, gist in cases.items():
        assert refusal(section + text).startswith(prefix + gist)

    read(
        section + "default_max_attempts = 5\nmax_attempts_ceiling = 5\nretry_delay_ms = 7\n"
        "retry_delay_max_ms = 7\nmax_payload_bytes = 16777216\ndefault_priority = 9"
    )


@pytest.mark.parametrize(
    ("text", "gist"),
    [
        (
            "[[queues]]\nname = 'q'\nmax_attempts_ceiling = 2",
            'queues["q"].default_max_attempts: 3 (from limits.default_max_attempts) is above '
            "max_attempts_ceiling = 2",
        ),
        (
            "[[queues]]\nname = 'q'\ndefault_max_attempts = 101",
            'queues["q"].default_max_attempts: 101 is above max_attempts_ceiling = 100 (from '
            "limits.max_attempts_ceiling)",
        ),
        (
            "[limits]\nretry_delay_ms = 10\n[[queues]]\nname = 'q'\nretry_delay_max_ms = 9",
            'queues["q"].retry_delay_ms: 10 (from limits.retry_delay_ms) is above',
        ),
        (
            "[limits]\nmax_message_bytes = 100\nmax_payload_bytes = 100\n[[queues]]\nname = 'q'\n"
            "max_payload_bytes = 101",
            'queues["q"].max_payload_bytes: 101 is above limits.max_message_bytes = 100',
        ),
    ],
)
def test_merged_values_of_a_queue_are_checked(text: str, gist: str) -> None:
    message = refusal(text)

    assert message.startswith(gist)
    assert message.endswith("lower the first or raise the second")


def test_queue_specific_bounds() -> None:
    queue = "[[queues]]\nname = 'q'\n"

    assert read(queue + "max_queue_depth = -1").queues[0].max_queue_depth == -1
    assert "-2 is too small; it must be from -1" in refusal(queue + "max_queue_depth = -2")
    assert "limits.max_queue_depth: -1 is too small" in refusal("[limits]\nmax_queue_depth = -1")
    assert "must not be an empty list" in refusal(queue + "allowed_job_types = []")
    assert "entries must not be empty" in refusal(queue + "allowed_job_types = ['a', '']")
    assert "dedup_window_ms: 0 is too small" in refusal(queue + "dedup_window_ms = 0")
    assert read(queue + "allowed_encodings = []").queues[0].allowed_encodings == ()


ACCEPTED_NAMES = [
    "a", "a b", " ", "a.b", "...", ".a", "__meta", "<img src=x>", "\"quoted\"", "'", "\\", "%2F",
    "ünïcode ✉", "אבג", "\u202egnp", "\u2028", "😀" * 128, "x" * 512, "[]", "queues[0]", "a=b",
    "-1", "\ufeff", "\u00a0",
]  # fmt: skip
REFUSED_NAMES = {
    "": "must not be empty",
    ".": 'must not be "."',
    "..": 'must not be ".."',
    "a/b": 'must not contain "/"',
    "/": 'must not contain "/"',
    "../x": 'must not contain "/"',
    "a\0b": "must not contain control characters",
    "a\nb": "must not contain control characters",
    "\x7f": "must not contain control characters",
    "\x85": "must not contain control characters",
    "x" * 513: "is 513 bytes long; limits.max_queue_name_bytes allows 512",
    "é" * 257: "is 514 bytes long; limits.max_queue_name_bytes allows 512",
}


@pytest.mark.parametrize("name", ACCEPTED_NAMES)
def test_odd_queue_name_is_accepted_as_it_is(name: str) -> None:
    loaded = parse("", "f", {"SEPP_QUEUES": json.dumps([{"name": name}])})

    assert loaded.config.queues[0].name == name


@pytest.mark.parametrize("name", REFUSED_NAMES)
def test_bad_queue_name_is_refused_with_its_reason(name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse("", "f", {"SEPP_QUEUES": json.dumps([{"name": name}])})

    message = str(caught.value)
    assert message.startswith('queues["')
    assert REFUSED_NAMES[name] in message
    assert message.isprintable()


def test_name_of_exactly_the_limit_is_accepted_in_bytes_not_characters() -> None:
    limit = "[limits]\nmax_queue_name_bytes = 4\n"

    read(limit + "[[queues]]\nname = 'éé'")
    assert "is 5 bytes long" in refusal(limit + "[[queues]]\nname = 'éé1'")


def test_duplicate_queue_is_named() -> None:
    text = "[[queues]]\nname = 'a'\n[[queues]]\nname = 'b'\n[[queues]]\nname = 'a'\n"

    assert refusal(text).startswith('queues["a"]: duplicate queue name')


@pytest.mark.parametrize("level", ["", "loud", "info,,=warn", "sepp=", "a b=info", "sepp[x]=info"])
def test_log_filter_that_cannot_be_read_is_refused(level: str) -> None:
    assert refusal(f"[logging]\nlevel = '{level}'").startswith("logging.level: ")


@pytest.mark.parametrize("key", ["server.listen_addr", "metrics.prometheus_listen_addr"])
def test_bad_address_names_the_form(key: str) -> None:
    section, _, name = key.partition(".")

    message = refusal(f"[{section}]\n{name} = 'localhost:80'")

    assert message.startswith(f'{key}: "localhost:80" is no address; write IP:port')
    assert "host names are not looked up" in message


def test_first_broken_rule_in_the_order_of_the_file_is_reported() -> None:
    text = (
        "[server]\ntls_key_path = 'x'\n[limits]\nmax_reserve_batch = 0\nretry_delay_ms = 9\n"
        "retry_delay_max_ms = 8\n[[queues]]\nname = '/'\n"
    )

    assert refusal(text).startswith("limits.max_reserve_batch")
    text = text.replace("max_reserve_batch = 0\n", "")
    assert refusal(text).startswith("server.tls_key_path")
    text = text.replace("tls_key_path = 'x'\n", "")
    assert refusal(text).startswith("limits.retry_delay_ms")
    assert refusal("[[queues]]\nname = '/'\n").startswith('queues["/"]')


def test_a_configuration_made_in_code_is_checked_alike() -> None:
    validate(Config())
    with pytest.raises(ConfigError, match=r"^limits\.max_reserve_batch: 0 is too small"):
        validate(Config(limits=Limits(max_reserve_batch=0)))
