"""What an operator can see or set is in the handbook: verbs, keys, metrics and log lines.

The names are read from the code, so a new one without a line in `sepp/OPERATING.md` fails here.
"""

import ast
import re
import subprocess
import sys

from cyclopts import App

from sepp.cli.app import load_all
from tests.house.sources import ROOT, listing, python_files, repository_files, text_of, tree_of

HANDBOOK = "sepp/OPERATING.md"

# Calls whose first argument is a log line, on whatever is called log or logger. Debug lines are for
# whoever reads the code.
LOG_METHODS = {"info", "warning", "warn", "error", "critical", "exception"}
LOG_NAMES = {"log", "_log", "logger", "_logger"}


def missing_from_handbook(names: set[str]) -> list[str]:
    """Return the names the handbook does not mention; none while there is no handbook yet."""
    if HANDBOOK not in repository_files():
        return []
    handbook = text_of(HANDBOOK)
    return sorted(name for name in names if name not in handbook)


def command_line(*arguments: str) -> str:
    """Return what `sepp-trio` prints; empty while there is no command line yet."""
    if not any(path.startswith("sepp/cli") for path in repository_files()):
        return ""
    printed = subprocess.run(
        [sys.executable, "-m", "sepp", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return printed.stdout


def verbs() -> set[str]:
    """Return the verbs listed by `sepp-trio --help`: the first word of each line of its box."""
    listing = command_line("--help").partition("Commands")[2]
    found = re.findall(r"^│?\s{0,2}([a-z][a-z-]+)\b", listing, flags=re.M)
    return {f"sepp-trio {verb}" for verb in found}


def all_verbs() -> list[tuple[str, App]]:
    """Return every verb of the command line with its whole name, verbs of groups too."""

    def walk(name: str, group: App) -> list[tuple[str, App]]:
        # The app lists its own --help and --version among its commands.
        verbs = [verb for verb in group if not verb.startswith("-")]
        if not verbs:
            return [(name, group)]
        return [found for verb in verbs for found in walk(f"{name} {verb}", group[verb])]

    return walk("sepp-trio", load_all())


def options() -> set[str]:
    """Return every option of every verb."""
    return {
        option
        for _, verb in all_verbs()
        for argument in verb.assemble_argument_collection()
        for option in argument.names[:1]
        if option.startswith("--")
    }


def configuration_keys() -> set[str]:
    """Return section and key names of the example file, those that stand commented out included."""
    example = command_line("config", "example") if command_line("--help") else ""
    return set(re.findall(r"^(?:# ?)?([a-z][a-z0-9_]*) = ", example, flags=re.M))


def metrics() -> set[str]:
    """Return the metric names that stand as literals in the metrics module or package."""
    return {
        node.value
        for path in python_files("sepp/metrics")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.fullmatch(r"sepp_[a-z_]+", node.value)
    }


def log_lines() -> set[str]:
    """Return the log lines of the server, info and above. A client's go to its program's log."""
    return {
        node.args[0].value
        for path in python_files("sepp/", "segstore/")
        if not path.startswith("sepp/client/")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in LOG_METHODS
        and ast.unparse(node.func.value).rpartition(".")[2] in LOG_NAMES
        and node.args
        and isinstance(node.args[0], ast.Constant)
        and isinstance(node.args[0].value, str)
    }


def test_every_verb_is_in_the_handbook() -> None:
    missing = missing_from_handbook(verbs())
    assert missing == [], listing(missing)


def test_every_option_is_in_the_handbook() -> None:
    assert len(options()) > 20
    missing = missing_from_handbook(options())
    assert missing == [], listing(missing)


def test_every_verb_has_an_example_of_itself_in_its_help() -> None:
    mute = [name for name, verb in all_verbs() if f"`{name}" not in str(verb.help)]
    # A shell reads this one's output; its name is not what the example begins with.
    assert mute == ["sepp-trio completion"], listing(mute)
    assert len(all_verbs()) > 15


def test_every_configuration_key_is_in_the_handbook() -> None:
    missing = missing_from_handbook(configuration_keys())
    assert missing == [], listing(missing)


def test_every_metric_is_in_the_handbook() -> None:
    missing = missing_from_handbook(metrics())
    assert missing == [], listing(missing)


def test_every_log_line_is_in_the_handbook() -> None:
    missing = missing_from_handbook(log_lines())
    assert missing == [], listing(missing)


def test_the_reference_of_the_client_is_fresh() -> None:
    check = subprocess.run(
        [sys.executable, "tools/gen_client_reference", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert check.returncode == 0, check.stdout + check.stderr
