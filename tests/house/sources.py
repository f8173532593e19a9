"""What the house tests look at: the files of the repository, and the imports of a module."""

import ast
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GENERATED = "sepp/_generated/"


@cache
def repository_files() -> tuple[str, ...]:
    """Return the paths of all files git knows or would add, relative to the root."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    # A file that is deleted but still in the index is listed too.
    return tuple(sorted(f for f in listing.stdout.split("\0") if f and (ROOT / f).is_file()))


def text_of(path: str) -> str:
    """Return the content of a text file; empty for a binary one."""
    try:
        return (ROOT / path).read_text("utf-8")
    except UnicodeDecodeError:
        return ""


def is_python(path: str) -> bool:
    """Tell Python by ending or by first line."""
    if path.endswith(".py"):
        return True
    return "." not in Path(path).name and text_of(path).startswith("#!/usr/bin/env python3")


def python_files(*folders: str) -> list[str]:
    """Return hand-written Python files, of the whole repository or of some folders."""
    return [
        path
        for path in repository_files()
        if is_python(path)
        and not path.startswith(GENERATED)
        and (not folders or path.startswith(folders))
    ]


@cache
def tree_of(path: str) -> ast.Module:
    """Return the syntax tree of a Python file."""
    return ast.parse(text_of(path), path)


def module_of(path: str) -> str:
    """Return the dotted name of a module: sepp/core/__init__.py is sepp.core."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def imports_of(path: str) -> Iterator[tuple[str, int]]:
    """Yield (dotted name, line) of all a file imports, wherever in the file, absolute.

    `from a import b` yields `a.b`: whether b is a module or a name in one, the prefix tells.
    """
    package = module_of(path)
    if not path.endswith("/__init__.py"):
        package = package.rpartition(".")[0]
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parents, *([node.module] if node.module else [])])
            for alias in node.names:
                yield f"{base}.{alias.name}", node.lineno


def is_within(name: str, package: str) -> bool:
    """Tell whether a dotted name is a package or lies in it."""
    return name == package or name.startswith(package + ".")


def called_names(path: str) -> list[tuple[str, int]]:
    """Return (dotted name, line) of every call whose target is a plain dotted name."""
    return [
        (ast.unparse(node.func), node.lineno)
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute)
    ]


def listing(found: list[str]) -> str:
    """Return what was found, a line each: pytest would cut a long list."""
    return "\n".join(["", *found])
