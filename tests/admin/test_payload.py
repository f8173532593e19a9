"""Payloads to look at: nothing is parsed, nothing hidden, nothing too long."""

import json
import random

import pytest

from sepp.admin.pages import payload
from sepp.admin.pages.payload import Piece, indent, preview, show, visible


def text_of(pieces: list[Piece] | None) -> str:
    assert pieces is not None
    return "".join(piece.text for piece in pieces)


def test_json_is_indented_and_classed() -> None:
    pieces = indent('{"a":[1,-2.5e3,true,null],"b":{},"c":"x","d":[]}')

    assert text_of(pieces) == (
        '{\n  "a": [\n    1,\n    -2.5e3,\n    true,\n    null\n  ],\n  "b": {},\n  "c": "x",\n'
        '  "d": []\n}'
    )
    assert pieces is not None
    kinds = [(piece.kind, piece.text) for piece in pieces if piece.kind not in ("", "o")]
    assert kinds == [
        ("k", '"a"'), ("n", "1"), ("n", "-2.5e3"), ("l", "true"), ("l", "null"), ("k", '"b"'),
        ("k", '"c"'), ("s", '"x"'), ("k", '"d"'),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text",
    ["12345678901234567890123", '{"a":1,"a":2}', '"\\u202e"', "1.0", "1E400", "[0.10]", "null"],
)
def test_values_stay_as_sent(text: str) -> None:
    assert "".join(text_of(indent(text)).split()) == text


@pytest.mark.parametrize("text", ["", "abc", "{]", "}", "[1", "{'a':1}", "1,2", "[\x01]", "nul"])
def test_what_is_no_json_is_text(text: str) -> None:
    assert indent(text) is None


def test_deep_nesting_is_text() -> None:
    assert indent("[" * 100 + "]" * 100) is not None
    assert indent("[" * 101 + "]" * 101) is None


def test_random_json_round_trips() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)

    def value(depth: int) -> object:
        kind = rng.randrange(7 if depth else 5)
        if kind == 5:
            return [value(depth - 1) for _ in range(rng.randrange(4))]
        if kind == 6:
            return {str(rng.random()): value(depth - 1) for _ in range(rng.randrange(4))}
        return [None, True, rng.random(), rng.randrange(-(10**20), 10**20), 'é"\\ \n<b>'][kind]

    for _case in range(300):
        wanted = value(4)
        text = json.dumps(wanted, ensure_ascii=rng.random() < 0.5)
        assert json.loads(text_of(indent(text))) == wanted, text


def test_control_and_direction_characters_are_written_out() -> None:
    assert (
        visible("a\u202eb\x00c\x7fd\u2066\ufeff\n\t") == "a\\u202eb\\x00c\\x7fd\\u2066\\ufeff\n\t"
    )
    assert "\\u202e" in text_of(indent('"\u202e"'))


@pytest.mark.parametrize(
    ("data", "view"),
    [(b'{"a": 1}', "json"), (b"hello", "text"), (b"\x89PNG\r\n", "hex"), (b"a\x00b", "hex"),
     (b"\xff", "hex"), (b"12", "json")],
)  # fmt: skip
def test_the_view_suits_the_data(data: bytes, view: str) -> None:
    assert show(data, None).view == view
    assert show(data, "hex").view == "hex"


def test_a_view_that_does_not_fit_is_not_forced() -> None:
    assert show(b"\xff\xfe", "json").view == "hex"
    assert show(b"hello", "json").view == "text"
    assert show(b"{}", "nonsense").view == "json"


def test_long_payloads_are_cut_and_say_so() -> None:
    data = b'{"a": "' + "é".encode() * 100_000 + b'"}'

    found = show(data, None)

    assert (found.view, found.shown, found.total) == ("json", payload.SHOWN_BYTES, len(data))
    assert not found.is_whole
    assert len(text_of(found.pieces)) <= payload.SHOWN_BYTES
    assert show(data, "hex").shown == payload.HEX_BYTES


def test_a_long_list_of_numbers_does_not_grow_much() -> None:
    data = ("[" + "1," * 400_000 + "1]").encode()

    found = show(data, None)

    assert len(text_of(found.pieces)) < 3 * payload.SHOWN_BYTES
    assert len(found.pieces) <= payload.PIECES_MAX


def test_hex_has_offsets_and_what_prints() -> None:
    text = text_of(show(bytes(range(0x30, 0x45)), "hex").pieces)

    assert text == (
        "00000000  30 31 32 33 34 35 36 37  38 39 3a 3b 3c 3d 3e 3f  0123456789:;<=>?\n"
        "00000010  40 41 42 43 44                                    @ABCD\n"
    )


def test_previews_are_one_short_line() -> None:
    assert preview(b'{\n  "a":   1\n}') == '{ "a": 1 }'
    assert preview(b"\x00\x01\xff") == "00 01 ff"
    assert len(preview("é".encode() * 1000)) == payload.PREVIEW_CHARS
    assert preview("\u202eabc".encode()) == "\\u202eabc"
