"""Text from outside on one line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sepp.quoting import SHOWN_MAX, bare, quote


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("", '""'),
        ("plain", '"plain"'),
        ('say "hi"', '"say \\"hi\\""'),
        ("a\\b", '"a\\\\b"'),
        ("a\r\n\tb", '"a\\r\\n\\tb"'),
        ("\x00\x1b[31m\x7f", '"\\x00\\x1b[31m\\x7f"'),
        ("\x85\u2028\u202e", '"\\x85\\u2028\\u202e"'),
        ("\ud800", '"\\ud800"'),
        ("\U000e0001", '"\\U000e0001"'),
        ("Größe ✉ 😀 אבג", '"Größe ✉ 😀 אבג"'),
    ],
)
def test_what_does_not_print_is_escaped(text: str, quoted: str) -> None:
    assert quote(text) == quoted


def test_long_text_is_cut_and_says_by_how_much() -> None:
    assert quote("x" * 5, 5) == '"xxxxx"'
    assert quote("x" * 6, 5) == '"xxxxx"…(+1)'
    assert len(quote("x" * 10_000_000)) < SHOWN_MAX + 20


@pytest.mark.parametrize("word", ["plain", "0.0.0.0:50051", "./sepp-data", "Größe", "<all>", "a,b"])
def test_plain_word_stays_bare(word: str) -> None:
    assert bare(word) == word


@pytest.mark.parametrize("text", ["", "a b", "a=b", 'a"b', "a\\b", "a\nb", "\u202e", "x" * 2000])
def test_anything_else_is_quoted(text: str) -> None:
    assert bare(text) == quote(text)


@given(st.text(st.characters()))
def test_result_is_one_printable_line_that_encodes(text: str) -> None:
    for shown in (quote(text), bare(text)):
        assert shown.isprintable()
        assert shown.encode().decode() == shown
