"""Who may call the gRPC port."""

import pytest

from sepp import auth
from sepp.auth import MISSING, UNKNOWN, ApiKeys
from sepp.config.sections import ApiKey


def keys(*secrets: str) -> ApiKeys:
    return ApiKeys([ApiKey(name=f"k{i}", key=secret) for i, secret in enumerate(secrets)])


@pytest.mark.parametrize("header", [None, b"", b"Bearer x", b"Basic x", b"\xff"])
def test_open_port_looks_at_no_header(header: bytes | None) -> None:
    made = ApiKeys(None)

    assert not made.is_enforced
    assert made.fault(header) is None


@pytest.mark.parametrize(
    ("header", "fault"),
    [(None, MISSING), (b"Bearer x", UNKNOWN), (b"Bearer None", UNKNOWN), (b"Bearer ", MISSING)],
)
def test_empty_list_refuses_everybody(header: bytes | None, fault: str) -> None:
    made = ApiKeys([])

    assert made.is_enforced
    assert made.fault(header) == fault


@pytest.mark.parametrize("secret", ["first", "second", "third"])
def test_each_key_is_let_in(secret: str) -> None:
    assert keys("first", "second", "third").fault(f"Bearer {secret}".encode()) is None


@pytest.mark.parametrize(
    "header",
    [
        None,
        b"",
        b"Bearer",
        b"Bearer ",
        b"bearer first",
        b"BEARER first",
        b"Bearer\tfirst",
        b" Bearer first",
        b"Basic Zmlyc3Q=",
        b"first",
        b"Token first",
        b"\xff\xfe",
    ],
)
def test_header_of_another_form_counts_as_missing(header: bytes | None) -> None:
    assert keys("first").fault(header) == MISSING


@pytest.mark.parametrize(
    "header",
    [
        b"Bearer  first",
        b"Bearer first ",
        b"Bearer firs",
        b"Bearer first1",
        b"Bearer First",
        b"Bearer Bearer first",
        b"Bearer k0",
        b"Bearer first\0",
        b"Bearer \xff\xfe",
        b"Bearer " + b"x" * 100_000,
    ],
)
def test_any_other_key_is_unknown(header: bytes) -> None:
    assert keys("first", "other").fault(header) == UNKNOWN


def test_messages_say_which_of_the_two_and_name_the_header() -> None:
    assert MISSING != UNKNOWN
    assert MISSING.startswith("missing API key")
    assert UNKNOWN.startswith("invalid API key")
    for message in (MISSING, UNKNOWN):
        assert '"authorization: Bearer <key>"' in message


def test_every_entry_is_compared_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: list[tuple[int, int]] = []
    compare = auth.compare_digest

    def counting(one: bytes, other: bytes) -> bool:
        lengths.append((len(one), len(other)))
        return compare(one, other)

    monkeypatch.setattr(auth, "compare_digest", counting)
    made = keys("first", "a-much-longer-secret", "z")

    for header in (b"Bearer first", b"Bearer z", b"Bearer nobody", b"Bearer " + b"x" * 999):
        lengths.clear()
        made.fault(header)
        assert lengths == [(32, 32)] * 3


def test_neither_keys_nor_digests_are_in_any_text_form() -> None:
    made = keys("s3cret")

    assert "s3cret" not in f"{made!r} {made}"
    assert not hasattr(made, "__dict__")
