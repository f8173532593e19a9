"""Python's collector of circles, kept from walking what stays: with a million jobs that is 40 ms.

A whole round stops everything, and a scrape of many queues makes enough objects to cause one. So
what survives such a round is put aside ("frozen") and walked again only when a quarter more lives
than at the last walk over everything: the collector's own rule, but for objects that came to stay
and not for those that were there just at that moment.

Young objects are looked at as often as always. A connection that was cut off is a circle, and holds
memory the collector does not count; looking seldom let a flood of PINGs take 110 MiB.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_WHOLE: Final = 2  # the generation whose round walks everything that is not put aside
GROWTH_MIN: Final = 50_000  # objects, some of them a closed connection each fifty


class Collector:
    """Puts aside what survives.

    Attributes:
        walk_count: Rounds that walked everything.
    """

    def __init__(self) -> None:
        self.walk_count = 0
        self._alive = gc.get_freeze_count()  # after the last walk over everything
        self._added = 0  # put aside since, some of them gone by now
        self._is_walking = False

    def heed(self, phase: str, info: dict[str, int]) -> None:
        """Hear of a round that begins or has ended; see `gc.callbacks`."""
        if info["generation"] != _WHOLE:
            return
        if phase == "start":
            self._is_walking = self._is_due()
            if self._is_walking:
                gc.unfreeze()
        elif self._is_walking:
            gc.freeze()
            self._alive, self._added = gc.get_freeze_count(), 0
            self.walk_count += 1
        else:
            self._added += len(gc.get_objects(_WHOLE))
            gc.freeze()

    def _is_due(self) -> bool:
        growth_max = max(GROWTH_MIN, self._alive // 4)
        if self._added > growth_max:
            # Counting is a walk as well, though a quick one: not more often than there may be need.
            self._added = gc.get_freeze_count() - self._alive
        return self._added > growth_max


@contextmanager
def settled() -> Iterator[Collector]:
    """Put aside all that lives by now, and from then on what survives, until the end."""
    gc.collect()
    gc.freeze()
    collector = Collector()
    gc.callbacks.append(collector.heed)
    try:
        yield collector
    finally:
        gc.callbacks.remove(collector.heed)
        gc.unfreeze()
