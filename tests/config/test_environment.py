"""The environment: which variables are fields, how their text is read, who wins."""

from pathlib import Path

import pytest

from sepp.config.errors import ConfigError
from sepp.config.limits import Queue
from sepp.config.load import Loaded, load, parse
from sepp.config.sections import AdminKey, ApiKey


def with_environment(text: str = "", **variables: str) -> Loaded:
    return parse(text, "f", variables)


@pytest.mark.parametrize(
    ("variable", "text", "value"),
    [
        ("SEPP_SERVER__STRICT_QUEUES", "true", True),
        ("SEPP_SERVER__STRICT_QUEUES", "TRUE", True),
        ("SEPP_SERVER__STRICT_QUEUES", " true\n", True),
        ("SEPP_ADMIN__ENABLED", "false", False),
        ("SEPP_LIMITS__MAX_ENQUEUE_BATCH", "7", 7),
        ("SEPP_LIMITS__MAX_ENQUEUE_BATCH", "+7", 7),
        ("SEPP_LIMITS__MAX_ENQUEUE_BATCH", "007\n", 7),
        ("SEPP_LIMITS__MAX_QUEUE_DEPTH", "0", 0),
        ("SEPP_TRACING__SAMPLE_RATIO", "0.25", 0.25),
        ("SEPP_TRACING__SAMPLE_RATIO", ".5", 0.5),
        ("SEPP_TRACING__SAMPLE_RATIO", "1", 1.0),
        ("SEPP_TRACING__SAMPLE_RATIO", "1e-3", 0.001),
        ("SEPP_SERVER__DB_PATH", "/data/jobs", "/data/jobs"),
        ("SEPP_SERVER__DB_PATH", '"/data/jobs"', "/data/jobs"),
        ("SEPP_SERVER__DB_PATH", "7", "7"),
        ("SEPP_SERVER__DB_PATH", "true", "true"),
        ("SEPP_SERVER__DB_PATH", "[a]", "[a]"),
        ("SEPP_SERVER__DB_PATH", ' "', ' "'),
        ("SEPP_SERVER__DB_PATH", "tägliche Jobs ✉", "tägliche Jobs ✉"),
        ("SEPP_SERVER__LISTEN_ADDR", "0.0.0.0:6000", "0.0.0.0:6000"),
        ("SEPP_STORAGE__PERSIST_MODE", "buffer", "buffer"),
        ("SEPP_STORAGE__PERSIST_MODE", '"buffer"', "buffer"),
        ("SEPP_LIMITS__ALLOWED_ENCODINGS", '["json","msgpack"]', ("json", "msgpack")),
        ("SEPP_LIMITS__ALLOWED_ENCODINGS", "[json, msgpack]", ("json", "msgpack")),
        ("SEPP_LIMITS__ALLOWED_ENCODINGS", "['a b', \"c\"]", ("'a b'", "c")),
        ("SEPP_LIMITS__ALLOWED_ENCODINGS", '["a,b"]', ("a,b",)),
        ("SEPP_LIMITS__ALLOWED_ENCODINGS", "[]", ()),
        ("SEPP_LIMITS__ALLOWED_ENCODINGS", " [ ] ", ()),
        ("sepp_limits__max_enqueue_batch", "8", 8),
        ("Sepp_Limits__Max_Enqueue_Batch", "9", 9),
    ],
)
def test_text_of_a_variable_is_read_as_its_key(variable: str, text: str, value: object) -> None:
    loaded = with_environment(**{variable: text})
    section, _, name = variable.lower().removeprefix("sepp_").partition("__")

    assert getattr(getattr(loaded.config, section), name) == value
    assert loaded.env_pinned == (f"{section}.{name}",)


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("SEPP_SERVER__STRICT_QUEUES", "yes"),
        ("SEPP_SERVER__STRICT_QUEUES", "1"),
        ("SEPP_SERVER__STRICT_QUEUES", ""),
        ("SEPP_LIMITS__MAX_ENQUEUE_BATCH", ""),
        ("SEPP_LIMITS__MAX_ENQUEUE_BATCH", "many"),
        ("SEPP_LIMITS__MAX_ENQUEUE_BATCH", "1_000"),
        ("SEPP_LIMITS__MAX_ENQUEUE_BATCH", "１２"),
        ("SEPP_LIMITS__MAX_ENQUEUE_BATCH", "1.0"),
        ("SEPP_LIMITS__MAX_ENQUEUE_BATCH", '"5"'),
        ("SEPP_LIMITS__MAX_ENQUEUE_BATCH", "9" * 5000),
        ("SEPP_LIMITS__MAX_ENQUEUE_BATCH", "0"),
        ("SEPP_TRACING__SAMPLE_RATIO", "nan"),
        ("SEPP_TRACING__SAMPLE_RATIO", "1e999"),
        ("SEPP_STORAGE__PERSIST_MODE", "SYNC_ALL"),
        ("SEPP_SERVER__DB_PATH", ""),
        ("SEPP_SERVER__DB_PATH", "a\udcffb"),
        ("SEPP_SERVER__LISTEN_ADDR", "localhost:1"),
        ("SEPP_LIMITS__ALLOWED_ENCODINGS", "json"),
        ("SEPP_LIMITS__ALLOWED_ENCODINGS", '[1, "a"]'),
        ("SEPP_LIMITS__ALLOWED_ENCODINGS", '["\\ud800"]'),
    ],
)
def test_bad_text_is_refused_naming_key_and_variable(variable: str, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        with_environment(**{variable: text})

    section, _, name = variable.lower().removeprefix("sepp_").partition("__")
    assert caught.value.key == f"{section}.{name}"
    assert variable in str(caught.value)
    assert len(str(caught.value)) < 300


def test_environment_wins_over_file_and_file_over_default() -> None:
    loaded = with_environment(
        "[limits]\nmax_enqueue_batch = 5\nmax_reserve_batch = 6\n",
        SEPP_LIMITS__MAX_ENQUEUE_BATCH="7",
    )

    limits = loaded.config.limits
    assert (limits.max_enqueue_batch, limits.max_reserve_batch, limits.max_reserve_queues) == (
        7,
        6,
        32,
    )


def test_environment_hides_a_bad_value_of_the_file() -> None:
    loaded = with_environment(
        "[limits]\nmax_enqueue_batch = 'x'\n", SEPP_LIMITS__MAX_ENQUEUE_BATCH="7"
    )

    assert loaded.config.limits.max_enqueue_batch == 7


def test_environment_takes_part_in_rules_between_keys() -> None:
    with pytest.raises(ConfigError, match=r"limits\.default_max_attempts: 3 is above"):
        with_environment(SEPP_LIMITS__MAX_ATTEMPTS_CEILING="2")


def test_queues_and_keys_come_as_json() -> None:
    loaded = with_environment(
        "[[queues]]\nname = 'gone'\n[[auth.api_keys]]\nname='old'\nkey='old'",
        SEPP_QUEUES='[{"name": "mail", "max_queue_depth": -1, "allowed_encodings": ["json"]}]',
        SEPP_AUTH__API_KEYS='[{"name": "ci", "key": "s3cret"}]',
        SEPP_ADMIN__KEYS='[{"name": "ops", "key": "s3cret", "role": "viewer"}]',
    )

    config = loaded.config
    assert config.queues == (Queue(name="mail", max_queue_depth=-1, allowed_encodings=("json",)),)
    assert config.auth.api_keys == (ApiKey(name="ci", key="s3cret"),)
    assert config.admin.keys == (AdminKey(name="ops", key="s3cret", role="viewer"),)
    assert loaded.env_pinned == ("admin.keys", "auth.api_keys", "queues")
    assert loaded.unknown == ()


@pytest.mark.parametrize("text", ["[s3a, s3b]", '["s3a", "s3b"]'])
def test_api_keys_come_as_plain_strings_too(text: str) -> None:
    loaded = with_environment(SEPP_AUTH__API_KEYS=text)

    assert loaded.config.auth.api_keys == (
        ApiKey(name="key-1", key="s3a"),
        ApiKey(name="key-2", key="s3b"),
    )
    assert len(loaded.warnings) == 1


def test_empty_list_of_keys_refuses_everybody() -> None:
    assert with_environment(SEPP_AUTH__API_KEYS="[]").config.auth.api_keys == ()


@pytest.mark.parametrize("variable", ["SEPP_QUEUES", "SEPP_AUTH__API_KEYS", "SEPP_ADMIN__KEYS"])
@pytest.mark.parametrize(
    "text",
    [
        "",
        "s3cret",
        '{"name": "a", "key": "s3cret"}',
        '[{"name": "a", "key": "s3cret"]',
        '[{"name": "a" "key": "s3cret"}]',
        '["s3cret',
        '["s3cret" "b"]',
        "[" * 5000 + "s3cret",
        "[" * 5000 + "]" * 5000,
        '[{"name": "\\ud800", "key": "s3cret"}]',
        '[{"name": "a", "key": "\\udfff s3cret"}]',
        "[null]",
        "[[]]",
    ],
)
def test_broken_json_is_refused_without_showing_it(variable: str, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        with_environment(**{variable: text})

    assert variable in str(caught.value)
    assert "s3cret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_variables_that_name_no_key_are_ignored_but_pinned() -> None:
    loaded = with_environment(
        SEPP_LIMITS__MAX_FOO="1",
        SEPP_ADMIN__FOO="1",
        SEPP_QUEUES__0__NAME="x",
        SEPP___="1",
    )

    assert loaded.config == parse("", "f", {}).config
    assert loaded.env_pinned == (".", "admin.foo", "limits.max_foo", "queues.0.name")
    assert len(loaded.unknown) == 4
    assert "SEPP_LIMITS__MAX_FOO (limits.max_foo)" in loaded.unknown


def test_variables_without_a_section_are_no_fields() -> None:
    loaded = with_environment(
        SEPP_CONFIG="x", SEPP_KEY="x", SEPP_ADDR="x", SEPP_LIMITS="x", SEPP_="x", SEPPX__A="x"
    )

    assert loaded.env_pinned == ()
    assert loaded.unknown == ()


def test_of_two_spellings_the_one_in_capitals_wins() -> None:
    both = {"sepp_limits__max_enqueue_batch": "1", "SEPP_LIMITS__MAX_ENQUEUE_BATCH": "2"}

    for variables in (both, dict(reversed(both.items()))):
        assert with_environment(**variables).config.limits.max_enqueue_batch == 2


def test_section_of_the_wrong_type_stays_an_error_under_a_variable() -> None:
    with pytest.raises(ConfigError, match=r"^limits: expected a table"):
        with_environment("limits = 3", SEPP_LIMITS__MAX_ENQUEUE_BATCH="2")


def test_rust_log_is_checked_although_it_is_no_key() -> None:
    assert with_environment(RUST_LOG="sepp=debug").env_pinned == ()
    assert with_environment(RUST_LOG="").warnings == ()
    with pytest.raises(ConfigError, match="RUST_LOG: directive 'sepp=loud'"):
        with_environment(RUST_LOG="sepp=loud")


def test_path_is_chosen_by_option_then_variable_then_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for number, name in enumerate(("option.toml", "variable.toml", "sepp.toml"), 1):
        (tmp_path / name).write_text(f"[limits]\nmax_enqueue_batch = {number}\n")
    variable = {"SEPP_CONFIG": "variable.toml"}

    def batch(option: str | None, environ: dict[str, str]) -> int:
        return load(option, environ).config.limits.max_enqueue_batch

    assert batch("option.toml", variable) == 1
    assert batch(None, variable) == 2
    assert batch(None, {}) == 3
    assert batch(None, {"SEPP_CONFIG": ""}) == 3
