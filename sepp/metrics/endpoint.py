"""`GET /metrics`, as an ASGI application.

A page is made as a whole before its first byte leaves, one page at a time, so a scraper that reads
slowly holds up nobody; only so many pages may be held at once.
"""

from typing import Any, Final

import trio
from prometheus_client import GC_COLLECTOR, PLATFORM_COLLECTOR, CollectorRegistry, ProcessCollector
from prometheus_client.exposition import generate_latest

from sepp import __version__
from sepp.metrics.reading import NamedQueues, Pause, Sources, read
from sepp.metrics.text import CONTENT_TYPE, escape, render

SCRAPES_MAX: Final = 8


class Endpoint:
    """The application.

    Args:
        sources: What is read.
        service_name: As configured for tracing; names us in `target_info`.
        queues_max: metrics.max_queues.
        pause: Awaited between slices.
    """

    def __init__(
        self,
        sources: Sources,
        *,
        service_name: str,
        queues_max: int,
        pause: Pause = trio.lowlevel.checkpoint,
    ) -> None:
        self._sources = sources
        self._named = NamedQueues(queues_max)
        self._pause = pause
        self._turn = trio.Lock()
        self._scrape_count = 0
        self._target = (
            "# HELP target_info Who reports here.\n# TYPE target_info gauge\n"
            f'target_info{{service_name="{escape(service_name)}",'
            f'service_version="{__version__}"}} 1\n'
        ).encode()
        # What Prometheus' own client tells of any process: memory, CPU, descriptors, collections.
        self._standard = CollectorRegistry()
        ProcessCollector(registry=self._standard)
        self._standard.register(PLATFORM_COLLECTOR)
        self._standard.register(GC_COLLECTOR)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await send({"type": "websocket.close"})
        elif scope["path"] != "/metrics":
            await _answer(send, 404, b"try /metrics\n")
        elif scope["method"] not in ("GET", "HEAD"):
            await _answer(send, 405, b"GET it\n", (b"allow", b"GET, HEAD"))
        elif self._scrape_count >= SCRAPES_MAX:
            await _answer(send, 503, b"too many scrapes at once\n", (b"retry-after", b"1"))
        else:
            self._scrape_count += 1
            try:
                await self._scrape(send, is_head=scope["method"] == "HEAD")
            finally:
                self._scrape_count -= 1

    async def _scrape(self, send: Any, *, is_head: bool) -> None:
        pieces = [] if is_head else await self.page()
        headers = [(b"content-type", CONTENT_TYPE.encode())]
        if not is_head:
            length = sum(map(len, pieces))
            headers.append((b"content-length", str(length).encode()))
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for piece in pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def page(self) -> list[bytes]:
        """Read everything and return the page in pieces."""
        async with self._turn:
            series = await read(self._sources, self._named, self._pause)
            pieces = []
            for piece in render(series):
                pieces.append(piece)
                await self._pause()
            pieces += [self._target, generate_latest(self._standard)]
        return pieces


async def _answer(send: Any, status: int, body: bytes, *headers: tuple[bytes, bytes]) -> None:
    all_headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
        *headers,
    ]
    await send({"type": "http.response.start", "status": status, "headers": all_headers})
    await send({"type": "http.response.body", "body": body})
