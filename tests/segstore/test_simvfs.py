"""The simulated disk keeps its own rules: what a sync makes durable, and what a crash may leave."""

import errno

import pytest

from segstore.vfs import VFS
from tests.fakes.faults import SHORT_WRITE
from tests.fakes.simdisk import KEPT, LOST, ZERO
from tests.fakes.simvfs import SimVFS

REFUSED = r"error|space|descriptor"  # EIO, ENOSPC, EBADF


def make_file(vfs: SimVFS, path: str = "/store/a", content: bytes = b""):
    """Make a durable file."""
    file = vfs.open(path, is_new=True)
    if content:
        file.pwritev([content], 0)
    file.fsync()
    vfs.sync_dir("/store")
    assert vfs.pending == []
    return file


def test_it_is_a_vfs() -> None:
    vfs: VFS = SimVFS()

    assert vfs.list_dir("/store") == []


def test_a_synced_file_without_its_synced_name_is_gone_after_a_crash() -> None:
    vfs = SimVFS()
    file = vfs.open("/store/a", is_new=True)
    file.pwritev([b"abc"], 0)
    file.fsync()

    assert vfs.crash().visible_files() == {}
    vfs.sync_dir("/store")
    assert vfs.crash().visible_files() == {"/store/a": b"abc"}


def test_a_synced_name_without_a_synced_file_is_an_empty_file() -> None:
    vfs = SimVFS()
    vfs.open("/store/a", is_new=True).pwritev([b"abc"], 0)
    vfs.sync_dir("/store")

    assert vfs.crash().visible_files() == {"/store/a": b""}


def test_length_and_bytes_are_kept_or_lost_apart() -> None:
    vfs = SimVFS()
    make_file(vfs, content=b"old").pwritev([b"new!"], 3)

    def left(data: int, length: int) -> bytes:
        return vfs.crash([data, length]).visible_files()["/store/a"]

    assert left(KEPT, KEPT) == b"oldnew!"
    assert left(KEPT, LOST) == b"old"
    assert left(LOST, KEPT) == b"old\0\0\0\0"
    assert left(LOST, LOST) == b"old"


def test_each_sector_of_a_write_is_old_new_or_zero() -> None:
    vfs = SimVFS()
    make_file(vfs, content=b"o" * 2000).pwritev([b"n" * 1500], 100)

    fate = bytes([KEPT, LOST, ZERO, KEPT])
    left = vfs.crash([fate]).visible_files()["/store/a"]

    assert left[:100] == b"o" * 100
    assert left[100:512] == b"n" * 412
    assert left[512:1024] == b"o" * 512
    assert left[1024:1536] == bytes(512)
    assert left[1536:] == b"n" * 64 + b"o" * 400


def test_a_zeroed_sector_never_harms_bytes_outside_the_write() -> None:
    vfs = SimVFS()
    make_file(vfs, content=b"o" * 600).pwritev([b"n" * 300], 500)

    left = vfs.crash([bytes([ZERO, ZERO]), KEPT]).visible_files()["/store/a"]

    assert left == b"o" * 512 + bytes(288)


def test_a_kept_length_stands_on_the_lengths_before_it() -> None:
    vfs = SimVFS()
    file = make_file(vfs, content=b"stale tail")
    file.truncate(2)
    file.truncate(8)

    assert vfs.crash([LOST, KEPT]).visible_files()["/store/a"] == b"st" + bytes(6)
    assert vfs.crash([KEPT, LOST]).visible_files()["/store/a"] == b"st"


def test_bytes_cut_off_do_not_come_back_with_a_sync() -> None:
    vfs = SimVFS()
    file = make_file(vfs)
    file.pwritev([b"x" * 700], 0)
    file.truncate(0)
    file.truncate(700)
    file.fdatasync()

    assert vfs.crash().visible_files()["/store/a"] == bytes(700)


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("sync", ["fsync", "fdatasync"])
def test_after_a_failed_sync_the_next_succeeds_and_the_bytes_are_lost(
    sync: str, error: int
) -> None:
    vfs = SimVFS()
    file = make_file(vfs, content=b"old")
    file.pwritev([b"new"], 0)
    vfs.fail(error, names=[sync])

    with pytest.raises(OSError, match=REFUSED) as caught:
        getattr(file, sync)()
    assert caught.value.errno == error
    assert file.pread(3, 0) == b"new"
    getattr(file, sync)()

    assert vfs.crash([KEPT] * len(vfs.pending)).visible_files()["/store/a"] == b"old"
    assert file.pread(3, 0) == b"new"
    file.drop_cache()
    assert file.pread(3, 0) == b"old"


def test_dropping_the_cache_keeps_what_still_waits() -> None:
    vfs = SimVFS()
    file = make_file(vfs, content=b"old")
    file.pwritev([b"new and longer"], 0)

    file.drop_cache()

    assert file.pread_nowait(100, 0) is None
    assert file.pread(100, 0) == b"new and longer"
    assert file.pread_nowait(100, 0) == b"new and longer"


def test_a_rename_is_atomic_and_waits_for_the_directory() -> None:
    vfs = SimVFS()
    make_file(vfs, "/store/a", b"old")
    make_file(vfs, "/store/a.tmp", b"new")

    vfs.rename("/store/a.tmp", "/store/a")

    assert vfs.crash([LOST]).visible_files() == {"/store/a": b"old", "/store/a.tmp": b"new"}
    assert vfs.crash([KEPT]).visible_files() == {"/store/a": b"new"}
    vfs.sync_dir("/store")
    assert vfs.crash().visible_files() == {"/store/a": b"new"}


def test_a_rename_may_be_kept_where_the_creation_was_lost() -> None:
    vfs = SimVFS()
    vfs.open("/store/a.tmp", is_new=True)
    vfs.rename("/store/a.tmp", "/store/a")

    assert vfs.crash([LOST, KEPT]).visible_files() == {"/store/a": b""}


def test_links_share_their_bytes_also_after_a_crash() -> None:
    vfs = SimVFS()
    file = make_file(vfs, content=b"one")
    vfs.link("/store/a", "/store/b")
    vfs.sync_dir("/store")

    clone = vfs.crash()
    clone.open("/store/a").pwritev([b"two"], 0)

    assert clone.open("/store/b").pread(3, 0) == b"two"
    assert file.pread(3, 0) == b"one"


def test_a_failed_sync_of_a_directory_loses_its_names_for_good() -> None:
    vfs = SimVFS()
    vfs.open("/store/a", is_new=True)
    vfs.fail(errno.EIO, names=["sync_dir"])

    with pytest.raises(OSError, match=REFUSED):
        vfs.sync_dir("/store")
    vfs.sync_dir("/store")

    assert vfs.list_dir("/store") == ["a"]
    assert vfs.crash().list_dir("/store") == []


def test_files_of_a_lost_directory_are_lost() -> None:
    vfs = SimVFS()
    vfs.mkdir("/store/sub")
    vfs.open("/store/sub/a", is_new=True)
    vfs.sync_dir("/store/sub")

    assert vfs.crash().visible_files() == {}
    vfs.sync_dir("/store")
    assert vfs.crash().visible_files() == {"/store/sub/a": b""}


def test_call_k_fails_once_or_for_ever() -> None:
    vfs = SimVFS()
    vfs.fail(errno.EIO, number=2)
    assert vfs.list_dir("/store") == []
    with pytest.raises(OSError, match=REFUSED):
        vfs.list_dir("/store")
    assert vfs.list_dir("/store") == []

    vfs.fail(errno.EIO, number=4, is_forever=True)
    for _ in range(3):
        with pytest.raises(OSError, match=REFUSED):
            vfs.list_dir("/store")


def test_a_short_write_writes_half_and_says_so() -> None:
    vfs = SimVFS()
    file = make_file(vfs)
    vfs.fail(SHORT_WRITE, names=["pwritev"])

    assert file.pwritev([b"ab", b"cdef"], 0) == 3
    assert file.pread(10, 0) == b"abc"


def test_an_interrupted_call_does_nothing() -> None:
    vfs = SimVFS()
    file = make_file(vfs)
    for name in ("pwritev", "fsync"):
        vfs.fail(errno.EINTR, names=[name])
    with pytest.raises(InterruptedError):
        file.pwritev([b"abc"], 0)
    file.pwritev([b"abc"], 0)
    with pytest.raises(InterruptedError):
        file.fsync()

    assert vfs.crash().visible_files()["/store/a"] == b""
    file.fsync()
    assert vfs.crash().visible_files()["/store/a"] == b"abc"


def test_a_full_disk_refuses_growth_and_says_how_much_is_free() -> None:
    vfs = SimVFS(capacity=1000)
    file = make_file(vfs, content=b"x" * 900)

    assert vfs.free_bytes("/store") == 100
    with pytest.raises(OSError, match=REFUSED) as caught:
        file.fallocate(0, 1001)
    assert caught.value.errno == errno.ENOSPC
    file.pwritev([b"y" * 100], 900)
    assert vfs.free_bytes("/store") == 0
    vfs.capacity = None
    vfs.free = 77
    assert vfs.free_bytes("/store") == 77


def test_a_lock_is_held_by_one_open_file_until_it_closes_or_the_power_goes() -> None:
    vfs = SimVFS()
    first = make_file(vfs)
    second = vfs.open("/store/a")

    assert first.lock_nowait()
    assert first.lock_nowait()
    assert not second.lock_nowait()
    assert vfs.crash().open("/store/a").lock_nowait()
    first.close()
    assert second.lock_nowait()


def test_clones_of_a_crash_share_nothing() -> None:
    vfs = SimVFS()
    file = make_file(vfs, content=b"abc")
    first, second = vfs.crash(), vfs.crash()

    first.open("/store/a").pwritev([b"xyz"], 0)
    vfs.unlink("/store/a")

    assert second.visible_files() == {"/store/a": b"abc"}
    assert file.pread(3, 0) == b"abc"


def test_a_fork_keeps_what_waits_and_shares_nothing() -> None:
    vfs = SimVFS()
    file = make_file(vfs, content=b"old")
    file.pwritev([b"new"], 0)
    vfs.rename("/store/a", "/store/b")
    assert file.lock_nowait()

    fork = vfs.fork()
    file.pwritev([b"end"], 0)

    assert fork.visible_files() == {"/store/b": b"new"}
    assert fork.crash().visible_files() == {"/store/a": b"old"}
    again = fork.open("/store/b")
    assert again.lock_nowait()
    again.fsync()
    fork.sync_dir("/store")
    assert fork.crash().visible_files() == {"/store/b": b"new"}
    assert vfs.crash([1] * 3).visible_files() == {"/store/b": b"end"}


def test_the_trace_tells_each_call() -> None:
    vfs = SimVFS()
    file = make_file(vfs)
    file.pwritev([b"abc"], 5)

    call = vfs.trace[-1]
    assert (call.number, call.name, call.path) == (4, "pwritev", "/store/a")
    assert (call.offset, call.length) == (5, 3)
    assert vfs.call_count == 4


def test_calls_refuse_what_the_kernel_refuses() -> None:
    vfs = SimVFS()
    file = make_file(vfs)
    refused = [
        (FileExistsError, lambda: vfs.open("/store/a", is_new=True)),
        (FileNotFoundError, lambda: vfs.open("/store/b")),
        (FileNotFoundError, lambda: vfs.rename("/store/b", "/store/c")),
        (FileNotFoundError, lambda: vfs.unlink("/store/b")),
        (FileExistsError, lambda: vfs.link("/store/a", "/store/a")),
        (FileNotFoundError, lambda: vfs.open("/nowhere/a", is_new=True)),
        (FileNotFoundError, lambda: vfs.sync_dir("/nowhere")),
        (IsADirectoryError, lambda: vfs.open("/store")),
        (NotADirectoryError, lambda: vfs.list_dir("/store/a")),
        (OSError, lambda: vfs.open("/store/a", is_readonly=True).pwritev([b"x"], 0)),
    ]
    for kind, act in refused:
        with pytest.raises(kind):
            act()
    file.close()
    with pytest.raises(OSError, match=REFUSED):
        file.fsync()
