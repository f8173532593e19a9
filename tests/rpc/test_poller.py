"""Who is served when: the order within a turn of the loop."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from sepp.rpc.poller import Poller


class Ready:
    """An endpoint that always has bytes to read, and writes down each time it is served."""

    def __init__(self, poller: Poller, name: str, order: list[str]) -> None:
        self._near, self._far = socket.socketpair()
        self._far.send(b"x")
        self._poller, self._name, self._order = poller, name, order
        self.is_noisy = name.islower()
        self.is_touched = False
        poller.register(self._near.fileno(), self)
        if self.is_noisy:
            poller.serve_last(self._near.fileno())

    def on_readable(self) -> None:
        self._order.append(self._name)
        if self.is_noisy:
            self._poller.serve_last(self._near.fileno())

    def close(self) -> None:
        """Leave the poller."""
        self._poller.unregister(self._near.fileno())
        self._near.close()
        self._far.close()


class Stand:
    """A calm endpoint X, more of them that are noisy (small letters) or not, and who is served."""

    def __init__(self, poller: Poller, names: str) -> None:
        self._order: list[str] = []
        self.endpoints = {name: Ready(poller, name, self._order) for name in ("X", *names)}

    async def turns(self, count: int) -> list[str]:
        """Who is served beside X in the next turns of the loop; X is in each of them, once."""
        self._order.clear()
        while self._order.count("X") < count + 2:
            await trio.lowlevel.checkpoint()
        return "".join(self._order).split("X")[1 : count + 1]


@asynccontextmanager
async def standing(names: str) -> AsyncIterator[Stand]:
    poller = Poller()
    async with trio.open_nursery() as nursery:
        await nursery.start(poller.run)
        stand = Stand(poller, names)
        try:
            yield stand
        finally:
            for endpoint in stand.endpoints.values():
                endpoint.close()
            nursery.cancel_scope.cancel()


async def test_each_turn_serves_one_noisy_peer_and_all_others():
    async with standing("aYbc") as stand:
        turns = await stand.turns(6)

    assert [turn.count("Y") for turn in turns] == [1] * 6
    assert "".join(turns).replace("Y", "") in ("abcabc", "bcabca", "cabcab")


async def test_a_peer_that_calmed_down_is_served_in_each_turn_again():
    async with standing("abc") as stand:
        stand.endpoints["a"].is_noisy = False
        await stand.turns(3)

        turns = await stand.turns(4)

    assert [turn.count("a") for turn in turns] == [1] * 4
    assert "".join(turns).replace("a", "") in ("bcbc", "cbcb")


async def test_one_that_leaves_while_it_waits_is_forgotten():
    async with standing("ab") as stand:
        await stand.turns(2)
        stand.endpoints.pop("a").close()
        await stand.turns(1)

        assert await stand.turns(3) == ["b"] * 3
