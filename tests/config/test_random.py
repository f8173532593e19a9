"""Whatever stands in a file or in the environment, the only way to refuse it is a ConfigError."""

import string
from collections.abc import Callable
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from sepp.config.convert import Notes, convert
from sepp.config.environment import overlay
from sepp.config.errors import ConfigError
from sepp.config.load import parse
from sepp.config.model import ADMIN_KEY_KEYS, KEYS, QUEUE_KEYS, SECTIONS, Config
from sepp.config.policy import QueuePolicy
from sepp.config.validate import validate

words = st.sampled_from(["", "a", ".", "a/b", "\x00", "é" * 300, "127.0.0.1:1", "info", "none"])
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.integers(-1, 300),
    st.floats(),
    words,
    st.text(max_size=8),
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=5,
)


def table(names: list[str]) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.sampled_from([*names, "unknown"]), values, max_size=4)


entries = st.lists(table([key.name for key in ADMIN_KEY_KEYS]), max_size=3)
trees = st.fixed_dictionaries(
    {},
    optional={
        "admin": st.fixed_dictionaries({}, optional={"keys": entries, "listen_addr": words}),
        "auth": st.fixed_dictionaries({}, optional={"api_keys": entries}),
        "queues": st.lists(table([key.name for key in QUEUE_KEYS]), max_size=3) | values,
        **{
            section: table([key.name for key in KEYS if key.section == section]) | values
            for section in SECTIONS
            if section not in ("admin", "auth")
        },
    },
)


def outcome(make: Callable[[], Config]) -> Config | ConfigError:
    try:
        return make()
    except ConfigError as fault:
        return fault


def check(found: Config | ConfigError) -> None:
    if isinstance(found, ConfigError):
        assert str(found).isprintable()
    else:
        QueuePolicy(found).limits("any")


def checked(config: Config) -> Config:
    validate(config)
    return config


@given(trees)
def test_tree_is_a_configuration_or_a_config_error(tree: dict[str, Any]) -> None:
    check(outcome(lambda: checked(convert(tree, Notes()))))


@given(st.text(max_size=200))
@example("[[queues]]\nname = 'a'\n" * 2)
def test_text_is_a_configuration_or_a_config_error(text: str) -> None:
    check(outcome(lambda: parse(text, "f", {}).config))


names = st.sampled_from([key.variable for key in KEYS] + ["SEPP_QUEUES", "SEPP_X__Y", "SEPP_"])
lists = ["[]", "[[]]", "[{}]", '[{"name": "a"}]', '[{"name": "a", "key": "b"}]', "[a, b]", "true"]
texts = words | st.text(max_size=20) | st.text(string.printable, max_size=30)


@given(st.dictionaries(names, texts | st.sampled_from(lists), max_size=4))
def test_environment_is_a_configuration_or_a_config_error(environ: dict[str, str]) -> None:
    check(outcome(lambda: checked(convert(overlay({}, environ), Notes()))))
