"""Server-sent events: every second a frame, and what changes in between.

Each subscriber has a buffer of 32 events. One that does not keep up loses the newest and is told
how many; nobody waits for it. A frame is encoded once for each set of queue names that is watched.
"""

from collections.abc import AsyncGenerator, Callable
from typing import Final

import msgspec
import trio
from attrs import define, field

from sepp.admin.messages import AuditEntry, Frame, Hello

BUFFER: Final = 32
SUBSCRIBERS_MAX: Final = 200
COMMENT_S: Final = 15.0

_encode = msgspec.json.Encoder().encode


@define(eq=False)
class Subscriber:
    """One open stream. `names` None: all queues."""

    names: frozenset[str] | None
    is_admin: bool
    receive: "trio.MemoryReceiveChannel[bytes]"
    _send: "trio.MemorySendChannel[bytes]" = field(alias="send")
    dropped: int = 0

    def push(self, event: bytes) -> None:
        """Queue an event, or count it as lost."""
        try:
            if self.dropped:
                self._send.send_nowait(_event("lagged", str(self.dropped).encode()))
                self.dropped = 0
            self._send.send_nowait(event)
        except trio.WouldBlock:
            self.dropped += 1
        except trio.BrokenResourceError:
            pass  # the stream is about to leave

    def close(self) -> None:
        """End the stream after what is queued."""
        self._send.close()


class Hub:
    """All open streams."""

    def __init__(self) -> None:
        self._subscribers: dict[Subscriber, None] = {}
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._subscribers)

    def subscribe(self, names: frozenset[str] | None, *, is_admin: bool) -> Subscriber | None:
        """Return a new stream, or None when there are 200 already or the server stops."""
        if self._is_closed or len(self._subscribers) >= SUBSCRIBERS_MAX:
            return None
        send, receive = trio.open_memory_channel[bytes](BUFFER)
        subscriber = Subscriber(names, is_admin, receive, send=send)
        self._subscribers[subscriber] = None
        return subscriber

    def leave(self, subscriber: Subscriber) -> None:
        """Forget a stream."""
        self._subscribers.pop(subscriber, None)
        subscriber.close()
        subscriber.receive.close()

    def publish_frame(self, frame: Frame) -> None:
        """Send a frame to everybody, each with the queues it asked for."""
        encoded: dict[frozenset[str] | None, bytes] = {}
        for subscriber in self._subscribers:
            names = subscriber.names
            if names not in encoded:
                encoded[names] = _event("stats", _encode(narrow(frame, names)))
            subscriber.push(encoded[names])

    def publish_audit(self, entry: AuditEntry) -> None:
        """Send an audit entry to those who may read the trail."""
        event = _event("audit", _encode(entry))
        for subscriber in self._subscribers:
            if subscriber.is_admin:
                subscriber.push(event)

    def publish_reload(self, count: int) -> None:
        """Say that the watcher looked at the configuration for the `count`th time."""
        event = _event("config", str(count).encode())
        for subscriber in self._subscribers:
            subscriber.push(event)

    def close(self) -> None:
        """End all streams and take no new ones; the server is stopping."""
        self._is_closed = True
        # None is left to publish to: what is published while the server stops goes nowhere.
        while self._subscribers:
            subscriber, _ = self._subscribers.popitem()
            subscriber.close()


def narrow(frame: Frame, names: frozenset[str] | None) -> Frame:
    """Return the frame with these queues only."""
    if names is None:
        return frame
    queues = {name: frame.queues[name] for name in names if name in frame.queues}
    return msgspec.structs.replace(frame, queues=queues)


async def events(
    subscriber: Subscriber, hello: Hello, may_stay: Callable[[], bool]
) -> AsyncGenerator[bytes]:
    """Yield the bytes of a stream until its session ends or the server stops."""
    yield _event("hello", _encode(hello))
    while may_stay():
        event = b":\n\n"  # a comment, so that proxies and peers see life
        with trio.move_on_after(COMMENT_S):
            try:
                event = await subscriber.receive.receive()
            except trio.EndOfChannel:
                return
        yield event


def _event(name: str, data: bytes) -> bytes:
    # JSON has no raw line feed, so one data line is always enough.
    return b"event: %s\ndata: %s\n\n" % (name.encode(), data)
