"""What the code imports is what `pyproject.toml` asks for, and nothing comes along by chance."""

import re
import sys
import tomllib
from importlib.metadata import packages_distributions

from tests.house.sources import ROOT, imports_of, listing, python_files

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def name_of(requirement: str) -> str:
    """Return the distribution that a requirement names, in its normal form."""
    return re.sub(r"[-_.]+", "-", re.split(r"[\[<>=~!; ]", requirement)[0]).lower()


def declared() -> set[str]:
    """Return what an installation brings, with all extras."""
    extras = [each for group in PROJECT["optional-dependencies"].values() for each in group]
    return {name_of(each) for each in (*PROJECT["dependencies"], *extras)}


def imported() -> dict[str, str]:
    """Return the packages of others that the code imports, and one place of each."""
    return {
        name.partition(".")[0]: f"{path}:{line}"
        for path in python_files("sepp/", "segstore/")
        for name, line in imports_of(path)
        if name.partition(".")[0] not in sys.stdlib_module_names | {"sepp", "segstore"}
    }


def test_what_is_imported_is_declared() -> None:
    known = packages_distributions()
    borrowed = [
        f"{place} imports {package}"
        for package, place in imported().items()
        if declared().isdisjoint(map(name_of, known.get(package, [package])))
    ]
    assert borrowed == [], listing(borrowed)


def test_what_is_declared_is_imported() -> None:
    known = packages_distributions()
    used = {name_of(each) for package in imported() for each in known.get(package, [package])}
    assert sorted(declared() - used) == []
