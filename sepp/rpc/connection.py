"""The server's side of one connection: bytes to calls, answers to bytes, and the watch on the peer.

Requests are handled right where they are read, by plain functions. Nothing the peer does raises out
of here: it ends in an answer, a reset stream or a closed connection, and every call of it that was
not answered hears `on_gone` exactly once.
"""

import logging
from contextlib import suppress
from typing import Final

from sepp.rpc import grpc, http2
from sepp.rpc.call import Call
from sepp.rpc.front import Front
from sepp.rpc.inbound import Inbound
from sepp.rpc.outbound import Outbound
from sepp.rpc.poller import READ, WRITE
from sepp.rpc.timers import NEVER
from sepp.rpc.transport import RECEIVE_BYTES, PeerGone, Transport
from sepp.rpc.watch import Allowance, Watch

_log = logging.getLogger(__name__)

_KEEPALIVE_PING: Final = b"sepplive"
_GOAWAY_PING: Final = b"seppgoes"
_NOISE_MAX: Final = 4  # frames of one read that are charged for; with more the peer is noisy
_WARY_BYTES: Final = 2_048  # read at once of peers that made no call yet, or noise
_END_REASONS: Final = {http2.NO_ERROR: "left", http2.ENHANCE_YOUR_CALM: "flood"}


class Connection:
    """One accepted peer, an `Endpoint` of the poller.

    Attributes:
        peer: Its address, for the log.
        opened_at: When it was accepted, on the Trio clock.
    """

    __slots__ = (
        "_calls",
        "_front",
        "_inbound",
        "_is_leaving",
        "_limits",
        "_noise",
        "_outbound",
        "_poller",
        "_read_max",
        "_session",
        "_watch",
        "_watched",
        "is_closed",
        "is_touched",
        "opened_at",
        "peer",
        "transport",
    )

    def __init__(self, front: Front, transport: Transport, peer: str) -> None:
        self._front = front
        self._limits = limits = front.limits
        self._poller = poller = front.poller
        self.transport = transport
        self.peer = peer
        self.opened_at = poller.now
        self._session = http2.server_session(limits)
        self._watch = Watch(self, limits, poller)
        self._inbound = Inbound(self, front, self._watch.pings)
        self._calls = self._inbound.calls
        self._outbound = Outbound(
            self._session,
            transport,
            self._calls,
            poller,
            self._watch.pings,
            limits.write_stall_timeout_ms / 1e3,
        )
        self._watched = READ
        self._is_leaving = False
        self._noise = 0  # charged during this read
        self._read_max = _WARY_BYTES
        self.is_touched = False
        self.is_closed = False

    # Reading.

    def on_readable(self) -> None:
        """Read once, and handle every request that is complete by it."""
        try:
            data = self.transport.receive(self._read_max)
        except PeerGone as gone:
            self.close("peer", str(gone))
            return
        watch, session = self._watch, self._session
        if not data:
            if session.want_write:
                self._poller.touch(self)  # the TLS handshake may just have ended
            return
        watch.heard_at = self._poller.now
        try:
            session.receive_data(data)
        except http2.DenialOfServiceError as error:
            self.cut_off(str(error))
            return
        except http2.NGH2Error as error:
            self.close("protocol", str(error))
            return
        events = session.events()
        if events:
            watch.frame_by = NEVER
            self._handle(events)
        else:
            watch.frame_begun()
        if self._noise or self._read_max != RECEIVE_BYTES:
            self._heed_noise()
        if (
            not self.is_touched
            and not self.is_closed
            and (session.want_write or self._outbound.end_code is not None or self._inbound.is_full)
        ):
            self._poller.touch(self)

    def _heed_noise(self) -> None:
        """Read less at a time of a peer that makes noise or no call, after the others."""
        is_wary = self._noise > _NOISE_MAX or not self._inbound.last_stream_id
        self._read_max = _WARY_BYTES if is_wary else RECEIVE_BYTES
        if is_wary and not self.is_closed:
            self._poller.serve_last(self.transport.sock.fileno())
        self._noise = 0

    def _handle(self, events: list[http2.Event]) -> None:
        inbound, calls = self._inbound, self._calls
        has_moved = False  # a window of the peer
        for event in events:
            kind = type(event)
            if kind is http2.DataReceived:
                call = calls.get(event.stream_id)
                if call is not None and call.is_reading:
                    inbound.take_data(call, event.data, event.end_stream)
                elif not event.data:
                    self.charge(self._watch.pings)
            elif kind is http2.RequestReceived:
                inbound.begin_call(event.stream_id, event.headers, event.end_stream)
            elif kind is http2.WindowUpdated:
                has_moved = True
            else:
                self._handle_other(event, kind)
            if self.is_closed:
                return
        if inbound.opening:
            inbound.watch_opening()
        if has_moved and self._outbound.window_moved():
            self._poller.touch(self)

    def _handle_other(self, event: http2.Event, kind: type) -> None:
        if kind is http2.StreamClosed:
            self._stream_gone(event.stream_id)
        elif kind is http2.StreamReset:
            self.charge(self._watch.resets)
        elif kind is http2.PingReceived:
            self.charge(self._watch.pings)
        elif kind is http2.SettingsReceived:
            self.charge(self._watch.pings)
            self._watch.greeted()
            window = event.settings.get(http2.INITIAL_WINDOW_SIZE)
            if window is not None:
                self._outbound.stream_window = window
                if self._outbound.window_moved():
                    self._poller.touch(self)
        elif kind is http2.PingAcknowledged:
            self._ping_answered(event.opaque_data)
        elif kind is http2.TrailersReceived:
            call = self._calls.get(event.stream_id)
            if call is not None and call.is_reading:
                self._inbound.take_data(call, b"", True)
        elif kind is http2.ConnectionClosed:
            self._outbound.end_code = event.error_code

    # Answering.

    def answer(self, call: Call, size: int) -> None:
        """Queue what `call` has to send, `size` message bytes more; called by the call."""
        outbound = self._outbound
        outbound.answers.append(call)
        outbound.queued_bytes += size
        if not call.is_open:
            call.message = b""  # it may be in the hands of a timer for a moment longer
            if call.timer_tick:
                self._poller.timers.clear(call)
            if call.held_bytes:
                self._inbound.release_bytes(call)
        if not self.is_touched:
            self._poller.touch(self)

    def refuse(self, call: Call, headers: grpc.Headers) -> None:
        """Answer at once with headers alone, for what is no gRPC."""
        self._session.send_response(call.stream_id, headers, end_stream=True)
        if call.is_reading:
            self._outbound.cut_body(call.stream_id)

    def flush(self) -> None:
        """Send what is queued."""
        if self.is_closed or not self.transport.is_ready:
            return
        try:
            self._outbound.flush()
        except PeerGone as gone:
            self.close("peer", str(gone))
            return
        except http2.NGH2Error as error:
            self.close("protocol", str(error))
            return
        self._after_send()

    def on_writable(self) -> None:
        """Go on with a write that was cut short."""
        if self.is_closed:
            return
        try:
            if self.transport.unsent:
                self._watch.socket_took()
                self._outbound.send_rest()
        except PeerGone as gone:
            self.close("peer", str(gone))
            return
        except http2.NGH2Error as error:
            self.close("protocol", str(error))
            return
        self._after_send()

    def _after_send(self) -> None:
        """See to what a write left: watch the socket, keep the bounds, end if all is said."""
        outbound, unsent = self._outbound, self.transport.unsent
        wanted = self._watched | WRITE if unsent else self._watched & ~WRITE
        is_full = self._inbound.is_full
        if unsent or outbound.queued_bytes or is_full or not wanted & READ:
            pending = outbound.pending_bytes()
            if pending > self._limits.max_outbound_bytes:
                self._shed(pending)
            # Only a full socket is waited for. While the peer's window is shut it must be read on,
            # or the opening would never be seen; what piles up meanwhile is bounded by shedding.
            is_full = is_full or (unsent > 0 and pending > self._limits.outbound_buffer_bytes)
            wanted = wanted & ~READ if is_full else wanted | READ
        if wanted != self._watched:
            self._set_watched(wanted)
        if outbound.end_code is not None and not unsent:
            reason = _END_REASONS.get(outbound.end_code, "protocol")
            self.close(reason, f"the HTTP/2 session ended with code {outbound.end_code}")
        elif self._front.on_quiet is not None and self.is_quiet:
            self._front.on_quiet()

    def _set_watched(self, wanted: int) -> None:
        watch, was = self._watch, self._watched
        self._watched = wanted
        self._poller.watch(self.transport.sock.fileno(), wanted)
        if not wanted & WRITE:
            watch.stall_by = NEVER
        elif not was & WRITE:
            watch.socket_took()
        if not wanted & READ:
            watch.turn_deaf()
        elif not was & READ:
            watch.hear_again()

    def _shed(self, pending: int) -> None:
        """Reset the newest answers until what the peer does not take is within bounds again."""
        outbound = self._outbound
        for call in (*reversed(outbound.answers), *reversed(outbound.held.values())):
            if pending <= self._limits.max_outbound_bytes:
                break
            if call.stream_id in self._calls:
                pending -= sum(map(len, call.messages))
                outbound.give_up(call, http2.ENHANCE_YOUR_CALM)
                call.leave()
                self._poller.touch(self)

    # The ends of things.

    def _stream_gone(self, stream_id: int) -> None:
        """A stream closed: by its end, or by a reset from either side."""
        call = self._calls.pop(stream_id, None)
        if call is None:
            self._outbound.stream_gone(stream_id)
            if self._outbound.window_moved():  # it may have left room for others
                self._poller.touch(self)
            return
        self._poller.timers.clear(call)
        if call.held_bytes:
            self._inbound.release_bytes(call)
        self._outbound.recall(call)
        call.leave()

    def charge(self, allowance: Allowance) -> None:
        """Use one of what a rate limit allows; without any left the peer is cut off."""
        self._noise += 1
        if not allowance.take(self._poller.now):
            self.cut_off("too many frames without content, or too many resets")

    def _ping_answered(self, opaque_data: bytes) -> None:
        self._watch.ping_answered()
        if opaque_data == _GOAWAY_PING and self._is_leaving:
            # The peer has seen the notice and begins no more calls: now say which were seen.
            self._session.send_goaway(http2.NO_ERROR)

    def on_call_time(self, call: Call, now_s: float) -> None:
        """A time of `call` may be due: its deadline, its body's, or its answer's."""
        if self.is_closed:
            return
        if not call.is_open:
            if self._outbound.expire(call):
                self._poller.touch(self)
            return
        if call.deadline is not None and now_s >= call.deadline:
            call.expire()
        elif call.is_reading:
            self._inbound.look_at_body(call)
        elif call.deadline is not None:
            self._poller.timers.set(call, call.deadline)

    def send_ping(self) -> None:
        """Ask the peer for a sign of life."""
        self._session.ping(_KEEPALIVE_PING)
        self._poller.touch(self)

    def listen(self) -> None:
        """Do without answers to make room: read on, refusing what does not fit."""
        self._inbound.lose_patience()
        self._poller.touch(self)

    def go_away(self) -> None:
        """Tell the peer to begin no more calls here; those it has begun are answered."""
        if not self._is_leaving and not self.is_closed:
            self._is_leaving = True
            self._session.send_shutdown_notice()
            self._session.ping(_GOAWAY_PING)
            self._poller.touch(self)

    def end(self) -> None:
        """The server stops: say so if the socket takes it, and close."""
        if self.transport.is_ready and not self.transport.unsent:
            with suppress(http2.NGH2Error, PeerGone):
                self._session.terminate_connection(http2.NO_ERROR)
                self.transport.send(self._session.data_to_send())
        self.close("shutdown", "the server stops")

    @property
    def is_quiet(self) -> bool:
        """Whether no call is open and no byte unsent."""
        return not self._calls and not self._outbound.pending_bytes()

    @property
    def stream_count(self) -> int:
        """Calls whose answer has not left yet."""
        return len(self._calls) + self._outbound.blocked_count

    def cut_off(self, why: str) -> None:
        """End the connection of a peer that makes too much noise, with ENHANCE_YOUR_CALM."""
        if not self.is_closed and not self.transport.unsent and self.transport.is_ready:
            last = self._inbound.last_stream_id
            with suppress(PeerGone):
                self.transport.send(http2.goaway_frame(last, http2.ENHANCE_YOUR_CALM))
        self.close("flood", why)

    def abort(self) -> None:
        """A method of this connection raised: end it."""
        self.close("bug", "see the traceback before")

    def close(self, reason: str, text: str) -> None:
        """End the connection at once; every open call of it is gone.

        Args:
            reason: One of few words, for the counts.
            text: What happened, for the log.
        """
        if self.is_closed:
            return
        self.is_closed = True
        front, poller = self._front, self._poller
        descriptor = self.transport.sock.fileno()
        poller.unregister(descriptor)
        front.connections.pop(descriptor, None)
        front.closed[reason] = front.closed.get(reason, 0) + 1
        front.bytes_in += self.transport.received
        front.bytes_out += self.transport.sent
        calls = list(self._calls.values())
        self._calls.clear()
        poller.timers.clear(self._watch)
        self._outbound.close()
        self.transport.close()
        _log.debug("connection of %s closed: %s: %s", self.peer, reason, text)
        for call in calls:
            poller.timers.clear(call)
            if call.held_bytes:
                self._inbound.release_bytes(call)
            if call.is_open:
                call.leave()
            else:
                call.undeliver()
        if front.on_quiet is not None:
            front.on_quiet()
