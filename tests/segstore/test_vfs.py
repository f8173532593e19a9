"""The real disk behind the seam: each call does what the protocol says."""

import errno
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from segstore import NotAFile, RealVFS
from segstore.layout import INDEX_NAME, segment_name
from segstore.snapshot_file import snapshot_name
from segstore.vfs import RealFile, process_id
from tests.segstore.worlds import real_world


@pytest.fixture
def file(tmp_path: Path) -> RealFile:
    return RealVFS().open(str(tmp_path / "file"), is_new=True)


def test_written_bytes_are_read_back(file: RealFile) -> None:
    assert file.pwritev([b"abc", bytearray(b"def")], 2) == 6
    assert file.pwritev([b"X"], 0) == 1

    assert file.pread(100, 0) == b"X\0abcdef"
    assert file.pread(2, 3) == b"bc"
    assert file.pread(5, 100) == b""
    assert file.size() == 8
    file.close()


def test_a_read_without_waiting_is_whole_or_nothing(file: RealFile) -> None:
    file.pwritev([b"abcdef"], 0)

    assert file.pread_nowait(3, 1) == b"bcd"
    assert file.pread_nowait(3, 5) is None
    file.close()


@pytest.mark.parametrize("code", [errno.EAGAIN, errno.EOPNOTSUPP])
def test_what_is_not_cached_is_none(
    file: RealFile, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def preadv(*_: Any) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "preadv", preadv)

    assert file.pread_nowait(3, 1) is None
    file.close()


def test_an_error_of_such_a_read_is_an_error(
    file: RealFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    def preadv(*_: Any) -> int:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(os, "preadv", preadv)

    with pytest.raises(OSError, match="broken"):
        file.pread_nowait(3, 1)
    file.close()


def test_a_read_that_the_system_cuts_short_goes_on(
    file: RealFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.pwritev([b"abcdefgh"], 0)
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, length, at: pread(fd, min(length, 3), at))

    assert file.pread(7, 1) == b"bcdefgh"
    assert file.pread(100, 6) == b"gh"
    file.close()


def test_a_file_has_the_length_it_was_given(file: RealFile) -> None:
    file.fallocate(0, 4096)
    assert file.size() == 4096
    file.truncate(10)
    assert file.size() == 10
    file.fsync()
    file.fdatasync()
    file.drop_cache()
    file.close()
    file.close()  # twice is harmless


def test_names_are_made_moved_and_taken_away(tmp_path: Path) -> None:
    vfs, root = RealVFS(), str(tmp_path)
    vfs.mkdir(f"{root}/d")
    vfs.open(f"{root}/d/a", is_new=True).close()
    with pytest.raises(FileExistsError):
        vfs.open(f"{root}/d/a", is_new=True)
    with pytest.raises(FileNotFoundError):
        vfs.open(f"{root}/d/b")

    vfs.link(f"{root}/d/a", f"{root}/d/b")
    vfs.rename(f"{root}/d/a", f"{root}/d/c")
    vfs.sync_dir(f"{root}/d")
    assert sorted(vfs.list_dir(f"{root}/d")) == ["b", "c"]
    vfs.unlink(f"{root}/d/b")

    assert vfs.exists(f"{root}/d/c")
    assert not vfs.exists(f"{root}/d/b")
    assert vfs.free_bytes(root) > 0


def test_files_are_not_for_everyone_and_not_inherited(tmp_path: Path) -> None:
    file = RealVFS().open(str(tmp_path / "file"), is_new=True)

    assert (tmp_path / "file").stat().st_mode & 0o007 == 0
    assert not os.get_inheritable(file._fd)
    file.close()


def test_a_file_opened_for_reading_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    file = RealVFS().open(str(tmp_path / "file"), is_readonly=True)

    with pytest.raises(OSError):
        file.pwritev([b"y"], 0)
    file.close()


def test_the_process_is_this_one() -> None:
    assert process_id() == os.getpid()


def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "directory").mkdir()
    (tmp_path / "device").symlink_to("/dev/null")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(tmp_path / "socket"))

    for name, kind in (
        ("fifo", "a FIFO"),
        ("directory", "a directory"),
        ("device", "a device"),
        ("socket", "a socket"),
    ):
        for is_readonly in (True, False):
            with pytest.raises(NotAFile) as caught:
                RealVFS().open(f"{tmp_path}/{name}", is_readonly=is_readonly)
            text = f"{tmp_path}/{name}: this is {kind} and no file; move it out of the directory"
            assert str(caught.value).startswith(text)


@pytest.mark.parametrize("name", ["LOCK", "FORMAT", segment_name(1)])
async def test_a_store_does_not_open_while_something_else_has_the_name_of_a_file_of_it(
    tmp_path: Path, name: str
) -> None:
    world = real_world(str(tmp_path))
    await (await world.writer()).close()
    (tmp_path / name).rename(tmp_path / "kept")
    os.mkfifo(tmp_path / name)

    with pytest.raises(NotAFile, match=name):
        await world.open()

    (tmp_path / "kept").rename(tmp_path / name)
    await (await world.open()).close()


async def test_of_what_is_derived_another_is_made(tmp_path: Path) -> None:
    world = real_world(str(tmp_path))
    await (await world.writer()).close()
    snapshot = tmp_path / snapshot_name(7)
    os.mkfifo(snapshot)
    os.mkfifo(tmp_path / INDEX_NAME)

    await (await world.writer()).close()

    assert not snapshot.exists()
