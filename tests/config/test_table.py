"""The table of keys says what the specification says."""

import pytest

from sepp.config.model import KEYS, KEYS_BY_PATH, OVERRIDES, QUEUE_KEYS, Config
from tests.config import facts


def test_keys_are_those_of_the_specification_in_its_order() -> None:
    assert [key.path for key in KEYS] == [row[0] for row in facts.ROWS]


@pytest.mark.parametrize(("path", "default", "low", "high", "mark"), facts.ROWS)
def test_row_is_as_specified(
    path: str, default: object, low: float | None, high: float | None, mark: str
) -> None:
    key = KEYS_BY_PATH[path]

    assert (key.default, type(key.default)) == (default, type(default))
    assert (key.spec.ge, key.spec.le, key.spec.mark) == (low, high, mark)
    assert key.choices == facts.CHOICES.get(path, ())
    assert key.is_optional is (default is None)


def test_queue_entry_overrides_are_those_of_the_specification() -> None:
    assert {key.name: key.spec.mark for key in QUEUE_KEYS if key.name != "name"} == facts.OVERRIDES
    assert set(OVERRIDES) == set(facts.OVERRIDES)


def test_override_has_the_bounds_of_the_global_key() -> None:
    own = ("name", "allowed_job_types", "max_queue_depth")
    for key in QUEUE_KEYS:
        if key.name in own:
            continue
        section = "storage" if key.name == "dedup_window_ms" else "limits"
        assert key.spec is KEYS_BY_PATH[f"{section}.{key.name}"].spec


def test_every_key_is_explained_in_one_sentence() -> None:
    for key in (*KEYS, *QUEUE_KEYS):
        assert key.spec.text.endswith("."), key.path
        assert key.spec.text[0].isupper(), key.path
        assert len(key.spec.text) <= 160, key.path


def test_every_number_is_bounded_on_both_sides() -> None:
    for key in KEYS:
        if key.kind in ("int", "float"):
            assert key.spec.ge is not None, key.path
            assert key.spec.le is not None, key.path


def test_unset_keys_have_an_example_to_show() -> None:
    for key in KEYS:
        if key.default is None and key.entry is None:
            assert key.spec.example, key.path


def test_units_are_read_off_the_name() -> None:
    units = {key.path: key.unit for key in KEYS}

    assert units["limits.max_wait_timeout_ms"] == "ms"
    assert units["transport.max_request_bytes_in_flight"] == "bytes"
    assert units["limits.max_enqueue_batch"] == ""


def test_protective_keys_are_never_marked_as_without_effect() -> None:
    for key in KEYS:
        is_protective = "tls_" in key.name or key.name.endswith("keys")
        assert not (is_protective and key.spec.note), key.path


def test_secrets_have_no_text_form() -> None:
    from sepp.config.sections import Admin, AdminKey, ApiKey, Auth

    config = Config(
        auth=Auth(api_keys=(ApiKey(name="ci", key="s3cret-one"),)),
        admin=Admin(keys=(AdminKey(name="ops", key="s3cret-two"),)),
    )

    text = f"{config} {config!r} {config.auth} {config.admin.keys}"
    assert "s3cret" not in text
    assert "ci" in text
    assert "ops" in text


def test_transport_keys_are_those_of_the_front() -> None:
    limits = pytest.importorskip("sepp.rpc.limits", reason="the front is not here yet")
    from sepp.config.transport import Transport

    front = limits.TransportLimits()
    ours = Transport()
    names = Transport.__struct_fields__
    assert [a.name for a in front.__attrs_attrs__] == list(names)
    assert {name: getattr(front, name) for name in names} == {
        name: getattr(ours, name) for name in names
    }
