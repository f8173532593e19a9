"""Numbers that cannot be meant are refused before anything is asked of a server or a directory."""

import re
from collections.abc import Iterator

import pytest
from cyclopts import App

from sepp.cli.app import load_all, run

U32_MAX = 2**32 - 1
NUMBERS = {
    "health --timeout-ms": (1, U32_MAX),
    "enqueue q t p --priority": (0, 9),
    "enqueue q t p --max-attempts": (1, U32_MAX),
    "work q --exec true --concurrency": (1, U32_MAX),
    "work q --exec true --max-jobs": (1, U32_MAX),
    "jobs q --limit": (1, U32_MAX),
    "dead list q --limit": (1, U32_MAX),
    "dead drain --max-records": (1, U32_MAX),
    "audit --limit": (1, U32_MAX),
    "store dump . --segment": (1, 2**64 - 1),
}


def refusal(capsys: pytest.CaptureFixture[str], *tokens: str) -> str:
    """Run a command line that is a usage error; return the one line it is told in."""
    code = run(tokens)
    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert re.fullmatch(r"sepp-trio: .*\. See sepp-trio .* --help\.\n", err)
    return err


@pytest.mark.parametrize("command", NUMBERS)
def test_an_odd_number_is_a_usage_error_that_names_it_and_the_bounds(
    capsys: pytest.CaptureFixture[str], command: str
) -> None:
    least, most = NUMBERS[command]
    tokens = command.split()

    for odd in (str(least - 1), str(most + 1), "-99999999999999999999", "1.5", "1.0e999", "ten"):
        text = f"{tokens[-1]}: {odd!r} is no whole number from {least} to {most}. "
        assert text in refusal(capsys, *tokens, odd)


def int_options(app: App, path: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield verb and option of all that takes a number."""
    for name in app:
        if name.startswith("-"):
            continue
        verb, words = app[name], (*path, name)
        yield from int_options(verb, words)
        if verb.default_command is not None:
            for argument in verb.assemble_argument_collection():
                if re.search(r"\b(int|float)\b", str(argument.hint)):
                    yield " ".join((*words, argument.name))


def test_no_option_with_a_number_is_left_out_here() -> None:
    verbs = r"^(health|enqueue|work|jobs|dead \w+|audit|store \w+) .*(?=--)"

    assert {re.sub(verbs, r"\1 ", command) for command in NUMBERS} == set(int_options(load_all()))


@pytest.mark.parametrize("odd", ["0", "-5", "9..3", "1..-3", "18446744073709551616", "1.5", "..x"])
def test_an_odd_lsn_is_a_usage_error(capsys: pytest.CaptureFixture[str], odd: str) -> None:
    assert f"--lsn {odd!r} is no LSN; say 1200" in refusal(
        capsys, "store", "dump", ".", "--lsn", odd
    )


@pytest.mark.parametrize(
    ("tokens", "text"),
    [
        (("work", "q", "--exec", "true", "--lease", "0s"), "--lease '0s' is no time at all"),
        (("work", "q", "--exec", "true", "--lease", "365001d"), "'365001d' is too long"),
        (("enqueue", "q", "t", "--schedule-in", "365001d"), "a span is at most 365000d"),
        (("enqueue", "q", "t", "--schedule-in", "9" * 400 + "d"), "a span is at most 365000d"),
        (("enqueue", "q", "t", "--custom", f"n={2**63}"), f"n={2**63}"),
        (("enqueue", "q", "t", "--custom", f"n=-{2**63 + 1}"), "put it in double quotes"),
    ],
)
def test_spans_and_custom_numbers_have_bounds_too(
    capsys: pytest.CaptureFixture[str], tokens: tuple[str, ...], text: str
) -> None:
    assert text in refusal(capsys, *tokens)
