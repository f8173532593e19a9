"""The crashes tried are all of the legal ones where they are few, and the telling ones else."""

from random import Random

from tests.fakes.crash_states import choices, crash_images
from tests.fakes.simdisk import NameChange
from tests.fakes.simvfs import SimVFS

SEED = 7


def contents(vfs: SimVFS, path: str, **options: object) -> set[bytes | None]:
    """Return what a crash may leave of one file, None for nothing."""
    found: set[bytes | None] = set()
    for image in crash_images(vfs, random=Random(SEED), **options):  # type: ignore[arg-type]  # options of several types
        number = image.names.get(path)
        found.add(None if number is None else image.contents[number])
    return found


def test_a_new_file_without_any_sync_is_absent_empty_zero_or_whole() -> None:
    vfs = SimVFS()
    vfs.open("/store/a", is_new=True).pwritev([b"abc"], 0)

    assert contents(vfs, "/store/a") == {None, b"", b"\0\0\0", b"abc"}


def test_every_subset_of_sectors_is_tried_when_they_are_few() -> None:
    vfs = SimVFS()
    file = vfs.open("/store/a", is_new=True)
    file.pwritev([b"o" * 1536], 0)
    file.fsync()
    vfs.sync_dir("/store")
    file.pwritev([b"n" * 1536], 0)

    left = contents(vfs, "/store/a")

    parts = [b"o" * 512, b"n" * 512, bytes(512)]
    assert left == {a + b + c for a in parts for b in parts for c in parts}


def test_the_next_write_over_an_unsynced_one_leaves_either_or_neither() -> None:
    vfs = SimVFS()
    file = vfs.open("/store/a", is_new=True)
    file.pwritev([b"one"], 0)
    file.fsync()
    vfs.sync_dir("/store")
    file.pwritev([b"two"], 0)
    file.pwritev([b"six"], 0)

    assert contents(vfs, "/store/a") == {b"one", b"two", b"six", b"\0\0\0"}


def test_names_are_kept_in_order_or_in_any() -> None:
    vfs = SimVFS()
    for name in "abc":
        vfs.open(f"/store/{name}", is_new=True)

    def names(*, is_ordered: bool) -> set[str]:
        return {
            "".join(sorted(path[-1] for path in image.names if path.count("/") == 2))
            for image in crash_images(vfs, random=Random(SEED), is_ordered=is_ordered)
        }

    assert names(is_ordered=True) == {"", "a", "ab", "abc"}
    assert names(is_ordered=False) == {"", "a", "b", "c", "ab", "ac", "bc", "abc"}


def test_a_large_write_is_cut_at_each_sector() -> None:
    vfs = SimVFS()
    file = vfs.open("/store/a", is_new=True)
    file.fsync()
    vfs.sync_dir("/store")
    file.pwritev([b"n" * 512 * 100], 0)

    left = contents(vfs, "/store/a", random_count=10)

    assert {len(each or b"") for each in left} == {0, 51200}
    assert {b"n" * 512 * cut + bytes(512 * (100 - cut)) for cut in range(101)} <= left
    assert {bytes(512 * cut) + b"n" * 512 * (100 - cut) for cut in range(101)} <= left


def test_the_same_seed_gives_the_same_crashes() -> None:
    vfs = SimVFS()
    for name in "abcdefghijklmnop":
        vfs.open(f"/store/{name}", is_new=True).pwritev([b"x" * 5000], 0)

    first, second = (list(choices(vfs.pending, random=Random(SEED), random_count=20)) for _ in "12")

    assert first == second
    assert len(first) > 50


def test_equal_disks_are_yielded_once() -> None:
    vfs = SimVFS()
    vfs.open("/store/a", is_new=True)
    vfs.unlink("/store/a")
    assert len([change for change in vfs.pending if isinstance(change, NameChange)]) == 2

    digests = [image.digest for image in crash_images(vfs, random=Random(SEED))]

    assert len(digests) == len(set(digests)) == 2
