"""Answers that are made piece by piece."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send


class StreamedResponse(StreamingResponse):
    """A streaming response that cleans up at once, also when its reader leaves half-way.

    Starlette leaves an unfinished generator to the garbage collector, and one that never began has
    no `finally` that would run.

    Args:
        pieces: What is sent.
        media_type, headers: As everywhere.
        at_end: Called when nothing more will be sent, whatever the reason.
    """

    def __init__(
        self,
        pieces: AsyncGenerator[bytes],
        media_type: str,
        headers: Mapping[str, str],
        at_end: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(pieces, media_type=media_type, headers=headers)
        self._pieces = pieces
        self._at_end = at_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the pieces, then end the generator."""
        try:
            async with aclosing(self._pieces):
                await super().__call__(scope, receive, send)
        finally:
            if self._at_end is not None:
                self._at_end()
