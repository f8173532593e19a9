"""An answer made piece by piece cleans up at once, whenever its reader leaves."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest
import trio

from sepp.admin.streamed import StreamedResponse

SCOPE: Any = {"type": "http", "asgi": {"spec_version": "2.3"}}


class Answer:
    """A response of two pieces, with a note of what was cleaned up."""

    def __init__(self) -> None:
        self.ended: list[str] = []

    async def pieces(self) -> AsyncGenerator[bytes]:
        try:
            yield b"a"
            yield b"b"
        finally:
            self.ended.append("pieces")

    def respond(self) -> StreamedResponse:
        return StreamedResponse(
            self.pieces(), "text/plain", {}, at_end=lambda: self.ended.append("answer")
        )


async def stay() -> Any:
    await trio.sleep_forever()


async def test_a_whole_answer() -> None:
    answer, sent = Answer(), []

    async def send(message: Any) -> None:
        sent.append(message.get("body"))

    await answer.respond()(SCOPE, stay, send)

    assert sent == [None, b"a", b"b", b""]
    assert answer.ended == ["pieces", "answer"]


@pytest.mark.parametrize(("place", "ended"), [(0, ["answer"]), (1, ["pieces", "answer"])])
async def test_a_reader_that_leaves_half_way(place: int, ended: list[str]) -> None:
    """Place 0: before anything was sent, so that the generator never began."""
    answer, count = Answer(), 0
    is_gone = trio.Event()

    async def send(message: Any) -> None:
        nonlocal count
        if count == place:
            is_gone.set()
            await trio.sleep_forever()
        count += 1

    async def receive() -> Any:
        await is_gone.wait()
        return {"type": "http.disconnect"}

    await answer.respond()(SCOPE, receive, send)

    assert answer.ended == ended
