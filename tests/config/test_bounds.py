"""Each key at its smallest and largest value, one beyond each, and in every wrong type."""

import pytest

from sepp.config.errors import ConfigError
from sepp.config.load import parse
from sepp.config.model import KEYS_BY_PATH, Config
from tests.config import facts

NUMBERS = [row for row in facts.ROWS if row[2] is not None]
WRONG = {
    "bool": ("1", '"true"', "[]"),
    "int": ("1.0", '"1"', "true", "[1]", "1979-05-27"),
    "float": ('"1"', "true", "nan", "inf"),
    "text": ("1", "true", '["a"]'),
    "address": ("1", "true"),
    "choice": ("1", '"SYNC"', "[]"),
    "texts": ('"json"', "1", "[1]", '["a", 1]'),
    "tables": ('"x"', "1", "{}", "[1]", "[[]]"),
}


def read(path: str, value: str, beside: str = "") -> Config:
    section, _, name = path.partition(".")
    return parse(f"[{section}]\n{name} = {value}\n{beside}\n", "f", {}).config


def got(config: Config, path: str) -> object:
    section, _, name = path.partition(".")
    return getattr(getattr(config, section), name)


@pytest.mark.parametrize(
    ("path", "bound"),
    [(row[0], bound) for row in NUMBERS for bound in (row[2], row[3])],
)
def test_bound_itself_is_accepted(path: str, bound: float) -> None:
    beside = facts.COMPANIONS.get((path, int(bound)), "")
    if path == "limits.max_payload_bytes" and bound == facts.I64:
        with pytest.raises(ConfigError, match=r"above limits\.max_message_bytes"):
            read(path, str(bound))
        return

    assert got(read(path, str(bound), beside), path) == bound


@pytest.mark.parametrize(("path", "low"), [(row[0], row[2]) for row in NUMBERS])
def test_below_the_smallest_is_refused(path: str, low: float) -> None:
    value = low - 1

    with pytest.raises(ConfigError, match="is too small") as caught:
        read(path, str(value))

    assert caught.value.key == path
    assert str(caught.value).startswith(f"{path}: {value} ")
    assert f"from {low} to " in str(caught.value)


@pytest.mark.parametrize(("path", "high"), [(row[0], row[3]) for row in NUMBERS])
def test_above_the_largest_is_refused(path: str, high: float) -> None:
    value = high + 1 if isinstance(high, int) else 1.0000001

    with pytest.raises(ConfigError, match="is too large") as caught:
        read(path, str(value))

    assert caught.value.key == path
    assert f"to {high}" in str(caught.value)


@pytest.mark.parametrize(
    ("path", "value"),
    [(row[0], wrong) for row in facts.ROWS for wrong in WRONG[KEYS_BY_PATH[row[0]].kind]],
)
def test_wrong_type_is_refused_by_name(path: str, value: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(path, value)

    # A fault inside a list of tables is named down to the entry.
    assert caught.value.key.startswith(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("path", facts.CHOICES)
def test_every_choice_is_accepted_and_any_other_names_them_all(path: str) -> None:
    for choice in facts.CHOICES[path]:
        assert got(read(path, f'"{choice}"'), path) == choice

    with pytest.raises(ConfigError, match=", ".join(facts.CHOICES[path])):
        read(path, '"Exponential"')


@pytest.mark.parametrize(
    "path", [row[0] for row in facts.ROWS if KEYS_BY_PATH[row[0]].kind == "text"]
)
def test_empty_text_is_refused_where_it_means_nothing(path: str) -> None:
    if KEYS_BY_PATH[path].spec.may_be_empty:
        assert got(read(path, '""'), path) == ""
        return
    with pytest.raises(ConfigError, match="empty") as caught:
        read(path, '""')
    assert caught.value.key == path


@pytest.mark.parametrize("value", ["0x" + "f" * 10_000, "1" + "0" * 4000, str(2**63)])
def test_absurd_integer_is_refused_in_one_short_line(value: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read("limits.max_wait_timeout_ms", value)

    assert len(str(caught.value)) < 200


def test_whole_number_is_accepted_for_a_ratio() -> None:
    ratio = read("tracing.sample_ratio", "1").tracing.sample_ratio

    assert (ratio, type(ratio)) == (1.0, float)


def test_unset_differs_from_zero_and_from_an_empty_list() -> None:
    assert parse("", "f", {}).config.limits.max_queue_depth is None
    assert read("limits.max_queue_depth", "0").limits.max_queue_depth == 0
    assert read("limits.allowed_encodings", "[]").limits.allowed_encodings == ()
    assert read("auth.api_keys", "[]").auth.api_keys == ()
    assert read("admin.keys", "[]").admin.keys == ()
