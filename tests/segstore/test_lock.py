"""One store a directory: a second open is refused, in this process and in another."""

import subprocess
import sys
from pathlib import Path

import pytest

from segstore import RealVFS, StoreLocked
from tests.segstore.worlds import add, contents, real_world

OPENER = """
import sys, trio
from segstore import Store, StoreLocked

async def main():
    store = await Store.open(sys.argv[1], fields=[("state", "B")], clock_ms=lambda: 1)
    print("open", flush=True)
    sys.stdin.read(1)
    await store.close()

try:
    trio.run(main)
except StoreLocked as problem:
    print(problem)
"""


def opener(path: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", OPENER, path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )


async def test_a_second_open_in_this_process_is_refused_and_names_the_holder(
    tmp_path: Path,
) -> None:
    world = real_world(str(tmp_path / "store"))
    store = await world.writer()
    pid = int((tmp_path / "store" / "LOCK").read_text())

    with pytest.raises(StoreLocked, match=f"is in use by process {pid}; stop it first"):
        await world.open()

    await add(store, [1])  # the first one is none the worse
    await store.close()
    store = await world.open()
    assert await contents(store) == {(1, 1): b"body"}
    await store.close()


def test_a_second_process_is_refused_until_the_first_is_gone(tmp_path: Path) -> None:
    path = str(tmp_path / "store")
    with opener(path) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "open\n"
        with opener(path) as second:
            out, _ = second.communicate("x", timeout=60)
        assert f"is in use by process {first.pid}" in out
        first.kill()
    with opener(path) as third:
        out, _ = third.communicate("x", timeout=60)
    assert out == "open\n"


def test_closing_another_descriptor_of_the_file_keeps_the_lock(tmp_path: Path) -> None:
    vfs, path = RealVFS(), str(tmp_path / "LOCK")
    held, other = vfs.open(path, is_new=True), vfs.open(path)
    assert held.lock_nowait()
    assert not other.lock_nowait()

    other.close()  # with fcntl locks this would drop it

    again = vfs.open(path)
    assert not again.lock_nowait()
    held.close()
    assert again.lock_nowait()
    again.close()


async def test_a_stale_pid_is_no_lock(tmp_path: Path) -> None:
    (tmp_path / "LOCK").write_text("12345\n")

    store = await real_world(str(tmp_path)).open()

    await store.close()
