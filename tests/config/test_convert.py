"""What is accepted, skipped and refused on the way from TOML to a configuration."""

import pytest

from sepp.config.errors import ConfigError
from sepp.config.limits import Queue
from sepp.config.load import Loaded, parse
from sepp.config.model import Config
from sepp.config.sections import AdminKey, ApiKey


def read(text: str) -> Loaded:
    return parse(text, "f", {})


def refusal(text: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        read(text)
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing\n", "[server]\n[admin]\n[queues-old]\n"])
def test_empty_file_equals_the_defaults(text: str) -> None:
    assert read(text).config == Config()


def test_unknown_keys_and_sections_are_skipped_and_listed() -> None:
    loaded = read(
        "color = 1\n[server]\nlisten = 2\n[limits]\n'odd \\key' = 3\n[cluster]\nnodes = []\n"
        "[[queues]]\nname = 'a'\nweight = 4\n"
    )

    assert loaded.config == Config(queues=(Queue(name="a"),))
    assert sorted(loaded.unknown) == [
        "cluster",
        "color",
        'limits."odd \\\\key"',
        'queues["a"].weight',
        "server.listen",
    ]


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("[admin]\nenable = true", "admin.enable"),
        ("[admin]\ntls_cert = 'x'", "admin.tls_cert"),
        ("[[admin.keys]]\nname='a'\nkey='b'\nroles='admin'", "admin.keys[1].roles"),
        ("[[auth.api_keys]]\nname='a'\nkey='b'\nrole='admin'", "auth.api_keys[1].role"),
        ("[auth]\napi_keys = ['x', {name='a', key='b', x=1}]", "auth.api_keys[2].x"),
    ],
)
def test_unknown_key_is_an_error_where_it_would_leave_a_door_open(text: str, key: str) -> None:
    fault = refusal(text)

    assert fault.key == key
    assert "unknown key; known here: " in fault.text


@pytest.mark.parametrize(
    ("text", "gist"),
    [
        ("server = 1", "server: expected a table [server], found 1"),
        ("limits = 'x'", 'limits: expected a table [limits], found "x"'),
        ("queues = 1", "queues: expected [[queues]] tables, found 1"),
        ("[queues]\nname = 'a'", "queues: expected [[queues]] tables, found a table"),
        ("queues = ['a']", 'queues[1]: expected a [[queues]] table, found "a"'),
        ("[[queues]]\nmax_queue_depth = 1", "queues[1]: name is missing"),
        ("[[queues]]\nname = 1", "queues[1].name: expected a string, found 1"),
        (
            "[[queues]]\nname = 'a'\nretry_backoff = 'linear'",
            'queues["a"].retry_backoff: "linear" is not one of none, exponential',
        ),
        (
            "[[queues]]\nname = 'a'\nmax_queue_depth = true",
            'queues["a"].max_queue_depth: expected an integer, found true',
        ),
        (
            "[limits]\nmax_reserve_batch = 2.5",
            "limits.max_reserve_batch: expected an integer, found 2.5",
        ),
        (
            "[server]\ndb_path = 2026-01-01",
            "server.db_path: expected a string, found a date or time",
        ),
        ("[[admin.keys]]\nname = 'a'", "admin.keys[1]: key is missing"),
        ("[[admin.keys]]\nkey = 's3cret'", "admin.keys[1]: name is missing"),
        ("[[auth.api_keys]]\nname = 'a'", "auth.api_keys[1]: key is missing"),
        ("[[auth.api_keys]]\nname = 'a'\nkey = 7", "auth.api_keys[1].key: expected a string, "),
        (
            "[[admin.keys]]\nname = 'a'\nkey = 's3cret'\nrole = 'root'",
            'admin.keys[1].role: "root" is not one of viewer, operator, admin',
        ),
        ("[auth]\napi_keys = 's3cret'", "auth.api_keys: expected a list of tables, found a string"),
        ("[admin]\nkeys = ['s3cret']", "admin.keys[1]: expected a table, found a string"),
    ],
)
def test_wrong_shape_is_named(text: str, gist: str) -> None:
    message = str(refusal(text))

    assert message.startswith(gist)
    assert "s3cret" not in message


def test_old_form_of_api_keys_is_read_with_a_warning() -> None:
    loaded = read('[auth]\napi_keys = ["one", { name = "ci", key = "two" }, "three"]')

    assert loaded.config.auth.api_keys == (
        ApiKey(name="key-1", key="one"),
        ApiKey(name="ci", key="two"),
        ApiKey(name="key-3", key="three"),
    )
    assert len(loaded.warnings) == 1
    assert "auth.api_keys holds plain strings" in loaded.warnings[0]


def test_canonical_api_keys_give_no_warning() -> None:
    loaded = read("[[auth.api_keys]]\nname = 'ci'\nkey = 'two'")

    assert loaded.config.auth.api_keys == (ApiKey(name="ci", key="two"),)
    assert loaded.warnings == ()


def test_admin_role_is_admin_unless_said_otherwise() -> None:
    keys = read(
        "[[admin.keys]]\nname='a'\nkey='k'\n[[admin.keys]]\nname='b'\nkey='l'\nrole='viewer'"
    ).config.admin.keys

    assert keys == (
        AdminKey(name="a", key="k", role="admin"),
        AdminKey(name="b", key="l", role="viewer"),
    )


def test_every_override_of_a_queue_is_read() -> None:
    queue = Queue(
        name="a",
        max_lease_duration_ms=1,
        default_max_attempts=2,
        max_attempts_ceiling=3,
        default_priority=4,
        retry_delay_ms=5,
        retry_backoff="exponential",
        retry_delay_max_ms=6,
        max_payload_bytes=7,
        allowed_encodings=("json",),
        allowed_job_types=("x", "y"),
        max_schedule_horizon_ms=8,
        max_custom_entries=9,
        max_custom_total_bytes=10,
        max_custom_key_bytes=11,
        dedup_window_ms=12,
        max_queue_depth=13,
    )
    lines = []
    for name in Queue.__struct_fields__:
        value = getattr(queue, name)
        value = list(value) if isinstance(value, tuple) else value
        lines.append(f"{name} = {value!r}")

    assert read("[[queues]]\n" + "\n".join(lines)).config.queues == (queue,)
