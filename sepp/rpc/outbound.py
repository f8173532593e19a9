"""What leaves on one connection: answers in order, and which of them have begun to.

An answer goes queued -> (held, while the peer's window is shut) -> with the engine -> sent.
Response headers are not flow-controlled, so an answer is held back until its body can begin as
well: a peer that shuts its window has then seen nothing of the answer, and what it stood for can be
taken back.

Bytes from the engine are sent before more are asked for. So at any time only the answers of one
write may be partly sent, and where each begins in it is found by walking its frames.
"""

from contextlib import suppress
from typing import Final

from sepp.rpc import grpc, http2
from sepp.rpc.call import Call
from sepp.rpc.poller import Poller
from sepp.rpc.transport import Transport
from sepp.rpc.watch import Allowance

# Bodies the engine may hold while streams wait for their windows; the rest can be recalled.
_ENGINE_BYTES: Final = 1_048_576
# The engine is handed answers of about so many bytes at a time; the rest waits where it can be
# recalled.
_WRITE_BYTES: Final = 262_144
_FRAME_BYTES: Final = 16_384


class Outbound:
    """The answers of one connection.

    Attributes:
        calls: The connection's open calls by stream; one leaves it when its answer is with the
            engine.
        answers: Calls with something to send, oldest first.
        queued_bytes: Message bytes of `answers` and `held`.
        end_code: Set when the session has said its last; close once nothing is unsent.
    """

    __slots__ = (
        "_blocked",
        "_cut",
        "_is_clogged",
        "_pings",
        "_poller",
        "_session",
        "_stall_s",
        "_starts",
        "_transport",
        "_unsure",
        "answers",
        "calls",
        "end_code",
        "held",
        "queued_bytes",
        "stream_window",
    )

    def __init__(
        self,
        session: http2.Session,
        transport: Transport,
        calls: dict[int, Call],
        poller: Poller,
        pings: Allowance,
        stall_s: float,
    ) -> None:
        self._session = session
        self._transport = transport
        self._poller = poller
        self._pings = pings
        self._stall_s = stall_s
        self.calls = calls
        self.answers: list[Call] = []
        self.held: dict[int, Call] = {}
        self._blocked: dict[int, Call] = {}  # begun, the rest waits for the peer's window
        self._unsure: dict[int, Call] = {}  # in the write under way, with someone to tell
        self._starts: dict[int, int] = {}  # where in that write they begin, while it is partly sent
        self._cut: list[int] = []  # answered while their body is still arriving
        self._is_clogged = False  # answers are held because the engine holds enough
        self.queued_bytes = 0
        self.stream_window = http2.DEFAULT_WINDOW_BYTES  # what the peer gives a new stream
        self.end_code: int | None = None

    def flush(self) -> None:
        """Send what can be sent now.

        Raises:
            PeerGone: The connection broke.
        """
        transport, session = self._transport, self._session
        while not transport.unsent:
            if self.answers:
                self._submit()
            data = session.data_to_send()
            if self._cut:
                data += self._cut_bodies()
            events = session.events()
            if events:
                self._settle(events)
            if self._is_clogged and session.queued_body_size() <= _ENGINE_BYTES:
                self._is_clogged = False
                self.window_moved()
            if data:
                transport.send(data)
                if transport.unsent:
                    if self._unsure:
                        self._starts = http2.first_offsets(data, set(self._unsure))
                    return
                if self._unsure:
                    self._be_sure()
            if not self.answers:
                return

    def send_rest(self) -> None:
        """Go on where the socket stopped taking bytes.

        Raises:
            PeerGone: The connection broke.
        """
        self._transport.send_rest()
        if not self._transport.unsent:
            self._be_sure()
            self._starts.clear()
            self.flush()

    def _be_sure(self) -> None:
        """All of the write has left: nobody will be told otherwise."""
        for call in self._unsure.values():
            call.on_undelivered = None
        self._unsure.clear()

    def _submit(self) -> None:
        """Hand answers to the engine, as many as one write should hold and the windows admit."""
        session, calls = self._session, self.calls
        engine_bytes = session.queued_body_size()
        room = session.remote_window_size - engine_bytes
        stream_window = self.stream_window
        budget = _WRITE_BYTES
        send_response, response_headers = session.send_response, grpc.RESPONSE_HEADERS
        send_trailers, trailers = session.send_trailers, grpc.OK_TRAILERS
        send_data = session.send_data
        taken = 0
        for call in self.answers:
            if budget <= 0:
                break
            taken += 1
            stream_id = call.stream_id
            if call.is_streaming or not call.messages:
                self._submit_other(call)
                continue
            if stream_id not in calls:
                continue  # recalled while it was queued
            if (
                room <= 0
                or engine_bytes > _ENGINE_BYTES
                or (stream_window <= 0 and self._is_shut(stream_id))
            ):
                if call.leave_by is not None and call.leave_by <= self._poller.now:
                    # Its timer was cleared by a movement of the window that did not help.
                    self.give_up(call, http2.CANCEL)
                else:
                    self.held[stream_id] = call
                    self._is_clogged = engine_bytes > _ENGINE_BYTES
                    self._wait_for_peer(call)
                continue
            del calls[stream_id]
            message = call.messages[0]
            call.messages = ()
            self.queued_bytes -= len(message)
            body = grpc.frame(message)
            try:
                send_response(stream_id, response_headers)
                send_data(stream_id, body)
                send_trailers(stream_id, trailers)
            except http2.NGH2Error:
                call.undeliver()  # the stream ended by our own doing, or the session has
                continue
            room -= len(body)
            budget -= len(body)
            if len(body) > _FRAME_BYTES:
                self._pings.earn(len(body) // _FRAME_BYTES)  # peers ping along to measure
            if room < 0 or len(body) > stream_window:
                engine_bytes += len(body)
                self._blocked[stream_id] = call
                self._wait_for_peer(call)
            if call.on_undelivered is not None:
                self._unsure[stream_id] = call
        del self.answers[:taken]

    def _wait_for_peer(self, call: Call) -> None:
        """Give the peer its time to open the window, once however often it moves."""
        if call.leave_by is None:
            call.leave_by = self._poller.now + self._stall_s
        self._poller.timers.set(call, call.leave_by)

    def cut_body(self, stream_id: int) -> None:
        """Ask the peer to send no more of a body, once its answer has left."""
        self._cut.append(stream_id)

    def _cut_bodies(self) -> bytes:
        # Not before: a reset overtakes an answer that is still queued in the engine.
        for stream_id in self._cut:
            with suppress(http2.StreamUnavailableError):
                self._session.reset_stream(stream_id, http2.NO_ERROR)
        self._cut.clear()
        return self._session.data_to_send()

    def _is_shut(self, stream_id: int) -> bool:
        try:
            return self._session.stream_remote_window_size(stream_id) <= 0
        except http2.NGH2Error:
            return False  # gone; submitting finds out

    def _submit_other(self, call: Call) -> None:
        """Hand over a status without message, or what a streamed answer has so far."""
        session, stream_id = self._session, call.stream_id
        if stream_id not in self.calls:
            return
        messages, call.messages = call.messages, ()
        self.queued_bytes -= sum(map(len, messages))
        if call.trailers is not None:
            del self.calls[stream_id]
        try:
            if not call.is_streaming and call.trailers is not None:
                session.send_response(
                    stream_id, grpc.REFUSAL_HEADERS + call.trailers, end_stream=True
                )
                if call.is_reading:
                    self.cut_body(stream_id)
                return
            if not call.is_begun:
                call.is_begun = True
                session.send_response(stream_id, grpc.RESPONSE_HEADERS)
            for message in messages:
                session.send_data(stream_id, grpc.frame(message))
            if call.trailers is not None:
                session.send_trailers(stream_id, call.trailers)
        except http2.NGH2Error:
            self.calls.pop(stream_id, None)
            call.leave()

    def _settle(self, events: list[http2.Event]) -> None:
        if self._blocked:
            for event in events:
                if type(event) is http2.StreamClosed:
                    call = self._blocked.pop(event.stream_id, None)
                    if call is not None:
                        self._poller.timers.clear(call)
        if type(events[-1]) is http2.ConnectionClosed:
            self.end_code = events[-1].error_code

    @property
    def blocked_count(self) -> int:
        """Answers that have begun to leave and wait for the peer's window."""
        return len(self._blocked)

    def pending_bytes(self) -> int:
        """Return the bytes of answers that the socket has not taken yet."""
        return self.queued_bytes + self._session.queued_body_size() + self._transport.unsent

    def window_moved(self) -> bool:
        """A window of the peer may have opened: queue what was held; True if there was any."""
        if not self.held:
            return False
        for call in self.held.values():
            self._poller.timers.clear(call)
        self.answers[:0] = self.held.values()
        self.held.clear()
        return True

    def recall(self, call: Call) -> None:
        """Drop an answer that was given but is not with the engine; its stream is gone."""
        self.queued_bytes -= sum(map(len, call.messages))
        call.messages = ()
        self.held.pop(call.stream_id, None)
        call.undeliver()

    def stream_gone(self, stream_id: int) -> None:
        """The stream of an answer that was with the engine ended before its time."""
        call = self._blocked.pop(stream_id, None)
        if call is not None:
            self._poller.timers.clear(call)
        call = self._unsure.pop(stream_id, None)
        if call is not None:
            self._judge(call)

    def expire(self, call: Call) -> bool:
        """The peer did not take an answer in time: reset its stream; True if so."""
        if self._blocked.get(call.stream_id) is call:
            self.stream_gone(call.stream_id)
            self._session.reset_stream(call.stream_id, http2.CANCEL)
        elif self.held.get(call.stream_id) is call:
            self.give_up(call, http2.CANCEL)
        else:
            return False
        self.window_moved()  # it may have left room for others
        return True

    def give_up(self, call: Call, error_code: int) -> None:
        """Reset the stream of an answer that is not with the engine."""
        del self.calls[call.stream_id]
        self.recall(call)
        self._session.reset_stream(call.stream_id, error_code)

    def close(self) -> None:
        """The connection ends: tell of every answer of which no byte was sent."""
        unsure, self._unsure = self._unsure, {}
        for call in unsure.values():
            self._judge(call)
        for call in self._blocked.values():
            self._poller.timers.clear(call)
        self._blocked.clear()
        self.held.clear()
        self.answers.clear()

    def _judge(self, call: Call) -> None:
        """The answer will not get through: tell, unless some of it has begun to leave."""
        # Nothing unsent although still unsure: the write that held it failed as a whole.
        if (
            self._transport.unsent
            and self._starts.get(call.stream_id, 0) < self._transport.started()
        ):
            call.on_undelivered = None
        else:
            call.undeliver()
