"""What is built from the tree: complete, typed, of one version; installed alone, it serves."""

import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from sepp import __version__
from tests.e2e.server_process import READY_TEXT, ROOT

SECONDS_MAX = 280  # hang guard; nearly all of it is for downloads
WHEEL = f"sepp_trio-{__version__}-py3-none-any.whl"
SDIST = f"sepp_trio-{__version__}.tar.gz"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with sdist and wheel."""
    directory = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-t", "wheel"]
    run([*build, "-d", str(directory)], ROOT)
    return directory


def run(command: list[str], directory: Path) -> str:
    """Run a command with nothing of ours in its environment; return what it printed."""
    done = subprocess.run(
        command,
        cwd=directory,
        env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "HOME": str(Path.home())},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS_MAX,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_the_wheel_holds_the_packages_and_says_they_are_typed(built: Path) -> None:
    names = set(zipfile.ZipFile(built / WHEEL).namelist())

    tracked = run(["git", "ls-files", "sepp", "segstore"], ROOT).split()
    assert set(tracked) - names == set()
    assert {"sepp/py.typed", "segstore/py.typed"} <= names
    tops = {name.partition("/")[0] for name in names}
    assert tops == {"sepp", "segstore", f"sepp_trio-{__version__}.dist-info"}
    assert [name for name in names if "__pycache__" in name] == []


def test_the_sdist_builds_the_same_wheel(built: Path, tmp_path: Path) -> None:
    with tarfile.open(built / SDIST) as archive:
        archive.extractall(tmp_path, filter="data")
    source = tmp_path / SDIST.removesuffix(".tar.gz")

    run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)], source)

    first, second = (zipfile.ZipFile(folder / WHEEL) for folder in (built, tmp_path))
    assert {i.filename: i.CRC for i in first.infolist()} == {
        i.filename: i.CRC for i in second.infolist()
    }


def test_installed_alone_it_serves_and_works(built: Path, tmp_path: Path) -> None:
    run([sys.executable, "-m", "venv", "alone"], tmp_path)
    quiet = ["--quiet", "--disable-pip-version-check", "--no-input"]
    pip = [str(tmp_path / "alone/bin/python"), "-m", "pip", *quiet]
    run([*pip, "install", str(built / WHEEL)], tmp_path)
    command = str(tmp_path / "alone/bin/sepp-trio")
    assert run([command, "--version"], tmp_path).startswith(f"sepp-trio {__version__} (")
    (tmp_path / "sepp.toml").write_text(
        f'[server]\nlisten_addr = "127.0.0.1:0"\ndb_path = "{tmp_path}/data"\n'
        "[admin]\nenabled = false\n"
    )

    server = subprocess.Popen([command, "serve"], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        line = next(line for line in server.stdout if READY_TEXT in line)
        found = re.search(r"addr=(127\.0\.0\.1:\d+)", line)
        assert found
        address = ["--addr", found[1]]
        run([command, "enqueue", "q", "t", "hello", *address], tmp_path)
        worked = run([command, "work", "q", "--exec", "cat", "--max-jobs", "1", *address], tmp_path)
        assert "hello" in worked
        server.terminate()
        server.communicate(timeout=60)
        assert server.returncode == 0
    finally:
        server.kill()
        server.communicate()
