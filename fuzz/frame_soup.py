"""Invariant: no soup of frames hurts a server, another peer, or what a service hears of its calls.

    python -m fuzz.frame_soup --seconds 60 --seed 7

Many peers at a time send calls, frames that fit and frames that do not, damaged, cut, in pieces of
any size, and leave in the middle; the service answers at once, later, by parts or never. Meanwhile:

- a polite client's calls all succeed, in bounded time;
- every call that reached its handler has one fate: answered, or `on_gone` once; and an answer comes
  back by `on_undelivered` at most once, at once if its caller had left;
- no bug is logged; when all have left, no connection, stream or request byte is counted any more.

Exit code 0 when it held, 1 with the seed when it did not.
"""

import logging
import random
import time
from contextlib import suppress

import purerpc
import trio

from fuzz.command_line import seed_and_seconds
from sepp.rpc.call import Call
from sepp.rpc.channel import Channel, open_channel
from sepp.rpc.limits import TransportLimits
from sepp.rpc.server import Server
from tests.rpc import frames
from tests.rpc.frames import RawPeer, message, request

PEERS = 8
CALL_SECONDS_MAX = 20  # hang guard
PATHS = (
    "/soup.Soup/Now",
    "/soup.Soup/Later",
    "/soup.Soup/Never",
    "/soup.Soup/Parts",
    "/no.Such/Call",
)
LIMITS = TransportLimits(
    max_connection_request_bytes=300_000,
    outbound_buffer_bytes=200_000,
    max_outbound_bytes=1_000_000,
    write_stall_timeout_ms=300,
    body_timeout_ms=200,
    header_timeout_ms=200,
    preface_timeout_ms=300,
    keepalive_interval_ms=400,
    keepalive_timeout_ms=200,
)


class Fate:
    """What became of one call that reached its handler."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.is_answered = False
        self.gone_count = 0
        self.undelivered_count = 0
        call.on_gone = self._leave

    def _leave(self, call: Call) -> None:
        assert call is self.call
        assert not self.is_answered
        self.gone_count += 1

    def answer(self, body: bytes) -> None:
        had_left = not self.call.is_open
        self.is_answered = True
        self.call.respond(body, self._come_back)
        assert self.undelivered_count == had_left

    def _come_back(self) -> None:
        self.undelivered_count += 1

    def check(self) -> None:
        """All connections are closed: the fate is final."""
        assert self.gone_count <= 1
        assert self.undelivered_count <= 1
        assert self.is_answered or self.gone_count == 1
        assert not self.call.is_open


class Soup(purerpc.Servicer):
    """Answers in every way a service can."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.fates: list[Fate] = []
        self.pending: list[Fate] = []
        self.checked_count = 0
        self.gone_count = 0
        self.undelivered_count = 0

    @property
    def service(self) -> purerpc.Service:
        service = purerpc.Service("soup.Soup")
        signature = purerpc.RPCSignature(purerpc.Cardinality.UNARY_UNARY, bytes, bytes)
        for name in ("Echo", "Now", "Later", "Never", "Parts"):
            service.add_method(name, getattr(self, name.lower()), signature)
        return service

    def _meet(self, call: Call) -> Fate:
        fate = Fate(call)
        self.fates.append(fate)
        return fate

    def _body(self) -> bytes:
        return bytes(self._rng.choice((0, 10, 1000, 20_000, 200_000)))

    def echo(self, call: Call) -> None:
        call.respond(call.message)

    def now(self, call: Call) -> None:
        self._meet(call).answer(self._body())

    def later(self, call: Call) -> None:
        self.pending.append(self._meet(call))

    def never(self, call: Call) -> None:
        self._meet(call)

    def parts(self, call: Call) -> None:
        fate = self._meet(call)
        for _ in range(self._rng.randrange(4)):
            call.send(self._body())
        if self._rng.random() < 0.5:
            fate.is_answered = True
            call.finish()

    def answer_some(self) -> None:
        """Answer what waits, each with even odds."""
        pending, self.pending = self.pending, []
        for fate in pending:
            if self._rng.random() < 0.5:
                fate.answer(self._body())
            else:
                self.pending.append(fate)

    def check(self) -> None:
        for fate in self.fates:
            fate.check()
            self.gone_count += fate.gone_count
            self.undelivered_count += fate.undelivered_count
        self.checked_count += len(self.fates)
        self.fates.clear()
        self.pending.clear()


class Kitchen:
    """Makes the bytes of one peer: mostly what a client may send, in an order none would choose."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._next_stream = 1

    def cook(self) -> bytes:
        rng = self._rng
        window = rng.choice((0, 1, 100, 65_535, 2**31 - 1))
        soup = bytearray(frames.PREFACE + frames.settings(id_4=window))
        if rng.random() < 0.05:
            soup = bytearray(rng.randbytes(40))
        kinds = (self.call, self.begin, self.data, self.reset, self.window, self.settings)
        for _ in range(rng.randrange(1, 80)):
            roll = rng.random()
            if roll < 0.4:
                soup += self.call()
            elif roll < 0.995:
                soup += rng.choice(kinds)()
            else:
                soup += rng.choice((self.ping, self.goaway, self.any_frame, self.noise))()
        while rng.random() < 0.1:
            soup[rng.randrange(len(soup))] ^= 1 << rng.randrange(8)
        return bytes(soup[: rng.randrange(len(soup))] if rng.random() < 0.3 else soup)

    def _new(self) -> int:
        self._next_stream += 2
        return self._next_stream - 2

    def _known(self) -> int:
        """A stream begun before; once in a while one not begun yet, which costs the connection."""
        if self._rng.random() < 0.01:
            return self._next_stream
        back = self._rng.choice((1, 1, 2, 3, self._rng.randrange(1, 30)))
        return max(1, self._next_stream - 2 * back)

    def call(self) -> bytes:
        rng = self._rng
        extra = [(b"grpc-timeout", b"%dm" % rng.randrange(200))] if rng.random() < 0.3 else []
        body = message(rng.randbytes(rng.choice((0, 5, 3000, 70_000))))
        return request(self._new(), rng.choice(PATHS), body, *extra)

    def begin(self) -> bytes:
        return frames.headers_frame(self._new(), frames.request_headers(self._rng.choice(PATHS)))

    def data(self) -> bytes:
        rng = self._rng
        body = message(rng.randbytes(rng.randrange(50)), rng.choice((0, 0, 0, 1, 9)))
        return frames.data_frames(self._known(), body, is_end=rng.random() < 0.5)

    def reset(self) -> bytes:
        return frames.reset(self._known(), self._rng.randrange(14))

    def window(self) -> bytes:
        stream_id = self._rng.choice((0, self._known()))
        return frames.window_update(stream_id, self._rng.choice((1, 1000, 300_000)))

    def settings(self) -> bytes:
        return self._rng.choice(
            (
                frames.settings(id_4=self._rng.choice((0, 1, 1000, 65_535))),
                frames.settings(id_1=self._rng.choice((0, 4096)), id_5=16_384),
            )
        )

    def ping(self) -> bytes:
        return frames.frame(frames.PING, self._rng.choice((0, 1)), 0, self._rng.randbytes(8))

    def goaway(self) -> bytes:
        return frames.frame(frames.GOAWAY, 0, 0, bytes(8))

    def any_frame(self) -> bytes:
        rng = self._rng
        payload = rng.randbytes(rng.choice((0, 4, 5, 8, rng.randrange(60))))
        flags = rng.choice((0, 0, 1, 4, 5, 8, rng.randrange(256)))
        return frames.frame(rng.randrange(12), flags, rng.choice((0, self._known())), payload)

    def noise(self) -> bytes:
        return self._rng.randbytes(self._rng.randrange(30))


async def be_a_peer(port: int, rng: random.Random, end_s: float) -> None:
    """Connect again and again, each time with another soup."""
    while trio.current_time() < end_s:
        peer = await RawPeer.connect(port)
        soup = Kitchen(rng).cook()
        with suppress(trio.BrokenResourceError), trio.move_on_after(rng.choice((0.01, 0.5))):
            async with trio.open_nursery() as nursery:
                if rng.random() < 0.7:
                    nursery.start_soon(peer.until_end_or_broken)
                at = 0
                while at < len(soup):
                    step = rng.choice((1, 9, 1000, 100_000))
                    with suppress(trio.BrokenResourceError):
                        await peer.send(soup[at : at + step])
                    at += step
                await trio.sleep(rng.choice((0, 0.01)))
                nursery.cancel_scope.cancel()
        await (peer.break_off() if rng.random() < 0.5 else peer.close())


async def be_polite(channel: Channel, rng: random.Random, end_s: float) -> int:
    """Call as a client should; every call must succeed."""
    count = 0
    while trio.current_time() < end_s:
        body = rng.randbytes(rng.choice((0, 100, 50_000)))
        with trio.fail_after(CALL_SECONDS_MAX):
            assert await channel.unary("/soup.Soup/Echo", body) == body
        count += 1
        await trio.sleep(0.001)
    return count


async def answer_now_and_then(soup: Soup, server: Server) -> None:
    while True:
        await trio.sleep(0.003)
        soup.answer_some()
        server.flush()


async def check_quiet(server: Server, soup: Soup) -> None:
    """All peers have left but the polite one: nothing may be left of them."""
    with trio.fail_after(CALL_SECONDS_MAX):
        while (now := server.statistics()).connections > 1:  # noqa: ASYNC110  # no hook for this
            await trio.sleep(0.01)
    assert (now.streams_open, now.request_bytes) == (0, 0)
    soup.check()


class Bugs(logging.Handler):
    """Remembers what the server calls a bug of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.ERROR:
            self.texts.append(self.format(record))


async def run(seed: int, seconds: float) -> str:
    """Cook for so long; return what was done."""
    rng = random.Random(seed)
    logging.getLogger("sepp.rpc").addHandler(bugs := Bugs())
    soup = Soup(random.Random(rng.random()))
    server = Server(limits=LIMITS, message_bytes_max=100_000)
    server.add_service(soup.service)
    polite_count = 0
    async with trio.open_nursery() as nursery:
        await nursery.start(lambda task_status: server.serve_async(task_status=task_status))
        nursery.start_soon(answer_now_and_then, soup, server)
        async with open_channel("127.0.0.1", server.port) as channel:
            give_up_at = time.monotonic() + seconds
            while time.monotonic() < give_up_at:
                end_s = trio.current_time() + min(2.0, seconds)
                async with trio.open_nursery() as peers:
                    for _ in range(PEERS):
                        peers.start_soon(be_a_peer, server.port, random.Random(rng.random()), end_s)
                    polite_count += await be_polite(channel, rng, end_s)
                await check_quiet(server, soup)
        nursery.cancel_scope.cancel()
    assert not bugs.texts, "\n".join(bugs.texts)
    now = server.statistics()
    return (
        f"{now.accepted} connections, {now.calls} calls, {soup.checked_count} fates checked "
        f"({soup.gone_count} gone, {soup.undelivered_count} answers came back), "
        f"{polite_count} polite calls; closed by: {dict(sorted(now.closed.items()))}"
    )


if __name__ == "__main__":
    print(trio.run(run, *seed_and_seconds(__doc__)))
