"""What the collector of circles walks, and what it leaves aside."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from sepp import collector
from sepp.collector import settled


@pytest.fixture(autouse=True)
def rounds_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(collector, "GROWTH_MIN", 0)
    gc.disable()
    yield
    gc.enable()


class Node:
    """Something that can be a circle."""

    def __init__(self) -> None:
        self.me = self


def more_than_a_quarter() -> list[list[object]]:
    """As many objects as there are; a list is walked whatever it holds."""
    return [[] for _ in range(gc.get_freeze_count())]


def test_what_lives_is_put_aside_and_a_round_walks_only_what_came_since() -> None:
    with settled() as ours:
        before = gc.get_freeze_count()
        kept = [[] for _ in range(1000)]  # type: list[list[object]]

        gc.collect()

        assert gc.get_freeze_count() >= before + len(kept)
        assert len(gc.get_objects()) < before
        assert ours.walk_count == 0


def test_circles_among_the_young_are_collected() -> None:
    with settled():
        gone = weakref.ref(Node())

        gc.collect()

        assert gone() is None


def test_everything_is_walked_once_a_quarter_more_lives() -> None:
    with settled() as ours:
        node = Node()
        gone = weakref.ref(node)
        gc.collect()
        del node
        gc.collect()
        assert (gone() is not None, ours.walk_count) == (True, 0)  # it was put aside alive

        kept = more_than_a_quarter()
        gc.collect()  # puts them aside
        gc.collect()

        assert (gone(), ours.walk_count) == (None, 1)
        gc.collect()
        assert ours.walk_count == 1
        assert kept


def test_what_lived_only_at_the_moment_of_a_round_is_no_reason() -> None:
    with settled() as ours:
        for _ in range(3):
            passing = more_than_a_quarter()
            gc.collect()
            del passing

        gc.collect()

        assert ours.walk_count == 0


def test_at_the_end_nothing_is_put_aside_any_more() -> None:
    callbacks = list(gc.callbacks)
    with settled():
        pass

    assert gc.get_freeze_count() == 0
    assert gc.callbacks == callbacks
