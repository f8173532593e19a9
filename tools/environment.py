"""Virtual environments in the repository, made with nothing but a Python from 3.11 on.

`tools/test` and `tools/run` start with whatever `python3` a machine has and need the project's own
environment; this is the road there. An environment is kept as long as what went into it is the same
and made anew when it is not: a stamp in it holds the digest. Standard library only, since it runs
before anything is installed.
"""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile

if sys.version_info < (3, 11):  # noqa: UP036  runs on whatever python3 is first in PATH
    # A machine may have an old python3 and a newer one beside it.
    for _name in ("python3.13", "python3.12", "python3.11"):
        if _newer := shutil.which(_name):
            os.execv(_newer, [_newer, *sys.argv])
    sys.exit(f"Python 3.11 or later is needed; {sys.executable} is {sys.version.split()[0]}")

import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE_DIR = ROOT / ".cache"
OWN_DIR = ROOT / ".venv"
PEER_DIR = ROOT / ".venv-peer"

# The official client, its extra, and what its own tests need. It too imports as `sepp`, which is
# why it gets an environment of its own.
PEER_VERSION = "0.1.0"
PEER_REQUIREMENTS = (
    f"sepp-py[otel]=={PEER_VERSION}",
    "pytest>=9.1.1,<10",
    "pytest-asyncio>=1.4,<2",
    "pytest-timeout>=2.4,<3",
    "testcontainers>=4.14.2,<5",  # imported by its integration tests, never used: no container here
)
PEER_SDIST = f"sepp_py-{PEER_VERSION}"
PEER_SDIST_SHA256 = "7a206ab550db8e25e420d53507ddc71ba953690cf400acd211c4c93b3b911534"

# The accessibility checker of the browser tests; only its one file is used.
AXE_VERSION = "4.14.1"
AXE_TGZ_SHA256 = "e6b0ce02b84d892e2e33e403485e7f3d6c29e2be6df65daf44d89ba564139745"

INSTALL_SECONDS_MAX = 600

# The interpreter below any environment that is active: one must not be made out of itself.
BASE_PYTHON = getattr(sys, "_base_executable", sys.executable)


class SetupFailed(Exception):
    """The machine lacks something or a download failed; the message says what."""


def reexec_in_own() -> None:
    """Go on in the project's environment: make it if need be and start this program again in it.

    To be called before anything is imported that has to be installed. Returns at once where that
    is the case already, in this environment or in one that someone made by hand.
    """
    if sys.prefix != sys.base_prefix and find_spec("ngh2") is not None:
        return
    try:
        ensure_debian_packages({})
        python = str(ensure_own(is_dev=False))
    except SetupFailed as error:
        sys.exit(f"set-up failed: {error}")
    os.execv(python, [python, *sys.argv])


def ensure_debian_packages(by_command: dict[str, str]) -> None:
    """Install what is missing, as root with apt-get; say what to install otherwise.

    Args:
        by_command: The packages needed, each under a command that it brings.
    """
    missing = {p for command, p in by_command.items() if shutil.which(command) is None}
    if not has_venv():
        missing.add("python3-venv")
    if not missing:
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise SetupFailed(f"please install: {' '.join(sorted(missing))}")
    say(f"installing {' '.join(sorted(missing))}")
    settings = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    run(["apt-get", "update", "-qq"], env=settings)
    run(["apt-get", "install", "-y", "-qq", *sorted(missing)], env=settings)


def has_venv() -> bool:
    """Tell whether this Python can make environments; Debian ships that part on its own."""
    probe = subprocess.run([BASE_PYTHON, "-c", "import ensurepip, venv"], capture_output=True)
    return probe.returncode == 0


def ensure_own(*, is_dev: bool) -> Path:
    """Return the Python of the project's own environment, with the dev group if asked for.

    An environment with the dev group serves those who need none of it as well.
    """
    project = read_project()
    requirements = ["-e", str(ROOT)]
    wanted = digest(project["build-system"], project["project"])
    if is_dev:
        requirements += read_group(project["dependency-groups"], "dev")
        wanted = digest(wanted, project["dependency-groups"])
    elif read_stamp(OWN_DIR) == digest(wanted, project["dependency-groups"]):
        return python_of(OWN_DIR)
    return ensure(OWN_DIR, requirements, wanted)


def ensure_peer() -> Path:
    """Return the Python of the environment with the official client."""
    return ensure(PEER_DIR, list(PEER_REQUIREMENTS), digest(PEER_REQUIREMENTS))


def ensure(directory: Path, requirements: list[str], wanted: str) -> Path:
    """Make an environment with these requirements unless it stands there already."""
    with locked(directory.name):
        if read_stamp(directory) != wanted:
            say(f"making {directory.name}")
            shutil.rmtree(directory, ignore_errors=True)
            run([BASE_PYTHON, "-m", "venv", str(directory)])
            run([*pip(directory), "install", *requirements])
            stamp_path(directory).write_text(wanted, encoding="utf-8")
    return python_of(directory)


def ensure_peer_sdist() -> Path:
    """Return the folder of the official client's source release, its own tests in it."""
    target = CACHE_DIR / PEER_SDIST
    with locked(PEER_SDIST):
        if not target.is_dir():
            say(f"fetching {PEER_SDIST}")
            archive = CACHE_DIR / f"{PEER_SDIST}.tar.gz"
            source = ["--no-deps", "--no-binary", "sepp-py", f"sepp-py=={PEER_VERSION}"]
            run([*pip(PEER_DIR), "download", "--dest", str(CACHE_DIR), *source])
            found = hashlib.sha256(archive.read_bytes()).hexdigest()
            if found != PEER_SDIST_SHA256:
                raise SetupFailed(f"{archive.name} has SHA-256 {found}, not {PEER_SDIST_SHA256}")
            unpack(archive, target, target.name)
    return target


def axe_path() -> Path:
    """Return where the source of axe-core is, or will be."""
    return CACHE_DIR / f"axe-core-{AXE_VERSION}" / "axe.min.js"


def ensure_axe() -> Path:
    """Return the source of axe-core, fetched with npm unless it is there."""
    target = axe_path().parent
    with locked(target.name):
        if not target.is_dir():
            say(f"fetching {target.name}")
            archive = CACHE_DIR / f"{target.name}.tgz"
            wanted = ["pack", f"axe-core@{AXE_VERSION}", "--pack-destination", str(CACHE_DIR)]
            run(["npm", *wanted])
            found = hashlib.sha256(archive.read_bytes()).hexdigest()
            if found != AXE_TGZ_SHA256:
                raise SetupFailed(f"{archive.name} has SHA-256 {found}, not {AXE_TGZ_SHA256}")
            unpack(archive, target, "package")
    return axe_path()


def unpack(archive: Path, target: Path, folder: str) -> None:
    """Unpack beside the target and rename, so that half of it is never taken for the whole."""
    fresh = CACHE_DIR / "unpacking"
    shutil.rmtree(fresh, ignore_errors=True)
    with tarfile.open(archive) as tar:
        # Every Python from 3.11.4 on has the filter; the checksum was compared in any case.
        safe = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        tar.extractall(fresh, **safe)
    (fresh / folder).rename(target)


def read_project() -> dict:
    """Return pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def read_group(groups: dict, name: str) -> list[str]:
    """Return the requirements of a dependency group; pip learned `--group` only in 25.1."""
    requirements = []
    for entry in groups[name]:
        if isinstance(entry, str):
            requirements.append(entry)
        else:
            requirements += read_group(groups, entry["include-group"])
    return requirements


def digest(*parts: object) -> str:
    """Return a short digest of values, of the Python in use and of where all this lies."""
    text = json.dumps([parts, sys.version_info[:3], BASE_PYTHON, str(ROOT)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def stamp_path(directory: Path) -> Path:
    """Return where an environment says what went into it."""
    return directory / "stamp"


def read_stamp(directory: Path) -> str:
    """Return the digest of what went into an environment; empty if it is missing or half made."""
    stamp = stamp_path(directory)
    return stamp.read_text("utf-8") if stamp.is_file() else ""


def python_of(directory: Path) -> Path:
    """Return the interpreter of an environment."""
    return directory / "bin" / "python"


def pip(directory: Path) -> list[str]:
    """Return the start of a pip command of an environment."""
    quiet = ["--quiet", "--disable-pip-version-check", "--no-input"]
    return [str(python_of(directory)), "-m", "pip", *quiet]


def run(command: list[str], env: dict[str, str] | None = None) -> None:
    """Run a command of the set-up, quietly; its output is told only when it fails."""
    try:
        done = subprocess.run(
            command,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=INSTALL_SECONDS_MAX,
        )
    except subprocess.TimeoutExpired:
        raise SetupFailed(f"not done after {INSTALL_SECONDS_MAX} s: {' '.join(command)}") from None
    if done.returncode != 0:
        raise SetupFailed(f"failed: {' '.join(command)}\n{done.stdout}")


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Keep two tools that run at once from making the same thing."""
    CACHE_DIR.mkdir(exist_ok=True)
    with (CACHE_DIR / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def say(text: str) -> None:
    """Print a line at once: the reader is waiting."""
    print(text, flush=True)
