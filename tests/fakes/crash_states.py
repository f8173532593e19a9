"""Which of the disks that a crash may leave are tried.

Every legal one where they are few; else those that have found bugs elsewhere (all lost, all kept,
each prefix, one lost, one kept, the newest write cut at each sector) and some at random, seeded.
"""

import itertools
from collections.abc import Iterator
from random import Random

from tests.fakes.simdisk import KEPT, LOST, ZERO, Change, Fate, Image, NameChange, Write
from tests.fakes.simvfs import SimVFS

FULL_COUNT_MAX = 4096


def crash_images(
    vfs: SimVFS,
    *,
    random: Random,
    random_count: int = 50,
    is_ordered: bool = False,
    full_count_max: int = FULL_COUNT_MAX,
) -> Iterator[Image]:
    """Yield what crashes now may leave, each different disk once.

    Args:
        vfs: the disk, which stays as it is.
        random: gives the random choices; print its seed.
        random_count: how many of them.
        is_ordered: names are kept in the order of their changes, as ext4 does it, not in any.
        full_count_max: up to so many combinations all are tried.
    """
    seen: set[bytes] = set()
    for fates in choices(
        vfs.pending, random=random, random_count=random_count, full_count_max=full_count_max
    ):
        image = vfs.image(in_order(vfs.pending, fates) if is_ordered else fates)
        if image.digest not in seen:
            seen.add(image.digest)
            yield image


def choices(
    pending: list[Change],
    *,
    random: Random,
    random_count: int,
    full_count_max: int = FULL_COUNT_MAX,
) -> Iterator[list[Fate]]:
    """Yield fates for the pending changes: all combinations, or the plan of the module."""
    if combination_count(pending) <= full_count_max:
        yield from every_choice(pending)
    else:
        yield from planned_choices(pending, random=random, random_count=random_count)


def combination_count(pending: list[Change]) -> int:
    """Return how many choices there are, not counting zeroed sectors."""
    return 1 << min(sum(_part_count(change) for change in pending), 64)


def every_choice(pending: list[Change]) -> Iterator[list[Fate]]:
    """Yield every combination of fates, zeroed sectors too where those are few enough."""
    options: list[list[Fate]] = []
    zeros = 3 ** sum(_part_count(change) for change in pending) <= FULL_COUNT_MAX
    for change in pending:
        if not isinstance(change, Write):
            options.append([LOST, KEPT])
            continue
        sectors = [
            [LOST, KEPT, ZERO] if zeros and change.may_zero(sector) else [LOST, KEPT]
            for sector in range(change.sector_count)
        ]
        options.append([bytes(each) for each in itertools.product(*sectors)])
    for combination in itertools.product(*options):
        yield list(combination)


def planned_choices(
    pending: list[Change], *, random: Random, random_count: int
) -> Iterator[list[Fate]]:
    """Yield the choices worth trying when there are too many."""
    count = len(pending)
    lost: list[Fate] = [LOST] * count
    kept: list[Fate] = [KEPT] * count
    for end in range(count + 1):
        yield kept[:end] + lost[end:]
    for index in range(count):
        yield [*kept[:index], LOST, *kept[index + 1 :]]
        yield [*lost[:index], KEPT, *lost[index + 1 :]]
    yield [KEPT if isinstance(change, NameChange) else LOST for change in pending]
    yield [LOST if isinstance(change, NameChange) else KEPT for change in pending]
    yield from _cuts(pending)
    for _ in range(random_count):
        yield _random_choice(pending, random)


def in_order(pending: list[Change], fates: list[Fate]) -> list[Fate]:
    """Return the fates with no name kept behind one that is lost."""
    ordered = list(fates)
    is_lost = False
    for index, change in enumerate(pending):
        if isinstance(change, NameChange):
            is_lost = is_lost or not fates[index]
            ordered[index] = LOST if is_lost else KEPT
    return ordered


def _part_count(change: Change) -> int:
    return change.sector_count if isinstance(change, Write) else 1


def _cuts(pending: list[Change]) -> Iterator[list[Fate]]:
    """Yield the newest write cut at each sector: its head or tail alone, its tail zero."""
    index = next((i for i in reversed(range(len(pending))) if isinstance(pending[i], Write)), None)
    if index is None:
        return
    write = pending[index]
    assert isinstance(write, Write)
    count = write.sector_count
    rest: list[Fate] = [KEPT] * len(pending)
    for cut in range(1, count):
        for head, tail in ((KEPT, LOST), (LOST, KEPT), (KEPT, ZERO)):
            rest[index] = bytes([head]) * cut + bytes([tail]) * (count - cut)
            yield list(rest)


def _random_choice(pending: list[Change], random: Random) -> list[Fate]:
    odds = random.choice((0.1, 0.5, 0.9))
    is_whole = random.random() < 0.3  # writes kept or lost as a whole, so that more of them stand
    fates: list[Fate] = []
    for change in pending:
        if not isinstance(change, Write) or is_whole:
            fates.append(KEPT if random.random() < odds else LOST)
            continue
        fates.append(
            bytes(
                KEPT if random.random() < odds else random.choice((LOST, ZERO))
                for _ in range(change.sector_count)
            )
        )
    return fates
