"""Sizes, lines, words and shapes of what is written by hand.

Sizes are a ratchet: what once grew past its limit stands in a list with the size it has; it may
shrink and may not grow. The lists start empty and should stay so.
"""

import ast
import re
import subprocess
import sys
from pathlib import PurePosixPath

from tests.house.sources import (
    GENERATED,
    ROOT,
    called_names,
    is_python,
    listing,
    python_files,
    repository_files,
    text_of,
    tree_of,
)

FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 70
LINE_CHARACTERS_MAX = 100

# path -> lines, and "path::function" -> lines, of what is allowed to be longer for now.
LONG_FILES: dict[str, int] = {}
LONG_FUNCTIONS: dict[str, int] = {}

CODE_ENDINGS = {".py", ".js", ".proto", ".sh", ".html"}
TOP_FOLDERS = {".ci", "fuzz", "proto", "segstore", "sepp", "tests", "tools"}
VAGUE_NAMES = {"common", "helper", "helpers", "misc", "util", "utils"}

# Written in pieces, so that this file does not hold them itself.
BANNED_WORDS = {
    "FIX" + "ME": "finish it or file it",
    "TO" + "DO": "finish it or file it",
    "XX" + "X": "finish it or file it",
    "/wo" + "rk/": "a path of one machine",
    "/tm" + "p/": "a path of one machine; tests get a directory of their own",
    "/ro" + "ot/": "a path of one machine",
    "/ho" + "me/": "a path of one machine",
    "pypi." + "org": "a registry's host; packages go by name",
    "pythonhosted." + "org": "a registry's host; packages go by name",
    "npmjs." + "org": "a registry's host; packages go by name",
    "debian." + "org": "a registry's host; packages go by name",
}

# A test that waits in real time is slow when it passes and wrong when the machine is busy. These
# must, and say why.
SLEEPS_ALLOWED = {"tests/admin/cost.py": "it measures what a server uses in a span of real time"}
SLEEP_CALLS = {"time.sleep", "asyncio.sleep"}

REASONLESS = (
    re.compile(r"# noqa(?!: [A-Z]+[0-9]+(, ?[A-Z]+[0-9]+)*\s+\S)"),
    re.compile(r"# type: ignore(?!\[[a-z-]+(, ?[a-z-]+)*\]\s+\S)"),
)


PRAGMA = re.compile(r"# (?:noqa|type: ignore)")


def code_files() -> list[str]:
    """Return the hand-written files that count as code."""
    return [
        path
        for path in repository_files()
        if not path.startswith(GENERATED)
        and (PurePosixPath(path).suffix in CODE_ENDINGS or is_script(path))
    ]


def is_script(path: str) -> bool:
    """Tell whether a file without an ending is a program."""
    return "." not in PurePosixPath(path).name and text_of(path).startswith("#!")


def texts() -> list[tuple[str, int, str]]:
    """Return (path, line number, line) of all hand-written text but the licence."""
    return [
        (path, number, line)
        for path in repository_files()
        if not path.startswith(GENERATED) and path not in ("LICENSE", ".gitignore")
        for number, line in enumerate(text_of(path).splitlines(), 1)
    ]


def test_files_are_short_enough() -> None:
    sizes = {path: len(text_of(path).splitlines()) for path in code_files()}
    too_long = {
        path: size
        for path, size in sizes.items()
        if size > LONG_FILES.get(path, FILE_LINES_MAX) and "/static/" not in path
    }
    assert too_long == {}


def test_functions_are_short_enough() -> None:
    too_long = {}
    for path in python_files():
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                size = (node.end_lineno or node.lineno) - node.lineno + 1
                name = f"{path}::{node.name}"
                if size > LONG_FUNCTIONS.get(name, FUNCTION_LINES_MAX):
                    too_long[name] = size
    assert too_long == {}


def test_the_ratchet_only_names_what_is_still_too_long() -> None:
    paths = set(repository_files())
    assert [p for p in LONG_FILES if p not in paths] == []
    assert [n for n in LONG_FUNCTIONS if n.partition("::")[0] not in paths] == []


def test_lines_are_short_enough() -> None:
    code = set(code_files())
    too_long = [
        f"{path}:{number}"
        for path, number, line in texts()
        # As ruff counts: what silences a check, and why, may stick out.
        if path in code and not path.endswith(".html")
        if len(PRAGMA.split(line)[0].rstrip()) > LINE_CHARACTERS_MAX
    ]
    assert too_long == [], listing(too_long)


def test_no_banned_words() -> None:
    found = [
        f"{path}:{number}: {word} ({why})"
        for path, number, line in texts()
        for word, why in BANNED_WORDS.items()
        if word in line
    ]
    assert found == [], listing(found)


def test_silenced_checks_give_a_reason_on_the_line() -> None:
    found = [
        f"{path}:{number}"
        for path, number, line in texts()
        if is_python(path) and path != "tests/house/test_tidy.py"
        for pattern in REASONLESS
        if pattern.search(line)
    ]
    assert found == [], listing(found)


def test_each_document_has_one_title() -> None:
    titles = {}
    for path in repository_files():
        if path.endswith(".md"):
            outside_code = re.sub(r"^```.*?^```", "", text_of(path), flags=re.M | re.S)
            titles[path] = len(re.findall(r"^# ", outside_code, flags=re.M))
    assert {path: count for path, count in titles.items() if count != 1} == {}


def test_changelog_has_an_unreleased_head() -> None:
    heads = re.findall(r"^## (.*)$", text_of("CHANGELOG.md"), flags=re.M)
    assert heads[0] == "[Unreleased]"
    rest = [h for h in heads[1:] if not re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", h)]
    assert rest == [], listing(rest)


def test_no_other_folder_at_the_top() -> None:
    folders = {path.partition("/")[0] for path in repository_files() if "/" in path}
    assert folders - TOP_FOLDERS == set()


def test_files_have_names_that_say_something() -> None:
    vague = [p for p in repository_files() if PurePosixPath(p).stem.lower() in VAGUE_NAMES]
    assert vague == [], listing(vague)


def test_modules_classes_and_public_functions_say_what_they_are() -> None:
    mute = []
    for path in python_files("sepp/", "segstore/", "tools/"):
        tree = tree_of(path)
        if ast.get_docstring(tree) is None:
            mute.append(path)
        for node in tree.body:
            is_named = isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            if is_named and not node.name.startswith("_") and ast.get_docstring(node) is None:
                mute.append(f"{path}::{node.name}")
    assert mute == [], listing(mute)


def test_tests_do_not_sleep() -> None:
    found = [
        f"{path}:{line} calls {name}"
        for path in python_files("tests/")
        if path not in SLEEPS_ALLOWED
        for name, line in called_names(path)
        if name in SLEEP_CALLS
    ]
    assert found == [], listing(found)


def test_programs_without_an_ending_are_linted_too() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--show-files"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    linted = {line.removeprefix(f"{ROOT}/") for line in shown.stdout.splitlines()}
    assert [path for path in python_files() if path not in linted] == []
