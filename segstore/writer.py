"""The end of the log: laying frames out, handing them to the disk in order, new segments.

`reserve` and `fill` make a frame in memory at its final place, so places and homes are known before
a byte is written. `write` puts frames on the disk, oldest first. Nothing here starts a thread.

Rules:
- Frames reach the disk in the order they were made: no hole, whoever wants which of them written.
- The last frame of a segment carries SEAL, where there is room for it, and is synced before the
  next segment gets its first.
- The first failure is final (`failure`): nothing may be written behind a write that failed.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from segstore.batch import (
    BATCH_HEADER_BYTES,
    FRAME_BYTES_MAX,
    FRAME_HEADER_BYTES,
    BatchHeader,
    FrameHeader,
    encode_batch,
    encode_private,
    encode_u32,
)
from segstore.built import BuiltFrame
from segstore.errors import StoreFailed
from segstore.events import log
from segstore.layout import SEGMENT_HEADER_BYTES, HeadLayout, SegmentHeader, aligned
from segstore.local import SEAL_BYTES, Local, Seal, SegmentEnd, SegmentList, encode_local
from segstore.options import Counters, Options, seal_bytes
from segstore.scan import LogPoint, LogState
from segstore.segment import Segment, Spare, check_place, make_file, plan_spare, sync, write_all
from segstore.vfs import VFS, File


@dataclass(slots=True)
class Place:
    """Where the frame under construction will lie; given by `reserve`, used by `fill`."""

    segment: int
    bodies_offset: int
    record_count: int
    body_bytes: int
    moved_bytes: int
    local_count: int
    local_bytes: bytes


class LogWriter:
    """See the module.

    Args:
        vfs: The disk.
        directory, lock: Path of the store, and its locked file.
        store_uuid: 16 bytes.
        layout: Of the heads.
        options: Of the store.
        state: Where the log stands.
        segments: Live ones by id; new ones are added.
        next_segment: An id never used before.
        clock_ms: Wall clock, for the headers of new segments only.
        entropy: Source of salts.
    """

    def __init__(
        self,
        vfs: VFS,
        directory: str,
        store_uuid: bytes,
        layout: HeadLayout,
        options: Options,
        state: LogState,
        segments: dict[int, Segment],
        next_segment: int,
        *,
        lock: File,
        clock_ms: Callable[[], int],
        entropy: Callable[[int], bytes],
        counters: Counters,
    ) -> None:
        self.vfs = vfs
        self.directory = directory
        self.options = options
        self.segments = segments
        self.active: Segment | None = None
        self.spare: Spare | None = None  # planned; ready when it has a file
        self.victim = 0
        self.epoch = state.epoch
        self.failure: StoreFailed | None = None
        self.pending_locals: list[Local] = []
        self.unwritten: deque[BuiltFrame] = deque()
        self.is_last_idle = True  # whether the newest frame only carries synced_off
        self._store_uuid = store_uuid
        self._layout = layout
        self._state = state
        self._next_segment = next_segment
        self.lock = lock
        self._clock_ms = clock_ms
        self._entropy = entropy
        self._counters = counters

    # Making frames, on the thread of the caller.

    def plan_spare(self) -> Spare:
        """Settle the header of the next segment; its file is still to be made."""
        assert self.spare is None
        header = SegmentHeader(
            self._store_uuid,
            self._next_segment,
            max(self.segments, default=0),
            self._clock_ms(),
            int.from_bytes(self._entropy(4), "little"),
            self._layout.record_bytes,
            self._layout.text,
        )
        self._next_segment += 1
        self.spare = plan_spare(self.directory, header)
        return self.spare

    def reserve(
        self,
        record_count: int,
        body_bytes: int,
        *,
        moves: Sequence[bytes] = (),
        moved_bytes: int = 0,
    ) -> Place:
        """Say where a frame with so many records and bytes of bodies will lie.

        Args:
            moves: Encoded MOVE records.
            moved_bytes: Of their bodies.
        """
        active = self.active
        local: list[Local] = []
        if active is None or active.is_sealed:
            local.append(self._segment_list())
            active = self._roll()
        if self.pending_locals:
            local.extend(self.pending_locals)
            self.pending_locals.clear()
        records = record_count * self._layout.record_bytes
        canonical = BATCH_HEADER_BYTES + aligned(records) if record_count else 0
        private = FRAME_HEADER_BYTES + 8 * record_count
        encoded = b"".join((*map(encode_local, local), *moves)) if local or moves else b""
        local_count = len(local) + len(moves)
        frame_bytes = private + len(encoded) + canonical + body_bytes + moved_bytes
        if active.end + frame_bytes + SEAL_BYTES > active.seal_at:
            frame_bytes += SEAL_BYTES
            if self._is_better_next(active, frame_bytes):
                self._seal_alone(active, local)
                return self.reserve(record_count, body_bytes, moves=moves, moved_bytes=moved_bytes)
            seal = Seal(active.end + frame_bytes, self._state.last_lsn + record_count)
            encoded += encode_local(seal)
            local_count += 1
            active.is_sealed = True
        if frame_bytes > FRAME_BYTES_MAX:
            raise ValueError(f"a batch of {frame_bytes} bytes does not fit a frame")
        offset = active.end + private + len(encoded) + canonical
        return Place(active.id, offset, record_count, body_bytes, moved_bytes, local_count, encoded)

    def _is_better_next(self, active: Segment, frame_bytes: int) -> bool:
        """Whether a frame that seals would need new space on the disk here and not in the spare."""
        spare = self.spare
        if spare is None or spare.file is None or active.end == SEGMENT_HEADER_BYTES:
            return False
        is_kept_here = active.allocated or not active.seal_at
        is_kept_there = SEGMENT_HEADER_BYTES + frame_bytes <= spare.allocated
        return bool(is_kept_here and is_kept_there and active.end + frame_bytes > active.allocated)

    def _seal_alone(self, active: Segment, local: list[Local]) -> None:
        """End a segment, with a frame of its own if that fits; `local` waits for the next one."""
        frame_bytes = FRAME_HEADER_BYTES + SEAL_BYTES
        active.is_sealed = True
        if active.end + frame_bytes <= active.allocated:
            seal = encode_local(Seal(active.end + frame_bytes, self._state.last_lsn))
            self.fill(Place(active.id, active.end + frame_bytes, 0, 0, 0, 1, seal))
        self.pending_locals[:0] = local

    def fill(
        self,
        place: Place,
        *,
        records: bytes = b"",
        bodies: Sequence[bytes] = (),
        hints: Sequence[int] = (),
        homes: Sequence[int] = (),
        clock_ms: int = 0,
        flags: int = 0,
    ) -> BuiltFrame:
        """Make the frame that `place` was reserved for; it waits to be written.

        Args:
            records: Packed canonical records.
            bodies: Of the PUTs, then of the moved ones, in order, each followed by its padding.
            hints, homes: One for each record.
            clock_ms: Wall clock of the batch; the log clock does not go back for it.
            flags: Of the frame.
        """
        active = self.active
        assert active is not None
        assert active.id == place.segment
        state = self._state
        canonical, crc = self._canonical(place, records, clock_ms)
        private = encode_u32(hints) + encode_u32(homes) + place.local_bytes
        header = FrameHeader(
            FRAME_HEADER_BYTES
            + len(private)
            + len(canonical)
            + place.body_bytes
            + place.moved_bytes,
            place.record_count,
            place.local_count,
            len(place.local_bytes),
            len(canonical),
            place.body_bytes,
            place.moved_bytes,
            active.end,
            active.id,
            active.synced,
            state.local_next,
            active.last_crc,
            crc,
            flags,
        )
        head, frame_crc = encode_private(header, private, active.salt)
        data = b"".join((head, canonical, *bodies))
        assert len(data) == header.frame_bytes
        frame = BuiltFrame(
            active,
            active.end,
            active.end + len(data),
            data,
            place.record_count,
            state.last_lsn,
            state.log_clock_ms,
            self.epoch,
        )
        state.local_next += place.local_count
        active.end += len(data)
        active.last_crc = frame_crc
        self.is_last_idle = not (place.record_count or place.local_count)
        self.unwritten.append(frame)
        return frame

    def _canonical(self, place: Place, records: bytes, clock_ms: int) -> tuple[bytes, int]:
        """Return the canonical batch without its bodies, and its CRC; the log stands behind it."""
        if not place.record_count:
            return b"", 0
        state = self._state
        state.log_clock_ms = max(state.log_clock_ms, clock_ms)
        header = BatchHeader(
            self._layout.record_bytes,
            self._store_uuid,
            self.epoch,
            state.last_lsn + 1,
            place.record_count,
            place.body_bytes,
            state.log_clock_ms,
            state.canonical_crc,
            0,
        )
        canonical, state.canonical_crc = encode_batch(header, records)
        state.last_lsn += place.record_count
        state.epoch = self.epoch
        return canonical, state.canonical_crc

    def local_frame(self, *local: Local) -> BuiltFrame:
        """Make a frame of local records only, or an empty one that carries synced_off."""
        self.pending_locals.extend(local)
        return self.fill(self.reserve(0, 0))

    @property
    def last_lsn(self) -> int:
        """LSN of the last record that was made."""
        return self._state.last_lsn

    def point(self) -> LogPoint:
        """Return the place behind the last frame that was made."""
        active = self.active
        assert active is not None
        return LogPoint(active.id, active.end, active.last_crc, replace(self._state))

    def _segment_list(self) -> SegmentList:
        state = self._state
        return SegmentList(
            self.victim,
            state.last_lsn,
            state.epoch,
            state.log_clock_ms,
            state.canonical_crc,
            tuple(
                SegmentEnd(segment.id, segment.end, segment.last_crc)
                for segment in self.segments.values()
                if not segment.is_leaving
            ),
        )

    def _roll(self) -> Segment:
        """Begin the next segment: the spare, made or only planned."""
        spare = self.spare or self.plan_spare()
        self.spare = None
        segment = spare.to_segment()
        segment.seal_at = seal_bytes(spare.allocated or self.options.segment_bytes)
        self.segments[segment.id] = segment
        self.active = segment
        self._counters.rolls += 1
        return segment

    # Writing frames.

    def write(self, frames: Sequence[BuiltFrame]) -> None:
        """Hand the oldest unwritten frames, of one segment, to the operating system.

        The first frames of a segment make sure that the one before is durable, and of the file; all
        others only fill pages that wait for a sync.

        Raises:
            OSError: the caller makes it a failure of the store.
        """
        segment, start = frames[0].segment, frames[0].offset
        data = frames[0].data if len(frames) == 1 else b"".join(frame.data for frame in frames)
        assert segment.written == start
        if start == SEGMENT_HEADER_BYTES:
            self._sync_before(segment)
        write_all(segment.writing_file() or self._make(segment), data, start)
        segment.written = frames[-1].end

    def _sync_before(self, segment: Segment) -> None:
        """Sync the segment before this one, if its end is not durable yet."""
        before = max((each for each in self.segments if each < segment.id), default=0)
        if before and self.segments[before].synced < self.segments[before].written:
            self.sync(self.segments[before])

    def _make(self, segment: Segment) -> File:
        """Make the file of a segment for which no spare was ready, without filling it."""
        assert segment.spare is not None
        encoded = segment.spare.encoded
        check_place(self.lock)
        segment.file = make_file(
            self.vfs, self.directory, segment.path, encoded, prealloc="none", segment_bytes=0
        )
        return segment.file

    def sync(self, segment: Segment) -> None:
        """Make all that was written to a segment durable.

        Raises:
            OSError: the caller makes it a failure of the store.
        """
        target = segment.written
        assert segment.file is not None
        sync(segment.file, is_data_only=self.is_data_only)
        self.note_synced(segment, target)

    @property
    def is_data_only(self) -> bool:
        """Whether syncs leave out the times of a file."""
        return self.options.persist != "sync_all"

    def note_synced(self, segment: Segment, target: int) -> None:
        """A sync that began when so much was written has ended."""
        segment.synced = max(segment.synced, target)
        self._counters.syncs += 1

    def fail(self, problem: OSError, consequence: str) -> StoreFailed:
        """Note the first failure and return it; nothing is written any more."""
        if self.failure is None:
            text = f"{problem.filename or self.directory}: {problem.strerror or problem}"
            self.failure = StoreFailed(f"{text}; {consequence}")
            log.critical("storage failed; stopping", reason=self.failure)
        return self.failure
