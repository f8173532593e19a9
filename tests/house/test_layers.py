"""Imports go down only.

    cli > server > service, sweeper, metrics, admin > committer > journal, core; journal > segstore

Beside the tower stand `sepp.rpc`, which knows nothing of queues, `sepp.client` on top of it, and
`sepp.config`. `sepp.core` and `segstore` know neither each other nor anything above.
"""

import ast
import sys

from tests.house.sources import (
    called_names,
    imports_of,
    is_within,
    listing,
    module_of,
    python_files,
    repository_files,
    tree_of,
)

# From the top down. A part may import those of lower lines, and its neighbours on the same line as
# long as no circle arises. A new module of sepp gets its place here; a module of a package may have
# a place of its own.
LAYERS = (
    ("sepp.__main__", "sepp.cli"),
    ("sepp.server",),
    (
        "sepp.admin",
        "sepp.calls",
        "sepp.memory",
        "sepp.metrics",
        "sepp.opening",
        "sepp.server_info",
        "sepp.service",
        "sepp.sweeper",
        "sepp.tracing",
    ),
    ("sepp.committer",),
    (
        "sepp.auth",
        "sepp.certificates",
        "sepp.client",
        "sepp.clock",
        "sepp.journal",
        "sepp.logs",
        "sepp.reloader",
        "sepp.request",
        "sepp.validate",
        "sepp.plain",
        "sepp.wishes",
    ),
    ("sepp.config", "sepp.http1", "sepp.rpc"),
    (
        "segstore",
        "sepp._generated",
        "sepp.binding",
        "sepp.collector",
        "sepp.core",
        "sepp.counts",
        "sepp.exits",
        "sepp.notify",
        "sepp.quoting",
        "sepp.wire",
    ),
    ("sepp",),
)
RANKS = {part: rank for rank, parts in enumerate(LAYERS) for part in parts}

# Parts that may import only these, whatever lies below them.
CLOSED = {
    "sepp": (),
    "sepp._generated": (),
    "sepp.core": (),
    "segstore": (),
    "sepp.rpc": ("sepp._generated.health_pb2", "sepp._generated.health_purerpc", "sepp.binding"),
    "sepp.client": ("sepp.rpc", "sepp._generated"),
    "sepp.config": ("sepp.core", "sepp.quoting"),
    "sepp.binding": (),
    "sepp.counts": (),
    "sepp.exits": (),
    "sepp.http1": (),
    "sepp.quoting": (),
    "sepp.wire": ("sepp._generated",),
    "sepp.journal": ("segstore", "sepp.core"),
}

# Clock, randomness, threads, files and sockets have no place in core: it gets them as arguments.
CORE_BANNED = {
    "anyio",
    "asyncio",
    "datetime",
    "io",
    "multiprocessing",
    "os",
    "pathlib",
    "purerpc",
    "random",
    "secrets",
    "selectors",
    "socket",
    "subprocess",
    "tempfile",
    "threading",
    "time",
    "trio",
    "uuid",
}
SEGSTORE_THIRD_PARTY = {"trio", "msgspec"}
DISK_MODULES = {"fcntl", "glob", "io", "mmap", "os", "pathlib", "shutil", "tempfile"}
DISK_CALLS = {"open", "io.open", "os.open"}
WALL_CLOCK_CALLS = {"time.time", "time.time_ns", "datetime.now", "datetime.datetime.now"}


def part_of(name: str) -> str | None:
    """Return the part of the house a dotted name belongs to, or None for the world outside."""
    if is_within(name, "segstore"):
        return "segstore"
    if not is_within(name, "sepp"):
        return None
    pieces = name.split(".")
    if (module := ".".join(pieces[:3])) in RANKS:
        return module
    # `from sepp import __version__` is the package itself, `from sepp import core` is the part.
    return ".".join(pieces[:2]) if is_part(pieces) else "sepp"


def is_part(pieces: list[str]) -> bool:
    """Tell whether a name reaches into a module or package right under `sepp`."""
    if len(pieces) < 2:
        return False
    stem = f"sepp/{pieces[1]}"
    return any(f == f"{stem}.py" or f.startswith(f"{stem}/") for f in repository_files())


def house_imports() -> list[tuple[str, str, str, int]]:
    """Return (importing part, its file, imported name, line) for imports within the house."""
    return [
        (part_of(module_of(path)) or "", path, name, line)
        for path in python_files("sepp/", "segstore/")
        for name, line in imports_of(path)
        if part_of(name) is not None
    ]


def test_every_part_of_the_house_has_a_layer() -> None:
    parts = {part_of(module_of(path)) for path in python_files("sepp/", "segstore/")}
    assert parts - RANKS.keys() == set(), "give these a place in LAYERS"


def test_imports_go_down_only() -> None:
    upward = [
        f"{path}:{line} imports {name}"
        for part, path, name, line in house_imports()
        if RANKS.get(part_of(name) or "", 0) < RANKS.get(part, 0)
    ]
    assert upward == [], listing(upward)


def test_closed_parts_import_only_what_they_may() -> None:
    strangers = [
        f"{path}:{line} imports {name}"
        for part, path, name, line in house_imports()
        if part in CLOSED
        and part_of(name) not in (part, "sepp")
        and not any(is_within(name, allowed) for allowed in CLOSED[part])
    ]
    assert strangers == [], listing(strangers)


def test_no_circle_among_parts() -> None:
    graph: dict[str, set[str]] = {}
    for part, _path, name, _line in house_imports():
        if part_of(name) != part:
            graph.setdefault(part, set()).add(part_of(name) or "")
    while graph:
        # Take away what imports nothing that is left; what cannot be taken is a circle.
        leaves = [part for part, targets in graph.items() if not targets & graph.keys()]
        assert leaves != [], f"these import each other in a circle: {sorted(graph)}"
        for leaf in leaves:
            del graph[leaf]


def test_core_has_no_clock_randomness_thread_file_or_socket() -> None:
    found = [
        f"{path}:{line} imports {name}"
        for path in python_files("sepp/core/")
        for name, line in imports_of(path)
        if name.partition(".")[0] in CORE_BANNED
    ]
    found += [
        f"{path}:{line} calls {name}"
        for path in python_files("sepp/core/")
        for name, line in called_names(path)
        if name in DISK_CALLS
    ]
    assert found == [], listing(found)


def test_core_never_waits() -> None:
    kinds = (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)
    found = [
        f"{path}:{node.lineno}"
        for path in python_files("sepp/core/")
        for node in ast.walk(tree_of(path))
        if isinstance(node, kinds)
    ]
    assert found == [], listing(found)


def test_segstore_needs_only_trio_and_msgspec() -> None:
    allowed = sys.stdlib_module_names | SEGSTORE_THIRD_PARTY | {"segstore"}
    found = [
        f"{path}:{line} imports {name}"
        for path in python_files("segstore/")
        for name, line in imports_of(path)
        if name.partition(".")[0] not in allowed
    ]
    assert found == [], listing(found)


def test_segstore_touches_the_disk_through_its_vfs_only() -> None:
    seam = ("segstore/vfs.py", "segstore/aio.py")
    files = [path for path in python_files("segstore/") if path not in seam]
    found = [
        f"{path}:{line} imports {name}"
        for path in files
        for name, line in imports_of(path)
        if name.partition(".")[0] in DISK_MODULES
    ]
    found += [
        f"{path}:{line} calls {name}"
        for path in files
        for name, line in called_names(path)
        if name in DISK_CALLS
    ]
    assert found == [], listing(found)


def test_below_the_committer_nothing_reads_the_wall_clock() -> None:
    below = ("segstore/", "sepp/core/", "sepp/journal")
    found = [
        f"{path}:{line} calls {name}"
        for path in python_files(*below)
        for name, line in called_names(path)
        if name in WALL_CLOCK_CALLS
    ]
    assert found == [], listing(found)


def test_only_the_committer_commits() -> None:
    found = [
        f"{path}:{line} calls {name}"
        for path in python_files("sepp/")
        for name, line in called_names(path)
        if name.endswith(".commit") and path != "sepp/committer.py"
    ]
    assert found == [], listing(found)
